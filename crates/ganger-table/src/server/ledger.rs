//! The ledger on a server. A transaction that changes schedules holds the lock of the ledger's row: so commands change
//! them one after the other, as in a file. Dispatches share it: each changes schedules that it has locked.

use std::fmt::Debug;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, timeout};

use super::dialect::StatementError;
use super::reconnecting::{ANSWERS_WITHIN, NoAnswer, Openable, Reconnecting};
use super::sql::Sql;
use super::store::CONFLICTS_MAX;
use crate::ledger::sql::{InTransaction, LedgerDialect, LedgerSql};
use crate::ledger::store::{LedgerStore, LedgerWork};
use crate::ledger::values::{SqlRow, SqlValue};
use crate::table::Fault;
use ganger_queue::delivery::Outgoing;
use ganger_queue::fault::SourceFault;

/// Locks the ledger. What others have committed before is seen from then on.
pub(crate) const LOCK: &str = "SELECT id FROM ledger WHERE id = 1 FOR UPDATE";

/// Time for which a command waits for the locks of others.
const COMMANDS_WAIT: Duration = Duration::from_secs(60);

/// Words that lock rows: those that are asked for by name, and those that are due.
pub(crate) const LOCKS: (&str, &str) = (" FOR UPDATE", " FOR UPDATE SKIP LOCKED");

/// A connection for the ledger, whose tables exist.
pub(crate) trait LedgerConnection:
    Openable<Error: StatementError, Target: Debug + Send>
    + Sql<Error = <Self as Openable>::Error>
    + Debug
    + Send
{
    const DIALECT: LedgerDialect;

    /// Locks the ledger as others do that use this statement.
    const LOCK_TOGETHER: &'static str;

    /// Returns the problem with the tables, if there is one. Creates nothing.
    async fn problem(target: &Self::Target) -> Result<Option<String>, Self::Refusal>;

    /// Begins a transaction. The server ends it soon if the client falls silent: others wait for it.
    async fn begin(&mut self) -> Result<(), <Self as Openable>::Error>;

    async fn commit(&mut self) -> Result<(), <Self as Openable>::Error>;

    async fn roll_back(&mut self) -> Result<(), <Self as Openable>::Error>;

    /// Inserts messages into their queues.
    async fn publish(&mut self, messages: &[Outgoing]) -> Result<(), <Self as Openable>::Error>;

    /// Makes the messages of that id dead letters that wait in a queue. Returns their number.
    async fn bury(&mut self, queue: &str, id: &str) -> Result<usize, <Self as Openable>::Error>;
}

/// Returns the problem with the tables of the ledger, if there is one; tables that will be created are none.
pub(crate) fn ledger_problem<C: LedgerConnection>(
    target: &C::Target,
) -> Result<Option<String>, SourceFault>
where
    C::Refusal: Into<SourceFault>,
{
    let runtime = runtime()?;
    runtime.block_on(C::problem(target)).map_err(Into::into)
}

fn runtime() -> Result<Runtime, SourceFault> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(SourceFault::unusable)
}

/// Rows that a transaction locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Nothing: it only reads.
    Read,
    /// The rows that it asks for.
    Rows,
    /// The ledger's row with others of its kind, before the rows that it asks for.
    Together,
    /// The ledger's row, before all others.
    Ledger,
}

/// A ledger on a server.
#[derive(Debug)]
pub(crate) struct ServerLedger<C: LedgerConnection> {
    /// There until it is dropped.
    runtime: Option<Runtime>,
    connection: Reconnecting<C>,
    /// Time for which it is tried again while others hold locks.
    patience: Duration,
}

impl<C: LedgerConnection> ServerLedger<C> {
    /// Connects, and makes the tables if they are missing.
    pub(crate) fn open(target: C::Target, is_command: bool) -> Result<Self, SourceFault>
    where
        C::Refusal: Into<SourceFault>,
    {
        let runtime = runtime()?;
        let first = runtime.block_on(C::open(&target)).map_err(Into::into)?;
        Ok(Self {
            runtime: Some(runtime),
            connection: Reconnecting::new(target, Some(first)),
            patience: match is_command {
                true => COMMANDS_WAIT,
                false => Duration::ZERO,
            },
        })
    }

    /// Does the work in a transaction. It is tried again after a conflict with others.
    fn transact(&mut self, access: Access, work: &mut LedgerWork<'_>) -> Result<(), Fault> {
        let mut conflicts = 0;
        let give_up = Instant::now() + self.patience;
        let Some(runtime) = &self.runtime else {
            return Err(Fault::transient("the ledger is closed"));
        };
        loop {
            let opened = runtime.block_on(self.connection.get())?;
            let mut statements = ServerStatements {
                runtime,
                connection: opened,
                access,
                failed: None,
            };
            let done = statements.transact(work);
            let Some(failed) = statements.failed.take() else {
                return done;
            };
            let is_conflict = matches!(&failed, Ok(error) if error.is_conflict());
            let fault = match self.connection.check_answer(failed.map(Err)) {
                // The first failure is the cause of any other.
                Ok(()) => return done,
                Err(fault) => fault,
            };
            if is_conflict && conflicts < CONFLICTS_MAX {
                conflicts += 1;
            } else if !fault.is_lock_timeout || Instant::now() >= give_up {
                return Err(fault);
            }
        }
    }
}

