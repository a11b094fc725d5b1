//! Topics that the pool reads, and their tiers and dead letter topics: the existing ones, those being created
//! for a changed policy or a new topic, and the times of searches for those created by others, whose policy
//! may differ. Tiers that are no longer needed stay: they may hold messages. Queries are returned. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::blocking_calls::Query;
use super::health::HealthIssue;
use super::pool_link::PoolLink;
use crate::broker::error::KafkaError;
use crate::broker::topic_requirements::{ExistingTopics, Found, TopicRequirements};
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
    wanted: TopicRequirements,
    /// True while some of them are being created.
    is_missing: bool,
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
    /// Creates the state, with librdkafka's interval for new topics.
    pub(super) fn new(
        found: Found,
        wanted: TopicRequirements,
        topics_every: Duration,
        now: Instant,
    ) -> Self {
        let may_come = wanted.topics.has_patterns();
        let look_every = topics_every * if may_come { 1 } else { SELDOM };
        Self {
            found,
            wanted,
            is_missing: false,
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

    /// Returns the time of the next timer. During a shutdown no topics are searched for any more.
    pub(super) fn due(&self, is_closing: bool) -> Option<Instant> {
        let look = (!is_closing).then_some(self.look_at);
        self.make_again.into_iter().chain(look).min()
    }

    /// Returns the queries that are due: for topics that could not be created, and for new topics. If a
    /// search gets no answer, the next one follows as scheduled.
    pub(super) fn queries(&mut self, now: Instant) -> impl Iterator<Item = Query> + use<> {
        let is_due = self.make_again.is_some_and(|again| again <= now);
        let make = is_due.then(|| self.ask()).flatten();
        let look = (self.look_at <= now).then(|| {
            self.look_at = now + self.look_every;
            Query::Existing(self.wanted.clone())
        });
        make.into_iter().chain(look)
    }

    /// Logs that there are no topics to read yet, if so.
    pub(super) fn log_if_no_topics(&self, pool: &PoolLink) {
        if self.found.topics.is_empty() {
            let queue = &*pool.queue();
            tracing::warn!(
                pool = pool.name(),
                queue,
                "no topic matches yet: topics are read as they appear"
            );
        }
    }

    // -- topics to create --

    /// Sets the tiers needed from now on. None if all exist.
    pub(super) fn need(&mut self, tiers: Vec<Tier>) -> Option<Query> {
        self.wanted.tiers = tiers;
        self.failures = 0;
        let has_all = |topic: &String| {
            let mut tiers = self.wanted.tiers.iter();
            tiers.all(|tier| self.tier(topic, *tier).is_some())
        };
        self.is_missing = !self.found.topics.keys().all(has_all);
        // Earlier queries no longer count.
        self.ask()
    }

    fn ask(&mut self) -> Option<Query> {
        self.make_again = None;
        self.number += 1;
        self.is_missing
            .then(|| Query::Topics(self.number, self.wanted.clone()))
    }

    /// Schedules the query again, since its answer will be lost.
    pub(super) fn ask_again(&mut self, now: Instant) {
        self.make_again = self.is_missing.then_some(now);
    }

    /// Handles the topics found or created.
    pub(super) fn take_topics(
        &mut self,
        number: u64,
        found: Result<Found, KafkaError>,
        pool: &mut PoolLink,
        now: Instant,
    ) {
        match self.take(number, found, now, fastrand::f64()) {
            None => {}
            Some(Ok(appeared)) => {
                for topic in appeared {
                    tracing::info!(
                        pool = pool.name(),
                        topic,
                        "new topic matches a pattern and is read"
                    );
                }
                pool.over(HealthIssue::Setup);
            }
            Some(Err(error)) => pool.begin(HealthIssue::Setup, error.to_string()),
        }
    }

    /// Handles an answer: returns the new topics, or the error; none if it belongs to another query.
    fn take(
        &mut self,
        number: u64,
        found: Result<Found, KafkaError>,
        now: Instant,
        dice: f64,
    ) -> Option<Result<Vec<String>, KafkaError>> {
        if number != self.number {
            return None;
        }
        Some(match found {
            Ok(found) => {
                self.is_missing = false;
                let new = found.topics.keys();
                let new = new.filter(|topic| !self.found.topics.contains_key(*topic));
                let appeared = new.cloned().collect();
                self.found = found.with(std::mem::take(&mut self.found));
                Ok(appeared)
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                self.make_again = Some(now + AGAIN.wait(self.failures, dice));
                Err(error)
            }
        })
    }

    // -- topics of others --

    /// Handles the existing topics; returns a query if some are to be created for new ones.
    pub(super) fn take_there(
        &mut self,
        there: Result<ExistingTopics, KafkaError>,
        pool: &PoolLink,
    ) -> Option<Query> {
        let changes = match there {
            Ok(there) => self.update(there),
            Err(error) => {
                tracing::debug!(pool = pool.name(), %error, "topics could not be listed");
                return None;
            }
        };
        for topic in changes.tiers {
            tracing::info!(
                pool = pool.name(),
                topic,
                "tier created by another daemon is read too"
            );
        }
        for topic in &changes.gone {
            tracing::warn!(
                pool = pool.name(),
                topic,
                "topic that matched a pattern no longer exists"
            );
        }
        if !changes.gone.is_empty() {
            self.log_if_no_topics(pool);
        }
        if changes.appeared.is_empty() {
            return None;
        }
        self.need_for_more()
    }

    /// Returns the query for the topics needed for new topics; none if some are being created already.
    fn need_for_more(&mut self) -> Option<Query> {
        let is_new = !std::mem::replace(&mut self.is_missing, true);
        is_new.then(|| self.ask()).flatten()
    }

    /// Handles the existing topics and returns the changes. A missing tier is kept: it may be without a
    /// leader. A missing topic is removed, unless it is named, when it was missing twice.
    fn update(&mut self, there: ExistingTopics) -> Changes {
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
            .filter(|topic| !self.wanted.topics.names().contains(topic))
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

    fn there(topics: &[&str], found: Found) -> ExistingTopics {
        ExistingTopics {
            topics: topics.iter().map(ToString::to_string).collect(),
            tiers: found.tiers,
        }
    }

    fn wanted(topics: &[&str], seconds: &[u64]) -> TopicRequirements {
        let topics: Vec<String> = topics.iter().map(ToString::to_string).collect();
        TopicRequirements {
            topics: Topics::read(&topics).unwrap(),
            tiers: seconds.iter().map(|seconds| tier(*seconds)).collect(),
            dead: None,
        }
    }

    fn tiers(seconds: &[u64]) -> Vec<Tier> {
        seconds.iter().map(|seconds| tier(*seconds)).collect()
    }

    /// Creates the state with all needed topics, none of which is a pattern.
    fn known(topics: &[&str], seconds: &[u64]) -> KnownTopics {
        knowing(topics, wanted(topics, seconds))
    }

    fn knowing(topics: &[&str], wanted: TopicRequirements) -> KnownTopics {
        let found = found(topics, &[1]);
        KnownTopics::new(found, wanted, Duration::from_secs(1), Instant::now())
    }

    fn asked(query: Option<Query>) -> (u64, TopicRequirements) {
        match query {
            Some(Query::Topics(number, wanted)) => (number, wanted),
            query => panic!("{query:?}"),
        }
    }

    #[test]
    fn only_the_answer_to_the_last_question_counts() {
        let now = Instant::now();
        let mut topics = known(&["orders"], &[1]);
        assert!(topics.need(tiers(&[1])).is_none(), "it is there");
        let (first, _) = asked(topics.need(tiers(&[1, 64])));
        let (second, wants) = asked(topics.need(tiers(&[1, 256])));
        assert_eq!(wants, wanted(&["orders"], &[1, 256]));
        let failed = || Err(KafkaError::panicked());
        assert!(topics.take(first, failed(), now, 0.5).is_none());
        assert!(topics.take(second, failed(), now, 0.5).unwrap().is_err());
        let again = topics.make_again.unwrap();
        assert!(topics.need_for_more().is_none(), "it is tried again");
        let (third, _) = asked(topics.queries(again).next());
        assert_eq!(topics.make_again, None);
        let taken = topics.take(third, Ok(found(&["orders"], &[256])), now, 0.5);
        assert_eq!(taken.unwrap().unwrap(), [""; 0]);
        let has = |topics: &KnownTopics, seconds| topics.tier("orders", tier(seconds)).is_some();
        assert!(has(&topics, 1) && has(&topics, 256));
        topics.ask_again(now);
        assert_eq!(topics.make_again, None);
        let (fourth, _) = asked(topics.need_for_more());
        let more = found(&["orders", "more"], &[1]);
        let taken = topics.take(fourth, Ok(more), now, 0.5);
        assert_eq!(taken.unwrap().unwrap(), ["more"]);
    }

    #[test]
    fn what_others_have_made_is_told_once() {
        let mut topics = known(&["orders"], &[1]);
        assert!(topics.queries(Instant::now()).next().is_none());
        let then = topics.due(false).unwrap();
        assert_eq!(topics.due(true), None);
        assert!(matches!(
            topics.queries(then).next(),
            Some(Query::Existing(_))
        ));
        assert!(topics.queries(then).next().is_none());
        let mut see = |seconds| topics.update(there(&["orders"], found(&["orders"], seconds)));
        assert_eq!(see(&[1, 64]).tiers, ["orders.64"]);
        assert_eq!(see(&[64]), Changes::default());
        assert_eq!(topics.all().len(), 3);
        assert_eq!(topics.tiers().len(), 2);
    }

    #[test]
    fn a_topic_comes_at_once_and_goes_when_it_was_missed_twice_but_not_its_tiers() {
        let mut topics = knowing(&["a.1", "named"], wanted(&[r"^a\.", "named"], &[1]));
        let mut see = |there_are: &[&str]| topics.update(there(there_are, Found::default()));
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
