//! Tiers that a changed policy needs, made while the pool works. Those that it needs no more stay:
//! they may hold messages.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::asking::{self, Answer};
use super::error::KafkaError;
use super::health::Trouble;
use super::names::Tier;
use super::task::Task;
use super::topics::{Found, Wanted};
use crate::backoff::Backoff;

/// The pauses before topics that could not be made are tried again.
const AGAIN: Backoff = Backoff {
    initial: Duration::from_secs(1),
    factor: 2.0,
    max: Duration::from_secs(60),
    jitter: 0.2,
};

/// Tiers that are being made.
#[derive(Debug, Default)]
pub(super) struct Making {
    wanted: Option<Wanted>,
    /// Which question the answer must be to.
    number: u64,
    failures: u32,
    again: Option<Instant>,
}

impl Making {
    /// When something falls due by itself.
    pub(super) fn due(&self) -> Option<Instant> {
        self.again
    }
}

impl Task {
    /// Sees that there are tiers for a new policy.
    pub(super) fn need_tiers(&mut self, tiers: Vec<Tier>, now: Instant) {
        let there = |tier: &Tier| self.found.tiers.contains_key(tier);
        if tiers.iter().all(there) {
            self.making = Making {
                number: self.making.number + 1,
                ..Making::default()
            };
            self.health.over(&self.end, Trouble::Setup);
            return;
        }
        self.making.wanted = Some(Wanted {
            tiers,
            ..self.plan.wanted.clone()
        });
        self.making.failures = 0;
        self.ask_for_topics(now);
    }

    /// Asks again if it is time.
    pub(super) fn ask_again_for_topics(&mut self, now: Instant) {
        if self.making.again.is_some_and(|again| again <= now) {
            self.ask_for_topics(now);
        }
    }

    fn ask_for_topics(&mut self, now: Instant) {
        self.making.again = None;
        self.making.number += 1;
        let Some(wanted) = self.making.wanted.clone() else {
            return;
        };
        let native = Arc::clone(self.consumer.native());
        let (config, number) = (self.plan.config.clone(), self.making.number);
        let failed = Answer::Topics(number, Err(KafkaError::panicked()));
        let asked = self.asking.ask("kafka-topics", failed, move || {
            Answer::Topics(number, asking::topics(&config, &wanted, &native))
        });
        if !asked {
            self.making.again = Some(now + AGAIN.initial);
        }
    }

    /// Takes in which topics there are.
    pub(super) fn take_topics(
        &mut self,
        number: u64,
        found: Result<Found, KafkaError>,
        now: Instant,
    ) {
        if number != self.making.number {
            return;
        }
        match found {
            Ok(found) => {
                self.making.wanted = None;
                self.found = found;
                self.health.over(&self.end, Trouble::Setup);
            }
            Err(error) => {
                self.making.failures = self.making.failures.saturating_add(1);
                let pause = AGAIN.wait(self.making.failures, fastrand::f64());
                self.making.again = Some(now + pause);
                self.health
                    .trouble(&self.end, Trouble::Setup, error.to_string());
            }
        }
    }
}
