//! The database as an outside program sees it, whichever it is: plain SQL by proto-spec/table.md,
//! nothing of ganger's own code.

use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

use rusqlite::types::Value;
use rusqlite::{Connection, Row, params};

use super::mariadb_table::MariaTable;
use super::pool::QUEUE;
use super::postgres_table::PgTable;

/// A message to be put into a queue.
#[derive(Debug, Clone)]
pub(crate) struct NewMessage {
    pub(super) queue: String,
    pub(super) body: Value,
    pub(super) headers: serde_json::Map<String, serde_json::Value>,
    pub(super) correlation_id: Option<String>,
    pub(super) reply_to: Option<String>,
    pub(super) message_id: Option<String>,
}

impl NewMessage {
    /// For the pool's queue.
    pub(crate) fn new(body: &str) -> Self {
        Self {
            queue: QUEUE.into(),
            body: Value::Text(body.into()),
            headers: serde_json::Map::new(),
            correlation_id: None,
            reply_to: None,
            message_id: None,
        }
    }

    /// With a body that is no text.
    pub(crate) fn binary(body: &[u8]) -> Self {
        Self {
            body: Value::Blob(body.into()),
            ..Self::new("")
        }
    }

    /// For another queue.
    pub(crate) fn to(mut self, queue: &str) -> Self {
        self.queue = queue.into();
        self
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    pub(crate) fn correlation_id(mut self, id: &str) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    pub(crate) fn reply_to(mut self, queue: &str) -> Self {
        self.reply_to = Some(queue.into());
        self
    }

    pub(crate) fn message_id(mut self, id: &str) -> Self {
        self.message_id = Some(id.into());
        self
    }
}

/// A message that waits, or that a daemon has claimed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Waiting {
    pub(crate) body: String,
    pub(crate) headers: serde_json::Value,
    pub(crate) correlation_id: Option<String>,
    pub(crate) reply_to: Option<String>,
    pub(crate) attempts: u32,
    pub(crate) crashes: u32,
    pub(crate) requeues: u32,
    /// Whether a daemon has it.
    pub(crate) claimed: bool,
}

/// A message in the dead letters.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dead {
    pub(crate) pool: String,
    pub(crate) queue: String,
    pub(crate) reason: String,
    pub(crate) error: String,
    pub(crate) attempts: u32,
    pub(crate) crashes: u32,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stderr: Vec<String>,
    pub(crate) body: Value,
    pub(crate) correlation_id: Option<String>,
    pub(crate) reply_queue: Option<String>,
    pub(crate) reply_body: Option<String>,
}

/// A connection of the test's own.
pub(crate) struct Table(pub(crate) Handle);

/// In one of the databases. A test that is about SQLite asks it as the connection that it is.
pub(crate) enum Handle {
    Sqlite(Connection),
    Postgres(PgTable),
    Mariadb(MariaTable),
}

impl Deref for Handle {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        match self {
            Self::Sqlite(connection) => connection,
            Self::Postgres(_) | Self::Mariadb(_) => panic!("this test is about SQLite"),
        }
    }
}

impl Table {
    pub(crate) fn open(path: &Path) -> Self {
        let connection = Connection::open(path).unwrap();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        Self(Handle::Sqlite(connection))
    }

    /// Puts messages in, all in one transaction.
    pub(crate) fn insert(&self, messages: &[NewMessage]) {
        match &self.0 {
            Handle::Sqlite(connection) => insert(connection, messages),
            Handle::Postgres(table) => table.insert(messages),
            Handle::Mariadb(table) => table.insert(messages),
        }
    }

    /// Puts messages in over which two daemons have vanished, all in one transaction.
    pub(crate) fn insert_suspects(&self, queue: &str, priority: i32, bodies: &[&str]) {
        match &self.0 {
            Handle::Sqlite(connection) => {
                let insert = "INSERT INTO consumer_messages (queue, priority, body, lapses)
                    VALUES (?1, ?2, ?3, 2)";
                let rows = connection.unchecked_transaction().unwrap();
                for body in bodies {
                    rows.execute(insert, params![queue, priority, body])
                        .unwrap();
                }
                rows.commit().unwrap();
            }
            Handle::Postgres(table) => table.insert_suspects(queue, priority, bodies),
            Handle::Mariadb(table) => table.insert_suspects(queue, priority, bodies),
        }
    }

