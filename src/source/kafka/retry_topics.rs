//! Tiers that a changed policy needs, made while the pool works, and those that another daemon has
//! made, whose policy may be another. Those that nobody needs any more stay: they may hold messages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::blocking_calls;
use super::blocking_calls::Answer;
use super::event_loop::Task;
use super::health::HealthIssue;
use crate::backoff::Backoff;
use crate::broker::kafka::error::KafkaError;
use crate::broker::kafka::topics;
use crate::broker::kafka::topics::{Found, Wanted};
use crate::rules::ladder::Tier;

/// The pauses before topics that could not be made are tried again.
const AGAIN: Backoff = Backoff {
    initial: Duration::from_secs(1),
    factor: 2.0,
    max: Duration::from_secs(60),
    jitter: 0.2,
};

/// So much more seldom than librdkafka looks for new topics do we look for new tiers.
const SELDOM: u32 = 10;

/// When to look for tiers that others have made.
#[derive(Debug)]
pub(super) struct Others {
    every: Duration,
    look_at: Instant,
}

impl Others {
    /// With how often librdkafka looks for topics.
    pub(super) fn new(topics_every: Duration, now: Instant) -> Self {
        let every = topics_every * SELDOM;
        Self {
            every,
            look_at: now + every,
        }
    }

    /// When something falls due by itself.
    pub(super) fn due(&self) -> Instant {
        self.look_at
    }
}

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

    /// The answer will reach nobody.
    pub(super) fn ask_again(&mut self, now: Instant) {
        self.again = self.wanted.is_some().then_some(now);
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
            self.health.over(&self.end, HealthIssue::Setup);
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

    /// Looks for tiers that others have made, if it is time.
    pub(super) fn look_for_tiers(&mut self, now: Instant) {
        if self.others.look_at > now {
            return;
        }
        self.others.look_at = now + self.others.every;
        let native = Arc::clone(self.consumer.native());
        let (config, topic) = (self.plan.config.clone(), self.plan.wanted.topic.clone());
        let failed = Answer::Tiers(Err(KafkaError::panicked()));
        // If there is no thread to be had, it is looked next time.
        self.asking.ask("kafka-tiers", failed, move || {
            let there = topics::list(&native);
            Answer::Tiers(there.map(|there| topics::tiers(&config, &topic, &there)))
        });
    }

    /// Takes in which tiers there are. One that is not there any more is not forgotten: it may be
    /// without a leader.
    pub(super) fn take_tiers(&mut self, there: Result<BTreeMap<Tier, String>, KafkaError>) {
        let there = match there {
            Ok(there) => there,
            Err(error) => {
                tracing::debug!(pool = self.plan.pool, %error, "tiers could not be looked for");
                return;
            }
        };
        for (tier, topic) in there {
            if !self.found.tiers.contains_key(&tier) {
                let pool = self.plan.pool.as_str();
                tracing::info!(
                    pool,
                    topic,
                    "a tier that someone else has made is read, too"
                );
                self.found.tiers.insert(tier, topic);
            }
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
            Answer::Topics(number, blocking_calls::topics(&config, &wanted, &native))
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
                self.found = found.with(std::mem::take(&mut self.found));
                self.health.over(&self.end, HealthIssue::Setup);
            }
            Err(error) => {
                self.making.failures = self.making.failures.saturating_add(1);
                let pause = AGAIN.wait(self.making.failures, fastrand::f64());
                self.making.again = Some(now + pause);
                self.health
                    .begin(&self.end, HealthIssue::Setup, error.to_string());
            }
        }
    }
}
