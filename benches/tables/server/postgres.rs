//! PostgreSQL: its settings, and its SQL.

use std::future::poll_fn;
use std::sync::Arc;

use miette::{IntoDiagnostic, WrapErr, miette};
use nix::unistd::Pid;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio_postgres::types::ToSql;
use tokio_postgres::{
    AsyncMessage, Client, Error, NoTls, Row, SimpleQueryMessage, SimpleQueryRow, Statement,
};

use super::{Connection, Hand, Host, Sql, Words};
use crate::common::one_thread;
use crate::raw::Table;
use crate::servers::postgres::Cluster;

/// As durable as a server with default settings: a commit that it reports is on the disk. The sizes of memory
/// and journal are usual for a server in production.
const SETTINGS: &[&str] = &[
    "fsync=on",
    "synchronous_commit=on",
    "shared_buffers=512MB",
    "max_wal_size=4GB",
    "max_connections=300",
];

/// Starts a server.
pub(super) fn start() -> Cluster {
    Cluster::start(SETTINGS)
}

/// Settings of every connection that claims or waits. A table that is empty now is large a moment later, so
/// no plan may be made for its current size.
const BY_INDEX: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; \
                        SET enable_bitmapscan = off; SET enable_sort = off; SET jit = off";

/// Makes the trigger notify of new messages, as a daemon does while it sleeps.
const SLEEP: &str = "SELECT pg_try_advisory_lock(1734438503, hashtext('public.bench-0') & 1023)";

/// Channel on which the trigger notifies for the first queue.
const CHANNEL: &str = "SELECT 'ganger.' || left(encode(sha256(convert_to('public.bench-0', 'UTF8')), \
                       'hex'), 40)";

static WORDS: Words = Words {
    name: "PostgreSQL",
    series: |count| format!("generate_series(1, {count}) AS series"),
    uuid: "gen_random_uuid()::text",
    next: "consumer_messages WHERE queue = 'bench-0' AND suspicion = 0 AND owner IS NULL
             AND available_after = 0 ORDER BY suspicion, priority DESC, id",
    last_id: "SELECT last_value FROM consumer_messages_id_seq",
    plain: "
CREATE TABLE plain (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue text NOT NULL,
  body text NOT NULL,
  claimed boolean NOT NULL DEFAULT false
);
CREATE INDEX plain_ready ON plain (queue, id) WHERE NOT claimed;",
    rest: &["VACUUM ANALYZE", "CHECKPOINT"],
    unrest: None,
    writes: "SELECT txid_snapshot_xmax(txid_current_snapshot())",
    connections: "
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    waits: "
SELECT count(*) FILTER (WHERE wait_event_type = 'Lock'), count(*)
FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle' AND pid <> pg_backend_pid()",
    deadlocks: "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()",
    // The second and third figure are dead rows and autovacuums.
    size: "
SELECT pg_total_relation_size(relid) / 1024, n_dead_tup, autovacuum_count
FROM pg_stat_user_tables WHERE relname = 'consumer_messages'",
    handler_within_ms: 5.0,
};

impl Table {
    fn claim(self) -> String {
        let (table, mark, next) = match self {
            Self::Ganger => ("consumer_messages", "owner = 0, claim = m.id", WORDS.next),
            Self::Plain => (
                "plain",
                "claimed = true",
                "plain WHERE queue = 'bench-0' AND NOT claimed ORDER BY queue, id",
            ),
        };
        format!(
            "UPDATE {table} m SET {mark} \
             FROM (SELECT id FROM {next} LIMIT $1 FOR UPDATE SKIP LOCKED) AS next \
             WHERE m.id = next.id RETURNING m.id, m.body"
        )
    }

    fn delete(self) -> String {
        format!("DELETE FROM {} WHERE id = ANY($1)", self.name())
    }
}

impl Host for Cluster {
    fn words(&self) -> &'static Words {
        &WORDS
    }

    fn version(&self) -> String {
        self.psql("postgres", "SHOW server_version")
    }

    fn pid(&self) -> Pid {
        self.pid()
    }

    fn create_database(&self, name: &str) {
        self.create_database(name);
    }

    fn drop_database(&self, name: &str) {
        self.drop_database(name);
    }

    fn make(&self, database: &str, schema: &str) {
        self.psql(database, schema);
    }

    fn url(&self, database: &str) -> String {
        self.url(database)
    }

    fn connect(&self, url: &str) -> miette::Result<Sql> {
        Ok(Box::new(Line::connect(url)?))
    }
}

