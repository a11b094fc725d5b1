//! The table queue in SQLite: a connection, and everything specific to SQLite. The source task does not
//! know it; PostgreSQL and MySQL have modules of their own beside this one.

pub(crate) mod change_watch;
pub(crate) mod claim;
pub(crate) mod clock;
mod columns;
mod commands;
pub(crate) mod database;
pub(crate) mod error;
pub(crate) mod finished;
mod heartbeats;
mod identity;
mod inotify;
pub(crate) mod journal;
pub(crate) mod leases;
pub(crate) mod ledger;
mod lock;
mod occurrences;
mod owners;
mod permissions;
mod rejected;
pub(crate) mod row;
pub(crate) mod schema;
pub(crate) mod settle;
mod take_back;
#[cfg(test)]
pub(crate) mod tests_support;
mod timerfd;
pub(crate) mod topics;
pub(crate) mod unique;
mod waiting;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;

use ganger_queue::attempts::Limits;
use ganger_queue::delivery::DatabaseFigures;

use super::table::finished::Scope;
use super::table::{Fault, PeekResult, WaitingRows, WakeReason, Work, WriteResult};
use crate::rejected_rows::RejectedRows;
use crate::store::{self, TableStore};
use claim::Claimer;
pub(crate) use clock::WallClock;
pub(crate) use error::SqliteError;
use identity::{FileIdentity, FileState, WAL, beside};
use leases::{FileTurn, Owners};
use rejected::{RowError, exclude_rejected};
pub(crate) use schema::canonical;

/// A connection that claims and settles the rows of one queue.
#[derive(Debug)]
pub(crate) struct Store {
    conn: Connection,
    path: PathBuf,
    /// Mode of the file if it is created.
    mode: u32,
    identity: FileIdentity,
    pool: String,
    scope: Scope,
    clock: WallClock,
    member: leases::Member,
    change_watch: Option<change_watch::ChangeWatch>,
    rejected: RejectedRows,
    /// True if a write failed for lack of space, until the journal can be emptied.
    lacks_space: bool,
}

impl Store {
    /// Opens the database file, and enters this daemon among its owners.
    pub(crate) fn open(
        (path, mode): (&Path, u32),
        pool: &str,
        scope: Scope,
        lease: Duration,
        owners: &Owners,
        clock: WallClock,
    ) -> Result<Self, SqliteError> {
        let mut conn = schema::open(path, mode)?;
        let path = canonical(path)?;
        let failed = |error| SqliteError::Open {
            path: path.clone(),
            error,
        };
        // A start waits where another daemon has much to write.
        schema::extend_busy_timeout(&mut conn).map_err(failed)?;
        let identity = FileIdentity::of(&path);
        let file = (path.clone(), identity.database());
        let member =
            owners
                .join(file, &conn, lease, &clock)
                .map_err(|fault| SqliteError::Owners {
                    path: path.clone(),
                    problem: fault.problem,
                })?;
        schema::restore_busy_timeout(&mut conn).map_err(failed)?;
        Ok(Self {
            conn,
            path,
            mode,
            identity,
            pool: pool.to_owned(),
            scope,
            clock,
            member,
            change_watch: None,
            rejected: RejectedRows::default(),
            lacks_space: false,
        })
    }

    /// Begins to listen for other processes. Must be called within a runtime.
    fn listen(&mut self) {
        let owners = self.member.directory();
        self.change_watch = Some(change_watch::ChangeWatch::listen(
            &self.path, owners, &self.conn,
        ));
    }

