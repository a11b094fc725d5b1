//! The effect of claims on a producer: the duration of its inserts, one row in a transaction, alone, and
//! beside eight sources that claim from the same queue, or from one in another database. The latter share the
//! disk and the processors with the producer, but no lock on a table. Inserts beside eight raw loops show the
//! effect of any program that claims. Sources and loops work either in step with the producer, on messages
//! that arrive before each of its inserts, or flat out.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::common::figures::{median, percentile};
use crate::common::show::{milliseconds, note, percent};
use crate::daemon::Daemon;
use crate::loops::Loops;
use crate::plan::Plan;
use crate::server::{Connection, Database, Load, Server};
use crate::setup::{Setup, Window};

const EIGHT: usize = 8;

/// Pause before each of the producer's messages, for a producer that has other work, too.
const THINKS: Duration = Duration::from_millis(1);

/// Number of messages that arrive before each of the producer's, in step with it.
const COME_IN: usize = 16;

const INSERT: &str =
    "INSERT INTO consumer_messages (queue, body) VALUES ('bench-0', repeat('x', 100))";

const INSERT_SOME: &str =
    "INSERT INTO consumer_messages (queue, body) SELECT 'bench-0', repeat('x', 100)";

/// Activity beside the producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Beside {
    Nobody,
    Eight(Who, Work),
}

/// The programs that claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Who {
    Sources,
    /// Sources in another database.
    SourcesElsewhere,
    RawLoops,
}

/// Amount of their work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Work {
    InStep,
    FlatOut,
}

const ALL: [Beside; 7] = [
    Beside::Nobody,
    Beside::Eight(Who::Sources, Work::InStep),
    Beside::Eight(Who::SourcesElsewhere, Work::InStep),
    Beside::Eight(Who::RawLoops, Work::InStep),
    Beside::Eight(Who::Sources, Work::FlatOut),
    Beside::Eight(Who::SourcesElsewhere, Work::FlatOut),
    Beside::Eight(Who::RawLoops, Work::FlatOut),
];

/// Durations of inserts.
#[derive(Debug, Serialize)]
pub(crate) struct Inserts {
    beside: Beside,
    p50_ms: Vec<f64>,
    p99_ms: Vec<f64>,
    /// The p99 as a share of the p99 of the producer alone.
    pub(crate) p99_to_alone: f64,
    /// The p99 as a share of the p99 beside sources in another database, with the same amount of work.
    p99_to_elsewhere: f64,
    /// The p99 as a share of the p99 beside raw loops, with the same amount of work.
    p99_to_loops: f64,
}

/// Measures each activity once in each round.
pub(crate) fn measure(server: &Server, plan: &Plan) -> miette::Result<Vec<Inserts>> {
    let mut all = ALL.map(|beside| Inserts {
        beside,
        p50_ms: Vec::new(),
        p99_ms: Vec::new(),
        p99_to_alone: 0.0,
        p99_to_elsewhere: 0.0,
        p99_to_loops: 0.0,
    });
    for round in 1..=plan.rounds {
        note(format_args!("inserts, round {round} of {}", plan.rounds));
        for inserts in &mut all {
            inserts.round(server, plan)?;
        }
    }
    let found = all.each_ref().map(|one| (one.beside, one.p99_ms.clone()));
    for inserts in &mut all {
        let p99_of = |beside| found.iter().find(|(other, _)| *other == beside);
        let to = |beside| p99_of(beside).map_or(f64::NAN, |(_, p99)| inserts.p99_to(p99));
        let other = |who| to(inserts.beside.of(who));
        let (elsewhere, loops) = (other(Who::SourcesElsewhere), other(Who::RawLoops));
        inserts.p99_to_alone = to(Beside::Nobody);
        (inserts.p99_to_elsewhere, inserts.p99_to_loops) = (elsewhere, loops);
    }
    Ok(all.into())
}

impl Beside {
    /// Returns the same amount of work for another kind of program.
    fn of(self, who: Who) -> Self {
        match self {
            Self::Nobody => Self::Nobody,
            Self::Eight(_, work) => Self::Eight(who, work),
        }
    }
}

impl Inserts {
    fn round(&mut self, server: &Server, plan: &Plan) -> miette::Result<()> {
        let ours = server.database()?;
        let times = match self.beside {
            Beside::Nobody => insert(&*ours.connect()?, plan.inserts, || Ok(()))?,
            Beside::Eight(Who::SourcesElsewhere, work) => beside(
                Who::SourcesElsewhere,
                &server.database()?,
                &ours,
                work,
                plan,
            )?,
            Beside::Eight(who, work) => beside(who, &ours, &ours, work, plan)?,
        };
        self.p50_ms.push(percentile(times.iter().copied(), 50));
        self.p99_ms.push(percentile(times.iter().copied(), 99));
        Ok(())
    }

