//! The tables in PostgreSQL as an outside program sees them.

use rusqlite::types::Value;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Row, SimpleQueryMessage};

use super::table::{Dead, NewMessage, Waiting};

/// A connection of the test's own.
pub(crate) struct PgTable {
    runtime: Runtime,
    client: Client,
}

impl PgTable {
    pub(crate) fn open(url: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
            // It ends with the client; a server that is killed ends it earlier.
            tokio::spawn(async move { drop(connection.await) });
            client
        });
        Self { runtime, client }
    }

    pub(crate) fn insert(&self, messages: &[NewMessage]) {
        let insert = "INSERT INTO consumer_messages
            (queue, body, body_bytes, headers, correlation_id, reply_to, message_id)
            VALUES ($1, $2, $3, $4::text::json, $5, $6, $7)";
        self.runtime.block_on(async {
            self.client.batch_execute("BEGIN").await.unwrap();
            let insert = self.client.prepare(insert).await.unwrap();
            for message in messages {
                let (text, bytes) = match &message.body {
                    Value::Text(text) => (Some(text), None),
                    Value::Blob(bytes) => (None, Some(bytes)),
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
                let values: [&(dyn ToSql + Sync); 7] = [
                    queue,
                    &text,
                    &bytes,
                    &headers,
                    correlation_id,
                    reply_to,
                    message_id,
                ];
                self.client.execute(&insert, &values).await.unwrap();
            }
            self.client.batch_execute("COMMIT").await.unwrap();
        });
    }

    pub(crate) fn insert_suspects(&self, queue: &str, priority: i32, bodies: &[&str]) {
        let insert = "INSERT INTO consumer_messages (queue, priority, body, lapses)
            SELECT $1, $2, body, 2 FROM unnest($3::text[]) WITH ORDINALITY AS b(body, place)
            ORDER BY place";
        let values: [&(dyn ToSql + Sync); 3] = [&queue, &priority, &bodies];
        let inserted = self.client.execute(insert, &values);
        self.runtime.block_on(inserted).unwrap();
    }

    pub(crate) fn run(&self, statements: &str) -> Result<(), String> {
        let ran = self.runtime.block_on(self.client.batch_execute(statements));
        ran.map_err(|error| {
            error
                .as_db_error()
                .map_or_else(|| error.to_string(), |error| error.message().to_owned())
        })
    }

    pub(crate) fn ask(&self, statement: &str) -> String {
        let said = self.runtime.block_on(self.client.simple_query(statement));
        let line = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => {
                let texts = (0..row.len()).map(|column| row.get(column).unwrap_or_default());
                Some(texts.collect::<Vec<&str>>().join("|"))
            }
            _ => None,
        };
        let lines: Vec<String> = said.unwrap().iter().filter_map(line).collect();
        lines.join("\n")
    }

    pub(crate) fn count(&self, queue: &str) -> u32 {
        let count = "SELECT count(*) FROM consumer_messages WHERE queue = $1";
        let row = self
            .runtime
            .block_on(self.client.query_one(count, &[&queue]));
        row.unwrap().get::<_, i64>(0).try_into().unwrap()
    }

    pub(crate) fn finished(&self) -> u32 {
        let count = "SELECT count(*) FROM finished_messages";
        let row = self.runtime.block_on(self.client.query_one(count, &[]));
        row.unwrap().get::<_, i64>(0).try_into().unwrap()
    }

    pub(crate) fn oldest(&self, queue: &str) -> Option<i64> {
        let oldest = "SELECT min(id) FROM consumer_messages WHERE queue = $1";
        let row = self
            .runtime
            .block_on(self.client.query_one(oldest, &[&queue]));
        row.unwrap().get(0)
    }

    pub(crate) fn messages(&self, queue: &str) -> Vec<Waiting> {
        let select = "SELECT *, headers::text AS shown FROM consumer_messages
                      WHERE queue = $1 ORDER BY id";
        let rows = self.runtime.block_on(self.client.query(select, &[&queue]));
        rows.unwrap().iter().map(waiting).collect()
    }

    pub(crate) fn dead(&self) -> Vec<Dead> {
        let select = "SELECT *, stderr::text AS shown FROM poisoned_messages ORDER BY id";
        let rows = self.runtime.block_on(self.client.query(select, &[]));
        rows.unwrap().iter().map(dead).collect()
    }
}

fn number(row: &Row, column: &str) -> u32 {
    row.get::<_, i64>(column).try_into().unwrap()
}

fn waiting(row: &Row) -> Waiting {
    Waiting {
        body: row.get("body"),
        headers: serde_json::from_str(row.get("shown")).unwrap(),
        correlation_id: row.get("correlation_id"),
        reply_to: row.get("reply_to"),
        attempts: number(row, "attempts"),
        crashes: number(row, "crashes"),
        requeues: number(row, "requeues"),
        claimed: row.get::<_, Option<i64>>("owner").is_some(),
    }
}

fn dead(row: &Row) -> Dead {
    let text = row.get::<_, Option<String>>("body").map(Value::Text);
    let bytes = || Value::Blob(row.get("body_bytes"));
    Dead {
        pool: row.get("pool"),
        queue: row.get("queue"),
        reason: row.get("reason"),
        error: row.get("error"),
        attempts: number(row, "attempts"),
        crashes: number(row, "crashes"),
        exit_code: row.get("exit_code"),
        signal: row.get("signal"),
        stderr: serde_json::from_str(row.get("shown")).unwrap(),
        body: text.unwrap_or_else(bytes),
        correlation_id: row.get("correlation_id"),
        reply_queue: row.get("reply_queue"),
        reply_body: row.get("reply_body"),
    }
}
