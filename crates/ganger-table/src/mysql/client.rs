//! What every statement of ours goes through: the driver's connection, the names of the tables, and what
//! the server is and takes.

use std::time::Duration;

use futures_util::FutureExt;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use super::error::CallError;
use super::row::Row;
use super::value::{Script, Value};
use crate::server::names::Names;

/// How long a statement may take, if nothing else is said; MySQL knows that of those alone that only read.
const LIMITS_OF_MARIADB: &str = "SET SESSION max_statement_time = 10, lock_wait_timeout = 10";
const LIMITS_OF_MYSQL: &str = "SET SESSION max_execution_time = 10000, lock_wait_timeout = 10";
const STATEMENT: Duration = Duration::from_secs(10);

/// What a packet has beside the statements.
const PACKET_HEAD: usize = 64;

/// Which of both the server is, where they differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Product {
    MariaDb,
    MySql,
}

/// A connection's client.
#[derive(Debug)]
pub(crate) struct Client {
    conn: Conn,
    names: Names,
    product: Product,
    /// How many bytes the server takes at once: its `max_allowed_packet`.
    packet: usize,
    /// Whether locks by name are known to all of its servers.
    locks: bool,
    /// How long a statement may take now, where that is not as usual.
    limit: Option<Duration>,
}

/// What a statement did.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) rows: Vec<Row>,
    pub(crate) changed: u64,
}

/// What a server says of itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct About {
    pub(super) product: Product,
    pub(super) packet: usize,
    pub(super) locks: bool,
}

impl Client {
    pub(super) fn new(conn: Conn, names: Names, about: About) -> Self {
        Self {
            conn,
            names,
            product: about.product,
            packet: about.packet,
            locks: about.locks,
            limit: None,
        }
    }

    /// The same, once it is known.
    pub(super) fn known_as(self, about: About) -> Self {
        Self::new(self.conn, self.names, about)
    }

    /// Which server it is.
    pub(crate) fn product(&self) -> Product {
        self.product
    }

    /// Whether locks by name hold among all of its servers: those of Galera know only their own.
    pub(crate) fn has_locks(&self) -> bool {
        self.locks
    }

    /// What a table is called.
    pub(crate) fn called(&self, table: &str) -> String {
        self.names.put_into(table).into_owned()
    }

