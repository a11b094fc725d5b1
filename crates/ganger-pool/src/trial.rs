//! The trial of a new worker in a rolling restart: decides when it counts as working, and when the new
//! workers are worse than the old ones. Connecting is no proof: a build may connect and die on its first
//! message, or fail every one. Pure; the caller provides the time.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

/// Number of answers of any kind that pass a worker, where most answers of the old workers are
/// failures.
const ANSWERS: u64 = 5;
/// Time for which an idle worker must stay up.
const IDLE: Duration = Duration::from_secs(5);
/// Maximum wait for a long task to end.
pub const BUSY: Duration = Duration::from_secs(60);
/// Probability below which the failure rate of the old workers does not explain the failures of the new ones.
const CHANCE_MIN: f64 = 1e-4;

/// Answers of the workers of one generation, counted.
#[derive(Debug, Default)]
pub struct AnswerTally {
    answers: Cell<u64>,
    failures: Cell<u64>,
}

impl AnswerTally {
    /// Counts an answer.
    pub fn add(&self, is_success: bool) {
        self.answers.set(self.answers.get() + 1);
        self.failures
            .set(self.failures.get() + u64::from(!is_success));
    }

    /// Returns the counts.
    pub fn counted(&self) -> Answers {
        Answers {
            all: self.answers.get(),
            failures: self.failures.get(),
        }
    }
}

/// Counts of answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answers {
    /// Number of answers.
    pub all: u64,
    /// Number of failures among them.
    pub failures: u64,
}

impl Answers {
    /// Returns the answers since an earlier count.
    pub fn since(self, before: Self) -> Self {
        Self {
            all: self.all.saturating_sub(before.all),
            failures: self.failures.saturating_sub(before.failures),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a share")]
    fn share(self) -> Option<f64> {
        (self.all > 0).then(|| self.failures as f64 / self.all as f64)
    }
}

/// Answers of the old workers, with which those of the new ones are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OldAnswers {
    /// Answers before the rolling restart.
    pub before: Answers,
    /// Answers since its start: a dependency of the workers may have gone down meanwhile.
    pub since: Answers,
}

impl OldAnswers {
    /// Returns whether most answers are failures: a dependency of the workers is down.
    pub fn mostly_fail(self) -> bool {
        let of = |answers: Answers| answers.share().is_some_and(|share| share > 0.5);
        of(self.before) || of(self.since)
    }

    /// Returns the share of failures that the old workers explain. A few answers prove little, so one more
    /// failure and one more success are added to those from before.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    fn rate(self) -> f64 {
        let before = (self.before.failures + 1) as f64 / (self.before.all + 2) as f64;
        before.max(self.since.share().unwrap_or_default())
    }

    /// Returns whether the new workers fail more messages than the old workers' rate explains, by Chernoff's
    /// bound on the probability of that many failures.
    pub fn are_better_than(self, new: Answers) -> bool {
        let (Some(share), rate) = (new.share(), self.rate()) else {
            return false;
        };
        if share <= rate {
            return false;
        }
        let term = |share: f64, rate: f64| match share > 0.0 {
            true => share * (share / rate).ln(),
            false => 0.0,
        };
        let divergence = term(share, rate) + term(1.0 - share, 1.0 - rate);
        #[expect(clippy::cast_precision_loss, reason = "a number of answers")]
        let exponent = new.all as f64 * divergence;
        exponent > -CHANCE_MIN.ln()
    }

    /// Returns the sum of both.
    pub fn all(self) -> Answers {
        Answers {
            all: self.before.all + self.since.all,
            failures: self.before.failures + self.since.failures,
        }
    }
}

/// State of a worker on trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrialSample {
    /// Number of its answers so far.
    pub answers: u64,
    /// Number of its answers that are no failures.
    pub successes: u64,
    /// True if it has a message in flight.
    pub busy: bool,
    /// Maximum time to wait for that message.
    pub busy_max: Duration,
    /// True if most answers of the old workers are failures.
    pub old_ones_fail: bool,
}

/// Progress of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Not decided.
    Pending,
    /// The worker works.
    Passed,
    /// The worker has answered with nothing but failures for too long.
    Failed,
}

/// A worker's trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    busy: bool,
    /// Time since which it is busy, or idle.
    since: Instant,
    /// Time since which all its answers are failures.
    failing_since: Option<Instant>,
    /// Maximum time to wait for the message in flight.
    busy_max: Duration,
    /// A previous worker in the slot has reached its limits properly, so the trial is passed.
    served: bool,
}

impl Trial {
    /// Begins a trial, when the worker has connected.
    pub fn begin(now: Instant) -> Self {
        Self {
            busy: false,
            since: now,
            failing_since: None,
            busy_max: BUSY,
            served: false,
        }
    }

    /// Begins the trial of the worker's successor in the slot, which has connected.
    pub fn begin_again(self, now: Instant) -> Self {
        Self {
            served: self.served,
            ..Self::begin(now)
        }
    }

    /// Returns the trial of a worker that ended properly at one of its limits before it could show more: with
    /// small limits no worker would ever show more. It counts once its successor is up.
    pub fn served(self) -> Self {
        Self {
            served: true,
            ..self
        }
    }

    /// Evaluates the worker's state, where `success` successes are enough.
    pub fn look(&mut self, seen: TrialSample, success: u64, now: Instant) -> Progress {
        self.busy_max = seen.busy_max;
        if self.busy != seen.busy {
            *self = Self {
                busy: seen.busy,
                since: now,
                ..*self
            };
        }
        let only_fails = seen.answers > 0 && seen.successes == 0;
        self.failing_since = only_fails.then(|| self.failing_since.unwrap_or(now));
        let has_failed_as_old_ones_do = seen.old_ones_fail && seen.answers >= ANSWERS;
        if self.served || seen.successes >= success || has_failed_as_old_ones_do {
            return Progress::Passed;
        }
        match self.ends() <= now {
            false => Progress::Pending,
            true if only_fails && !seen.old_ones_fail => Progress::Failed,
            true => Progress::Passed,
        }
    }