impl<C: LedgerConnection> Drop for ServerLedger<C> {
    /// A runtime that is dropped waits for its threads, which panics on a thread of another runtime.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl<C: LedgerConnection> LedgerStore for ServerLedger<C> {
    fn write(&mut self, work: &mut LedgerWork<'_>) -> Result<(), Fault> {
        self.transact(Access::Ledger, work)
    }

    fn write_together(&mut self, work: &mut LedgerWork<'_>) -> Result<(), Fault> {
        self.transact(Access::Together, work)
    }

    fn write_beside(&mut self, work: &mut LedgerWork<'_>) -> Result<(), Fault> {
        self.transact(Access::Rows, work)
    }

    fn read(&mut self, work: &mut LedgerWork<'_>) -> Result<(), Fault> {
        self.transact(Access::Read, work)
    }
}

/// Statements of one transaction. After a failure none is run.
#[derive(Debug)]
struct ServerStatements<'a, C: LedgerConnection> {
    runtime: &'a Runtime,
    connection: &'a mut C,
    access: Access,
    /// The first failure.
    failed: Option<Result<<C as Openable>::Error, NoAnswer>>,
}

impl<C: LedgerConnection> ServerStatements<'_, C> {
    fn transact(&mut self, work: &mut LedgerWork<'_>) -> Result<(), Fault> {
        let done = self.begin_and_work(work);
        match done {
            Ok(()) if self.failed.is_none() => {
                self.ask(async |connection| connection.commit().await)
            }
            done => {
                self.roll_back();
                done
            }
        }
    }

    /// Rolls back, unless the server has given no answer: then the connection is closed.
    fn roll_back(&mut self) {
        if matches!(self.failed, Some(Err(NoAnswer(_)))) {
            return;
        }
        let rolled_back = async { timeout(ANSWERS_WITHIN, self.connection.roll_back()).await };
        match self.runtime.block_on(rolled_back) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => drop(self.failed.get_or_insert(Ok(error))),
            Err(_) => self.failed = Some(Err(NoAnswer(ANSWERS_WITHIN))),
        }
    }

    fn begin_and_work(&mut self, work: &mut LedgerWork<'_>) -> Result<(), Fault> {
        self.ask(async |connection| connection.begin().await)?;
        let lock = match self.access {
            Access::Read | Access::Rows => None,
            Access::Together => Some(C::LOCK_TOGETHER),
            Access::Ledger => Some(LOCK),
        };
        if let Some(lock) = lock {
            self.ask(async |connection| connection.query(lock, &[]).await)?;
        }
        work(&mut InTransaction(&mut *self))
    }

    fn ask<T>(
        &mut self,
        ask: impl AsyncFnOnce(&mut C) -> Result<T, <C as Openable>::Error>,
    ) -> Result<T, Fault> {
        if self.failed.is_some() {
            return Err(Fault::transient("the transaction has failed"));
        }
        let asked = async { timeout(ANSWERS_WITHIN, Box::pin(ask(self.connection))).await };
        let failed = match self.runtime.block_on(asked) {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Ok(error),
            Err(_) => Err(NoAnswer(ANSWERS_WITHIN)),
        };
        let fault = match &failed {
            Ok(error) => error.fault(),
            Err(_) => Fault::transient("no answer from the server"),
        };
        self.failed = Some(failed);
        Err(fault)
    }
}

impl<C: LedgerConnection> LedgerSql for &mut ServerStatements<'_, C> {
    fn dialect(&self) -> &'static LedgerDialect {
        const { &C::DIALECT }
    }

    fn writes(&self) -> bool {
        self.access != Access::Read
    }

    fn now_ms(&mut self) -> Result<i64, Fault> {
        self.ask(async |connection| connection.now_ms().await)
    }

    fn query(&mut self, text: &str, values: &[SqlValue<'_>]) -> Result<Vec<SqlRow>, Fault> {
        self.ask(async |connection| connection.query(text, values).await)
    }

    fn each(&mut self, text: &str, values: &[Vec<SqlValue<'_>>]) -> Result<Vec<u64>, Fault> {
        if values.is_empty() {
            return Ok(Vec::new());
        }
        self.ask(async |connection| connection.each(text, values).await)
    }

    fn publish(&mut self, messages: &[Outgoing]) -> Result<(), Fault> {
        self.ask(async |connection| connection.publish(messages).await)
    }

    fn bury(&mut self, queue: &str, id: &str) -> Result<usize, Fault> {
        self.ask(async |connection| connection.bury(queue, id).await)
    }
}