    fn p99_to(&self, others: &[f64]) -> f64 {
        let pairs = self.p99_ms.iter().zip(others);
        median(pairs.map(|(ours, other)| ours / other))
    }

    /// Returns whether the goal applies.
    pub(crate) fn is_judged(&self) -> bool {
        matches!(self.beside, Beside::Eight(Who::Sources, _))
    }

    pub(crate) fn describe(&self) -> String {
        let Beside::Eight(who, work) = self.beside else {
            return "nobody".to_owned();
        };
        let who = match who {
            Who::Sources => "sources",
            Who::SourcesElsewhere => "sources elsewhere",
            Who::RawLoops => "raw loops",
        };
        let work = match work {
            Work::InStep => "in step",
            Work::FlatOut => "flat out",
        };
        format!("{EIGHT} {who}, {work}")
    }

    pub(crate) const HEADER: &[&str] = &[
        "beside",
        "p50",
        "p99",
        "p99 to alone",
        "to elsewhere",
        "to raw loops",
    ];

    pub(crate) fn row(&self) -> Vec<String> {
        vec![
            self.describe(),
            milliseconds(median(self.p50_ms.iter().copied())),
            milliseconds(median(self.p99_ms.iter().copied())),
            percent(self.p99_to_alone),
            percent(self.p99_to_elsewhere),
            percent(self.p99_to_loops),
        ]
    }
}

/// The running programs that claim beside the producer.
enum Others {
    Sources(Daemon),
    Loops(Loops),
}

impl Others {
    fn start(who: Who, there: &Database<'_>) -> miette::Result<Self> {
        if who == Who::RawLoops {
            return Loops::start(there, EIGHT).map(Self::Loops);
        }
        let setup = Setup::one_pool(1, Window::Auto);
        Daemon::start_several(there, &setup, EIGHT).map(Self::Sources)
    }

    fn pause(&self) -> miette::Result<()> {
        match self {
            Self::Sources(daemon) => daemon.pause(),
            Self::Loops(loops) => loops.pause(),
        }
    }

    fn resume(&self) -> miette::Result<()> {
        match self {
            Self::Sources(daemon) => daemon.resume(),
            Self::Loops(loops) => {
                loops.resume();
                Ok(())
            }
        }
    }

    fn stop(self, there: &Database<'_>) -> miette::Result<()> {
        match self {
            Self::Sources(daemon) => daemon.stop(),
            // The insert wakes loops that sleep.
            Self::Loops(loops) => loops.stop(|| there.run(INSERT)),
        }
    }
}

/// Measures inserts while the programs work in their database.
fn beside(
    who: Who,
    theirs: &Database<'_>,
    ours: &Database<'_>,
    work: Work,
    plan: &Plan,
) -> miette::Result<Vec<f64>> {
    let others = Others::start(who, theirs)?;
    let producer = ours.connect()?;
    let times = match work {
        Work::InStep => {
            let (other, some) = (theirs.connect()?, theirs.series(COME_IN));
            let some = format!("{INSERT_SOME} FROM {some}");
            insert(&*producer, plan.inserts, || other.run(&some))?
        }
        Work::FlatOut => {
            let mut supply = Supply {
                others: &others,
                database: theirs,
                messages: plan.inserts_beside,
                mark: None,
            };
            insert(&*producer, plan.inserts, || supply.fill_up())?
        }
    };
    others.stop(theirs)?;
    Ok(times)
}

/// Work for the programs that claim. It is filled up between two inserts of the producer, however long they
/// take and however fast the programs are, so that nothing but their work runs beside an insert.
struct Supply<'a> {
    others: &'a Others,
    database: &'a Database<'a>,
    /// Number of messages that are filled in at a time.
    messages: usize,
    /// There is enough work while this message waits.
    mark: Option<i64>,
}

impl Supply<'_> {
    fn fill_up(&mut self) -> miette::Result<()> {
        if self.is_enough()? {
            return Ok(());
        }
        // Otherwise they would process the messages while these are inserted.
        self.others.pause()?;
        let rest = self.messages / 4;
        self.add(self.messages - rest)?;
        let last = self
            .database
            .number("SELECT max(id) FROM consumer_messages")?;
        self.mark = Some(last);
        self.add(rest)?;
        self.others.resume()
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

/// Inserts `count` messages one after the other, each after a call of `before`. Returns the duration of each,
/// in milliseconds.
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
