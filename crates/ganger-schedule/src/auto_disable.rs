//! Disabling a schedule whose runs keep failing: a schedule so disabled dispatches nothing until
//! somebody enables it, or until a trial run succeeds.

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

/// State of one schedule, as it is kept in the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AutoDisable {
    /// Ends of the last final failures in a row, oldest first; no more than the rules look at.
    pub failures: VecDeque<Timestamp>,
    /// Disabled, and since when.
    pub disabled: Option<Timestamp>,
    /// A trial run is under way.
    pub is_trying: bool,
}

impl AutoDisable {
    /// Returns whether a slot may be dispatched: one that is not is paused, and not made up for.
    pub fn admits(&self, rules: &Rules, now: Timestamp) -> bool {
        let is_trial = self.trial_at(rules).is_some_and(|at| now >= at);
        self.disabled.is_none() || is_trial
    }

    /// Returns the time from which one run is tried; `None` if the schedule is enabled, or a trial
    /// is under way, or an operator must enable it.
    pub fn trial_at(&self, rules: &Rules) -> Option<Timestamp> {
        let since = self.disabled.filter(|_| !self.is_trying)?;
        since.checked_add(rules.retry_after?).ok()
    }

    /// Records that a slot was dispatched.
    pub fn dispatched(&mut self) {
        self.is_trying = self.disabled.is_some();
    }

    /// Records an occurrence that has finally failed or timed out.
    pub fn failed(&mut self, rules: &Rules, at: Timestamp) -> Option<Change> {
        self.failures.push_back(at);
        while self.failures.len() > rules.failures.max(1) {
            self.failures.pop_front();
        }
        if self.disabled.is_some() {
            // Of occurrences that were dispatched before, only the trial counts.
            if self.is_trying {
                (self.disabled, self.is_trying) = (Some(at), false);
            }
            return None;
        }
        let begin = at.checked_sub(rules.window).ok();
        let failures = self.failures.len();
        let within = |first: &Timestamp| begin.is_none_or(|begin| *first >= begin);
        if failures < rules.failures.max(1) || !self.failures.front().is_some_and(within) {
            return None;
        }
        self.disabled = Some(at);
        Some(Change::Disabled { failures })
    }

    /// Records an occurrence that has completed.
    pub fn completed(&mut self) -> Option<Change> {
        let was_disabled = self.disabled.is_some();
        // One that was under way when the schedule was disabled shows as much as a trial.
        self.enable();
        was_disabled.then_some(Change::Enabled)
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

    /// Plays a story, a character each: `x` failure, `.` success, `o` a dispatch, `+` 10 s pass, `e`
    /// enabled by hand. Returns a character for the state after each: `~` enabled, `0` disabled, `!` a
    /// trial is due, `?` a trial is under way.
    fn story(rules: Rules, letters: &str) -> String {
        let mut state = AutoDisable::default();
        let mut now = Timestamp::UNIX_EPOCH;
        let mut play = |letter| {
            match letter {
                '+' => now += Duration::from_secs(10),
                'o' => state.dispatched(),
                'e' => state.enable(),
                '.' => {
                    state.completed();
                }
                _ => {
                    state.failed(&rules, now);
                }
            }
            match (state.disabled, state.admits(&rules, now)) {
                (None, true) => '~',
                (Some(_), true) => '!',
                _ if state.is_trying => '?',
                _ => '0',
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
            ("only somebody enables it", None, "xxx++++++e", "~~000000"),
            ("the count begins anew", None, "xxxexx", "~~0~~~"),
            (
                "a trial is due and succeeds",
                Some(20),
                "xxx++o.",
                "~~00!?~",
            ),
            ("a trial fails", Some(20), "xxx++ox+++o.", "~~00!?00!!?~"),
            (
                "one that was under way is no trial",
                Some(20),
                "xxx+x+o",
                "~~000!?",
            ),
            ("one that was under way has succeeded", None, "xxx.", "~~0~"),
        ];
        for (name, retry_after, letters, expected) in table {
            let states = story(rules(retry_after), letters);
            assert!(states.starts_with(expected), "{name}: {states}");
        }
    }

    #[test]
    fn a_change_is_told_once() {
        let mut state = AutoDisable::default();
        let at = Timestamp::UNIX_EPOCH;
        let told: Vec<_> = (0..5).map(|_| state.failed(&rules(None), at)).collect();
        let disabled = Some(Change::Disabled { failures: 3 });
        assert_eq!(told, [None, None, disabled, None, None]);
        assert_eq!(state.completed(), Some(Change::Enabled));
        assert_eq!(state.completed(), None);
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
