//! Topics that appear while the pool runs: tiers that a changed policy needs, those created by another
//! daemon, whose policy may differ, and topics that a pattern matches, with those beside them. Tiers
//! that are no longer needed stay: they may hold messages.

use std::sync::Arc;

use tokio::time::Instant;

use super::blocking_calls;
use super::blocking_calls::Answer;
use super::event_loop::Task;
use super::health::HealthIssue;
use crate::broker::error::KafkaError;
use crate::broker::topics;
use crate::broker::wanted::{Found, There};
use ganger_queue::ladder::Tier;

impl Task {
    /// Ensures that there are tiers for a new policy.
    pub(super) fn need_tiers(&mut self, tiers: Vec<Tier>, now: Instant) {
        self.plan.wanted.tiers = tiers;
        if self.topics.need(self.plan.wanted.clone()) {
            self.ask_for_topics(now);
        } else {
            self.health.over(&self.end, HealthIssue::Setup);
        }
    }

    /// Repeats the query if it is due.
    pub(super) fn ask_again_for_topics(&mut self, now: Instant) {
        if self.topics.make_at().is_some_and(|again| again <= now) {
            self.ask_for_topics(now);
        }
    }

    /// Looks for topics that have appeared and tiers created by others, if a check is due.
    pub(super) fn look_for_topics(&mut self, now: Instant) {
        if !self.topics.look(now) {
            return;
        }
        let native = Arc::clone(self.consumer.native());
        let (config, wanted) = (self.plan.config.clone(), self.plan.wanted.clone());
        let failed = Answer::There(Err(KafkaError::panicked()));
        // Without a thread, the next check is the one scheduled.
        self.asking.ask("kafka-look", failed, move || {
            Answer::There(topics::there(&config, &wanted, &native))
        });
    }

    /// Handles the existing topics.
    pub(super) fn take_there(&mut self, there: Result<There, KafkaError>, now: Instant) {
        let pool = self.plan.pool.as_str();
        let changes = match there {
            Ok(there) => self.topics.see(there, &self.plan.wanted),
            Err(error) => return tracing::debug!(pool, %error, "topics could not be looked for"),
        };
        for topic in changes.tiers {
            tracing::info!(
                pool,
                topic,
                "a tier that someone else has made is read, too"
            );
        }
        for topic in &changes.gone {
            tracing::warn!(pool, topic, "a topic that a pattern matched is gone");
        }
        if !changes.appeared.is_empty() && self.topics.need_for_more(self.plan.wanted.clone()) {
            self.ask_for_topics(now);
        }
        if !changes.gone.is_empty() {
            self.tell_of_no_topic();
        }
    }

    /// Logs that there is nothing to read yet, if so.
    pub(super) fn tell_of_no_topic(&self) {
        if self.topics.found().topics.is_empty() {
            tracing::warn!(
                pool = self.plan.pool,
                queue = &*self.policy.borrow().queue,
                "no topic matches yet: they are read as they appear"
            );
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

    /// Handles the topics found or created.
    pub(super) fn take_topics(
        &mut self,
        number: u64,
        found: Result<Found, KafkaError>,
        now: Instant,
    ) {
        let known = self.topics.found().topics.clone();
        match self.topics.take(number, found, now, fastrand::f64()) {
            None => {}
            Some(Ok(())) => {
                let topics = self.topics.found().topics.keys();
                for topic in topics.filter(|topic| !known.contains_key(*topic)) {
                    let pool = self.plan.pool.as_str();
                    tracing::info!(
                        pool,
                        topic,
                        "a topic that matches has appeared, and is read"
                    );
                }
                self.health.over(&self.end, HealthIssue::Setup);
            }
            Some(Err(error)) => {
                self.health
                    .begin(&self.end, HealthIssue::Setup, error.to_string());
            }
        }
    }
}
