//! Raw loops for comparison: a queue is claimed and completed in batches, without workers, owners, delays or
//! any other feature. One transaction removes the batch that is done and claims the next, in as few round
//! trips as the server's protocol needs. It uses one connection, as a source of ganger's does for this.

use miette::ensure;

use crate::common::machine::{cpu_seconds, monotonic_nanos};
use crate::daemon::{Measured, per_write};
use crate::server::{Database, Hand, Load, Server};
use crate::watch::Watch;

/// The queue of the first pool, from which loops claim.
const QUEUE: &str = "bench-0";

/// Location of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    /// In ganger's table, with its indexes and its trigger.
    Ganger,
    /// In a table with only the columns that the loop needs.
    Plain,
}

impl Table {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ganger => "consumer_messages",
            Self::Plain => "plain",
        }
    }

    fn database(self, server: &Server, load: Load) -> miette::Result<Database<'_>> {
        if self == Self::Ganger {
            let database = server.database()?;
            database.fill(&[QUEUE.to_owned()], load)?;
            return Ok(database);
        }
        let database = server.empty_database()?;
        database.run(server.words().plain)?;
        database.run(&format!(
            "INSERT INTO plain (queue, body) SELECT '{QUEUE}', '{}' FROM {}",
            load.body(),
            database.series(load.messages)
        ))?;
        database.come_to_rest()?;
        Ok(database)
    }
}

/// Measures the throughput of claiming and completing a load in batches of that size.
pub(crate) fn measure(
    server: &Server,
    table: Table,
    batch: usize,
    load: Load,
) -> miette::Result<Measured> {
    let database = table.database(server, load)?;
    let hand = database.connect()?.hand(table)?;
    let writes = database.writes()?;
    let watch = Watch::begin(|| cpu_seconds("self"), || server.cpu_seconds())?;
    let done = work_off(&*hand, batch)?;
    let watched = watch.end(load.messages, monotonic_nanos())?;
    ensure!(done == load.messages, "{done} were done");
    Ok(Measured {
        watched,
        messages_per_write: per_write(load, database.writes()? - writes),
    })
}

fn work_off(hand: &dyn Hand, batch: usize) -> miette::Result<usize> {
    let mut done = Vec::new();
    let mut count = 0;
    loop {
        done = hand.turn(&done, batch)?;
        count += done.len();
        if done.is_empty() {
            return Ok(count);
        }
    }
}
