//! A rolling restart: the command of each generation of workers, their answers, and the comparison of the new
//! workers with the old ones. `supervise` decides which worker is replaced when.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::lane::Gauge;
use super::roster::Generation;
use super::supervise::Supervisor;
use super::trial::{AnswerTally, Answers, BUSY, OldAnswers, Progress, TrialSample};
use ganger_config::model::WorkerCommand;

/// Generations of a pool's workers.
#[derive(Debug)]
pub(super) struct Rollout {
    /// Command of each generation of workers, and the tally of their answers.
    generations: BTreeMap<Generation, (Arc<WorkerCommand>, Rc<AnswerTally>)>,
    /// Answers of the old workers before the rolling restart began.
    answers_before: Answers,
    /// Cause of the end of the new worker that stopped the last rolling restart, until a later one is done.
    stopped: Option<String>,
}

impl Rollout {
    /// Creates the state of a pool whose first workers run that command.
    pub(super) fn new(command: WorkerCommand) -> Self {
        Self {
            generations: BTreeMap::from([(0, (Arc::new(command), Rc::default()))]),
            answers_before: Answers::default(),
            stopped: None,
        }
    }

    /// Begins a generation, which replaces the `old` one if any of its workers is up.
    pub(super) fn begin(
        &mut self,
        generation: Generation,
        command: WorkerCommand,
        old: Option<Generation>,
    ) {
        let begun = (Arc::new(command), Rc::default());
        self.generations.insert(generation, begun);
        if let Some(old) = old {
            self.answers_before = self.answers(old);
        }
    }

    /// Returns the command for a worker of that generation, and the tally for its answers.
    pub(super) fn of(
        &self,
        generation: Generation,
    ) -> Option<(Arc<WorkerCommand>, Rc<AnswerTally>)> {
        let last = self.generations.range(..=generation).next_back();
        let (_, of) = last.or(self.generations.iter().next())?;
        Some(of.clone())
    }

    /// Returns the answers of a generation so far.
    fn answers(&self, generation: Generation) -> Answers {
        let of = self.generations.get(&generation);
        of.map(|(_, tally)| tally.counted()).unwrap_or_default()
    }

    /// Checks the new workers while a rolling restart is under way, and returns those that have passed their
    /// trials. If they are worse than the old ones, they are removed.
    pub(super) fn check<'a>(
        &mut self,
        supervisor: &mut Supervisor,
        gauge: impl Fn(usize) -> Option<&'a Gauge>,
        start_timeout: Duration,
        now: Instant,
    ) -> Vec<usize> {
        let Some((old, new)) = supervisor.rolling() else {
            return Vec::new();
        };
        let before = self.answers_before;
        let since = self.answers(old).since(before);
        let (old, new) = (OldAnswers { before, since }, self.answers(new));
        let mut are_worse = old.are_better_than(new);
        let (mut passed, mut failure) = (Vec::new(), String::new());
        for slot in supervisor.on_trial() {
            let Some(gauge) = gauge(slot) else { continue };
            let sample = sample(gauge, start_timeout, old);
            match supervisor.observe(slot, sample, now) {
                Progress::Pending => {}
                Progress::Passed => {
                    gauge.passed_trial();
                    passed.push(slot);
                }
                Progress::Failed => are_worse = true,
            }
            if failure.is_empty() {
                failure = gauge.failure();
            }
        }
        if are_worse {
            let cause = format!("{}{failure}", compared(new, old.all()));
            self.stop(cause.trim_end_matches(": "));
            supervisor.roll_back();
        }
        passed
    }

    /// Records the cause for which the rolling restart stops.
    pub(super) fn stop(&mut self, cause: &str) {
        self.stopped = Some(cause.to_owned());
    }

    /// Returns the cause that stopped the last rolling restart, until a later one is done.
    pub(super) fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    /// Records that every worker is of that generation.
    pub(super) fn done(&mut self, generation: Generation) {
        self.generations.retain(|other, _| *other >= generation);
        self.stopped = None;
    }

    /// Removes a generation whose workers do not work.
    pub(super) fn failed(&mut self, generation: Generation) {
        self.generations.remove(&generation);
    }
}