    /// Does all of the work in one transaction, or none of it. A row that the database refuses to have
    /// claimed is passed over.
    fn write_in_turn(
        &mut self,
        turn: &FileTurn<'_>,
        work: &Work<'_>,
    ) -> Result<WriteResult, Fault> {
        // Rows are settled in the file in which they were claimed, wherever it is now.
        if work.ask.is_some() || work.probe || !self.may_write() {
            self.is_in_place()?;
        }
        self.rejected.expire();
        // Free space goes to that first: otherwise the journal would take it.
        self.lacks_space = self.lacks_space && !journal::empty(&self.conn);
        let mut absences = 0;
        while absences < 2 {
            match self.try_write(turn, work) {
                Ok(Some(written)) => return Ok(written),
                Ok(None) => {
                    absences += 1;
                    self.member.enter_again(turn, &self.conn, &self.clock)?;
                }
                Err(refused) if refused.is_out_of_space() && !self.lacks_space => {
                    // The next try shows whether that helps.
                    self.lacks_space = true;
                    journal::empty(&self.conn);
                }
                Err(refused) => {
                    exclude_rejected(&mut self.rejected, &refused, "claimed or dead-lettered")?
                }
            }
        }
        Err(Fault::transient(
            "other daemons repeatedly take this one for dead",
        ))
    }

    /// Tries it once. None if nothing was written because this daemon is no longer among the owners.
    fn try_write(
        &mut self,
        turn: &FileTurn<'_>,
        work: &Work<'_>,
    ) -> Result<Option<WriteResult>, RowError> {
        let tx = leases::begin(turn, &mut self.conn)?;
        for publish in work.publishes {
            settle::publish(&tx, &publish.message, &self.clock)?;
        }
        let mut written = WriteResult::default();
        for settled in work.settled {
            let entry = settled.entry();
            let first = entry.map(|entry| finished::enter(&tx, &self.scope, entry, &self.clock));
            let first = first.transpose()?.flatten();
            if first.is_some() {
                written.repeated.push(settled.claim);
            }
            let settled = settled.after(first);
            let is_ours = settle::settle(&tx, &self.pool, &settled, &self.clock)?;
            if !is_ours && settled.outcome.is_of_work() {
                written.lost.push(settled.claim);
            }
        }
        for (claim, run) in work.begun {
            occurrences::begun(&tx, *claim, run, &self.clock)?;
        }
        if work.probe && !self.member.write_heartbeat(&tx)? {
            return Ok(None);
        }
        if let Some(ask) = &work.ask {
            if !self.member.is_entered(&tx)? {
                return Ok(None);
            }
            let claimer = Claimer {
                owner: self.member.id(),
                pool: &self.pool,
                queue: &self.scope.queue,
                clock: &self.clock,
                rejected: &self.rejected,
            };
            written = WriteResult {
                lost: written.lost,
                repeated: written.repeated,
                ..claim::claim(&tx, claimer, ask)?
            };
        }
        tx.commit()?;
        Ok(Some(written))
    }

    /// Returns an error if the open file is not the one that others see.
    fn is_in_place(&self) -> Result<(), Fault> {
        match self.identity.state() {
            FileState::InPlace => Ok(()),
            state => Err(state.fault()),
        }
    }

    /// Returns whether writes can't damage another file.
    fn may_write(&self) -> bool {
        self.identity.state() != FileState::Torn
    }

    /// Leaves the table of owners and closes the connection.
    fn leave(mut self) {
        if !self.may_write() {
            let problem = FileState::Torn.fault().problem;
            tracing::error!(
                pool = self.pool,
                problem,
                "could not remove this daemon from the owners"
            );
        } else if let Err(fault) = self.member.leave(&mut self.conn) {
            let problem = fault.problem;
            tracing::warn!(
                problem,
                "could not remove this daemon from the owners; others detect that by its free lock"
            );
        }
        if let Err((_, error)) = self.conn.close() {
            tracing::warn!(%error, "the database did not close cleanly");
        }
    }
}

#[async_trait(?Send)]
impl TableStore for Store {
    fn listen(&mut self) {
        self.listen();
    }

    async fn woken(&mut self, wants_data: bool) -> WakeReason {
        match &mut self.change_watch {
            Some(watch) => watch.woken(&self.conn, wants_data).await,
            None => std::future::pending().await,
        }
    }

