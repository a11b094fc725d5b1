//! How long a transaction may take: longer each time that one was not done in time, for it may be the size
//! of what there is to write or to claim, and the way to the server, and then the same would fail for ever.
//! Pure.

use std::time::Duration;

/// How long a statement may take, at first.
const STATEMENT: Duration = Duration::from_secs(10);
/// A server that keeps to that has answered by then.
const MORE: Duration = Duration::from_secs(5);
/// So often it is doubled.
const DOUBLED_MAX: u32 = 5;

/// How patient we are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Patience {
    doubled: u32,
}

impl Patience {
    /// Something was not done in time.
    pub(crate) fn grow(&mut self) {
        self.doubled = (self.doubled + 1).min(DOUBLED_MAX);
    }

    /// What a statement may take where that is more than usual.
    pub(crate) fn statement(self) -> Option<Duration> {
        (self.doubled > 0).then(|| STATEMENT * (1 << self.doubled))
    }

    /// How long the whole is waited for.
    pub(crate) fn whole(self) -> Duration {
        STATEMENT * (1 << self.doubled) + MORE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_up_to_minutes() {
        let mut patience = Patience::default();
        assert_eq!(
            (patience.statement(), patience.whole().as_secs()),
            (None, 15)
        );
        for seconds in [20, 40, 80, 160, 320, 320] {
            patience.grow();
            let statement = Duration::from_secs(seconds);
            assert_eq!(patience.statement(), Some(statement));
            assert_eq!(patience.whole(), statement + MORE);
        }
    }
}
