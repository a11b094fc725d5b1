//! The store of a table queue, for any database. SQLite's calls block, on a thread of their own: its
//! futures are ready when they are first polled, except that of `woken`.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

#[cfg(any(feature = "mysql", feature = "postgres"))]
use crate::server::writer_queue::{WriterPermit, WriterQueue, WriterQueues};
use crate::sqlite::leases::{self, Owners};
use crate::table::{Fault, PeekResult, WaitingRows, WakeReason, Work, WriteResult};
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::DatabaseFigures;

/// Heartbeat interval for the source's loop where the store has a task of its own for heartbeats.
const BEATS_BY_ITSELF: Duration = Duration::from_secs(3600);

/// State shared by all table sources of one daemon.
#[derive(Debug, Clone, Default)]
pub struct Stores {
    pub(crate) owners: Owners,
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) writer_queues: WriterQueues,
}

/// Queue in which the daemon's sources that write to the same place wait for their turn.
#[derive(Debug)]
pub(crate) enum Writing {
    /// A file has one writer.
    File(leases::FileQueue),
    /// A server has many writers, and is faster if few of this daemon's large transactions run at once.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    Server(WriterQueue),
}

/// A source's turn to write.
#[derive(Debug)]
pub(crate) enum WritingTurn<'a> {
    /// Lasts until it is dropped.
    File(leases::FileTurn<'a>),
    /// Lasts until it is dropped, or for a limited time. None if no turn was needed.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    Server(Option<WriterPermit<'a>>),
}

impl Writing {
    /// Waits for the turn to write. The source has `_rows` rows out.
    pub(crate) async fn turn(&self, _rows: usize) -> WritingTurn<'_> {
        match self {
            Self::File(writing) => WritingTurn::File(writing.turn()),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(line) => WritingTurn::Server(line.turn(_rows).await),
        }
    }
}

/// Claims and settles the rows of one queue.
#[async_trait(?Send)]
pub(crate) trait TableStore: Debug + Send {
    /// Begins to listen for other processes. Must be called within a runtime.
    fn listen(&mut self) {}

    /// Resolves when an owner may have exited or, if `wants_data` is set, when there may be new rows.
    /// Cancel-safe.
    async fn woken(&mut self, wants_data: bool) -> WakeReason;

    /// Returns a count of the times at which others may have taken over claims of this store; none if the
    /// store never loses its claims this way.
    fn losses(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// Records that the last wake-up led to a row of this queue.
    fn found_rows(&mut self);

    /// Checks for rows to claim, without taking a lock.
    async fn peek(&mut self, limits: Limits) -> Result<PeekResult, Fault>;

    /// Counts the rows of a queue that could be claimed, up to `most`, and finds the age of the oldest,
    /// without taking a lock.
    async fn waiting(&mut self, queue: &str, most: u32) -> Result<WaitingRows, Fault>;

    /// Returns the names of queues of the database with rows that may be claimed or wait for a later
    /// time, up to `most` of each kind, without taking a lock.
    async fn queues(&mut self, most: u32) -> Result<BTreeSet<String>, Fault>;

    /// Counts the delayed rows of the queue, up to `most`, without taking a lock.
    async fn count_delayed(&mut self, most: u32) -> Result<u64, Fault>;

    /// Returns whether the queue is paused for all daemons.
    async fn is_paused(&mut self) -> Result<bool, Fault>;

    /// Returns the size of the database; none if it is unknown.
    async fn sizes(&mut self) -> Option<DatabaseFigures>;

    /// Returns those of the rows that another program has locked. A file has no locks on rows.
    async fn locked(&mut self, _rows: &[i64]) -> Result<Vec<i64>, Fault> {
        Ok(Vec::new())
    }

    /// Returns the turn to write, shared by the daemon's sources.
    fn writing(&self) -> Writing;

    /// Does all of the work in one transaction, or none of it. A row that the database refuses to have
    /// claimed is passed over. The turn ends with the transaction, if not before.
    async fn write(&mut self, turn: WritingTurn<'_>, work: &Work<'_>)
    -> Result<WriteResult, Fault>;

    /// Returns the time from one heartbeat to the next.
    fn beat_interval(&self) -> Duration {
        BEATS_BY_ITSELF
    }

    /// Writes the daemon's heartbeat, and releases the claims of owners whose heartbeat has stopped.
    /// Returns whether there were any.
    fn beat(&mut self) -> Result<bool, Fault> {
        Ok(false)
    }

    /// Releases the claims of owners whose processes are gone. Returns whether there were any.
    fn take_back_from_dead_owners(&mut self) -> Result<bool, Fault> {
        Ok(false)
    }

    /// Removes files left behind by processes that died while they started.
    fn sweep(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Returns an error if the open database is not the one that others see.
    fn is_in_place(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Returns whether another database has replaced the open one.
    fn is_replaced(&mut self) -> bool {
        false
    }

    /// Opens the database that has replaced the open one. No row may be out, and nothing may be left to
    /// settle.
    fn reopen(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Leaves the table of owners and closes the connection.
    async fn close(self: Box<Self>);

    /// Simulates a full disk for this connection: the file can't grow any more.
    #[cfg(test)]
    fn allow_no_more_pages(&self) {
        unreachable!("only a file is tried so")
    }
}
