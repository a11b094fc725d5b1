//! Watches a rolling restart: compares the new workers with the old ones.

use std::rc::Rc;
use std::sync::Arc;

use tokio::time::Instant;

use super::roster::Generation;
use super::trial::{AnswerTally, Answers, BUSY, OldAnswers, Progress, TrialSample};
use super::{Handle, Pool};

impl Pool {
    /// Begins to replace every worker.
    pub(super) fn roll(&mut self) {
        let command = Arc::new(self.shared.policy.borrow().command.clone());
        let generation = self.supervisor.roll(Instant::now());
        self.commands.insert(generation, command);
        if let Some((old, _)) = self.supervisor.rolling() {
            self.answers_before_roll = self.counted(old);
        }
    }

    /// Returns the answers of a generation so far.
    fn counted(&self, generation: Generation) -> Answers {
        let tally = self.tallies.get(&generation);
        tally.map(|tally| tally.counted()).unwrap_or_default()
    }

    /// Returns the tally for the answers of that generation's workers.
    pub(super) fn tally(&mut self, generation: Generation) -> Rc<AnswerTally> {
        Rc::clone(self.tallies.entry(generation).or_default())
    }

    /// Checks the new workers of a rolling restart. They are removed if they are worse than the old
    /// ones.
    pub(super) fn watch_trials(&mut self, now: Instant) {
        let Some((old, new)) = self.supervisor.rolling() else {
            return;
        };
        let (before, new) = (self.answers_before_roll, self.counted(new));
        let since = self.counted(old).since(before);
        let old = OldAnswers { before, since };
        let mut worse = old.are_better_than(new);
        let mut failure = String::new();
        let start_timeout = self.shared.policy().start_timeout;
        for slot in self.supervisor.on_trial() {
            let Some(Handle { gauge, .. }) = self.slots.get(&slot) else {
                continue;
            };
            let seen = TrialSample {
                answers: gauge.served(),
                successes: gauge.succeeded(),
                busy: gauge.load() > 0,
                // During its first message a worker is not killed before that.
                busy_max: match gauge.answered() {
                    0 => BUSY.max(start_timeout),
                    _ => BUSY,
                },
                old_ones_fail: old.mostly_fail(),
            };
            match self.supervisor.observe(slot, seen, now) {
                Progress::Pending => {}
                Progress::Passed => {
                    gauge.passed_trial();
                    tracing::info!(pool = self.name(), worker = slot, "the new worker works");
                }
                Progress::Failed => worse = true,
            }
            if failure.is_empty() {
                failure = gauge.failure();
            }
        }
        if worse {
            let cause = format!("{}{failure}", compared(new, old.all()));
            self.roll_stopped = Some(cause.trim_end_matches(": ").to_owned());
            self.supervisor.roll_back();
        }
    }
}

fn compared(new: Answers, old: Answers) -> String {
    format!(
        "new workers failed {} of {} message(s), old ones {} of {}: ",
        new.failures, new.all, old.failures, old.all
    )
}
