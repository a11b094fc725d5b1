//! The cost of remembering finished messages: a row for each, entered in the transaction that removes the
//! message.

use serde::Serialize;

use crate::common::figures::median;
use crate::common::show::{note, percent};
use crate::daemon;
use crate::plan::Plan;
use crate::server::Server;
use crate::setup::{Setup, Window};
use crate::watch::Rounds;

const WORKERS: usize = 2;

/// One of the two settings.
#[derive(Debug, Serialize)]
pub(crate) struct Remembering {
    remembers: bool,
    rounds: Rounds,
    /// Throughput, and processor time per message including the server's, as shares of those without entries.
    pub(crate) speed: f64,
    cost: f64,
}

/// Measures both in each round.
pub(crate) fn measure(server: &Server, plan: &Plan) -> miette::Result<Vec<Remembering>> {
    let mut both = [false, true].map(|remembers| Remembering {
        remembers,
        rounds: Rounds::default(),
        speed: 0.0,
        cost: 0.0,
    });
    for round in 1..=plan.rounds {
        note(format_args!(
            "idempotency, round {round} of {}",
            plan.rounds
        ));
        for way in &mut both {
            way.round(server, plan)?;
        }
    }
    let first = both[0].rounds.clone();
    for way in &mut both {
        way.speed = way.rounds.ratio_to(&first);
        let costs = way.rounds.each_whole_micros().into_iter();
        let pairs = costs.zip(first.each_whole_micros());
        way.cost = median(pairs.map(|(now, then)| now / then));
    }
    Ok(both.into())
}

impl Remembering {
    fn round(&mut self, server: &Server, plan: &Plan) -> miette::Result<()> {
        let keys = if self.remembers {
            "idempotency = {}\n"
        } else {
            ""
        };
        let setup = Setup {
            keys: keys.to_owned(),
            ..Setup::one_pool(WORKERS, Window::Auto)
        };
        let measured = daemon::measure(server, &setup, plan.idempotency_load)?;
        self.rounds.push(measured.watched);
        Ok(())
    }

    pub(crate) const HEADER: &[&str] = &[
        "what is finished",
        "messages/s",
        "CPU µs",
        "server µs",
        "speed",
        "cost",
    ];

    pub(crate) fn row(&self) -> Vec<String> {
        let what = if self.remembers {
            "remembered"
        } else {
            "forgotten"
        };
        let mut row = vec![what.to_owned()];
        row.extend(self.rounds.cells());
        row.extend([self.speed, self.cost].map(percent));
        row
    }
}
