//! Raw loops to compare with: a queue is claimed and completed in batches, without a worker, an owner, a
//! delay or anything else to look after. One transaction, sent in one go, takes the batch that is done
//! off the table and claims the next. One connection, as a source of ganger's has for this.

use miette::ensure;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

use crate::common::machine::{cpu_seconds, monotonic_nanos};
use crate::daemon::{Measured, per_write};
use crate::server::{Database, Load, Server};
use crate::watch::Watch;

const QUEUE: &str = "bench-0";

/// Where the rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In ganger's table, with its indexes and its trigger.
    Ganger,
    /// In one with no more than is needed for this.
    Plain,
}

const PLAIN: &str = "
CREATE TABLE plain (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue text NOT NULL,
  body text NOT NULL,
  claimed boolean NOT NULL DEFAULT false
);
CREATE INDEX plain_ready ON plain (queue, id) WHERE NOT claimed;";

impl Kind {
    fn claim(self) -> &'static str {
        match self {
            Self::Ganger => {
                "UPDATE consumer_messages m SET owner = 0, claim = m.id
                 FROM (SELECT id FROM consumer_messages
                   WHERE queue = $1 AND suspicion = 0 AND owner IS NULL AND available_after = 0
                   ORDER BY suspicion, priority DESC, id LIMIT $2 FOR UPDATE SKIP LOCKED) AS next
                 WHERE m.id = next.id RETURNING m.id, m.body"
            }
            Self::Plain => {
                "UPDATE plain m SET claimed = true
                 FROM (SELECT id FROM plain WHERE queue = $1 AND NOT claimed
                   ORDER BY queue, id LIMIT $2 FOR UPDATE SKIP LOCKED) AS next
                 WHERE m.id = next.id RETURNING m.id, m.body"
            }
        }
    }

    fn delete(self) -> &'static str {
        match self {
            Self::Ganger => "DELETE FROM consumer_messages WHERE id = ANY($1)",
            Self::Plain => "DELETE FROM plain WHERE id = ANY($1)",
        }
    }

    fn database(self, server: &Server, load: Load) -> miette::Result<Database<'_>> {
        if self == Self::Ganger {
            let database = server.database()?;
            database.fill(&[QUEUE.to_owned()], load)?;
            return Ok(database);
        }
        let database = server.empty_database()?;
        database.run(PLAIN)?;
        database.run(&format!(
            "INSERT INTO plain (queue, body) SELECT '{QUEUE}', '{}' FROM generate_series(1, {})",
            load.body(),
            load.messages
        ))?;
        database.come_to_rest()?;
        Ok(database)
    }
}

/// Measures how fast a load is claimed and completed, so many messages at a time.
pub(crate) fn measure(
    server: &Server,
    kind: Kind,
    batch: usize,
    load: Load,
) -> miette::Result<Measured> {
    let database = kind.database(server, load)?;
    let sql = database.connect()?;
    let writes = database.writes()?;
    let watch = Watch::begin(|| cpu_seconds("self"), || server.cpu_seconds())?;
    let done = sql.with(async |client| {
        let hand = Hand::of(client, kind).await?;
        hand.work_off(i64::try_from(batch).unwrap_or(i64::MAX))
            .await
    })?;
    let watched = watch.end(load.messages, monotonic_nanos())?;
    ensure!(done == load.messages, "{done} were done");
    Ok(Measured {
        watched,
        messages_per_write: per_write(load, database.writes()? - writes),
    })
}

/// What claims and completes.
pub(crate) struct Hand<'a> {
    client: &'a Client,
    claim: Statement,
    delete: Statement,
}

impl<'a> Hand<'a> {
    pub(crate) async fn of(client: &'a Client, kind: Kind) -> Result<Self, Error> {
        Ok(Self {
            client,
            claim: client.prepare(kind.claim()).await?,
            delete: client.prepare(kind.delete()).await?,
        })
    }

    async fn work_off(&self, batch: i64) -> Result<usize, Error> {
        let mut done = Vec::new();
        let mut count = 0;
        loop {
            done = self.turn(&done, batch).await?;
            count += done.len();
            if done.is_empty() {
                return Ok(count);
            }
        }
    }

    /// Takes off what is done, and claims so many more. Returns those.
    pub(crate) async fn turn(&self, done: &[i64], batch: i64) -> Result<Vec<i64>, Error> {
        let values: [&(dyn ToSql + Sync); 2] = [&QUEUE, &batch];
        let done: [&(dyn ToSql + Sync); 1] = [&done];
        let (begun, deleted, claimed, committed) = tokio::join!(
            biased;
            self.client.batch_execute("BEGIN"),
            self.client.execute(&self.delete, &done),
            self.client.query(&self.claim, &values),
            self.client.batch_execute("COMMIT"),
        );
        begun?;
        deleted?;
        committed?;
        claimed?.iter().map(read).collect()
    }
}

/// A row in our hands, with what a worker would be sent.
fn read(row: &Row) -> Result<i64, Error> {
    let body: &str = row.try_get(1)?;
    std::hint::black_box(body.to_owned());
    row.try_get(0)
}