/// A connection.
struct Line {
    runtime: Runtime,
    client: Client,
    /// Signalled by each notification.
    bell: Arc<Notify>,
}

impl Line {
    fn connect(url: &str) -> miette::Result<Self> {
        let runtime = one_thread()?;
        let bell = Arc::new(Notify::new());
        let rung = Arc::clone(&bell);
        let client = runtime.block_on(async {
            let (client, mut connection) = tokio_postgres::connect(url, NoTls).await?;
            // The task ends with the client.
            tokio::spawn(async move {
                while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                    if matches!(message, AsyncMessage::Notification(_)) {
                        rung.notify_one();
                    }
                }
            });
            client.batch_execute(BY_INDEX).await?;
            Ok::<_, Error>(client)
        });
        Ok(Self {
            client: client.into_diagnostic()?,
            runtime,
            bell,
        })
    }

    /// Runs something on the connection.
    fn with<T>(&self, work: impl AsyncFnOnce(&Client) -> Result<T, Error>) -> miette::Result<T> {
        self.runtime.block_on(work(&self.client)).into_diagnostic()
    }
}

impl Connection for Line {
    fn run(&self, statements: &str) -> miette::Result<()> {
        let run = self.with(async |client| client.batch_execute(statements).await);
        run.wrap_err_with(|| statements.to_owned())
    }

    fn row(&self, query: &str) -> miette::Result<Vec<Option<i64>>> {
        let said = self.with(async |client| client.simple_query(query).await);
        let said = said.wrap_err_with(|| query.to_owned())?;
        let row = said.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        numbers(row.ok_or_else(|| miette!("{query}: no row"))?)
    }

    fn hand(self: Box<Self>, table: Table) -> miette::Result<Box<dyn Hand>> {
        let (claim, delete) = self.with(async |client| {
            let channel = client.query_one(CHANNEL, &[]).await?;
            let channel: &str = channel.try_get(0)?;
            let listen = format!("LISTEN \"{channel}\"");
            client.batch_execute(&listen).await?;
            client.batch_execute(SLEEP).await?;
            let claim = client.prepare(&table.claim()).await?;
            Ok((claim, client.prepare(&table.delete()).await?))
        })?;
        Ok(Box::new(Claimer {
            line: *self,
            claim,
            delete,
        }))
    }
}

fn numbers(row: &SimpleQueryRow) -> miette::Result<Vec<Option<i64>>> {
    let texts = (0..row.len()).map(|column| row.get(column));
    let numbers = texts.map(|text| text.map(str::parse).transpose());
    numbers.collect::<Result<_, _>>().into_diagnostic()
}

/// A connection of a raw loop.
struct Claimer {
    line: Line,
    claim: Statement,
    delete: Statement,
}

impl Hand for Claimer {
    fn turn(&self, done: &[i64], batch: usize) -> miette::Result<Vec<i64>> {
        let batch = i64::try_from(batch).into_diagnostic()?;
        let claim: [&(dyn ToSql + Sync); 1] = [&batch];
        let delete: [&(dyn ToSql + Sync); 1] = [&done];
        self.line.with(async |client| {
            // Sent together, without waiting for each answer.
            let (begun, deleted, claimed, committed) = tokio::join!(
                biased;
                client.batch_execute("BEGIN"),
                client.execute(&self.delete, &delete),
                client.query(&self.claim, &claim),
                client.batch_execute("COMMIT"),
            );
            begun?;
            deleted?;
            committed?;
            claimed?.iter().map(read).collect()
        })
    }

    fn wait_for_news(&self) {
        self.line.runtime.block_on(self.line.bell.notified());
    }
}

/// Reads a claimed row, with the data that a worker would be sent.
fn read(row: &Row) -> Result<i64, Error> {
    let body: &str = row.try_get(1)?;
    std::hint::black_box(body.to_owned());
    row.try_get(0)
}
