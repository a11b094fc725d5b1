//! Time limits of a transaction. They grow each time that one is exceeded: the cause may be the amount
//! to write or to claim, or a slow network, and then the same limits would fail for ever. Pure.

use std::time::Duration;

/// Initial maximum duration of a statement.
const STATEMENT: Duration = Duration::from_secs(10);
/// Additional time within which a server that enforces the statement's limit has answered.
const ANSWER_MARGIN: Duration = Duration::from_secs(5);
/// Maximum number of doublings.
const DOUBLED_MAX: u32 = 5;

/// Current time limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TimeLimits {
    doubled: u32,
}

impl TimeLimits {
    /// Doubles the limits after a timeout.
    pub(crate) fn grow(&mut self) {
        self.doubled = (self.doubled + 1).min(DOUBLED_MAX);
    }

    /// Returns the maximum duration of a statement, if it is longer than the usual one.
    pub(crate) fn statement(self) -> Option<Duration> {
        (self.doubled > 0).then(|| STATEMENT * (1 << self.doubled))
    }

    /// Returns the maximum time to wait for the whole transaction.
    pub(crate) fn transaction(self) -> Duration {
        STATEMENT * (1 << self.doubled) + ANSWER_MARGIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_up_to_minutes() {
        let mut time_limits = TimeLimits::default();
        assert_eq!(
            (time_limits.statement(), time_limits.transaction().as_secs()),
            (None, 15)
        );
        for seconds in [20, 40, 80, 160, 320, 320] {
            time_limits.grow();
            let statement = Duration::from_secs(seconds);
            assert_eq!(time_limits.statement(), Some(statement));
            assert_eq!(time_limits.transaction(), statement + ANSWER_MARGIN);
        }
    }
}
