//! The table queue in SQLite: one connection, and everything that is SQLite's own behind it. The
//! source task above knows none of this; a second database would be a room beside this one.

mod claim;
mod clock;
mod desk;
mod error;
mod fine_timer;
mod inotify;
mod lock;
mod owners;
mod passed_over;
mod row;
mod schema;
mod settle;
mod standstill;
mod take_back;
#[cfg(test)]
pub(super) mod tests_support;
mod wake;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use crate::source::Limits;

use super::model::{Fault, Outlook, Woken, Work, Written};
use claim::Claimer;
pub(super) use clock::WallClock;
pub(in crate::source) use desk::Desk;
pub use error::SqliteError;
pub(in crate::source) use owners::Owners;
use passed_over::{PassedOver, Refused};

/// A connection that claims and settles the rows of one queue.
#[derive(Debug)]
pub(super) struct Store {
    conn: Connection,
    path: PathBuf,
    pool: String,
    queue: Arc<str>,
    clock: WallClock,
    member: owners::Member,
    wake: Option<wake::Wake>,
    passed_over: PassedOver,
}

impl Store {
    /// Opens the database file and enters this daemon among its owners.
    pub(super) fn open(
        path: &Path,
        pool: &str,
        queue: &Arc<str>,
        lease: Duration,
        owners: &Owners,
        clock: WallClock,
    ) -> Result<Self, SqliteError> {
        let conn = schema::open(path)?;
        let path = canonical(path)?;
        let member =
            owners
                .join(&path, &conn, lease, &clock)
                .map_err(|fault| SqliteError::Owners {
                    path: path.clone(),
                    problem: fault.problem,
                })?;
        Ok(Self {
            conn,
            path,
            pool: pool.to_owned(),
            queue: Arc::clone(queue),
            clock,
            member,
            wake: None,
            passed_over: PassedOver::default(),
        })
    }

    /// Begins to listen for other processes. Must be called within a runtime.
    pub(super) fn listen(&mut self) {
        let owners = self.member.directory();
        self.wake = Some(wake::Wake::listen(&self.path, owners, &self.conn));
    }

    /// Resolves when an owner may have ended, or, if there is use for `news`, when another connection
    /// has committed. Loses nothing when it is dropped.
    pub(super) async fn woken(&mut self, news: bool) -> Woken {
        match &mut self.wake {
            Some(wake) => wake.woken(&self.conn, news).await,
            None => std::future::pending().await,
        }
    }

    /// The last news were of a row for us.
    pub(super) fn was_fruitful(&mut self) {
        if let Some(wake) = &mut self.wake {
            wake.was_fruitful();
        }
    }

    /// Looks whether the queue has anything to claim, taking no lock.
    pub(super) fn peek(&self, limits: Limits) -> Result<Outlook, Fault> {
        Ok(claim::peek(&self.conn, &self.queue, limits, &self.clock)?)
    }

    /// Does all of the work in one transaction, or none of it. A row that can't be claimed is passed
    /// over.
    pub(super) fn write(&mut self, work: &Work<'_>) -> Result<Written, Fault> {
        self.passed_over.expire();
        let mut absences = 0;
        while absences < 2 {
            match self.try_write(work) {
                Ok(Some(written)) => return Ok(written),
                Ok(None) => {
                    absences += 1;
                    self.member.sit_down_again(&self.conn, &self.clock)?;
                }
                Err(refused) => self.passed_over.pass_over(&refused, "claimed or buried")?,
            }
        }
        Err(Fault {
            problem: "others take this daemon for dead again and again".to_owned(),
            for_good: false,
        })
    }

    /// None if nothing was written because we are not among the owners any more.
    fn try_write(&mut self, work: &Work<'_>) -> Result<Option<Written>, Refused> {
        let (_turn, tx) = self.member.begin(&mut self.conn)?;
        for publish in work.publishes {
            settle::publish(&tx, &publish.message, &self.clock)?;
        }
        let mut written = Written::default();
        for settled in work.settled {
            if !settle::settle(&tx, &self.pool, settled, &self.clock)? {
                written.lost.push(settled.claim);
            }
        }
        if work.probe && !self.member.pulse(&tx)? {
            return Ok(None);
        }
        if let Some(ask) = &work.ask {
            if !self.member.is_seated(&tx)? {
                return Ok(None);
            }
            let claimer = Claimer {
                owner: self.member.id(),
                pool: &self.pool,
                queue: &self.queue,
                clock: &self.clock,
                passed_over: &self.passed_over,
            };
            written = Written {
                lost: written.lost,
                ..claim::claim(&tx, claimer, ask)?
            };
        }
        tx.commit()?;
        Ok(Some(written))
    }

    /// How long from one heartbeat to the next.
    pub(super) fn beat_interval(&self) -> Duration {
        self.member.beat_interval()
    }

    /// Beats for the daemon, and takes back what owners had claimed whose hearts stand still.
    /// Returns whether there were any.
    pub(super) fn beat(&mut self) -> Result<bool, Fault> {
        self.member.beat(&mut self.conn, &self.clock)
    }

    /// Takes back what owners had claimed whose processes are gone. Returns whether there were any.
    pub(super) fn take_back_from_the_dead(&mut self) -> Result<bool, Fault> {
        self.member.take_back_from_the_dead(&mut self.conn)
    }

    /// Removes what processes left behind that died while they started.
    pub(super) fn sweep(&self) -> Result<(), Fault> {
        self.member.sweep(&self.conn)
    }

    /// Makes the disk full for this connection: the file may not grow any more.
    #[cfg(test)]
    pub(super) fn allow_no_more_pages(&self) {
        self.conn
            .pragma_update_and_check(None, "max_page_count", 1, |_| Ok(()))
            .unwrap();
    }

    /// Leaves the owners and closes the connection.
    pub(super) fn close(mut self) {
        if let Err(fault) = self.member.leave(&mut self.conn) {
            let problem = fault.problem;
            tracing::warn!(
                problem,
                "could not leave the owners; the free lock tells the others"
            );
        }
        if let Err((_, error)) = self.conn.close() {
            tracing::warn!(%error, "the database did not close cleanly");
        }
    }
}

/// One name for one file, whatever way leads to it.
fn canonical(path: &Path) -> Result<PathBuf, SqliteError> {
    path.canonicalize().map_err(|error| SqliteError::Path {
        path: path.to_owned(),
        error,
    })
}

/// A connection for tests to look and to meddle with.
#[cfg(test)]
pub(super) fn open_for_tests(path: &Path) -> Connection {
    let conn = schema::open(path).unwrap();
    conn.busy_timeout(Duration::from_secs(10)).unwrap();
    conn
}
