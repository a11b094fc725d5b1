//! A dead man's switch: expectations of a schedule, and those that are overdue.

use std::time::Duration;

use jiff::Timestamp;

/// Expectations; what is `None` is not expected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expect {
    /// Time from when a slot is due to the start of its run.
    pub within: Option<Duration>,
    /// Time from when a slot is due to the end of its run.
    pub finish: Option<Duration>,
    /// Time from one success to the next.
    pub every: Option<Duration>,
}

/// A run that is expected: also that of a slot which is due and was not dispatched yet, without a
/// start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Time at which its slot was due.
    pub due: Timestamp,
    /// Its first start.
    pub started: Option<Timestamp>,
    /// Its end, whichever it was.
    pub ended: Option<Timestamp>,
}

/// Facts about a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts<'a> {
    /// Runs that have not ended, and the last one that has.
    pub runs: &'a [Run],
    /// End of the last run that succeeded.
    pub succeeded: Option<Timestamp>,
    /// Time since which something is expected: when the schedule was made, or resumed.
    pub since: Timestamp,
}

/// Something that is expected and did not happen in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Overdue {
    /// No run of the slot has started.
    Start {
        /// Time at which the slot was due.
        due: Timestamp,
    },
    /// The run of the slot has not ended.
    End {
        /// Time at which the slot was due.
        due: Timestamp,
    },
    /// No run has succeeded.
    Success {
        /// The last success, or the time since which one is expected.
        since: Timestamp,
    },
}

/// State of the expectations at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Review {
    /// Everything overdue, in order.
    pub overdue: Vec<Overdue>,
    /// Next time at which something becomes overdue if nothing happens.
    pub next: Option<Timestamp>,
}

/// Looks for what is overdue. A schedule that is paused or disabled must not be asked about: nothing
/// is expected of it.
pub fn review(expect: &Expect, facts: &Facts<'_>, now: Timestamp) -> Review {
    let mut deadlines = Vec::new();
    let mut expected = |from: Timestamp, within: Option<Duration>, overdue: Overdue| {
        let deadline = within.map(|within| from.checked_add(within).unwrap_or(Timestamp::MAX));
        deadlines.extend(deadline.map(|deadline| (deadline, overdue)));
    };
    for run in facts.runs {
        let due = run.due;
        if run.started.is_none() && run.ended.is_none() {
            expected(due, expect.within, Overdue::Start { due });
        }
        if run.ended.is_none() {
            expected(due, expect.finish, Overdue::End { due });
        }
    }
    let since = facts
        .succeeded
        .map_or(facts.since, |at| at.max(facts.since));
    expected(since, expect.every, Overdue::Success { since });
    let is_over = |(deadline, _): &(Timestamp, Overdue)| *deadline <= now;
    let (over, ahead): (Vec<_>, Vec<_>) = deadlines.into_iter().partition(is_over);
    let mut overdue: Vec<Overdue> = over.into_iter().map(|(_, overdue)| overdue).collect();
    overdue.sort_unstable();
    Review {
        overdue,
        next: ahead.into_iter().map(|(deadline, _)| deadline).min(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: u64) -> Timestamp {
        Timestamp::UNIX_EPOCH + Duration::from_secs(60 * minute)
    }

    const EXPECT: Expect = Expect {
        within: Some(Duration::from_secs(600)),
        finish: Some(Duration::from_secs(2700)),
        every: Some(Duration::from_secs(93_600)),
    };

    fn run(due: u64, started: Option<u64>, ended: Option<u64>) -> Run {
        Run {
            due: at(due),
            started: started.map(at),
            ended: ended.map(at),
        }
    }

    fn overdue(runs: &[Run], succeeded: Option<u64>, now: u64) -> Review {
        let facts = Facts {
            runs,
            succeeded: succeeded.map(at),
            since: at(0),
        };
        review(&EXPECT, &facts, at(now))
    }

    fn expected(overdue: &[Overdue], next: Option<u64>) -> Review {
        Review {
            overdue: overdue.to_vec(),
            next: next.map(at),
        }
    }

    #[test]
    fn a_run_starts_and_ends_in_time() {
        let (start, end) = (
            Overdue::Start { due: at(100) },
            Overdue::End { due: at(100) },
        );
        let (waits, runs) = (run(100, None, None), run(100, Some(105), None));
        let ended = run(100, Some(105), Some(130));
        for (run, now, late, next) in [
            (waits, 109, &[][..], 110),
            (waits, 110, &[start], 145),
            (runs, 110, &[], 145),
            (runs, 145, &[end], 1610),
            (waits, 200, &[start, end], 1610),
            (ended, 200, &[], 1610),
        ] {
            assert_eq!(
                overdue(&[run], Some(50), now),
                expected(late, Some(next)),
                "{run:?} {now}"
            );
        }
    }

    #[test]
    fn one_success_follows_another_in_time() {
        let success = |since| Overdue::Success { since: at(since) };
        let failed = run(100, Some(105), Some(130));
        assert_eq!(overdue(&[], None, 0), expected(&[], Some(1560)));
        assert_eq!(overdue(&[], None, 1560), expected(&[success(0)], None));
        assert_eq!(
            overdue(&[failed], Some(50), 1610),
            expected(&[success(50)], None)
        );
        assert_eq!(overdue(&[], Some(5), 1560), expected(&[], Some(1565)));
    }

    #[test]
    fn nothing_is_overdue_of_what_is_not_expected() {
        let runs = [Run {
            due: at(0),
            started: None,
            ended: None,
        }];
        let facts = Facts {
            runs: &runs,
            succeeded: None,
            since: at(0),
        };
        assert_eq!(
            review(&Expect::default(), &facts, at(1_000_000)),
            Review::default()
        );
    }
}
