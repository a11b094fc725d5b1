//! Whether a producer is held up by those who claim: how long its inserts take, one row in a transaction,
//! alone, beside eight sources that claim from the same queue as fast as they can, and beside the same
//! eight at work in another database. That one shares the disk and the processors with the producer, but
//! no lock on a table.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::common::figures::{median, percentile};
use crate::common::show::{milliseconds, note, percent};
use crate::daemon::Daemon;
use crate::plan::Plan;
use crate::server::{Connection, Database, Load, Server};
use crate::setup::{Setup, Window};

const SOURCES: usize = 8;

/// The producer sends one, and then thinks for so long, as one that has something else to do, too.
const THINKS: Duration = Duration::from_millis(1);

const INSERT: &str =
    "INSERT INTO consumer_messages (queue, body) VALUES ('bench-0', repeat('x', 100))";

/// Where the sources are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Beside {
    Nobody,
    SameQueue,
    OtherDatabase,
}

/// How long inserts have taken.
#[derive(Debug, Serialize)]
pub(crate) struct Inserts {
    beside: Beside,
    p50_ms: Vec<f64>,
    p99_ms: Vec<f64>,
    /// Its p99 as a share of that of the producer that is alone.
    pub(crate) p99_to_alone: f64,
    /// The same of that of the producer beside sources that share no table with it.
    p99_to_elsewhere: f64,
}

/// Measures each once in each round.
pub(crate) fn measure(server: &Server, plan: &Plan) -> miette::Result<Vec<Inserts>> {
    let all = [Beside::Nobody, Beside::SameQueue, Beside::OtherDatabase];
    let mut all = all.map(|beside| Inserts {
        beside,
        p50_ms: Vec::new(),
        p99_ms: Vec::new(),
        p99_to_alone: 0.0,
        p99_to_elsewhere: 0.0,
    });
    for round in 1..=plan.rounds {
        note(format_args!("inserts, round {round} of {}", plan.rounds));
        for inserts in &mut all {
            inserts.round(server, plan)?;
        }
    }
    let [alone, _, elsewhere] = all.each_ref().map(|inserts| inserts.p99_ms.clone());
    for inserts in &mut all {
        inserts.p99_to_alone = inserts.p99_to(&alone);
        inserts.p99_to_elsewhere = inserts.p99_to(&elsewhere);
    }
    Ok(all.into())
}

impl Inserts {
    fn round(&mut self, server: &Server, plan: &Plan) -> miette::Result<()> {
        let database = server.database()?;
        let times = match self.beside {
            Beside::Nobody => insert(&*database.connect()?, plan.inserts, || Ok(()))?,
            Beside::SameQueue => beside(&database, &database, plan)?,
            Beside::OtherDatabase => beside(&server.database()?, &database, plan)?,
        };
        self.p50_ms.push(percentile(times.iter().copied(), 50));
        self.p99_ms.push(percentile(times.iter().copied(), 99));
        Ok(())
    }

    fn p99_to(&self, others: &[f64]) -> f64 {
        let pairs = self.p99_ms.iter().zip(others);
        median(pairs.map(|(ours, other)| ours / other))
    }

    /// Whether this is what the goal is for.
    pub(crate) fn is_judged(&self) -> bool {
        self.beside == Beside::SameQueue
    }

    pub(crate) const HEADER: &[&str] =
        &["beside", "p50", "p99", "p99 to alone", "p99 to elsewhere"];

    pub(crate) fn row(&self) -> Vec<String> {
        let beside = match self.beside {
            Beside::Nobody => "nobody",
            Beside::SameQueue => "8 sources on its queue",
            Beside::OtherDatabase => "8 sources in another database",
        };
        vec![
            beside.to_owned(),
            milliseconds(median(self.p50_ms.iter().copied())),
            milliseconds(median(self.p99_ms.iter().copied())),
            percent(self.p99_to_alone),
            percent(self.p99_to_elsewhere),
        ]
    }
}

/// The same while sources work there, which always have enough to do.
fn beside(theirs: &Database<'_>, ours: &Database<'_>, plan: &Plan) -> miette::Result<Vec<f64>> {
    let setup = Setup::one_pool(1, Window::Auto);
    let daemon = Daemon::start_several(theirs, &setup, SOURCES)?;
    let producer = ours.connect()?;
    let mut supply = Supply {
        sources: &daemon,
        database: theirs,
        messages: plan.inserts_beside,
        mark: None,
    };
    let times = insert(&*producer, plan.inserts, || supply.fill_up())?;
    daemon.stop()?;
    Ok(times)
}

/// What sources have to do. It is filled up between two inserts of the producer, however long those take
/// and however fast the sources are: beside an insert there is nothing but their work.
struct Supply<'a> {
    sources: &'a Daemon,
    database: &'a Database<'a>,
    /// What is filled in at a time.
    messages: usize,
    /// While this message waits, there is enough.
    mark: Option<i64>,
}

impl Supply<'_> {
    fn fill_up(&mut self) -> miette::Result<()> {
        if self.is_enough()? {
            return Ok(());
        }
        // They would be done with it before it is all there.
        self.sources.pause()?;
        let rest = self.messages / 4;
        self.add(self.messages - rest)?;
        let last = self
            .database
            .number("SELECT max(id) FROM consumer_messages")?;
        self.mark = Some(last);
        self.add(rest)?;
        self.sources.resume()
    }

    fn is_enough(&self) -> miette::Result<bool> {
        let Some(mark) = self.mark else {
            return Ok(false);
        };
        let waits =
            format!("SELECT count(*) FROM consumer_messages WHERE id = {mark} AND owner IS NULL");
        Ok(self.database.number(&waits)? > 0)
    }

    fn add(&self, messages: usize) -> miette::Result<()> {
        let load = Load {
            messages,
            body_bytes: 100,
        };
        self.database.add("bench-0", load)
    }
}

/// Inserts so many messages, one after the other, each after what is to be done before. Returns how long
/// each took, in milliseconds.
fn insert(
    producer: &dyn Connection,
    count: usize,
    mut before: impl FnMut() -> miette::Result<()>,
) -> miette::Result<Vec<f64>> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        before()?;
        std::thread::park_timeout(THINKS);
        let begun = Instant::now();
        producer.run(INSERT)?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}