    /// Has statements run; what the database has against them.
    pub(crate) fn run(&self, statements: &str) -> Result<(), String> {
        match &self.0 {
            Handle::Sqlite(connection) => {
                let ran = connection.execute_batch(statements);
                ran.map_err(|error| error.to_string())
            }
            Handle::Postgres(table) => table.run(statements),
            Handle::Mariadb(table) => table.run(statements),
        }
    }

    /// The end of an insertion that does nothing where its key is held.
    pub(crate) fn or_nothing(&self) -> &'static str {
        match &self.0 {
            Handle::Sqlite(_) | Handle::Postgres(_) => {
                "ON CONFLICT (queue, unique_hold) WHERE unique_hold IS NOT NULL DO NOTHING"
            }
            Handle::Mariadb(_) => "ON DUPLICATE KEY UPDATE unique_key = VALUES(unique_key)",
        }
    }

    /// The same where the message that waits gets the body.
    pub(crate) fn or_replace(&self) -> &'static str {
        match &self.0 {
            Handle::Sqlite(_) | Handle::Postgres(_) => {
                "ON CONFLICT (queue, unique_hold) WHERE unique_hold IS NOT NULL
                 DO UPDATE SET body = excluded.body WHERE consumer_messages.owner IS NULL"
            }
            Handle::Mariadb(_) => {
                "ON DUPLICATE KEY UPDATE body = IF(owner IS NULL, VALUES(body), body)"
            }
        }
    }

    /// Has a producer's transaction run. One that MySQL or MariaDB has ended for a deadlock is run again,
    /// as their manuals ask of every program.
    pub(crate) fn produce(&self, transaction: &str) {
        loop {
            match self.run(transaction) {
                Err(error) if error.starts_with("Deadlock found") => {}
                ran => return ran.unwrap(),
            }
        }
    }

    /// What a statement says: a line for a row, its columns parted by `|`.
    pub(crate) fn ask(&self, statement: &str) -> String {
        match &self.0 {
            Handle::Sqlite(connection) => ask(connection, statement),
            Handle::Postgres(table) => table.ask(statement),
            Handle::Mariadb(table) => table.ask(statement),
        }
    }

    /// How many messages of a queue there are, those in daemons' hands included.
    pub(crate) fn count(&self, queue: &str) -> u32 {
        match &self.0 {
            Handle::Sqlite(connection) => {
                let count = "SELECT count(*) FROM consumer_messages WHERE queue = ?1";
                connection
                    .query_row(count, [queue], |row| row.get(0))
                    .unwrap()
            }
            Handle::Postgres(table) => table.count(queue),
            Handle::Mariadb(table) => table.count(queue),
        }
    }

    /// How many messages are entered as finished.
    pub(crate) fn finished(&self) -> u32 {
        match &self.0 {
            Handle::Sqlite(connection) => {
                let count = "SELECT count(*) FROM finished_messages";
                connection.query_row(count, [], |row| row.get(0)).unwrap()
            }
            Handle::Postgres(table) => table.finished(),
            Handle::Mariadb(table) => table.finished(),
        }
    }

    /// By what they are known, in a database of SQLite.
    pub(crate) fn finished_keys(&self) -> Vec<String> {
        let mut select = self.0.prepare("SELECT key FROM finished_messages").unwrap();
        let keys = select.query_map([], |row| row.get(0)).unwrap();
        keys.collect::<Result<_, _>>().unwrap()
    }

    /// The oldest message of a queue, in a daemon's hands or not.
    pub(crate) fn oldest(&self, queue: &str) -> Option<i64> {
        match &self.0 {
            Handle::Sqlite(connection) => {
                let oldest = "SELECT min(id) FROM consumer_messages WHERE queue = ?1";
                connection
                    .query_row(oldest, [queue], |row| row.get(0))
                    .unwrap()
            }
            Handle::Postgres(table) => table.oldest(queue),
            Handle::Mariadb(table) => table.oldest(queue),
        }
    }

    /// The messages of a queue, the oldest first.
    pub(crate) fn messages(&self, queue: &str) -> Vec<Waiting> {
        match &self.0 {
            Handle::Sqlite(connection) => {
                let select = "SELECT * FROM consumer_messages WHERE queue = ?1 ORDER BY id";
                let mut select = connection.prepare_cached(select).unwrap();
                let rows = select.query_map([queue], waiting).unwrap();
                rows.collect::<Result<_, _>>().unwrap()
            }
            Handle::Postgres(table) => table.messages(queue),
            Handle::Mariadb(table) => table.messages(queue),
        }
    }

    /// The dead letters as they are now, the oldest first.
    pub(crate) fn dead(&self) -> Vec<Dead> {
        match &self.0 {
            Handle::Sqlite(connection) => {
                let select = "SELECT * FROM poisoned_messages ORDER BY id";
                let mut select = connection.prepare_cached(select).unwrap();
                let rows = select.query_map([], dead).unwrap();
                rows.collect::<Result<_, _>>().unwrap()
            }
            Handle::Postgres(table) => table.dead(),
            Handle::Mariadb(table) => table.dead(),
        }
    }
}

