//! The tables in MariaDB as an outside program sees them.

use std::cell::RefCell;

use mysql_async::prelude::{FromValue, Queryable};
use mysql_async::{Conn, Error, Row};
use rusqlite::types::Value;
use tokio::runtime::{Builder, Runtime};

use super::table::{Dead, NewMessage, Waiting};

/// A connection of the test's own.
pub(crate) struct MariaTable {
    runtime: Runtime,
    connection: RefCell<Conn>,
}

impl MariaTable {
    pub(crate) fn open(url: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let connection = runtime.block_on(async {
            let mut connection = Conn::from_url(url).await.unwrap();
            // So that the tests' statements join texts as they do elsewhere.
            let joins = "SET SESSION sql_mode = CONCAT(@@sql_mode, ',PIPES_AS_CONCAT')";
            connection.query_drop(joins).await.unwrap();
            connection
        });
        Self {
            runtime,
            connection: RefCell::new(connection),
        }
    }

    pub(crate) fn insert(&self, messages: &[NewMessage]) {
        let insert = "INSERT INTO consumer_messages
            (queue, body, headers, correlation_id, reply_to, message_id) VALUES (?, ?, ?, ?, ?, ?)";
        let mut connection = self.connection.borrow_mut();
        self.runtime.block_on(async {
            connection.query_drop("START TRANSACTION").await.unwrap();
            for message in messages {
                let body = match &message.body {
                    Value::Text(text) => text.as_bytes(),
                    Value::Blob(bytes) => bytes,
                    other => panic!("no body: {other:?}"),
                };
                let headers = serde_json::to_string(&message.headers).unwrap();
                let NewMessage {
                    queue,
                    correlation_id,
                    reply_to,
                    message_id,
                    ..
                } = message;
                let values = (queue, body, headers, correlation_id, reply_to, message_id);
                connection.exec_drop(insert, values).await.unwrap();
            }
            connection.query_drop("COMMIT").await.unwrap();
        });
    }

    pub(crate) fn insert_suspects(&self, queue: &str, priority: i32, bodies: &[&str]) {
        let insert = "INSERT INTO consumer_messages (queue, priority, body, lapses)
            VALUES (?, ?, ?, 2)";
        let mut connection = self.connection.borrow_mut();
        self.runtime.block_on(async {
            connection.query_drop("START TRANSACTION").await.unwrap();
            for body in bodies {
                let values = (queue, priority, body);
                connection.exec_drop(insert, values).await.unwrap();
            }
            connection.query_drop("COMMIT").await.unwrap();
        });
    }

    pub(crate) fn run(&self, statements: &str) -> Result<(), String> {
        let mut connection = self.connection.borrow_mut();
        let ran = self.runtime.block_on(connection.query_drop(statements));
        ran.map_err(|error| match error {
            Error::Server(error) => error.message,
            other => other.to_string(),
        })
    }

    pub(crate) fn ask(&self, statement: &str) -> String {
        let mut connection = self.connection.borrow_mut();
        let said = self.runtime.block_on(connection.query(statement));
        let rows: Vec<Row> = said.unwrap();
        let line = |row: Row| {
            let texts = row.unwrap().into_iter().map(|value| {
                let text: Option<Vec<u8>> = FromValue::from_value(value);
                String::from_utf8(text.unwrap_or_default()).unwrap()
            });
            texts.collect::<Vec<String>>().join("|")
        };
        rows.into_iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// What stands in the first column of the first row.
    fn one<T: FromValue + Send + 'static>(&self, select: &str, queue: &[&str]) -> T {
        let mut connection = self.connection.borrow_mut();
        let values = mysql_async::Params::Positional(queue.iter().map(Into::into).collect());
        let found = self.runtime.block_on(connection.exec_first(select, values));
        let row: Row = found.unwrap().unwrap();
        row.get(0).unwrap()
    }

    pub(crate) fn count(&self, queue: &str) -> u32 {
        let count = "SELECT count(*) FROM consumer_messages WHERE queue = ?";
        self.one(count, &[queue])
    }

    pub(crate) fn finished(&self) -> u32 {
        self.one("SELECT count(*) FROM finished_messages", &[])
    }

    pub(crate) fn oldest(&self, queue: &str) -> Option<i64> {
        let oldest = "SELECT min(id) FROM consumer_messages WHERE queue = ?";
        self.one(oldest, &[queue])
    }

    pub(crate) fn messages(&self, queue: &str) -> Vec<Waiting> {
        let select = "SELECT * FROM consumer_messages WHERE queue = ? ORDER BY id";
        let mut connection = self.connection.borrow_mut();
        let rows = self.runtime.block_on(connection.exec(select, (queue,)));
        let rows: Vec<Row> = rows.unwrap();
        rows.iter().map(waiting).collect()
    }

    pub(crate) fn dead(&self) -> Vec<Dead> {
        let select = "SELECT * FROM poisoned_messages ORDER BY id";
        let mut connection = self.connection.borrow_mut();
        let rows = self.runtime.block_on(connection.exec(select, ()));
        let rows: Vec<Row> = rows.unwrap();
        rows.iter().map(dead).collect()
    }
}

fn get<T: FromValue>(row: &Row, column: &str) -> T {
    row.get(column).unwrap()
}

fn waiting(row: &Row) -> Waiting {
    let headers: String = get(row, "headers");
    Waiting {
        body: get(row, "body"),
        headers: serde_json::from_str(&headers).unwrap(),
        correlation_id: get(row, "correlation_id"),
        reply_to: get(row, "reply_to"),
        attempts: get(row, "attempts"),
        crashes: get(row, "crashes"),
        requeues: get(row, "requeues"),
        claimed: get::<Option<i64>>(row, "owner").is_some(),
    }
}

fn dead(row: &Row) -> Dead {
    let stderr: String = get(row, "stderr");
    Dead {
        pool: get(row, "pool"),
        queue: get(row, "queue"),
        reason: get(row, "reason"),
        error: get(row, "error"),
        attempts: get(row, "attempts"),
        crashes: get(row, "crashes"),
        exit_code: get(row, "exit_code"),
        signal: get(row, "signal"),
        stderr: serde_json::from_str(&stderr).unwrap(),
        body: text_or_bytes(get(row, "body")),
        correlation_id: get(row, "correlation_id"),
        reply_queue: get(row, "reply_queue"),
        reply_body: get(row, "reply_body"),
    }
}

/// One column holds either; elsewhere a body is text where it can be.
fn text_or_bytes(body: Vec<u8>) -> Value {
    match String::from_utf8(body) {
        Ok(text) if !text.contains('\0') => Value::Text(text),
        Ok(text) => Value::Blob(text.into_bytes()),
        Err(bytes) => Value::Blob(bytes.into_bytes()),
    }
}
