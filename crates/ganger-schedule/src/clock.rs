//! The clocks of schedules, and jumps of the wall clock, noticed against the monotonic one.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::timing::Timing;

/// Jump forward from which slots are reported as missed; a smaller one only makes them late.
pub const FORWARD_MIN: SignedDuration = SignedDuration::from_mins(5);
/// Jump back that is no correction.
pub const BACK_MAX: SignedDuration = SignedDuration::from_hours(3);
/// Jump back that is not noticed: clocks are slewed and stepped by little all the time.
pub const BACK_MIN: SignedDuration = SignedDuration::from_secs(1);

/// The clocks by which slots are decided, as one query reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// The wall clock: the database's on a server, else the host's.
    pub wall: Timestamp,
    /// Time by which the clock of periods is ahead of the wall clock, because that was set back.
    /// Kept in the ledger; never negative.
    pub ahead: SignedDuration,
}

impl Clock {
    /// Returns the time by which slots of a timing are decided. That of periods goes on by elapsed
    /// time; that of anything else is the wall clock, by which nothing happens until it has come to
    /// where the cursor is.
    pub fn now(self, timing: &Timing) -> Timestamp {
        match timing.is_by_elapsed_time() {
            true => self.wall.checked_add(self.ahead).unwrap_or(self.wall),
            false => self.wall,
        }
    }

    /// Returns the time on the wall clock of something that is due by [`Clock::now`].
    pub(crate) fn on_wall(self, timing: &Timing, due: Timestamp) -> Timestamp {
        match timing.is_by_elapsed_time() {
            true => due.checked_sub(self.ahead).unwrap_or(due),
            false => due,
        }
    }
}

/// A reading of the clocks by a query, between two of the monotonic clock, which may have any
/// beginning. It must go on while the machine sleeps (`CLOCK_BOOTTIME`): else a sleep would look like
/// a jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The clocks.
    pub clock: Clock,
    /// The monotonic clock before the query was sent.
    pub sent: Duration,
    /// The monotonic clock when the answer had come.
    pub received: Duration,
}

/// A jump of the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jump {
    /// Forward by more than five minutes: event `clock_jumped`, the slots between are misfires.
    Forward(SignedDuration),
    /// Back by up to three hours: cron slots are not repeated, periods go on by elapsed time.
    Back(SignedDuration),
    /// Back by more: the clock was wrong. Cursors start anew as they are used.
    Correction(SignedDuration),
}

/// Change of the clocks between two readings, besides the time that has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Value for [`Clock::ahead`]. To be written if the ledger still has the one that was read
    /// (compare and set): then of several daemons that notice one jump, one records it. The others
    /// read again.
    pub ahead: SignedDuration,
    /// Jump to be reported.
    pub jump: Option<Jump>,
}