    /// The connection is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.conn.is_disconnected()
    }

    /// Sets how long a statement may take, if nothing else is said.
    pub(super) async fn set_limits(&mut self) -> Result<(), CallError> {
        let limits = match self.product {
            Product::MariaDb => LIMITS_OF_MARIADB,
            Product::MySql => LIMITS_OF_MYSQL,
        };
        self.batch_execute(limits).await
    }

    /// Lets a statement take as long as it needs.
    pub(super) async fn lift_limits(&mut self) -> Result<(), CallError> {
        let limits = match self.product {
            Product::MariaDb => "SET SESSION max_statement_time = 0, lock_wait_timeout = 86400",
            Product::MySql => "SET SESSION max_execution_time = 0, lock_wait_timeout = 86400",
        };
        self.batch_execute(limits).await
    }

    /// How many bytes of statements the server takes at once.
    fn most(&self) -> usize {
        self.packet.saturating_sub(PACKET_HEAD)
    }

    /// Statements to be told at once.
    pub(crate) fn script(&self) -> Script {
        Script::with(&self.names, self.most())
    }

    /// Statements that begin a transaction in which none may take longer than that, where it is not as
    /// usual. Who falls silent within it does not keep what it has locked.
    pub(super) fn transaction(&mut self, limit: Option<Duration>) -> Script {
        let mut script = self.script();
        if limit != self.limit {
            let limit = limit.unwrap_or(STATEMENT).as_secs();
            let limit = Value::Number(i64::try_from(limit).unwrap_or(i64::MAX / 1000));
            match self.product {
                Product::MariaDb => script.add("SET SESSION max_statement_time = ?", &[limit]),
                Product::MySql => script.add("SET SESSION max_execution_time = ? * 1000", &[limit]),
            };
        }
        self.limit = limit;
        if self.product == Product::MySql {
            script.add("SET SESSION wait_timeout = 20", &[]);
        }
        script.add("START TRANSACTION", &[]);
        script
    }

    /// Adds what ends a transaction.
    pub(super) fn commit_by(&self, script: &mut Script) {
        script.add("COMMIT", &[]);
        if self.product == Product::MySql {
            script.add("SET SESSION wait_timeout = 28800", &[]);
        }
    }

    /// Opens a transaction.
    pub(crate) async fn begin(&mut self) -> Result<(), CallError> {
        let begin = self.transaction(None);
        self.run(begin).await.map(drop)
    }

    /// Ends it.
    pub(crate) async fn commit(&mut self) -> Result<(), CallError> {
        let mut script = self.script();
        self.commit_by(&mut script);
        self.run(script).await.map(drop)
    }

    /// Ends it as if it had never been.
    pub(crate) async fn roll_back(&mut self) -> Result<(), CallError> {
        self.batch_execute("ROLLBACK").await
    }

    /// All of the work or none.
    pub(crate) async fn in_a_transaction<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Self) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        self.begin().await?;
        match work(self).await {
            Ok(done) => self.commit().await.map(|()| done),
            Err(error) => {
                // If that fails, too, the connection is lost, and the transaction with it.
                drop(self.roll_back().await);
                Err(error)
            }
        }
    }

    /// Runs statements without values, whatever they answer.
    pub(crate) async fn batch_execute(&mut self, text: &str) -> Result<(), CallError> {
        let text = self.names.put_into(text).into_owned();
        Ok(self.conn.query_drop(text).await?)
    }

    /// Runs the statements one after the other, and returns an answer for each.
    pub(crate) async fn run(&mut self, script: Script) -> Result<Vec<Answer>, CallError> {
        let most = self.most();
        let longest = script.packets.iter().map(|packet| packet.text.len()).max();
        if let Some(bytes) = longest.filter(|bytes| *bytes > most) {
            return Err(CallError::TooLarge { bytes, most });
        }
        let mut answers = Vec::with_capacity(script.len());
        for packet in script.packets {
            let mut result = self.conn.query_iter(packet.text).await?;
            for _ in 0..packet.statements {
                let changed = result.affected_rows();
                let mut rows = Vec::new();
                while let Some(row) = result.next().await? {
                    rows.push(Row::from(row));
                }
                answers.push(Answer { rows, changed });
            }
        }
        Ok(answers)
    }

    async fn answer(&mut self, text: &str, values: &[Value<'_>]) -> Result<Answer, CallError> {
        let mut script = self.script();
        script.add(text, values);
        let answer = self.run(script).await?.pop();
        Ok(answer.unwrap_or_default())
    }

    /// Runs a statement, and returns its rows.
    pub(crate) async fn query(
        &mut self,
        text: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, CallError> {
        Ok(self.answer(text, values).await?.rows)
    }

    /// Runs it, and returns its one row, or none.
    pub(crate) async fn query_opt(
        &mut self,
        text: &str,
        values: &[Value<'_>],
    ) -> Result<Option<Row>, CallError> {
        Ok(self.query(text, values).await?.into_iter().next())
    }

    /// Runs it, and returns its one row.
    pub(crate) async fn query_one(
        &mut self,
        text: &str,
        values: &[Value<'_>],
    ) -> Result<Row, CallError> {
        let row = self.query_opt(text, values).await?;
        row.ok_or_else(|| CallError::Unexpected("no row".to_owned()))
    }

    /// Runs it, and returns how many rows it has changed.
    pub(crate) async fn execute(
        &mut self,
        text: &str,
        values: &[Value<'_>],
    ) -> Result<u64, CallError> {
        Ok(self.answer(text, values).await?.changed)
    }

    /// Ends it at once, whatever is under way.
    pub(crate) fn hang_up(mut self) {
        // What is interrupted in the middle of a command is not asked to say goodbye.
        drop(self.conn.ping().now_or_never());
    }
}
