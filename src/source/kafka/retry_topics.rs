//! Tiers that a changed policy needs, made while the pool works, and those that another daemon has
//! made, whose policy may be another. Those that nobody needs any more stay: they may hold messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::blocking_calls;
use super::blocking_calls::Answer;
use super::event_loop::Task;
use super::health::HealthIssue;
use crate::broker::kafka::error::KafkaError;
use crate::broker::kafka::topics;
use crate::broker::kafka::topics::{Found, Wanted};
use crate::rules::ladder::Tier;

impl Task {
    /// Sees that there are tiers for a new policy.
    pub(super) fn need_tiers(&mut self, tiers: Vec<Tier>, now: Instant) {
        let wanted = Wanted {
            tiers,
            ..self.plan.wanted.clone()
        };
        if self.topics.need(wanted) {
            self.ask_for_topics(now);
        } else {
            self.health.over(&self.end, HealthIssue::Setup);
        }
    }

    /// Asks again if it is time.
    pub(super) fn ask_again_for_topics(&mut self, now: Instant) {
        if self.topics.make_at().is_some_and(|again| again <= now) {
            self.ask_for_topics(now);
        }
    }

    /// Looks for tiers that others have made, if it is time.
    pub(super) fn look_for_tiers(&mut self, now: Instant) {
        if !self.topics.look(now) {
            return;
        }
        let native = Arc::clone(self.consumer.native());
        let (config, topic) = (self.plan.config.clone(), self.plan.wanted.topic.clone());
        let failed = Answer::Tiers(Err(KafkaError::panicked()));
        // If there is no thread to be had, it is looked next time.
        self.asking.ask("kafka-tiers", failed, move || {
            let there = topics::list(&native);
            Answer::Tiers(there.map(|there| topics::tiers(&config, &topic, &there)))
        });
    }

    /// Takes in which tiers there are.
    pub(super) fn take_tiers(&mut self, there: Result<BTreeMap<Tier, String>, KafkaError>) {
        let pool = self.plan.pool.as_str();
        match there {
            Ok(there) => {
                for topic in self.topics.add(there) {
                    tracing::info!(
                        pool,
                        topic,
                        "a tier that someone else has made is read, too"
                    );
                }
            }
            Err(error) => tracing::debug!(pool, %error, "tiers could not be looked for"),
        }
    }

    fn ask_for_topics(&mut self, now: Instant) {
        let Some((number, wanted)) = self.topics.ask() else {
            return;
        };
        let native = Arc::clone(self.consumer.native());
        let config = self.plan.config.clone();
        let failed = Answer::Topics(number, Err(KafkaError::panicked()));
        let asked = self.asking.ask("kafka-topics", failed, move || {
            Answer::Topics(number, blocking_calls::topics(&config, &wanted, &native))
        });
        if !asked {
            self.topics.could_not_ask(now);
        }
    }

    /// Takes in which topics there are.
    pub(super) fn take_topics(
        &mut self,
        number: u64,
        found: Result<Found, KafkaError>,
        now: Instant,
    ) {
        match self.topics.take(number, found, now, fastrand::f64()) {
            None => {}
            Some(Ok(())) => self.health.over(&self.end, HealthIssue::Setup),
            Some(Err(error)) => {
                self.health
                    .begin(&self.end, HealthIssue::Setup, error.to_string());
            }
        }
    }
}