fn ask(connection: &Connection, statement: &str) -> String {
    let mut statement = connection.prepare(statement).unwrap();
    let columns = statement.column_count();
    let line = |row: &Row<'_>| {
        let texts = (0..columns).map(|column| {
            Ok(match row.get::<_, Value>(column)? {
                Value::Null => String::new(),
                Value::Integer(number) => number.to_string(),
                Value::Text(text) => text,
                other => format!("{other:?}"),
            })
        });
        Ok(texts.collect::<rusqlite::Result<Vec<String>>>()?.join("|"))
    };
    let lines = statement.query_map([], line).unwrap();
    let lines: Vec<String> = lines.map(Result::unwrap).collect();
    lines.join("\n")
}

fn insert(connection: &Connection, messages: &[NewMessage]) {
    let transaction = connection.unchecked_transaction().unwrap();
    let insert = "INSERT INTO consumer_messages
            (queue, body, headers, correlation_id, reply_to, message_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let mut insert = transaction.prepare_cached(insert).unwrap();
    for message in messages {
        let headers = serde_json::to_string(&message.headers).unwrap();
        let NewMessage {
            queue,
            body,
            correlation_id,
            reply_to,
            message_id,
            ..
        } = message;
        insert
            .execute(params![
                queue,
                body,
                headers,
                correlation_id,
                reply_to,
                message_id
            ])
            .unwrap();
    }
    drop(insert);
    transaction.commit().unwrap();
}

fn waiting(row: &Row<'_>) -> rusqlite::Result<Waiting> {
    let headers: String = row.get("headers")?;
    Ok(Waiting {
        body: row.get("body")?,
        headers: serde_json::from_str(&headers).unwrap(),
        correlation_id: row.get("correlation_id")?,
        reply_to: row.get("reply_to")?,
        attempts: row.get("attempts")?,
        crashes: row.get("crashes")?,
        requeues: row.get("requeues")?,
        claimed: row.get::<_, Option<i64>>("owner")?.is_some(),
    })
}

fn dead(row: &Row<'_>) -> rusqlite::Result<Dead> {
    let stderr: String = row.get("stderr")?;
    Ok(Dead {
        pool: row.get("pool")?,
        queue: row.get("queue")?,
        reason: row.get("reason")?,
        error: row.get("error")?,
        attempts: row.get("attempts")?,
        crashes: row.get("crashes")?,
        exit_code: row.get("exit_code")?,
        signal: row.get("signal")?,
        stderr: serde_json::from_str(&stderr).unwrap(),
        body: row.get("body")?,
        correlation_id: row.get("correlation_id")?,
        reply_queue: row.get("reply_queue")?,
        reply_body: row.get("reply_body")?,
    })
}
