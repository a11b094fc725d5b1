//! Whether a transaction waits for the rest of what is out. While one is under way the workers do what
//! the one before it has claimed, so each has only half of what may be out. Where a commit takes longer
//! than the workers need for all of that, and little may be out, one with nearly all of it does more.

use std::time::Duration;

/// With more out the rows are what a transaction costs, not its commit.
const OUT_MAX: usize = 128;
/// A database that commits faster than that is in this process.
const TURN_MIN: Duration = Duration::from_millis(2);
const WAIT_MAX: Duration = Duration::from_millis(20);
/// The most transactions that do not wait, after one that has waited in vain.
const PASSED_MAX: u32 = 64;

#[derive(Debug, Default)]
pub(super) struct Gather {
    /// Whether the last claim left something.
    more: bool,
    /// How many transactions do not wait, from the next on.
    pass: u32,
    /// How many did not, after the last that waited in vain.
    passed: u32,
}

impl Gather {
    /// A claim has ended: it took all that there was room for, or all that there was.
    pub(super) fn claimed(&mut self, more: bool) {
        self.more = more;
    }

    /// How long the next transaction waits for the rest of the `out`, where one takes a `turn`.
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

    /// It has waited, and nearly all has come; or not, and then the next ones don't wait.
    pub(super) fn waited(&mut self, came: bool) {
        self.passed = if came {
            0
        } else {
            (2 * self.passed).clamp(2, PASSED_MAX)
        };
        self.pass = self.passed;
    }
}

/// How many of those that are out are nearly all: one that takes long is not waited for.
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
