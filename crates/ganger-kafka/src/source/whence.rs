//! Position at which reading resumes in a partition whose position is gone. Pure.

use crate::broker::begins::Standing;
use crate::broker::settings::Reset;

/// State of a partition whose position is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    /// First offset, and one past the last.
    pub(super) ends: (i64, i64),
    /// Offset from which the log is no longer the one that was read.
    pub(super) fork: Option<i64>,
}

/// Returns where a log diverges from what was read of it. Deleting a topic deletes the group's commits
/// too, so one whose commit is gone is another topic from its first message on.
pub(super) fn fork(standing: &Standing, was_committed: bool) -> Option<i64> {
    if was_committed && !standing.is_committed {
        return Some(standing.ends.0);
    }
    standing.fork
}

/// Returns where a partition resumes whose position is gone; none if it does not. Nothing that exists
/// and was not read is skipped unless `reset` wants it.
pub(super) fn go_on_at(position: i64, committable: i64, found: Found, reset: Reset) -> Option<i64> {
    let (first, end) = found.ends;
    match (found.fork, reset) {
        (Some(_), Reset::Refuse) => None,
        // What lies before it is as it was, and may not be done yet.
        (Some(fork), Reset::Earliest | Reset::Latest) => Some(fork.min(committable).max(first)),
        (None, _) if (first..=end).contains(&position) => Some(position),
        (None, Reset::Earliest) => Some(first.max(end.min(position))),
        (None, Reset::Latest) => Some(end),
        (None, Reset::Refuse) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_go_on() {
        use Reset::{Earliest, Latest, Refuse};
        let table = [
            // Nothing is gone.
            (50, 40, (0, 100), None, Earliest, Some(50)),
            (100, 40, (0, 100), None, Refuse, Some(100)),
            // Retention was faster.
            (50, 40, (60, 100), None, Earliest, Some(60)),
            (50, 40, (60, 100), None, Latest, Some(100)),
            (50, 40, (60, 100), None, Refuse, None),
            // The log was cut, whether or not it has grown past the position since.
            (50, 40, (0, 45), Some(45), Earliest, Some(40)),
            (50, 40, (0, 100), Some(45), Earliest, Some(40)),
            (50, 40, (0, 100), Some(30), Earliest, Some(30)),
            (50, 40, (0, 100), Some(30), Latest, Some(30)),
            (50, 40, (42, 45), Some(45), Latest, Some(42)),
            (50, 40, (0, 100), Some(45), Refuse, None),
            // It is another topic.
            (50, 40, (0, 10), Some(0), Earliest, Some(0)),
            (50, 40, (0, 10), Some(0), Latest, Some(0)),
        ];
        for (position, committable, ends, fork, reset, expected) in table {
            let got = go_on_at(position, committable, Found { ends, fork }, reset);
            let case = (position, committable, ends, fork, reset);
            assert_eq!(got, expected, "{case:?}");
        }
    }

    #[test]
    fn a_topic_whose_commit_is_gone_is_another() {
        let standing = |is_committed, at| Standing {
            ends: (3, 10),
            is_committed,
            fork: at,
        };
        assert_eq!(fork(&standing(false, None), true), Some(3));
        assert_eq!(fork(&standing(false, Some(7)), true), Some(3));
        // Nothing was committed yet.
        assert_eq!(fork(&standing(false, Some(7)), false), Some(7));
        assert_eq!(fork(&standing(true, Some(7)), true), Some(7));
        assert_eq!(fork(&standing(true, None), true), None);
    }
}
