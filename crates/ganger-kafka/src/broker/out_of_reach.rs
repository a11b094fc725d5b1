//! Time for which a client has reached no broker, and the time at which it is recreated for that reason.
//! Pure.
//!
//! librdkafka forgets each broker that a metadata answer does not name, including the configured ones. An
//! answer from a cluster that is just losing a node may name none; then the client has no broker left to
//! query and never recovers (librdkafka's issue 5301). Or all known brokers have moved meanwhile. A new
//! client begins with the configured ones.

use std::time::Duration;

use tokio::time::Instant;

use ganger_core::backoff::Backoff;

/// Maximum time between two renewals, unless the first is longer already.
const AGAIN_MAX: Duration = Duration::from_secs(300);

/// Time for which a client has reached no broker.
#[derive(Debug, Clone)]
pub(crate) struct OutOfReach {
    patience: Duration,
    since: Option<Instant>,
    /// Number of renewals since the client last reached a broker.
    renewals: u32,
}

impl OutOfReach {
    /// Creates the state of a client that should recover by itself within `patience`.
    pub(crate) fn new(patience: Duration) -> Self {
        Self {
            patience,
            since: None,
            renewals: 0,
        }
    }

    /// Records that the client reaches no broker.
    pub(crate) fn began(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// Records that the client reaches a broker.
    pub(crate) fn is_over(&mut self) {
        *self = Self::new(self.patience);
    }

    /// Returns the time at which the client is to be recreated.
    pub(crate) fn due(&self) -> Option<Instant> {
        let pauses = Backoff {
            initial: self.patience,
            factor: 2.0,
            max: self.patience.max(AGAIN_MAX),
            jitter: 0.0,
        };
        let pause = pauses.wait(self.renewals.saturating_add(1), 0.5);
        self.since.map(|since| since + pause)
    }

    /// Returns the same time, but not before a request made at `asked` has waited for `patience`.
    pub(crate) fn due_for(&self, asked: Instant) -> Option<Instant> {
        self.due().map(|due| due.max(asked + self.patience))
    }

    /// Records that the client was recreated, for this or another reason. The new one may reach a broker.
    pub(crate) fn renewed(&mut self) {
        if self.since.take().is_some() {
            self.renewals = self.renewals.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn the_first_is_made_once_patience_ends_and_each_other_later() {
        let mut away = OutOfReach::new(PATIENCE);
        assert_eq!(away.due(), None, "it has yet to fail");
        let now = Instant::now();
        for seconds in [60, 120, 240, 300, 300] {
            away.began(now);
            away.began(now + PATIENCE);
            assert_eq!(away.due(), Some(now + Duration::from_secs(seconds)));
            away.renewed();
            assert_eq!(away.due(), None, "the new one may reach one");
        }
        away.is_over();
        away.began(now);
        assert_eq!(away.due(), Some(now + PATIENCE));
        away.is_over();
        assert_eq!(away.due(), None);
    }

    #[test]
    fn what_was_asked_for_only_now_is_given_as_much_time() {
        let mut away = OutOfReach::new(PATIENCE);
        let now = Instant::now();
        assert_eq!(away.due_for(now), None);
        away.began(now);
        let later = now + PATIENCE * 100;
        for (asked, due) in [(now, now + PATIENCE), (later, later + PATIENCE)] {
            assert_eq!(away.due_for(asked), Some(due));
        }
    }

    #[test]
    fn a_session_longer_than_the_longest_pause_is_waited_for() {
        let mut away = OutOfReach::new(AGAIN_MAX * 2);
        let now = Instant::now();
        for _ in 0..2 {
            away.began(now);
            assert_eq!(away.due(), Some(now + AGAIN_MAX * 2));
            away.renewed();
        }
    }

    #[test]
    fn one_that_was_made_anew_for_something_else_is_given_no_more_time() {
        let mut away = OutOfReach::new(PATIENCE);
        let now = Instant::now();
        away.renewed();
        away.began(now);
        assert_eq!(away.due(), Some(now + PATIENCE));
    }
}
