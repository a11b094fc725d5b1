//! Disabling a schedule whose runs keep failing: a schedule so disabled dispatches nothing until an
//! operator enables it, or until a trial run succeeds.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;

/// Rules for disabling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Number of final failures in a row, at least 1.
    pub failures: usize,
    /// Time within which they must lie.
    pub window: Duration,
    /// Time after which one run is tried; `None` to wait for an operator.
    pub retry_after: Option<Duration>,
}

/// A change of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was disabled, after so many failures in a row.
    Disabled {
        /// Number of failures.
        failures: usize,
    },
    /// It was enabled: a trial run has succeeded.
    Enabled,
}

/// End of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It has completed.
    Completed,
    /// It has finally failed or timed out.
    Failed,
    /// It was cancelled, or was never sent: it says nothing about the schedule.
    Cancelled,
}

/// State of one schedule, as it is kept in the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AutoDisable {
    /// Ends of the last final failures in a row, oldest first; no more than the rules look at.
    pub failures: VecDeque<Timestamp>,
    /// Time since which it is disabled.
    pub disabled: Option<Timestamp>,
    /// Slot of the trial run that is under way.
    pub trial: Option<Timestamp>,
}

impl AutoDisable {
    /// Returns the number of decisions on slots that may be made now, of `max`: all, one for a trial
    /// run, or none. Slots on which none may be made are paused, and not made up for.
    pub fn budget(&self, rules: &Rules, now: Timestamp, max: usize) -> usize {
        match (self.disabled, self.trial_at(rules)) {
            (None, _) => max,
            (Some(_), Some(at)) if now >= at => max.min(1),
            (Some(_), _) => 0,
        }
    }

    /// Returns the time from which one run is tried; `None` if the schedule is enabled, or a trial
    /// is under way, or an operator must enable it.
    pub fn trial_at(&self, rules: &Rules) -> Option<Timestamp> {
        let since = self.disabled.filter(|_| self.trial.is_none())?;
        since.checked_add(rules.retry_after?).ok()
    }

    /// Records that a slot was dispatched.
    pub fn dispatched(&mut self, slot: Timestamp) {
        self.trial = self.disabled.map(|_| slot);
    }

    /// Records the end of a slot's run. While the schedule is disabled only its trial counts: one that
    /// is cancelled is followed by another.
    pub fn ended(
        &mut self,
        rules: &Rules,
        slot: Timestamp,
        end: End,
        at: Timestamp,
    ) -> Option<Change> {
        if self.disabled.is_some() && self.trial != Some(slot) {
            return None;
        }
        let trial = self.trial.take();
        match end {
            End::Completed => {
                self.enable();
                trial.map(|_| Change::Enabled)
            }
            End::Failed if trial.is_some() => {
                self.disabled = Some(at);
                None
            }
            End::Failed => self.failed(rules, at),
            End::Cancelled => None,
        }
    }

    fn failed(&mut self, rules: &Rules, at: Timestamp) -> Option<Change> {
        let enough = rules.failures.max(1);
        self.failures.push_back(at);
        while self.failures.len() > enough {
            self.failures.pop_front();
        }
        let begin = at.checked_sub(rules.window).ok();
        let within = |first: &Timestamp| begin.is_none_or(|begin| *first >= begin);
        if self.failures.len() < enough || !self.failures.front().is_some_and(within) {
            return None;
        }
        self.disabled = Some(at);
        Some(Change::Disabled { failures: enough })
    }

    /// Enables the schedule and forgets its failures.
    pub fn enable(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rules(retry_after: Option<u64>) -> Rules {
        Rules {
            failures: 3,
            window: Duration::from_secs(60),
            retry_after: retry_after.map(Duration::from_secs),
        }
    }

    /// Plays a story, a character each: `o` a dispatch; the end of the newest run by `x` failure, `.`
    /// success, `c` cancellation; `:` success of one from before; `+` 10 s pass, `e` enabled by an
    /// operator. Returns a character for the state after each: `~` enabled, `0` disabled, `!` a trial is
    /// due, `?` a trial is under way.
    fn story(rules: Rules, letters: &str) -> String {
        let mut state = AutoDisable::default();
        let mut now = Timestamp::UNIX_EPOCH;
        let mut slot = now;
        let mut play = |letter| {
            let mut ended = |slot, end| {
                state.ended(&rules, slot, end, now);
            };
            match letter {
                '+' => now += Duration::from_secs(10),
                'o' => {
                    slot += Duration::from_secs(1);
                    state.dispatched(slot);
                }
                'e' => state.enable(),
                '.' => ended(slot, End::Completed),
                ':' => ended(Timestamp::MIN, End::Completed),
                'c' => ended(slot, End::Cancelled),
                _ => ended(slot, End::Failed),
            }
            match (state.disabled, state.budget(&rules, now, 7)) {
                (None, 7) => '~',
                (Some(_), 1) => '!',
                (Some(_), 0) if state.trial.is_some() => '?',
                (Some(_), 0) => '0',
                other => panic!("{other:?}"),
            }
        };
        letters.chars().map(&mut play).collect()
    }

    #[test]
    fn failures_in_a_row_disable_a_schedule() {
        let table = [
            ("three are enough", None, "xxx", "~~0"),
            ("a success is between them", None, "xx.xx", "~~~~~"),
            ("they are too far apart", None, "x+++x++++x", "~~~~~~~~~~"),
            (
                "the last three are near",
                None,
                "x+++++++xxx",
                "~~~~~~~~~~0",
            ),
            ("an operator enables it", None, "xxx++++++e", "~~0000000~"),
            ("the count begins anew", None, "xxxexx", "~~0~~~"),
            ("a cancelled run says nothing", None, "xxcx", "~~~0"),
            (
                "a trial is due and succeeds",
                Some(20),
                "xxx++o.",
                "~~00!?~",
            ),
            ("a trial fails", Some(20), "xxx++ox+++o.", "~~00!?00!!?~"),
            (
                "a trial is cancelled, and followed by another",
                Some(20),
                "xxx++oco.",
                "~~00!?!?~",
            ),
            (
                "one that was under way is no trial",
                Some(20),
                "xxx+x+o",
                "~~000!?",
            ),
            ("one that was under way succeeds", None, "xxx:.", "~~000"),
            (
                "one that was under way succeeds beside the trial",
                Some(20),
                "xxx++o:.",
                "~~00!??~",
            ),
        ];
        for (name, retry_after, letters, expected) in table {
            assert_eq!(story(rules(retry_after), letters), expected, "{name}");
        }
    }

    #[test]
    fn a_change_is_reported_once() {
        let mut state = AutoDisable::default();
        let (rules, at) = (rules(Some(0)), Timestamp::UNIX_EPOCH);
        let failures: Vec<_> = (0..5)
            .map(|_| state.ended(&rules, at, End::Failed, at))
            .collect();
        let disabled = Some(Change::Disabled { failures: 3 });
        assert_eq!(failures, [None, None, disabled, None, None]);
        state.dispatched(at);
        let mut completed = || state.ended(&rules, at, End::Completed, at);
        assert_eq!(completed(), Some(Change::Enabled));
        assert_eq!(completed(), None);
    }

    proptest! {
        #[test]
        fn fewer_failures_than_allowed_disable_nothing(story in "[x+]{0,40}") {
            let states = self::story(rules(None), &story);
            let close = |letters: &str| letters.matches('x').count() >= 3 && letters.matches('+').count() <= 6;
            let is_disabled = (0..story.len()).any(|i| (i..=story.len()).any(|j| close(&story[i..j])));
            prop_assert_eq!(states.contains('0'), is_disabled);
        }
    }
}
