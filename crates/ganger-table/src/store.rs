//! Where a table queue is kept, whichever database that is. SQLite's calls block, on a thread that is
//! there for that: its futures are ready the first time they are asked.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::watch;

#[cfg(any(feature = "mysql", feature = "postgres"))]
use super::server::Server;
use super::sqlite::{self, Owners, WallClock};
use super::table::finished::Scope;
use super::table::{Fault, LookReason, Outlook, Waiting, Work, Written};
#[cfg(any(feature = "mysql", feature = "postgres"))]
use crate::on_server::turns::{Line, Lines, Turn};
use ganger_config::model::{Database, PoolConfig, TableSource};
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::DatabaseFigures;
use ganger_queue::fault::SourceFault;

/// How long the loop need not see to heartbeats where a task of the store's own does.
#[cfg(any(feature = "mysql", feature = "postgres"))]
const BEATS_BY_ITSELF: Duration = Duration::from_secs(3600);

/// What claims and settles the rows of one queue.
#[derive(Debug)]
pub(crate) enum Store {
    /// In a file.
    Sqlite(Box<sqlite::Store>),
    /// On a server.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    Server(Server),
}

/// What the sources of one daemon share whose queues are tables.
#[derive(Debug, Clone, Default)]
pub struct Stores {
    pub(crate) owners: Owners,
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    lines: Lines,
}

/// Where the sources of a daemon that write to one place wait for their turn.
#[derive(Debug)]
pub(crate) enum Writing {
    /// One file has one writer.
    Sqlite(sqlite::Writing),
    /// A server has many, and does better with few of ours that have much to write.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    Server(Line),
}

/// A source's turn to write.
#[derive(Debug)]
pub(crate) enum WritingTurn<'a> {
    /// Until it is dropped.
    Sqlite(sqlite::WritingTurn<'a>),
    /// Or until it has lasted too long, where there is one to be had.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    Server(Option<Turn<'a>>),
}

impl Writing {
    /// Waits until it is our turn, who have so many `rows` out.
    #[cfg_attr(
        not(any(feature = "mysql", feature = "postgres")),
        expect(
            unused_variables,
            reason = "a file has one writer, however little that writes"
        )
    )]
    pub(crate) async fn turn(&self, rows: usize) -> WritingTurn<'_> {
        match self {
            Self::Sqlite(writing) => WritingTurn::Sqlite(writing.turn()),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(line) => WritingTurn::Server(line.turn(rows).await),
        }
    }
}

impl Store {
    /// Opens the database for the source of that pool, and enters this daemon among its owners.
    pub(crate) async fn open(
        config: &TableSource,
        pool: &PoolConfig,
        stores: &Stores,
    ) -> Result<Self, SourceFault> {
        match &config.database {
            Database::Sqlite(path) => {
                let (file, clock) = ((path.as_path(), config.mode), WallClock::system());
                let (name, scope) = (&pool.name, Scope::of(pool));
                let (lease, owners) = (config.lease, &stores.owners);
                let store = sqlite::Store::open(file, name, scope, lease, owners, clock)?;
                Ok(Self::Sqlite(Box::new(store)))
            }
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Database::Mysql(_) | Database::Postgres(_) => {
                let server = Server::open(config, pool, &stores.lines).await?;
                Ok(Self::Server(server))
            }
            #[cfg(not(any(feature = "mysql", feature = "postgres")))]
            Database::Mysql(_) => Err(SourceFault::missing_feature("mysql")),
            #[cfg(not(any(feature = "mysql", feature = "postgres")))]
            Database::Postgres(_) => Err(SourceFault::missing_feature("postgres")),
        }
    }

    /// Begins to listen for other processes. Must be called within a runtime.
    pub(crate) fn listen(&mut self) {
        match self {
            Self::Sqlite(store) => store.listen(),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(_) => {}
        }
    }

    /// Resolves when an owner may have ended, or, if there is use for `news`, when there may be
    /// something new. Loses nothing when it is dropped.
    pub(crate) async fn woken(&mut self, news: bool) -> LookReason {
        match self {
            Self::Sqlite(store) => store.woken(news).await,
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(server) => server.woken(news).await,
        }
    }

    /// How often it was that others may have had what is claimed here; none where nobody is cut off.
    pub(crate) fn losses(&self) -> Option<watch::Receiver<u64>> {
        match self {
            Self::Sqlite(_) => None,
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(server) => Some(server.losses()),
        }
    }

    /// The last news were of a row for us.
    pub(crate) fn was_fruitful(&mut self) {
        match self {
            Self::Sqlite(store) => store.was_fruitful(),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(server) => server.was_fruitful(),
        }
    }

    /// Looks whether the queue has anything to claim, taking no lock.
    pub(crate) async fn peek(&mut self, limits: Limits) -> Result<Outlook, Fault> {
        match self {
            Self::Sqlite(store) => store.peek(limits),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(server) => server.peek(limits).await,
        }
    }

