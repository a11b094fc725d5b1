//! Contact of the consumer with its brokers: the reason and the duration of its absence.

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use super::group::REFUSAL_LASTS;
use super::health::HealthIssue;
use super::pool_link::PoolLink;
use crate::broker::error::words;
use crate::broker::out_of_reach::OutOfReach;

/// Contact with the brokers.
#[derive(Debug)]
pub(super) struct Contact {
    /// Reason of the last connection failure.
    last_failure: Option<String>,
    last_refusal: Option<Instant>,
    /// Time for which the consumer has reached no broker.
    away: OutOfReach,
}

impl Contact {
    pub(super) fn new(away: OutOfReach) -> Self {
        Self {
            last_failure: None,
            last_refusal: None,
            away,
        }
    }

    /// Returns the time at which the consumer is to be recreated.
    pub(super) fn due(&self) -> Option<Instant> {
        self.away.due()
    }

    /// Records the reason of a connection failure.
    pub(super) fn failed(&mut self, failure: Option<String>) {
        self.last_failure = failure.or(self.last_failure.take());
    }

    /// Handles that a broker rejects this client.
    pub(super) fn refused(&mut self, reason: String, pool: &mut PoolLink, now: Instant) {
        self.last_refusal = Some(now);
        pool.begin(HealthIssue::Refused, reason);
    }

    /// Handles that no broker is reached.
    pub(super) fn all_down(&self, pool: &mut PoolLink) {
        let last = self.last_failure.clone();
        let why = last.unwrap_or_else(|| words(Code::AllBrokersDown));
        pool.begin(HealthIssue::Brokers, why);
    }

    /// Handles whether a broker is connected.
    pub(super) fn connected(&mut self, is_connected: bool, pool: &mut PoolLink, now: Instant) {
        if !is_connected {
            return self.away.began(now);
        }
        self.away.is_over();
        pool.over(HealthIssue::Brokers);
        let lately = |refused| now < refused + REFUSAL_LASTS;
        if !self.last_refusal.is_some_and(lately) {
            pool.over(HealthIssue::Refused);
        }
    }

    /// Returns whether no broker was reached for so long that the consumer may know of none, and has to be
    /// recreated.
    pub(super) fn is_lost(&mut self, pool: &mut PoolLink, now: Instant) -> bool {
        let is_lost = self.away.due().is_some_and(|due| due <= now);
        if is_lost {
            self.away.renewed();
            // A rejection is the better explanation.
            if !pool.has(HealthIssue::Brokers) && !pool.has(HealthIssue::Refused) {
                self.all_down(pool);
            }
        }
        is_lost
    }
}
