//! The database as an outside program sees it: plain SQL by proto-spec/table.md, nothing of
//! ganger's own code.

use std::path::Path;
use std::time::Duration;

use rusqlite::types::Value;
use rusqlite::{Connection, Row, params};

use super::pool::QUEUE;

/// A message to be put into a queue.
#[derive(Debug, Clone)]
pub(crate) struct NewMessage {
    queue: String,
    body: Value,
    headers: serde_json::Map<String, serde_json::Value>,
    correlation_id: Option<String>,
    reply_to: Option<String>,
    message_id: Option<String>,
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
pub(crate) struct Table(pub(crate) Connection);

impl Table {
    pub(crate) fn open(path: &Path) -> Self {
        let connection = Connection::open(path).unwrap();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        Self(connection)
    }

    /// Puts messages in, all in one transaction.
    pub(crate) fn insert(&self, messages: &[NewMessage]) {
        let transaction = self.0.unchecked_transaction().unwrap();
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

    /// How many messages of a queue there are, those in daemons' hands included.
    pub(crate) fn count(&self, queue: &str) -> u32 {
        let count = "SELECT count(*) FROM consumer_messages WHERE queue = ?1";
        self.0.query_row(count, [queue], |row| row.get(0)).unwrap()
    }

    /// The oldest message of a queue, in a daemon's hands or not.
    pub(crate) fn oldest(&self, queue: &str) -> Option<i64> {
        let oldest = "SELECT min(id) FROM consumer_messages WHERE queue = ?1";
        self.0.query_row(oldest, [queue], |row| row.get(0)).unwrap()
    }

    /// The messages of a queue, the oldest first.
    pub(crate) fn messages(&self, queue: &str) -> Vec<Waiting> {
        let select = "SELECT * FROM consumer_messages WHERE queue = ?1 ORDER BY id";
        let mut select = self.0.prepare_cached(select).unwrap();
        select
            .query_map([queue], waiting)
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap()
    }

    /// The dead letters as they are now, the oldest first.
    pub(crate) fn dead(&self) -> Vec<Dead> {
        let mut select = self
            .0
            .prepare_cached("SELECT * FROM poisoned_messages ORDER BY id")
            .unwrap();
        select
            .query_map([], dead)
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap()
    }
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