fn sample(gauge: &Gauge, start_timeout: Duration, old: OldAnswers) -> TrialSample {
    TrialSample {
        answers: gauge.served(),
        successes: gauge.succeeded(),
        busy: gauge.load() > 0,
        // During its first message a worker is not killed before that time.
        busy_max: match gauge.answered() {
            0 => BUSY.max(start_timeout),
            _ => BUSY,
        },
        old_ones_fail: old.mostly_fail(),
    }
}

fn compared(new: Answers, old: Answers) -> String {
    format!(
        "new workers failed {} of {} message(s), old ones {} of {}: ",
        new.failures, new.all, old.failures, old.all
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::Action;
    use ganger_config::sample::policy;

    fn command(program: &str) -> WorkerCommand {
        WorkerCommand {
            program: program.into(),
            ..policy().command
        }
    }

    #[test]
    fn each_generation_runs_the_last_command_begun_by_then() {
        let mut rollout = Rollout::new(command("0"));
        rollout.begin(1, command("1"), Some(0));
        rollout.begin(2, command("2"), Some(0));
        let programs = |rollout: &Rollout| {
            let program = |generation| rollout.of(generation).unwrap().0.program.clone();
            [0, 1, 2].map(program)
        };
        assert_eq!(programs(&rollout), ["0", "1", "2"]);
        rollout.failed(2);
        assert_eq!(programs(&rollout), ["0", "1", "1"]);
        rollout.stop("why");
        rollout.begin(3, command("3"), None);
        assert_eq!(rollout.stopped(), Some("why"), "until one is done");
        rollout.done(3);
        assert_eq!(programs(&rollout), ["3", "3", "3"]);
        assert_eq!(rollout.stopped(), None);
    }

    /// Returns the actions that follow when the new worker of a pool of one has given these answers, after
    /// ten successes of the old one.
    fn actions_after(successes: usize, failures: usize) -> (Vec<Action>, Option<String>) {
        let now = Instant::now();
        let mut supervisor = Supervisor::new(1, policy().restart);
        let mut rollout = Rollout::new(command("0"));
        let is_busy = |_| false;
        supervisor.plan(now, is_busy);
        supervisor.connected(0, now);
        let tally = |rollout: &Rollout, generation, is_success| {
            let (_, tally) = rollout.of(generation).unwrap();
            tally.add(is_success);
        };
        (0..10).for_each(|_| tally(&rollout, 0, true));
        let new = supervisor.roll(now);
        let old = supervisor.rolling().map(|(old, _)| old);
        rollout.begin(new, command("1"), old);
        assert_eq!(supervisor.plan(now, is_busy), [Action::Start(1, new)]);
        supervisor.connected(1, now);
        (0..successes).for_each(|_| tally(&rollout, new, true));
        (0..failures).for_each(|_| tally(&rollout, new, false));
        let gauge = Gauge::new(true, rollout.of(new).unwrap().1);
        let gauge = |slot| (slot == 1).then_some(&gauge);
        let passed = rollout.check(&mut supervisor, gauge, Duration::ZERO, now);
        assert!(passed.is_empty(), "it has been up for no time");
        let stopped = rollout.stopped().map(str::to_owned);
        (supervisor.plan(now, is_busy), stopped)
    }

    #[test]
    fn new_workers_that_fail_more_than_the_old_ones_go() {
        assert_eq!(actions_after(0, 0), (vec![], None));
        assert_eq!(actions_after(9, 1), (vec![], None));
        let why = "new workers failed 9 of 9 message(s), old ones 0 of 10";
        let expected = vec![Action::Drain(1), Action::RollFailed(1)];
        assert_eq!(actions_after(0, 9), (expected, Some(why.to_owned())));
    }
}
