//! Whether we may still take our partitions for ours. A daemon that stood still for as long as a
//! session lasts (stopped, swapped out, its machine asleep) may have lost them to someone who has
//! answered their messages since, and have heard nothing of it. Pure, but for the moments it is
//! given.

use std::time::Duration;

use tokio::time::Instant;

/// How sure we are.
#[derive(Debug)]
pub(super) struct Standstill {
    last_turn: Instant,
    /// Longer than our turns are apart, shorter than a session.
    longest: Duration,
    in_doubt: bool,
}

impl Standstill {
    pub(super) fn new(session_timeout: Duration) -> Self {
        Self {
            last_turn: Instant::now(),
            longest: session_timeout * 2 / 3,
            in_doubt: false,
        }
    }

    /// How far apart turns may be without being taken for one.
    pub(super) fn turn_every_max(session_timeout: Duration) -> Duration {
        session_timeout / 3
    }

    /// Takes down that we are awake. True if we have not been for too long.
    pub(super) fn awake(&mut self, now: Instant) -> bool {
        let stood_still = now.duration_since(self.last_turn) > self.longest;
        self.last_turn = now;
        self.in_doubt |= stood_still;
        stood_still
    }

    /// Until the group has answered us, nothing is published or done for what was in hand.
    pub(super) fn in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// The group has answered: as a member, or we know what we lost.
    pub(super) fn is_over(&mut self) {
        self.in_doubt = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_gap_raises_doubt_and_only_an_answer_ends_it() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut standstill = Standstill::new(Duration::from_secs(30));
        assert!(!standstill.awake(at(10)) && !standstill.awake(at(29)));
        assert!(!standstill.in_doubt());
        assert!(standstill.awake(at(50)) && standstill.in_doubt());
        assert!(!standstill.awake(at(51)) && standstill.in_doubt());
        standstill.is_over();
        assert!(!standstill.in_doubt());
    }
}
