//! Publications that are not confirmed yet, and the external topics among their destinations that accept
//! nothing.

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use super::external_topics::ExternalTopics;
use super::health::HealthIssue;
use super::ordering::Position;
use super::pool_link::PoolLink;
use super::purpose::{Publication, Purpose, WITHIN};
use crate::broker::producer::{FailureAction, Producer, Report, Reports};
use crate::broker::{error, topic_names};

/// Number of unconfirmed publications, rejected dead letters included, above which nothing more is
/// handed out.
const UNCONFIRMED_MAX: usize = 10_000;

/// Unconfirmed publications of a source.
#[derive(Debug)]
pub(super) struct Outbox {
    producer: Producer<Purpose>,
    external_topics: ExternalTopics,
}

impl Outbox {
    pub(super) fn new(producer: Producer<Purpose>, external_topics: ExternalTopics) -> Self {
        Self {
            producer,
            external_topics,
        }
    }

    /// Publishes a record. A record that no broker would accept for a topic chosen by a worker is returned,
    /// as if a broker had rejected it.
    pub(super) fn send(&mut self, publication: Publication) -> Option<Report<Purpose>> {
        let Publication { record, purpose } = publication;
        let fault = match purpose.external_topic() {
            Some(topic) if topic_names::fault_in(topic).is_some() => Some(Code::InvalidTopic),
            Some(topic) if self.external_topics.refuse(topic) => Some(Code::MessageTimedOut),
            Some(_) | None => None,
        };
        match fault {
            Some(code) => Some(Report {
                purpose,
                result: Err(code),
            }),
            None => {
                self.producer.send(record, purpose);
                None
            }
        }
    }

    /// Returns confirmations and rejections. Those of void messages are given up: they run again at the
    /// new owner of their partition.
    pub(super) fn reports(
        &mut self,
        is_void: impl Fn(Position) -> bool,
        pool: &mut PoolLink,
        now: Instant,
    ) -> Reports<Purpose> {
        self.external_topics
            .note_brokers(now, pool.has(HealthIssue::Brokers));
        let external_topics = &self.external_topics;
        let mut reports = self
            .producer
            .reports(now, |purpose, code, age| match purpose.place() {
                Some(place) if is_void(place) => FailureAction::GiveUp,
                _ => purpose.on_failure(code, external_topics.is_too_long(now, age)),
            });
        for report in &reports.ended {
            if let Some(topic) = report.purpose.external_topic() {
                self.external_topics.record_outcome(topic, report.result);
            }
        }
        let is_taken = reports.ended.iter().any(|report| report.result.is_ok());
        if is_taken {
            pool.over(HealthIssue::Brokers);
            pool.over(HealthIssue::Refused);
        }
        // A rejection is an answer, too.
        let is_heard = is_taken || !reports.refused.is_empty();
        if is_heard && self.producer.silent_topic(now).is_none() || self.producer.is_idle() {
            pool.over(HealthIssue::Publishing);
        }
        for (code, topic) in reports.refused.drain(..) {
            pool.begin(HealthIssue::DeadLetters, error::reason(code, &topic));
        }
        if self.producer.refused() == 0 {
            pool.over(HealthIssue::DeadLetters);
        }
        reports
    }

    /// Gives up a reply, if there is no room: callers that do not take their replies must not block the
    /// others.
    pub(super) fn make_room(&mut self, pool: &PoolLink, now: Instant) -> Option<Report<Purpose>> {
        if pool.has(HealthIssue::Brokers) {
            return None;
        }
        let is_reply = |purpose: &Purpose| matches!(purpose, Purpose::Reply { .. });
        let purpose = self.producer.make_room(now, is_reply)?;
        if let Some(topic) = purpose.external_topic() {
            self.external_topics.given_up(topic);
        }
        Some(Report {
            purpose,
            result: Err(Code::MessageTimedOut),
        })
    }

    /// Reports the producer's errors, and silence.
    pub(super) fn report_errors(
        &self,
        errors: Vec<(Code, String)>,
        pool: &mut PoolLink,
        now: Instant,
    ) {
        // An error with a reason is more useful.
        if let Some(topic) = self.producer.silent_topic(now)
            && !pool.has(HealthIssue::Publishing)
        {
            let problem = format!("no record for the topic `{topic}` is confirmed");
            pool.begin(HealthIssue::Publishing, problem);
        }
        for (code, detail) in errors {
            let problem = error::reason(code, &detail);
            // The consumer reports unreachable brokers.
            if matches!(
                code,
                Code::AllBrokersDown | Code::BrokerTransportFailure | Code::Resolve
            ) {
                tracing::debug!(
                    pool = pool.name(),
                    problem,
                    "the producer has no connection"
                );
            } else if !self.producer.is_idle() {
                pool.begin(HealthIssue::Publishing, problem);
            }
        }
    }

    // -- amounts --

    /// Number of unconfirmed publications.
    pub(super) fn pending(&self) -> usize {
        self.producer.pending()
    }

    pub(super) fn is_full(&self) -> bool {
        self.producer.is_full()
    }

    /// Returns whether the limit of unconfirmed publications is reached, so that nothing more is handed out.
    pub(super) fn holds_up(&self, bytes_max: usize) -> bool {
        self.is_full()
            || self.pending() > UNCONFIRMED_MAX
            || self.producer.pending_bytes() > bytes_max
    }

    /// Returns the time of the next timer. During an urgent shutdown, publications are not awaited for ever.
    pub(super) fn due(&self, is_hurried: bool) -> Option<Instant> {
        let undeliverable = || self.producer.next_of_age(Instant::now(), WITHIN);
        let undeliverable = is_hurried.then(undeliverable).flatten();
        self.producer
            .next_due()
            .into_iter()
            .chain(undeliverable)
            .min()
    }

    // -- undeliverable publications --

    /// Returns the undeliverable publications. A shutdown or a revoked partition does not wait for them.
    /// Their messages are not committed, so they run again.
    fn undeliverable(&self, now: Instant) -> impl Iterator<Item = &Purpose> {
        self.producer.undeliverable(now, Purpose::is_undeliverable)
    }

    /// Returns the messages of such publications.
    pub(super) fn held_undeliverable(&self, now: Instant) -> impl Iterator<Item = Position> {
        self.undeliverable(now).filter_map(Purpose::place)
    }

    /// Returns whether a publication is in flight for which a shutdown waits.
    pub(super) fn is_still_publishing(&self, now: Instant) -> bool {
        self.undeliverable(now).count() < self.pending()
    }

    /// Logs the work that a shutdown leaves undone.
    pub(super) fn log_unfinished(&self, pool: &PoolLink) {
        let left = |is: fn(&Purpose) -> bool| self.producer.purposes().filter(|p| is(p)).count();
        let replies = left(|purpose| matches!(purpose, Purpose::Reply { .. }));
        let retries = left(|purpose| matches!(purpose, Purpose::Tier { .. }));
        let letters = left(|purpose| matches!(purpose, Purpose::DeadLetter { .. }));
        if replies + retries + letters > 0 {
            tracing::warn!(
                pool = pool.name(),
                replies,
                retries,
                letters,
                "not all publications were accepted: their messages are not committed and run \
                 again"
            );
        }
    }
}