/// Compares two readings. The second must have been taken later, in the same process. A difference
/// that the round trips can explain is no step, and neither is one that another daemon has recorded.
pub fn step(before: Reading, after: Reading) -> Step {
    let signed = |time| SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
    let least = signed(after.sent.saturating_sub(before.received));
    let most = signed(after.received.saturating_sub(before.sent));
    let ahead = after.clock.ahead;
    let passed = after.clock.wall.duration_since(before.clock.wall);
    let passed = passed.saturating_add(ahead.saturating_sub(before.clock.ahead));
    let by = passed.saturating_sub(passed.clamp(least, most.max(least)));
    let (ahead, jump) = if by < -BACK_MAX {
        (SignedDuration::ZERO, Some(Jump::Correction(-by)))
    } else if by < -BACK_MIN {
        (ahead.saturating_sub(by), Some(Jump::Back(-by)))
    } else {
        // Forward again by however little, as after a mistake that was put right.
        let rest = ahead.saturating_sub(by.max(SignedDuration::ZERO));
        let jump = (by > FORWARD_MIN).then_some(Jump::Forward(by));
        (rest.max(SignedDuration::ZERO), jump)
    };
    Step { ahead, jump }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cron::Dialect;
    use crate::timing::Rule;
    use crate::wall::Dst;
    use crate::zone::Zone;

    fn minutes(minutes: i64) -> SignedDuration {
        SignedDuration::from_mins(minutes)
    }

    const BEGIN: Reading = Reading {
        clock: Clock {
            wall: Timestamp::UNIX_EPOCH,
            ahead: SignedDuration::ZERO,
        },
        sent: Duration::from_secs(1000),
        received: Duration::from_secs(1000),
    };

    /// A reading so much later by the wall clock and by the monotonic one, in seconds.
    fn later(before: Reading, wall: i64, monotonic: u64) -> Reading {
        let monotonic = Duration::from_secs(monotonic);
        Reading {
            clock: Clock {
                wall: before.clock.wall + SignedDuration::from_secs(wall),
                ..before.clock
            },
            sent: before.sent + monotonic,
            received: before.received + monotonic,
        }
    }

    #[test]
    fn a_jump_is_noticed_by_the_monotonic_clock() {
        let table = [
            (10, 10, None),
            // A late reading is none.
            (600, 600, None),
            (15, 10, None),
            (16, 10, Some(Jump::Forward(minutes(6)))),
            (-50, 10, Some(Jump::Back(minutes(60)))),
            (-170, 10, Some(Jump::Back(minutes(180)))),
            (-171, 10, Some(Jump::Correction(minutes(181)))),
        ];
        for (wall, monotonic, expected) in table {
            let after = later(BEGIN, 60 * wall, 60 * monotonic);
            assert_eq!(step(BEGIN, after).jump, expected, "{wall} {monotonic}");
        }
        // A clock that is slewed.
        let mut slewed = later(BEGIN, 10, 10);
        slewed.clock.wall -= SignedDuration::from_millis(900);
        let nothing = Step {
            ahead: SignedDuration::ZERO,
            jump: None,
        };
        assert_eq!(step(BEGIN, slewed), nothing);
    }

    #[test]
    fn a_slow_answer_is_no_step() {
        let mut slow = later(BEGIN, 10, 10);
        slow.received += Duration::from_secs(30);
        let fast = later(BEGIN, 41, 41);
        assert_eq!(step(BEGIN, slow).jump, None);
        assert_eq!(step(slow, fast).jump, None);
        assert_eq!(step(slow, fast).ahead, SignedDuration::ZERO);
    }

    #[test]
    fn periods_are_ahead_until_the_clock_goes_forward() {
        let mut reading = BEGIN;
        // Seconds by which the clock is set, and by which periods are ahead then.
        for (by, ahead) in [
            (-240, 240),
            (240, 0),
            (-240, 240),
            (100, 140),
            (-3600, 3740),
            (20_000, 0),
            (-60, 60),
            (-20_000, 0),
        ] {
            let after = later(reading, 60 + by, 60);
            let step = step(reading, after);
            assert_eq!(step.ahead.as_secs(), ahead, "{by}");
            reading = after;
            reading.clock.ahead = step.ahead;
        }
    }

    #[test]
    fn a_jump_that_another_daemon_has_recorded_is_none() {
        let mut after = later(BEGIN, -230, 10);
        let first = step(BEGIN, after);
        assert_eq!(first.jump, Some(Jump::Back(minutes(4))));
        after.clock.ahead = first.ahead;
        let recorded = Step {
            ahead: first.ahead,
            jump: None,
        };
        assert_eq!(step(BEGIN, after), recorded);
    }

    #[test]
    fn periods_go_on_by_elapsed_time() {
        let timing = |text| Timing {
            rules: vec![Rule::parse(text, Dialect::Standard, "name").unwrap()],
            zone: Zone::default(),
            dst: Dst::Standard,
        };
        let (interval, cron) = (timing("@every 5m"), timing("*/5 * * * *"));
        let wall = Timestamp::UNIX_EPOCH + minutes(540);
        let clock = Clock {
            wall,
            ahead: minutes(60),
        };
        assert_eq!(clock.now(&interval), wall + minutes(60));
        assert_eq!(clock.on_wall(&interval, wall + minutes(60)), wall);
        assert_eq!(clock.now(&cron), wall);
        assert_eq!(clock.on_wall(&cron, wall), wall);
    }
}
