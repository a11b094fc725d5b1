//! Schedules that fall due at one instant, beside messages that are sent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ganger_queue::delivery::Outgoing;
use ganger_table::ledger::Ledger;
use jiff::Timestamp;
use miette::{IntoDiagnostic, ensure, miette};
use serde::Serialize;
use tokio::time::Instant;

use crate::Plan;
use crate::common::figures::{Run, Series};
use crate::common::machine::cpu_seconds;
use crate::common::show::{note, number, percent, tenths};
use crate::place::{Kind, Place, Scheduled};

/// Number of messages in a call of the client.
const SENT_TOGETHER: usize = 1000;

/// The dispatch of a burst, and the sending of as many messages.
#[derive(Debug, Serialize)]
pub(crate) struct Burst {
    pub(crate) kind: Kind,
    /// Number of ledgers that dispatch at once, each with a thread and a connection, as daemons have.
    pub(crate) daemons: usize,
    dispatched: Series,
    sent: Series,
}

impl Burst {
    pub(crate) const HEADER: &'static [&'static str] = &[
        "database",
        "daemons",
        "dispatched/s",
        "cpu µs each",
        "sent/s",
        "dispatched to sent",
    ];

    pub(crate) fn per_second(&self) -> f64 {
        self.dispatched.per_second()
    }

    pub(crate) fn row(&self) -> Vec<String> {
        // The time of threads that have ended is not told.
        let cpu = match self.daemons {
            1 => tenths(self.dispatched.cpu_micros()),
            _ => "-".to_owned(),
        };
        vec![
            self.kind.name().to_owned(),
            self.daemons.to_string(),
            number(self.per_second()),
            cpu,
            number(self.sent.per_second()),
            percent(self.dispatched.ratio_to(&self.sent)),
        ]
    }
}

pub(crate) fn measure(place: &Place, plan: Plan, daemons: usize) -> miette::Result<Burst> {
    let mut burst = Burst {
        kind: place.kind,
        daemons,
        dispatched: Series::default(),
        sent: Series::default(),
    };
    for round in 1..=plan.rounds {
        note(format_args!(
            "{}: burst, {daemons} daemon(s), round {round} of {}",
            place.kind.name(),
            plan.rounds
        ));
        let (mut scheduled, due) = due_later(place, plan.burst)?;
        let further = (1..daemons).map(|_| scheduled.another_ledger());
        let further = further.collect::<miette::Result<Vec<_>>>()?;
        wait_for(due)?;
        let dispatched = dispatch(&mut scheduled.ledger, further, plan.burst)?;
        burst.dispatched.push(dispatched);
        burst.sent.push(send(&mut scheduled, plan.burst)?);
    }
    Ok(burst)
}

/// Enters schedules that fall due together, some time after all are entered.
fn due_later(place: &Place, count: usize) -> miette::Result<(Scheduled, Timestamp)> {
    // To enter them takes less.
    let later = Timestamp::now().as_second() + 2 + i64::try_from(count / 500).into_diagnostic()?;
    let due = Timestamp::from_second(later).into_diagnostic()?;
    let definition =
        format!("{{\"at\": \"{due}\", \"queue\": \"q\", \"body\": \"{{{{ slot }}}}\"}}");
    let scheduled = place.ledger(std::iter::repeat_n(definition, count))?;
    Ok((scheduled, due))
}

/// Waits until the schedules are due.
fn wait_for(due: Timestamp) -> miette::Result<()> {
    ensure!(
        Timestamp::now() < due,
        "they fell due while they were entered"
    );
    // The thread may be woken for another reason.
    while let Ok(wait) = Duration::try_from(due.duration_since(Timestamp::now()))
        && !wait.is_zero()
    {
        std::thread::park_timeout(wait);
    }
    Ok(())
}

/// Dispatches with all ledgers at once until everything is sent.
fn dispatch(first: &mut Ledger, further: Vec<Ledger>, count: usize) -> miette::Result<Run> {
    let expected = u64::try_from(count).into_diagnostic()?;
    let sent = AtomicU64::new(0);
    let work = |ledger: &mut Ledger| -> miette::Result<()> {
        while sent.load(Ordering::Relaxed) < expected {
            let dispatched = ledger.dispatch().into_diagnostic()?.sent;
            sent.fetch_add(dispatched, Ordering::Relaxed);
        }
        Ok(())
    };
    let (begun, cpu) = (Instant::now(), cpu_seconds("self")?);
    std::thread::scope(|scope| {
        let spawn = |mut ledger: Ledger| scope.spawn(move || work(&mut ledger));
        let threads: Vec<_> = further.into_iter().map(spawn).collect();
        work(first)?;
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(done) => done,
            Err(_) => Err(miette!("a daemon panicked")),
        });
        joined.collect::<miette::Result<()>>()
    })?;
    let sent = sent.into_inner();
    ensure!(sent == expected, "{sent} messages of {expected} schedules");
    Ok(Run {
        messages: count,
        seconds: begun.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds("self")? - cpu,
    })
}

fn send(scheduled: &mut Scheduled, count: usize) -> miette::Result<Run> {
    let message = Outgoing {
        queue: "q".to_owned(),
        body: "2026-12-01T00:00:00Z".into(),
        ..Outgoing::default()
    };
    let together = vec![message; SENT_TOGETHER.min(count)];
    let (begun, cpu) = (Instant::now(), cpu_seconds("self")?);
    for _ in 0..count / together.len() {
        scheduled.client.send(&together).into_diagnostic()?;
    }
    Ok(Run {
        messages: count,
        seconds: begun.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds("self")? - cpu,
    })
}
