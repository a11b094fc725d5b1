//! Schedules that fall due at one instant, beside messages that are sent.

use std::time::Duration;

use ganger_queue::delivery::Outgoing;
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
    dispatched: Series,
    sent: Series,
}

impl Burst {
    pub(crate) const HEADER: &'static [&'static str] = &[
        "database",
        "dispatched/s",
        "cpu µs each",
        "sent/s",
        "dispatched to sent",
    ];

    pub(crate) fn per_second(&self) -> f64 {
        self.dispatched.per_second()
    }

    pub(crate) fn row(&self) -> Vec<String> {
        vec![
            self.kind.name().to_owned(),
            number(self.per_second()),
            tenths(self.dispatched.cpu_micros()),
            number(self.sent.per_second()),
            percent(self.dispatched.ratio_to(&self.sent)),
        ]
    }
}

pub(crate) fn measure(place: &Place, plan: Plan) -> miette::Result<Burst> {
    let mut burst = Burst {
        kind: place.kind,
        dispatched: Series::default(),
        sent: Series::default(),
    };
    for round in 1..=plan.rounds {
        note(format_args!(
            "{}: burst, round {round} of {}",
            place.kind.name(),
            plan.rounds
        ));
        let mut scheduled = due_later(place, plan.burst)?;
        burst.dispatched.push(dispatch(&mut scheduled, plan.burst)?);
        burst.sent.push(send(&mut scheduled, plan.burst)?);
    }
    Ok(burst)
}

/// Enters schedules that fall due together once all are entered.
fn due_later(place: &Place, count: usize) -> miette::Result<Scheduled> {
    // To enter them takes less.
    let later = Timestamp::now().as_second() + 2 + i64::try_from(count / 500).into_diagnostic()?;
    let due = Timestamp::from_second(later).into_diagnostic()?;
    let definition =
        format!("{{\"at\": \"{due}\", \"queue\": \"q\", \"body\": \"{{{{ slot }}}}\"}}");
    let mut scheduled = place.ledger(std::iter::repeat_n(definition, count))?;
    while scheduled.ledger.dispatch().into_diagnostic()?.wait == Some(Duration::ZERO) {}
    let wait = due.duration_since(Timestamp::now());
    let wait =
        Duration::try_from(wait).map_err(|_| miette!("they fell due while they were entered"))?;
    std::thread::park_timeout(wait);
    Ok(scheduled)
}

fn dispatch(scheduled: &mut Scheduled, count: usize) -> miette::Result<Run> {
    let expected = u64::try_from(count).into_diagnostic()?;
    let (begun, cpu) = (Instant::now(), cpu_seconds("self")?);
    let mut sent = 0;
    while sent < expected {
        sent += scheduled.ledger.dispatch().into_diagnostic()?.sent;
    }
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
