//! The client that runs all statements: the driver's connection, the names of the tables, and the
//! properties of the server.

use std::time::Duration;

use futures_util::FutureExt;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use super::error::CallError;
use super::row::Row;
use super::value::{Script, Value};
use crate::server::names::Names;

/// Default limits of a statement. MySQL enforces the time limit only for statements that read.
const LIMITS_OF_MARIADB: &str = "SET SESSION max_statement_time = 10, lock_wait_timeout = 10";
const LIMITS_OF_MYSQL: &str = "SET SESSION max_execution_time = 10000, lock_wait_timeout = 10";
const STATEMENT: Duration = Duration::from_secs(10);

/// Bytes in a packet besides the statements.
const PACKET_HEAD: usize = 64;

/// The server's product, for differences between the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Product {
    MariaDb,
    MySql,
}

/// Client over one connection.
#[derive(Debug)]
pub(crate) struct Client {
    conn: Conn,
    names: Names,
    product: Product,
    /// Maximum bytes that the server accepts at once: its `max_allowed_packet`.
    packet: usize,
    /// True if named locks are known to all servers of its cluster.
    locks: bool,
    /// Current time limit of a statement, if it is not the default.
    limit: Option<Duration>,
    /// True once the tables of a ledger were found.
    pub(super) has_ledger: bool,
}

/// Result of a statement.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) rows: Vec<Row>,
    pub(crate) changed: u64,
}

/// Properties of a server.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerInfo {
    pub(super) product: Product,
    pub(super) packet: usize,
    pub(super) locks: bool,
}

impl Client {
    pub(super) fn new(conn: Conn, names: Names, info: ServerInfo) -> Self {
        Self {
            conn,
            names,
            product: info.product,
            packet: info.packet,
            locks: info.locks,
            limit: None,
            has_ledger: false,
        }
    }

    /// Returns the same client with the server's properties, once they are known.
    pub(super) fn with_server_info(self, info: ServerInfo) -> Self {
        Self::new(self.conn, self.names, info)
    }

    /// Returns the server's product.
    pub(crate) fn product(&self) -> Product {
        self.product
    }

    /// Returns whether named locks are known to all servers of the cluster. Those of Galera are known to
    /// one server only.
    pub(crate) fn has_locks(&self) -> bool {
        self.locks
    }

    /// Returns the name of a table, with the prefix.
    pub(crate) fn table_name(&self, table: &str) -> String {
        self.names.apply_to(table).into_owned()
    }

    /// Returns whether the connection is lost.
    pub(crate) fn is_closed(&self) -> bool {
        self.conn.is_disconnected()
    }

    /// Sets the default limits of a statement.
    pub(super) async fn set_limits(&mut self) -> Result<(), CallError> {
        let limits = match self.product {
            Product::MariaDb => LIMITS_OF_MARIADB,
            Product::MySql => LIMITS_OF_MYSQL,
        };
        self.batch_execute(limits).await
    }

    /// Removes the limits of a statement.
    pub(super) async fn lift_limits(&mut self) -> Result<(), CallError> {
        let limits = match self.product {
            Product::MariaDb => "SET SESSION max_statement_time = 0, lock_wait_timeout = 86400",
            Product::MySql => "SET SESSION max_execution_time = 0, lock_wait_timeout = 86400",
        };
        self.batch_execute(limits).await
    }

    /// Returns the maximum bytes of statements that the server accepts at once.
    fn most(&self) -> usize {
        self.packet.saturating_sub(PACKET_HEAD)
    }

    /// Makes an empty script.
    pub(crate) fn script(&self) -> Script {
        Script::with(&self.names, self.most())
    }

    /// Makes a script that begins a transaction, with a time limit for its statements if it is not the
    /// default. If the client falls silent, the server ends the connection and so releases the locks.
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

    /// Adds the statements that end a transaction.
    pub(super) fn commit_by(&self, script: &mut Script) {
        script.add("COMMIT", &[]);
        if self.product == Product::MySql {
            script.add("SET SESSION wait_timeout = 28800", &[]);
        }
    }

    /// Begins a transaction.
    pub(crate) async fn begin(&mut self) -> Result<(), CallError> {
        let begin = self.transaction(None);
        self.run(begin).await.map(drop)
    }

    /// Commits it.
    pub(crate) async fn commit(&mut self) -> Result<(), CallError> {
        let mut script = self.script();
        self.commit_by(&mut script);
        self.run(script).await.map(drop)
    }

    /// Rolls it back.
    pub(crate) async fn roll_back(&mut self) -> Result<(), CallError> {
        self.batch_execute("ROLLBACK").await
    }

    /// Does the work in a transaction.
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

    /// Runs statements without values, and ignores their results.
    pub(crate) async fn batch_execute(&mut self, text: &str) -> Result<(), CallError> {
        let text = self.names.apply_to(text).into_owned();
        Ok(self.conn.query_drop(text).await?)
    }

    /// Runs the statements one after the other, and returns the result of each.
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

    /// Runs a statement, and returns its first row, if there is one.
    pub(crate) async fn query_opt(
        &mut self,
        text: &str,
        values: &[Value<'_>],
    ) -> Result<Option<Row>, CallError> {
        Ok(self.query(text, values).await?.into_iter().next())
    }

    /// Runs a statement, and returns its first row.
    ///
    /// # Errors
    /// There is none.
    pub(crate) async fn query_one(
        &mut self,
        text: &str,
        values: &[Value<'_>],
    ) -> Result<Row, CallError> {
        let row = self.query_opt(text, values).await?;
        row.ok_or_else(|| CallError::Unexpected("no row".to_owned()))
    }

    /// Runs a statement, and returns the number of rows that it changed.
    pub(crate) async fn execute(
        &mut self,
        text: &str,
        values: &[Value<'_>],
    ) -> Result<u64, CallError> {
        Ok(self.answer(text, values).await?.changed)
    }

    /// Closes the connection at once, even while a statement is running.
    pub(crate) fn abort(mut self) {
        // A connection that is interrupted in the middle of a command is dropped without a goodbye to
        // the server.
        drop(self.conn.ping().now_or_never());
    }
}
