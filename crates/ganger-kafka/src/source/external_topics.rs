//! External topics of replies and emits that accept nothing: the time for which that is tolerated, and the
//! handling of their records after that. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use crate::broker::error;

/// Topics that have accepted nothing for too long.
#[derive(Debug)]
pub(super) struct ExternalTopics {
    /// Time limit; none for no limit.
    patience: Option<Duration>,
    /// Time at which the brokers were last unreachable: no topic is to blame for such a time.
    away_at: Option<Instant>,
    /// Closed topics; true while one record is in flight to test whether the topic accepts again.
    closed: BTreeMap<String, bool>,
}

impl ExternalTopics {
    pub(super) fn new(patience: Option<Duration>) -> Self {
        Self {
            patience,
            away_at: None,
            closed: BTreeMap::new(),
        }
    }

    /// Records whether the brokers are away.
    pub(super) fn note_brokers(&mut self, now: Instant, are_away: bool) {
        if are_away {
            self.away_at = Some(now);
        }
    }

    /// Returns whether a record that fails again at this age is to be given up.
    pub(super) fn is_too_long(&self, now: Instant, age: Duration) -> bool {
        self.patience.is_some_and(|patience| {
            age >= patience && self.away_at.is_none_or(|away_at| now >= away_at + patience)
        })
    }

    /// Returns whether a record for that topic is rejected at once. A record that is not rejected may reopen
    /// the topic.
    pub(super) fn refuse(&mut self, topic: &str) -> bool {
        let closed = self.closed.get_mut(topic);
        closed.is_some_and(|is_tried| std::mem::replace(is_tried, true))
    }

    /// Records that a record for that topic was given up without a report. It may be the test record.
    pub(super) fn given_up(&mut self, topic: &str) {
        if let Some(is_tried) = self.closed.get_mut(topic) {
            *is_tried = false;
        }
    }

    /// Handles the outcome of a record for that topic.
    pub(super) fn record_outcome(&mut self, topic: &str, result: Result<(), Code>) {
        match result {
            Ok(()) => drop(self.closed.remove(topic)),
            // Timed out, or rejected by the replicas, until it was given up.
            Err(code) if !error::is_permanent(code) => {
                self.closed.insert(topic.to_owned(), false);
            }
            // The topic answers, and has rejected this record.
            Err(_) => drop(self.closed.remove(topic)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(300);

    #[test]
    fn a_topic_is_given_up_after_so_long_and_tried_with_one_at_a_time() {
        let mut external_topics = ExternalTopics::new(Some(PATIENCE));
        assert!(!external_topics.refuse("answers"));
        external_topics.record_outcome("answers", Err(Code::MessageTimedOut));
        assert!(!external_topics.refuse("others"));
        assert!(!external_topics.refuse("answers"), "one is tried");
        assert!(external_topics.refuse("answers"));
        external_topics.record_outcome("answers", Err(Code::NotEnoughReplicas));
        assert!(!external_topics.refuse("answers"), "another one is tried");
        assert!(external_topics.refuse("answers"));
        external_topics.record_outcome("answers", Ok(()));
        assert!(!external_topics.refuse("answers") && !external_topics.refuse("answers"));
        external_topics.record_outcome("answers", Err(Code::MessageSizeTooLarge));
        assert!(!external_topics.refuse("answers") && !external_topics.refuse("answers"));
    }

    #[test]
    fn another_is_tried_when_the_one_that_was_made_room() {
        let mut external_topics = ExternalTopics::new(Some(PATIENCE));
        external_topics.given_up("answers");
        assert!(!external_topics.refuse("answers") && !external_topics.refuse("answers"));
        external_topics.record_outcome("answers", Err(Code::MessageTimedOut));
        assert!(!external_topics.refuse("answers"), "one is tried");
        assert!(external_topics.refuse("answers"));
        external_topics.given_up("answers");
        assert!(!external_topics.refuse("answers"), "another one is tried");
        assert!(external_topics.refuse("answers"));
    }

    #[test]
    fn no_topic_is_to_blame_for_brokers_that_are_away() {
        let mut external_topics = ExternalTopics::new(Some(PATIENCE));
        let start = Instant::now();
        let short = PATIENCE - Duration::from_millis(1);
        assert!(!external_topics.is_too_long(start, short));
        assert!(external_topics.is_too_long(start, PATIENCE));
        external_topics.note_brokers(start, true);
        external_topics.note_brokers(start + short, false);
        assert!(!external_topics.is_too_long(start + short, PATIENCE));
        assert!(external_topics.is_too_long(start + PATIENCE, PATIENCE));
        let patient = ExternalTopics::new(None);
        assert!(!patient.is_too_long(start, PATIENCE * 1000));
    }
}
