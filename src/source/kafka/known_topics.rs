//! The topics beside the pool's own: which there are, which are being made for a changed policy, and when
//! to look for those that others have made. Those that nobody needs any more stay: they may hold messages.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::broker::kafka::error::KafkaError;
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

/// What is known of them.
#[derive(Debug)]
pub(super) struct KnownTopics {
    found: Found,
    /// What is being made.
    wanted: Option<Wanted>,
    /// Which question the answer must be to.
    number: u64,
    failures: u32,
    make_again: Option<Instant>,
    look_every: Duration,
    look_at: Instant,
}

impl KnownTopics {
    /// With how often librdkafka looks for topics.
    pub(super) fn new(found: Found, topics_every: Duration, now: Instant) -> Self {
        let look_every = topics_every * SELDOM;
        Self {
            found,
            wanted: None,
            number: 0,
            failures: 0,
            make_again: None,
            look_every,
            look_at: now + look_every,
        }
    }

    pub(super) fn found(&self) -> &Found {
        &self.found
    }

    /// The topic of a tier; none if it is not there yet.
    pub(super) fn tier(&self, tier: Tier) -> Option<&String> {
        self.found.tiers.get(&tier)
    }

    /// All that are read, with the pool's own.
    pub(super) fn all(&self, main: &str) -> BTreeSet<String> {
        let tiers = self.found.tiers.values().cloned();
        tiers.chain([main.to_owned()]).collect()
    }

    /// When what could not be made is tried again.
    pub(super) fn make_at(&self) -> Option<Instant> {
        self.make_again
    }

    /// When to look for those of others.
    pub(super) fn look_at(&self) -> Instant {
        self.look_at
    }

    // -- for a changed policy --

    /// These are needed from now on. False if all are there.
    pub(super) fn need(&mut self, wanted: Wanted) -> bool {
        self.failures = 0;
        let there = |tier: &Tier| self.found.tiers.contains_key(tier);
        if wanted.tiers.iter().all(there) {
            self.wanted = None;
            self.make_again = None;
            // Whatever was asked before is of no account.
            self.number += 1;
            return false;
        }
        self.wanted = Some(wanted);
        true
    }

    /// What is asked for now, and the number of the question.
    pub(super) fn ask(&mut self) -> Option<(u64, Wanted)> {
        self.make_again = None;
        self.number += 1;
        Some((self.number, self.wanted.clone()?))
    }

    /// It could not be asked.
    pub(super) fn could_not_ask(&mut self, now: Instant) {
        self.make_again = Some(now + AGAIN.initial);
    }

    /// The answer will reach nobody.
    pub(super) fn ask_again(&mut self, now: Instant) {
        self.make_again = self.wanted.is_some().then_some(now);
    }

    /// Takes in the answer: whether all are there, or why not; none if it was to another question.
    pub(super) fn take(
        &mut self,
        number: u64,
        found: Result<Found, KafkaError>,
        now: Instant,
        dice: f64,
    ) -> Option<Result<(), KafkaError>> {
        if number != self.number {
            return None;
        }
        Some(match found {
            Ok(found) => {
                self.wanted = None;
                self.found = found.with(std::mem::take(&mut self.found));
                Ok(())
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                self.make_again = Some(now + AGAIN.wait(self.failures, dice));
                Err(error)
            }
        })
    }

    // -- of others --

    /// Whether it is time to look. If there is no answer it is looked next time.
    pub(super) fn look(&mut self, now: Instant) -> bool {
        let is_time = self.look_at <= now;
        if is_time {
            self.look_at = now + self.look_every;
        }
        is_time
    }

    /// Takes in which tiers there are, and tells those that are new. One that is not there any more is
    /// not forgotten: it may be without a leader.
    pub(super) fn add(&mut self, there: BTreeMap<Tier, String>) -> Vec<String> {
        let mut new = Vec::new();
        for (tier, topic) in there {
            self.found.tiers.entry(tier).or_insert_with(|| {
                new.push(topic.clone());
                topic
            });
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::kafka::topic_names::LADDER;

    fn tier(seconds: u64) -> Tier {
        LADDER.tier(Duration::from_secs(seconds))
    }

    fn found(seconds: &[u64]) -> Found {
        Found {
            cluster: "c".to_owned(),
            partitions: 3,
            tiers: seconds
                .iter()
                .map(|seconds| (tier(*seconds), format!("orders.{seconds}")))
                .collect(),
        }
    }

    fn wanted(seconds: &[u64]) -> Wanted {
        Wanted {
            topic: "orders".to_owned(),
            tiers: seconds.iter().map(|seconds| tier(*seconds)).collect(),
            dead: "dead".to_owned(),
        }
    }

    #[test]
    fn only_the_answer_to_the_last_question_counts() {
        let now = Instant::now();
        let mut topics = KnownTopics::new(found(&[1]), Duration::from_secs(1), now);
        assert!(!topics.need(wanted(&[1])), "it is there");
        assert!(topics.need(wanted(&[1, 64])));
        let (first, _) = topics.ask().unwrap();
        assert!(topics.need(wanted(&[1, 256])));
        let (second, asked) = topics.ask().unwrap();
        assert_eq!(asked, wanted(&[1, 256]));
        let failed = || Err(KafkaError::panicked());
        assert!(topics.take(first, failed(), now, 0.5).is_none());
        assert!(topics.take(second, failed(), now, 0.5).unwrap().is_err());
        assert!(topics.make_at().is_some());
        let (third, _) = topics.ask().unwrap();
        assert_eq!(topics.make_at(), None);
        let taken = topics.take(third, Ok(found(&[256])), now, 0.5);
        assert!(taken.unwrap().is_ok());
        assert!(topics.tier(tier(1)).is_some() && topics.tier(tier(256)).is_some());
        topics.ask_again(now);
        assert_eq!((topics.make_at(), topics.ask()), (None, None));
    }

    #[test]
    fn what_others_have_made_is_told_once() {
        let now = Instant::now();
        let mut topics = KnownTopics::new(found(&[1]), Duration::from_secs(1), now);
        assert!(!topics.look(now));
        let then = topics.look_at();
        assert!(topics.look(then) && !topics.look(then));
        assert_eq!(topics.add(found(&[1, 64]).tiers), ["orders.64"]);
        assert!(topics.add(found(&[64]).tiers).is_empty());
        assert_eq!(topics.all("orders").len(), 3);
    }
}
