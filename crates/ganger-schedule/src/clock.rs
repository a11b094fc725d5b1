//! Jumps of the wall clock, noticed against the monotonic one, and what becomes of slots then.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::timing::Timing;

/// Jump forward from which slots are told to have been leapt over; a smaller one is only late.
pub const FORWARD_MIN: SignedDuration = SignedDuration::from_mins(5);
/// Jump back that is no correction.
pub const BACK_MAX: SignedDuration = SignedDuration::from_hours(3);
/// Jump back that is not noticed: clocks are slewed and stepped by little all the time.
pub const BACK_MIN: SignedDuration = SignedDuration::from_secs(1);

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The wall clock by which slots are decided: the database's on a server, else the host's.
    pub wall: Timestamp,
    /// The monotonic clock, from any beginning. One that goes on while the machine sleeps
    /// (`CLOCK_BOOTTIME`), for else a sleep would look like a jump.
    pub monotonic: Duration,
}

/// A jump of the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jump {
    /// Forward by more than five minutes: event `clock_jumped`, the slots between are misfires.
    Forward(SignedDuration),
    /// Back by up to three hours: cron slots are not repeated, paces go on by elapsed time.
    Back(SignedDuration),
    /// Back by more: the clock was wrong. Cursors start anew, with an alert.
    Correction(SignedDuration),
}

/// Compares two readings. The second must have been taken later, in the same process.
pub fn jump(before: Reading, after: Reading) -> Option<Jump> {
    let elapsed = after.monotonic.saturating_sub(before.monotonic);
    let elapsed = SignedDuration::try_from(elapsed).unwrap_or(SignedDuration::MAX);
    let by = after
        .wall
        .duration_since(before.wall)
        .saturating_sub(elapsed);
    if by > FORWARD_MIN {
        Some(Jump::Forward(by))
    } else if by >= -BACK_MIN {
        None
    } else if by >= -BACK_MAX {
        Some(Jump::Back(-by))
    } else {
        Some(Jump::Correction(-by))
    }
}

/// State that jumps leave behind, as it is kept in the ledger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Clock {
    /// Time by which paces are ahead of the wall clock, because it was set back. Never negative.
    pub ahead: SignedDuration,
}

impl Clock {
    /// Records a jump.
    pub fn jumped(&mut self, jump: Jump) {
        self.ahead = match jump {
            Jump::Back(by) => self.ahead.saturating_add(by),
            // Forward again, as after a mistake that was put right.
            Jump::Forward(by) => self.ahead.saturating_sub(by).max(SignedDuration::ZERO),
            Jump::Correction(_) => SignedDuration::ZERO,
        };
    }

    /// Returns the time by which slots of a timing are decided. That of a pace goes on by elapsed
    /// time; that of anything else is the wall clock, by which nothing happens until it has come to
    /// where the cursor is.
    pub fn now(&self, timing: &Timing, wall: Timestamp) -> Timestamp {
        match timing.is_by_elapsed_time() {
            true => wall.checked_add(self.ahead).unwrap_or(wall),
            false => wall,
        }
    }

    /// Returns the wall time of something that is due by [`Clock::now`].
    pub fn wall(&self, timing: &Timing, due: Timestamp) -> Timestamp {
        match timing.is_by_elapsed_time() {
            true => due.checked_sub(self.ahead).unwrap_or(due),
            false => due,
        }
    }
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

    #[test]
    fn a_jump_is_told_by_the_monotonic_clock() {
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
            let before = Reading {
                wall: Timestamp::UNIX_EPOCH,
                monotonic: Duration::from_secs(1000),
            };
            let after = Reading {
                wall: before.wall + minutes(wall),
                monotonic: before.monotonic + Duration::from_secs(60 * monotonic),
            };
            assert_eq!(jump(before, after), expected, "{wall} {monotonic}");
        }
        let slewed = Reading {
            wall: Timestamp::UNIX_EPOCH - SignedDuration::from_millis(900),
            monotonic: Duration::ZERO,
        };
        let before = Reading {
            wall: Timestamp::UNIX_EPOCH,
            ..slewed
        };
        assert_eq!(jump(before, slewed), None);
    }

    #[test]
    fn a_pace_goes_on_by_elapsed_time() {
        let timing = |text| Timing {
            rules: vec![Rule::parse(text, Dialect::Standard, "name").unwrap()],
            zone: Zone::default(),
            dst: Dst::Standard,
        };
        let (pace, cron) = (timing("@every 5m"), timing("*/5 * * * *"));
        let wall = Timestamp::UNIX_EPOCH + minutes(600);
        let mut clock = Clock::default();
        assert_eq!(clock.now(&pace, wall), wall);
        clock.jumped(Jump::Back(minutes(60)));
        assert_eq!(clock.now(&pace, wall - minutes(60)), wall);
        assert_eq!(clock.wall(&pace, wall), wall - minutes(60));
        assert_eq!(clock.now(&cron, wall - minutes(60)), wall - minutes(60));
        clock.jumped(Jump::Forward(minutes(20)));
        assert_eq!(clock.now(&pace, wall - minutes(40)), wall);
        clock.jumped(Jump::Forward(minutes(200)));
        assert_eq!(clock, Clock::default());
        clock.jumped(Jump::Back(minutes(60)));
        clock.jumped(Jump::Correction(minutes(300)));
        assert_eq!(clock, Clock::default());
    }
}
