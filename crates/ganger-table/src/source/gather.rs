//! The decision to delay a transaction until more settlements have come in. While a transaction is under way,
//! the workers are busy with the rows that the previous one claimed, so each transaction settles only half of
//! the rows that may be in flight. Where a commit takes longer than the workers need for all of these, and
//! few rows may be in flight, one transaction for nearly all of them has the higher throughput.

use std::time::Duration;

/// Maximum number of rows in flight. With more, the rows dominate the cost of a transaction, not the commit.
const OUT_MAX: usize = 128;
/// Minimum duration of a turn: a database that commits faster runs in this process.
const TURN_MIN: Duration = Duration::from_millis(2);
const WAIT_MAX: Duration = Duration::from_millis(20);
/// Maximum number of transactions that skip the wait after one that waited in vain.
const PASSED_MAX: u32 = 64;

#[derive(Debug, Default)]
pub(super) struct Gather {
    /// True if the last claim left rows behind.
    more: bool,
    /// Number of transactions, from the next on, that skip the wait.
    pass: u32,
    /// Number of transactions that skipped it after the last that waited in vain.
    passed: u32,
}

impl Gather {
    /// Records a claim. `more` is true if it ended for lack of room, and false if no row was left.
    pub(super) fn claimed(&mut self, more: bool) {
        self.more = more;
    }

    /// Returns the time for which the next transaction waits for the rest of the `out` rows in flight, if it
    /// waits; a transaction takes `turn`.
    pub(super) fn wait(&mut self, out: usize, turn: Duration) -> Option<Duration> {
        if !self.more || out > OUT_MAX || turn < TURN_MIN {
            return None;
        }
        if self.pass > 0 {
            self.pass -= 1;
            return None;
        }
        Some((turn / 2).min(WAIT_MAX))
    }

    /// Records the result of a wait: true if nearly all rows were settled in time. Otherwise the next
    /// transactions skip it.
    pub(super) fn waited(&mut self, came: bool) {
        self.passed = if came {
            0
        } else {
            (2 * self.passed).clamp(2, PASSED_MAX)
        };
        self.pass = self.passed;
    }
}

/// Returns the number of rows that counts as nearly all: a few slow ones are not waited for.
pub(super) fn nearly_all(out: usize) -> usize {
    out - out / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: Duration = Duration::from_millis(4);

    fn busy() -> Gather {
        Gather {
            more: true,
            ..Gather::default()
        }
    }

    #[test]
    fn it_waits_half_a_turn_while_more_is_ready_and_little_is_out() {
        let ms = Duration::from_millis;
        for (out, turn, expected) in [
            (50, COMMIT, Some(ms(2))),
            (1, TURN_MIN, Some(ms(1))),
            (OUT_MAX, ms(1000), Some(WAIT_MAX)),
            (OUT_MAX + 1, COMMIT, None),
            (50, TURN_MIN - ms(1), None),
        ] {
            assert_eq!(busy().wait(out, turn), expected, "{out}, {turn:?}");
        }
        let mut drained = busy();
        drained.claimed(false);
        assert_eq!(drained.wait(50, COMMIT), None);
    }

    #[test]
    fn who_waits_in_vain_waits_ever_more_seldom() {
        let mut gather = busy();
        let mut waits_at = Vec::new();
        for transaction in 0..300 {
            if gather.wait(50, COMMIT).is_some() {
                waits_at.push(transaction);
                gather.waited(false);
            }
        }
        assert_eq!(waits_at, [0, 3, 8, 17, 34, 67, 132, 197, 262]);
        while gather.wait(50, COMMIT).is_none() {}
        gather.waited(true);
        assert!(gather.wait(50, COMMIT).is_some());
    }

    #[test]
    fn an_eighth_is_not_waited_for() {
        for (out, expected) in [(1, 1), (7, 7), (8, 7), (50, 44), (128, 112)] {
            assert_eq!(nearly_all(out), expected, "{out}");
        }
    }
}