    /// Returns the time at which the trial ends if nothing happens before.
    pub fn ends(&self) -> Instant {
        match self.failing_since {
            Some(since) => since + self.busy_max,
            None => self.since + if self.busy { self.busy_max } else { IDLE },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(answers: u64, successes: u64, busy: bool) -> TrialSample {
        TrialSample {
            answers,
            successes,
            busy,
            busy_max: BUSY,
            old_ones_fail: false,
        }
    }

    fn after(seen: TrialSample, seconds: u64) -> Progress {
        let now = Instant::now();
        let mut trial = Trial::begin(now);
        trial.look(
            TrialSample {
                answers: 0,
                successes: 0,
                ..seen
            },
            3,
            now,
        );
        trial.look(seen, 3, now);
        trial.look(seen, 3, now + Duration::from_secs(seconds))
    }

    #[test]
    fn a_trial_is_passed_by_successes_or_by_time() {
        use Progress::*;
        let table = [
            (seen(0, 0, false), 0, Pending),
            (seen(2, 2, true), 0, Pending),
            (seen(3, 3, true), 0, Passed),
            (seen(9, 3, true), 0, Passed),
            (seen(9, 2, true), 59, Pending),
            (seen(9, 2, true), 60, Passed),
            (seen(0, 0, false), 4, Pending),
            (seen(0, 0, false), 5, Passed),
            (seen(0, 0, true), 59, Pending),
            (seen(0, 0, true), 60, Passed),
        ];
        for (seen, seconds, expected) in table {
            let found = after(seen, seconds);
            assert_eq!(found, expected, "{seen:?} after {seconds} s");
        }
    }

    #[test]
    fn failures_alone_pass_only_where_the_old_ones_fail_as_well() {
        for busy in [false, true] {
            assert_eq!(after(seen(5, 0, busy), 59), Progress::Pending);
            assert_eq!(after(seen(5, 0, busy), 60), Progress::Failed);
            let so_do_old_ones = |answers| TrialSample {
                old_ones_fail: true,
                ..seen(answers, 0, busy)
            };
            assert_eq!(after(so_do_old_ones(4), 59), Progress::Pending);
            assert_eq!(after(so_do_old_ones(4), 60), Progress::Passed);
            assert_eq!(after(so_do_old_ones(5), 0), Progress::Passed);
        }
    }

    #[test]
    fn who_may_be_killed_later_is_waited_for_until_then() {
        let (now, limit) = (Instant::now(), 5 * BUSY);
        let starts = TrialSample {
            busy_max: limit,
            ..seen(0, 0, true)
        };
        let mut trial = Trial::begin(now);
        assert_eq!(trial.look(starts, 3, now), Progress::Pending);
        assert_eq!(trial.ends(), now + limit);
        assert_eq!(trial.look(starts, 3, now + BUSY), Progress::Pending);
        assert_eq!(trial.look(starts, 3, now + limit), Progress::Passed);
    }

    #[test]
    fn failures_now_and_then_are_neither_idle_nor_busy_for_long() {
        let start = Instant::now();
        let mut trial = Trial::begin(start);
        for step in 0..8_u64 {
            let now = start + Duration::from_secs(4 * step);
            let seen = seen(step / 2, 0, step % 2 == 0);
            assert_eq!(trial.look(seen, 3, now), Progress::Pending, "{step}");
        }
    }

    fn answers(failures: u64, all: u64) -> Answers {
        Answers { all, failures }
    }

    #[test]
    fn failures_beyond_the_old_rate_are_told_from_chance() {
        let quiet = answers(0, 0);
        let table = [
            // A build that fails each message, against one that works.
            (answers(0, 1000), quiet, answers(1, 1), false),
            (answers(0, 1000), quiet, answers(2, 2), true),
            (answers(10, 1000), quiet, answers(2, 2), false),
            (answers(10, 1000), quiet, answers(3, 3), true),
            // Few answers of the old workers are known.
            (quiet, quiet, answers(13, 13), false),
            (quiet, quiet, answers(14, 14), true),
            // Some messages fail in any case.
            (answers(300, 1000), quiet, answers(4, 10), false),
            (answers(300, 1000), quiet, answers(10, 10), true),
            (answers(300, 1000), quiet, answers(60, 100), true),
            (answers(10, 1000), quiet, answers(1, 100), false),
            // A dependency has gone down meanwhile.
            (answers(0, 1000), answers(9, 10), answers(10, 10), false),
            (answers(0, 1000), answers(0, 10), answers(10, 10), true),
            (answers(1000, 1000), quiet, answers(100, 100), false),
            (answers(0, 1000), quiet, quiet, false),
        ];
        for (before, since, new, expected) in table {
            let old = OldAnswers { before, since };
            assert_eq!(old.are_better_than(new), expected, "{old:?}, {new:?}");
        }
    }

    #[test]
    fn most_fail_only_where_there_are_answers() {
        let old = |before, since| OldAnswers { before, since };
        let none = Answers::default();
        assert!(!old(none, none).mostly_fail());
        assert!(!old(answers(5, 10), none).mostly_fail());
        assert!(old(answers(6, 10), none).mostly_fail());
        assert!(old(answers(0, 1000), answers(1, 1)).mostly_fail());
    }
}
