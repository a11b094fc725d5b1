//! Topics that the pool reads, and those beside them: the existing ones, those being created for a
//! changed policy or a new topic, and when to look for those created by others. Tiers that are no
//! longer needed stay: they may hold messages. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::broker::error::KafkaError;
use crate::broker::wanted::{Found, There, Wanted};
use ganger_core::backoff::Backoff;
use ganger_queue::ladder::Tier;

/// Pauses before the creation of topics is retried.
const AGAIN: Backoff = Backoff {
    initial: Duration::from_secs(1),
    factor: 2.0,
    max: Duration::from_secs(60),
    jitter: 0.2,
};

/// Factor by which the interval for new tiers exceeds librdkafka's for new topics.
const SELDOM: u32 = 10;

/// Role of a topic for the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    /// Original topic of its messages.
    pub(super) topic: Arc<str>,
    /// True if it is a tier of that topic.
    pub(super) is_tier: bool,
}

/// Changes since the last check.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Tiers created by others.
    pub(super) tiers: Vec<String>,
    /// Topics that match a pattern and are not read yet.
    pub(super) appeared: Vec<String>,
    /// Topics that are no longer read.
    pub(super) gone: Vec<String>,
}

/// Known topics of a pool.
#[derive(Debug)]
pub(super) struct KnownTopics {
    found: Found,
    /// Topics being created.
    wanted: Option<Wanted>,
    /// Number of the query whose answer counts.
    number: u64,
    failures: u32,
    make_again: Option<Instant>,
    look_every: Duration,
    look_at: Instant,
    /// Topics missing at the last check.
    missed: BTreeSet<String>,
}

impl KnownTopics {
    /// Creates the state, with librdkafka's interval for new topics, and whether any may appear.
    pub(super) fn new(found: Found, topics_every: Duration, may_come: bool, now: Instant) -> Self {
        let look_every = topics_every * if may_come { 1 } else { SELDOM };
        Self {
            found,
            wanted: None,
            number: 0,
            failures: 0,
            make_again: None,
            look_every,
            look_at: now + look_every,
            missed: BTreeSet::new(),
        }
    }

    pub(super) fn found(&self) -> &Found {
        &self.found
    }

    /// Returns the topic of this tier of a topic; none if it does not exist yet.
    pub(super) fn tier(&self, topic: &str, tier: Tier) -> Option<&String> {
        self.found.tiers.get(topic)?.get(&tier)
    }

    /// Returns all topics that are read.
    pub(super) fn all(&self) -> BTreeSet<String> {
        self.found
            .topics
            .keys()
            .cloned()
            .chain(self.tiers())
            .collect()
    }

    /// Returns all tiers.
    pub(super) fn tiers(&self) -> BTreeSet<String> {
        let tiers = self.found.tiers.values();
        tiers.flat_map(|tiers| tiers.values().cloned()).collect()
    }

    /// Returns the role of a topic that is read.
    pub(super) fn origin(&self, name: &str) -> Origin {
        let mut topics = self.found.tiers.iter();
        let of = topics.find(|(_, tiers)| tiers.values().any(|tier| tier == name));
        Origin {
            topic: of.map_or(name, |(topic, _)| topic).into(),
            is_tier: of.is_some(),
        }
    }

    /// Returns the time at which a failed creation is retried.
    pub(super) fn make_at(&self) -> Option<Instant> {
        self.make_again
    }

    /// Returns the time of the next check for topics created by others.
    pub(super) fn look_at(&self) -> Instant {
        self.look_at
    }

    // -- that are to be made --

    /// Sets the topics needed from now on. False if all exist.
    pub(super) fn need(&mut self, wanted: Wanted) -> bool {
        self.failures = 0;
        let has_all = |topic: &String| {
            let mut tiers = wanted.tiers.iter();
            tiers.all(|tier| self.tier(topic, *tier).is_some())
        };
        if self.found.topics.keys().all(has_all) {
            self.wanted = None;
            self.make_again = None;
            // Earlier queries no longer count.
            self.number += 1;
            return false;
        }
        self.wanted = Some(wanted);
        true
    }

    /// Adds the topics needed for new ones. False if some are being created already.
    pub(super) fn need_for_more(&mut self, wanted: Wanted) -> bool {
        let is_new = self.wanted.is_none();
        self.wanted.get_or_insert(wanted);
        is_new
    }

    /// Returns the topics to query now, and the number of the query.
    pub(super) fn ask(&mut self) -> Option<(u64, Wanted)> {
        self.make_again = None;
        self.number += 1;
        Some((self.number, self.wanted.clone()?))
    }

    /// Records that the query could not be started.
    pub(super) fn could_not_ask(&mut self, now: Instant) {
        self.make_again = Some(now + AGAIN.initial);
    }

    /// Schedules the query again, since its answer will be lost.
    pub(super) fn ask_again(&mut self, now: Instant) {
        self.make_again = self.wanted.is_some().then_some(now);
    }

    /// Handles an answer: returns whether all exist, or the error; none if it belongs to another query.
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

    /// Returns whether a check is due. If it gets no answer, the next one follows as scheduled.
    pub(super) fn look(&mut self, now: Instant) -> bool {
        let is_time = self.look_at <= now;
        if is_time {
            self.look_at = now + self.look_every;
        }
        is_time
    }

