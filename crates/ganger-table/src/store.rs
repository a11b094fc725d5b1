//! Where a table queue is kept, whichever database that is. SQLite's calls block, on a thread that is
//! there for that: its futures are ready the first time they are asked.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

#[cfg(any(feature = "mysql", feature = "postgres"))]
use crate::server::turns::{Turn, WriterQueue, WriterQueues};
use crate::sqlite::leases::{self, Owners};
use crate::table::{Fault, LookReason, Outlook, Waiting, Work, Written};
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::DatabaseFigures;

/// How long the loop need not see to heartbeats where a task of the store's own does.
const BEATS_BY_ITSELF: Duration = Duration::from_secs(3600);

/// What the sources of one daemon share whose queues are tables.
#[derive(Debug, Clone, Default)]
pub struct Stores {
    pub(crate) owners: Owners,
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) writer_queues: WriterQueues,
}

/// Where the sources of a daemon that write to one place wait for their turn.
#[derive(Debug)]
pub(crate) enum Writing {
    /// One file has one writer.
    File(leases::FileQueue),
    /// A server has many, and does better with few of ours that have much to write.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    Server(WriterQueue),
}

/// A source's turn to write.
#[derive(Debug)]
pub(crate) enum WritingTurn<'a> {
    /// Until it is dropped.
    File(leases::FileTurn<'a>),
    /// Or until it has lasted too long, where there is one to be had.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    Server(Option<Turn<'a>>),
}

impl Writing {
    /// Waits until it is our turn, who have so many rows out.
    pub(crate) async fn turn(&self, _rows: usize) -> WritingTurn<'_> {
        match self {
            Self::File(writing) => WritingTurn::File(writing.turn()),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(line) => WritingTurn::Server(line.turn(_rows).await),
        }
    }
}

/// What claims and settles the rows of one queue.
#[async_trait(?Send)]
pub(crate) trait TableStore: Debug + Send {
    /// Begins to listen for other processes. Must be called within a runtime.
    fn listen(&mut self) {}

    /// Resolves when an owner may have ended, or, if there is use for `news`, when there may be
    /// something new. Loses nothing when it is dropped.
    async fn woken(&mut self, news: bool) -> LookReason;

    /// How often it was that others may have had what is claimed here; none where nobody is cut off.
    fn losses(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// The last news were of a row for us.
    fn was_fruitful(&mut self);

    /// Looks whether the queue has anything to claim, taking no lock.
    async fn peek(&mut self, limits: Limits) -> Result<Outlook, Fault>;

    /// Counts the rows of a queue that could be claimed, up to `most`, and finds the age of the oldest,
    /// taking no lock.
    async fn waiting(&mut self, queue: &str, most: u32) -> Result<Waiting, Fault>;

    /// Names of queues of the database in which a row may be claimed or waits for a later time, up to `most`
    /// of each, taking no lock.
    async fn queues(&mut self, most: u32) -> Result<BTreeSet<String>, Fault>;

    /// Counts what waits for a later time, as far as it goes, taking no lock.
    async fn count_delayed(&mut self, most: u32) -> Result<u64, Fault>;

    /// Returns whether the queue is paused for all daemons.
    async fn is_paused(&mut self) -> Result<bool, Fault>;

    /// How large the database is; none if that can't be told.
    async fn sizes(&mut self) -> Option<DatabaseFigures>;

    /// Which of these rows another program has locked. Nobody locks a part of a file.
    async fn locked(&mut self, _rows: &[i64]) -> Result<Vec<i64>, Fault> {
        Ok(Vec::new())
    }

    /// Where the sources of the daemon wait for their turn to write.
    fn writing(&self) -> Writing;

    /// Does all of the work in one transaction, or none of it. A row that can't be claimed is passed
    /// over. The turn is over with it, if not before.
    async fn write(&mut self, turn: WritingTurn<'_>, work: &Work<'_>) -> Result<Written, Fault>;

    /// How long from one heartbeat to the next.
    fn beat_interval(&self) -> Duration {
        BEATS_BY_ITSELF
    }

    /// Beats for the daemon, and takes back what owners had claimed whose hearts stand still.
    /// Returns whether there were any.
    fn beat(&mut self) -> Result<bool, Fault> {
        Ok(false)
    }

    /// Takes back what owners had claimed whose processes are gone. Returns whether there were any.
    fn take_back_from_the_dead(&mut self) -> Result<bool, Fault> {
        Ok(false)
    }

    /// Removes what processes left behind that died while they started.
    fn sweep(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Whether what we have open is what others see.
    fn is_in_place(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Whether another database has taken the place of the one that we have open.
    fn is_replaced(&mut self) -> bool {
        false
    }

    /// Goes on with that one. Nothing may be in hand.
    fn reopen(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Leaves the owners and closes the connection.
    async fn close(self: Box<Self>);

    /// Makes the disk full for this connection: the file may not grow any more.
    #[cfg(test)]
    fn allow_no_more_pages(&self) {
        unreachable!("only a file is tried so")
    }
}
