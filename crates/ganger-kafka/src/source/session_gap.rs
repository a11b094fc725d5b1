//! Check whether the assignment still holds. A daemon that was stopped for as long as a session lasts
//! (stopped, swapped out, its machine asleep) may have lost its partitions without a notification, to a
//! member that has answered their messages since.

use std::time::Duration;

/// Returns the time of a clock that also runs while the machine sleeps.
pub(super) fn boot_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(now).unwrap_or_default()
}

/// Detector of gaps as long as a session.
#[derive(Debug)]
pub(super) struct SessionGap {
    last_turn: Duration,
    /// Longer than the interval of the turns, shorter than a session.
    longest: Duration,
    /// While in doubt, the number of the last commit sent before.
    doubt: Option<u64>,
}

impl SessionGap {
    pub(super) fn new(session_timeout: Duration, now: Duration) -> Self {
        Self {
            last_turn: now,
            longest: session_timeout * 2 / 3,
            doubt: None,
        }
    }

    /// Returns the maximum interval between turns that is not taken for a gap.
    pub(super) fn turn_every_max(session_timeout: Duration) -> Duration {
        session_timeout / 3
    }

    /// Records that the daemon is awake, and the last commit sent. True if it was not awake for too long.
    pub(super) fn awake(&mut self, now: Duration, commit: u64) -> bool {
        let stood_still = now.saturating_sub(self.last_turn) > self.longest;
        self.last_turn = now;
        if stood_still {
            self.doubt = Some(commit);
        }
        stood_still
    }

    /// Returns whether it is in doubt: until the group has answered, nothing in flight is published or
    /// done.
    pub(super) fn in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// Records that the group has answered a commit as that of a member. A commit that was sent before the
    /// gap proves nothing.
    pub(super) fn commit_answered(&mut self, commit: u64) {
        self.doubt = self.doubt.filter(|before| commit <= *before);
    }

    /// Ends the doubt: no partition is assigned that could be another member's.
    pub(super) fn end_doubt(&mut self) {
        self.doubt = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_gap_raises_doubt_and_only_a_later_answer_ends_it() {
        let at = Duration::from_secs;
        let mut session_gap = SessionGap::new(at(30), at(0));
        assert!(!session_gap.awake(at(10), 1) && !session_gap.awake(at(29), 2));
        assert!(!session_gap.in_doubt());
        assert!(session_gap.awake(at(50), 3) && session_gap.in_doubt());
        assert!(!session_gap.awake(at(51), 3));
        session_gap.commit_answered(3);
        assert!(session_gap.in_doubt());
        session_gap.commit_answered(4);
        assert!(!session_gap.in_doubt());
    }

    #[test]
    fn the_clock_runs() {
        let before = boot_time();
        assert!(before > Duration::ZERO && boot_time() >= before);
    }
}