    /// Counts the rows of a queue that could be claimed, up to `most`, and finds the age of the oldest,
    /// taking no lock.
    pub(crate) async fn waiting(&mut self, queue: &str, most: u32) -> Result<Waiting, Fault> {
        match self {
            Self::Sqlite(store) => store.waiting(queue, most),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(server) => server.waiting(queue, most).await,
        }
    }

    /// Names of queues of the database in which a row may be claimed or waits for a later time, up to `most`
    /// of each, taking no lock.
    pub(crate) async fn queues(&mut self, most: u32) -> Result<BTreeSet<String>, Fault> {
        match self {
            Self::Sqlite(store) => store.queues(most),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(server) => server.queues(most).await,
        }
    }

    /// Counts what waits for a later time, as far as it goes, taking no lock.
    pub(crate) async fn count_delayed(&mut self, most: u32) -> Result<u64, Fault> {
        match self {
            Self::Sqlite(store) => store.count_delayed(most),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(server) => server.count_delayed(most).await,
        }
    }

    /// Returns whether the queue is paused for all daemons.
    pub(crate) async fn is_paused(&mut self) -> Result<bool, Fault> {
        match self {
            Self::Sqlite(store) => store.is_paused(),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(server) => server.is_paused().await,
        }
    }

    /// How large the database is; none if that can't be told.
    pub(crate) async fn sizes(&mut self) -> Option<DatabaseFigures> {
        match self {
            Self::Sqlite(store) => store.sizes().ok(),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(server) => server.sizes().await.ok(),
        }
    }

    /// Where the sources of the daemon wait for their turn to write.
    pub(crate) fn writing(&self) -> Writing {
        match self {
            Self::Sqlite(store) => Writing::Sqlite(store.writing()),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(server) => Writing::Server(server.line()),
        }
    }

    /// Which of these rows another program has locked.
    #[cfg_attr(
        not(any(feature = "mysql", feature = "postgres")),
        expect(unused_variables, reason = "nobody locks a part of a file")
    )]
    pub(crate) async fn locked(&mut self, rows: &[i64]) -> Result<Vec<i64>, Fault> {
        match self {
            Self::Sqlite(_) => Ok(Vec::new()),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(server) => server.locked(rows).await,
        }
    }

    /// Does all of the work in one transaction, or none of it. A row that can't be claimed is passed
    /// over. The turn is over with it, if not before.
    pub(crate) async fn write(
        &mut self,
        turn: WritingTurn<'_>,
        work: &Work<'_>,
    ) -> Result<Written, Fault> {
        match (self, turn) {
            (Self::Sqlite(store), WritingTurn::Sqlite(turn)) => store.write(&turn, work),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            (Self::Server(server), WritingTurn::Server(turn)) => server.write(turn, work).await,
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            (Self::Server(server), WritingTurn::Sqlite(_)) => server.write(None, work).await,
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            (Self::Sqlite(store), WritingTurn::Server(_)) => {
                store.write(&store.writing().turn(), work)
            }
        }
    }

    /// How long from one heartbeat to the next.
    pub(crate) fn beat_interval(&self) -> Duration {
        match self {
            Self::Sqlite(store) => store.beat_interval(),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(_) => BEATS_BY_ITSELF,
        }
    }

    /// Beats for the daemon, and takes back what owners had claimed whose hearts stand still.
    /// Returns whether there were any.
    pub(crate) async fn beat(&mut self) -> Result<bool, Fault> {
        match self {
            Self::Sqlite(store) => store.beat(),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(_) => Ok(false),
        }
    }

    /// Takes back what owners had claimed whose processes are gone. Returns whether there were any.
    pub(crate) async fn take_back_from_the_dead(&mut self) -> Result<bool, Fault> {
        match self {
            Self::Sqlite(store) => store.take_back_from_the_dead(),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(_) => Ok(false),
        }
    }

    /// Removes what processes left behind that died while they started.
    pub(crate) fn sweep(&self) -> Result<(), Fault> {
        match self {
            Self::Sqlite(store) => store.sweep(),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(_) => Ok(()),
        }
    }

    /// Whether what we have open is what others see.
    pub(crate) fn is_in_place(&self) -> Result<(), Fault> {
        match self {
            Self::Sqlite(store) => store.is_in_place(),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(_) => Ok(()),
        }
    }

    /// Whether another database has taken the place of the one that we have open.
    pub(crate) fn is_replaced(&mut self) -> bool {
        match self {
            Self::Sqlite(store) => store.is_replaced(),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(_) => false,
        }
    }

    /// Goes on with that one. Nothing may be in hand.
    pub(crate) fn reopen(&mut self) -> Result<(), Fault> {
        match self {
            Self::Sqlite(store) => store.reopen(),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(_) => Ok(()),
        }
    }

    /// Leaves the owners and closes the connection.
    pub(crate) async fn close(self) {
        match self {
            Self::Sqlite(store) => store.close(),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Self::Server(server) => server.close().await,
        }
    }
}
