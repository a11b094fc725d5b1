//! Position at which reading resumes in a partition whose position no longer exists. Pure.

use crate::broker::settings::Reset;
use crate::broker::start_positions;
use crate::broker::start_positions::LogState;

/// Returns the position at which a partition resumes whose own no longer exists; none if it does not resume.
/// No existing unread message is skipped unless `reset` requires it.
pub(super) fn resume_at(
    position: i64,
    committable: i64,
    state: LogState,
    reset: Reset,
) -> Option<i64> {
    let (first, end) = state.ends;
    match (state.fork, reset) {
        (Some(_), Reset::Refuse) => None,
        // The part before it is unchanged, and may not be done yet.
        (Some(fork), Reset::Earliest | Reset::Latest) => Some(fork.min(committable).max(first)),
        (None, _) if (first..=end).contains(&position) => Some(position),
        (None, Reset::Earliest) => Some(first.max(end.min(position))),
        (None, Reset::Latest) => Some(end),
        (None, Reset::Refuse) => None,
    }
}

/// Returns the reason why a partition does not resume.
pub(super) fn refusal(position: i64, state: LogState) -> String {
    let (first, end) = state.ends;
    match state.fork {
        Some(fork) => start_positions::refusal(position, fork),
        None => format!(
            "offset {position} no longer exists, the partition has {first} to {end}, and \
             auto.offset.reset is `error`"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_go_on() {
        use Reset::{Earliest, Latest, Refuse};
        let table = [
            // No message is missing.
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
            let state = LogState {
                ends,
                is_committed: true,
                fork,
            };
            let got = resume_at(position, committable, state, reset);
            let case = (position, committable, ends, fork, reset);
            assert_eq!(got, expected, "{case:?}");
        }
    }

    #[test]
    fn a_topic_whose_commit_is_gone_is_another() {
        let fork = |is_committed, fork, was_committed| {
            let state = LogState {
                ends: (3, 10),
                is_committed,
                fork,
            };
            state.known_of(was_committed).fork
        };
        assert_eq!(fork(false, None, true), Some(3));
        assert_eq!(fork(false, Some(7), true), Some(3));
        // Nothing was committed yet.
        assert_eq!(fork(false, Some(7), false), Some(7));
        assert_eq!(fork(true, Some(7), true), Some(7));
        assert_eq!(fork(true, None, true), None);
    }
}