    /// Handles the existing topics and returns the changes. A missing tier is not forgotten: it may be
    /// without a leader. A topic is, unless it is named, when it was missing twice.
    pub(super) fn see(&mut self, there: There, wanted: &Wanted) -> Changes {
        let mut changes = Changes::default();
        for (topic, tiers) in there.tiers {
            let known = self.found.tiers.entry(topic).or_default();
            for (tier, topic) in tiers {
                known.entry(tier).or_insert_with(|| {
                    changes.tiers.push(topic.clone());
                    topic
                });
            }
        }
        let known = self.found.topics.keys().cloned();
        let missing: BTreeSet<String> = known
            .filter(|topic| !there.topics.contains(topic))
            .filter(|topic| !wanted.topics.names().contains(topic))
            .collect();
        changes.gone = missing.intersection(&self.missed).cloned().collect();
        for topic in &changes.gone {
            self.found.topics.remove(topic);
        }
        self.missed = missing;
        let is_new = |topic: &String| !self.found.topics.contains_key(topic);
        changes.appeared = there.topics.into_iter().filter(is_new).collect();
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::topic_names::LADDER;
    use ganger_config::model::Topics;

    fn tier(seconds: u64) -> Tier {
        LADDER.tier(Duration::from_secs(seconds))
    }

    fn found(topics: &[&str], seconds: &[u64]) -> Found {
        let tiers = |topic: &&str| {
            let tier = |seconds: &u64| (tier(*seconds), format!("{topic}.{seconds}"));
            ((*topic).to_owned(), seconds.iter().map(tier).collect())
        };
        Found {
            cluster: "c".to_owned(),
            topics: topics
                .iter()
                .map(|topic| ((*topic).to_owned(), 3))
                .collect(),
            tiers: topics.iter().map(tiers).collect(),
        }
    }

    fn there(topics: &[&str], found: Found) -> There {
        There {
            topics: topics.iter().map(ToString::to_string).collect(),
            tiers: found.tiers,
        }
    }

    fn wanted(topics: &[&str], seconds: &[u64]) -> Wanted {
        let topics: Vec<String> = topics.iter().map(ToString::to_string).collect();
        Wanted {
            topics: Topics::read(&topics).unwrap(),
            tiers: seconds.iter().map(|seconds| tier(*seconds)).collect(),
            dead: None,
        }
    }

    fn known(topics: &[&str], seconds: &[u64]) -> KnownTopics {
        let found = found(topics, seconds);
        KnownTopics::new(found, Duration::from_secs(1), false, Instant::now())
    }

    #[test]
    fn only_the_answer_to_the_last_question_counts() {
        let now = Instant::now();
        let wanted = |seconds| wanted(&["orders"], seconds);
        let mut topics = known(&["orders"], &[1]);
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
        assert!(
            !topics.need_for_more(wanted(&[1, 256])),
            "it is tried again"
        );
        let (third, _) = topics.ask().unwrap();
        assert_eq!(topics.make_at(), None);
        let taken = topics.take(third, Ok(found(&["orders"], &[256])), now, 0.5);
        assert!(taken.unwrap().is_ok());
        let has = |topics: &KnownTopics, seconds| topics.tier("orders", tier(seconds)).is_some();
        assert!(has(&topics, 1) && has(&topics, 256));
        topics.ask_again(now);
        assert_eq!((topics.make_at(), topics.ask()), (None, None));
        assert!(topics.need_for_more(wanted(&[1, 256])));
    }

    #[test]
    fn what_others_have_made_is_told_once() {
        let mut topics = known(&["orders"], &[1]);
        assert!(!topics.look(Instant::now()));
        let then = topics.look_at();
        assert!(topics.look(then) && !topics.look(then));
        let wanted = wanted(&["orders"], &[1]);
        let mut see = |seconds| {
            let there = there(&["orders"], found(&["orders"], seconds));
            topics.see(there, &wanted)
        };
        assert_eq!(see(&[1, 64]).tiers, ["orders.64"]);
        assert_eq!(see(&[64]), Changes::default());
        assert_eq!(topics.all().len(), 3);
        assert_eq!(topics.tiers().len(), 2);
    }

    #[test]
    fn a_topic_comes_at_once_and_goes_when_it_was_missed_twice_but_not_its_tiers() {
        let mut topics = known(&["a.1", "named"], &[1]);
        let wanted = wanted(&[r"^a\.", "named"], &[1]);
        let mut see = |there_are: &[&str]| topics.see(there(there_are, Found::default()), &wanted);
        assert_eq!(see(&["a.1", "a.2", "named"]).appeared, ["a.2"]);
        assert_eq!(see(&["a.1"]), Changes::default());
        assert_eq!(see(&[]), Changes::default(), "it may have no leader");
        assert_eq!(see(&["a.1"]), Changes::default());
        assert_eq!(see(&[]), Changes::default(), "not twice in a row");
        assert_eq!(see(&[]).gone, ["a.1"]);
        assert_eq!(see(&[]), Changes::default(), "it is told once");
        assert_eq!(see(&["a.1"]).appeared, ["a.1"]);
        let left = ["a.1.1", "named", "named.1"].map(str::to_owned);
        assert_eq!(topics.all(), left.into());
    }

    #[test]
    fn a_tiers_messages_are_of_its_topic() {
        let topics = known(&["orders", "payments"], &[1]);
        let origin = |topic: &str, is_tier| Origin {
            topic: topic.into(),
            is_tier,
        };
        assert_eq!(topics.origin("orders"), origin("orders", false));
        assert_eq!(topics.origin("payments.1"), origin("payments", true));
    }
}