    fn found_rows(&mut self) {
        if let Some(watch) = &mut self.change_watch {
            watch.found_rows();
        }
    }

    async fn peek(&mut self, limits: Limits) -> Result<PeekResult, Fault> {
        self.rejected.expire();
        let (queue, rejected) = (&self.scope.queue, &self.rejected);
        Ok(claim::peek(
            &self.conn,
            queue,
            limits,
            &self.clock,
            rejected,
        )?)
    }

    async fn waiting(&mut self, queue: &str, most: u32) -> Result<WaitingRows, Fault> {
        Ok(waiting::waiting(&self.conn, queue, most, &self.clock)?)
    }

    async fn queues(&mut self, most: u32) -> Result<BTreeSet<String>, Fault> {
        Ok(waiting::queues(&self.conn, most)?)
    }

    async fn count_delayed(&mut self, most: u32) -> Result<u64, Fault> {
        Ok(waiting::count_delayed(&self.conn, &self.scope.queue, most)?)
    }

    async fn is_paused(&mut self) -> Result<bool, Fault> {
        Ok(claim::is_paused(&self.conn, &self.scope.queue)?)
    }

    async fn sizes(&mut self) -> Option<DatabaseFigures> {
        let journal = beside(&self.path, WAL);
        Some(DatabaseFigures {
            file_bytes: std::fs::metadata(&self.path).ok()?.len(),
            // Missing before the first connection and after the last.
            journal_bytes: std::fs::metadata(journal).map_or(0, |file| file.len()),
        })
    }

    fn writing(&self) -> store::Writing {
        store::Writing::File(self.member.writing())
    }

    async fn write(
        &mut self,
        turn: store::WritingTurn<'_>,
        work: &Work<'_>,
    ) -> Result<WriteResult, Fault> {
        match turn {
            store::WritingTurn::File(turn) => self.write_in_turn(&turn, work),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            store::WritingTurn::Server(_) => {
                let writing = self.member.writing();
                self.write_in_turn(&writing.turn(), work)
            }
        }
    }

    fn beat_interval(&self) -> Duration {
        self.member.beat_interval()
    }

    fn beat(&mut self) -> Result<bool, Fault> {
        match self.may_write() {
            true => self.member.beat(&mut self.conn, &self.clock),
            false => Ok(false),
        }
    }

    fn take_back_from_dead_owners(&mut self) -> Result<bool, Fault> {
        match self.may_write() {
            true => self.member.take_back_from_dead_owners(&mut self.conn),
            false => Ok(false),
        }
    }

    fn sweep(&self) -> Result<(), Fault> {
        self.member.sweep(&self.conn)
    }

    fn is_in_place(&self) -> Result<(), Fault> {
        self.is_in_place()
    }

    fn is_replaced(&mut self) -> bool {
        self.identity.state() == FileState::Replaced && self.identity.other_is_complete()
    }

    fn reopen(&mut self) -> Result<(), Fault> {
        let reopened = Self::open(
            (&self.path, self.mode),
            &self.pool,
            self.scope.clone(),
            self.member.lease(),
            &self.member.owners(),
            self.clock.clone(),
        );
        let mut reopened = reopened.map_err(|error| Fault::transient(error.to_string()))?;
        reopened.listen();
        std::mem::replace(self, reopened).leave();
        tracing::warn!(pool = self.pool, database = %self.path.display(), "the database file was replaced; the new one is used from now on");
        Ok(())
    }

    async fn close(self: Box<Self>) {
        self.leave();
    }

    #[cfg(test)]
    fn allow_no_more_pages(&self) {
        self.conn
            .pragma_update_and_check(None, "max_page_count", 1, |_| Ok(()))
            .unwrap();
    }
}

/// Opens a connection with which tests read and change the tables.
#[cfg(test)]
pub(crate) fn open_for_tests(path: &Path) -> Connection {
    let conn = schema::open(path, 0o600).unwrap();
    conn.busy_timeout(Duration::from_secs(10)).unwrap();
    conn
}
