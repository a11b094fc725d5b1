//! The breaker on failures: when nearly all first attempts fail, a dependency of the workers is down, and
//! further attempts only use up those of the backlog. Pure state: it receives each attempt's result and the
//! time, and decides whether another message may be taken.

use std::collections::VecDeque;

use tokio::time::Instant;

use ganger_config::model::Breaker as Rules;
use ganger_queue::delivery::{Outcome, Reason};

/// Evidence of an attempt about the dependency of its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence<'a> {
    /// The dependency is up: the work is done, or was permanently rejected.
    Up,
    /// The dependency may be down, with the error.
    Down(&'a str),
}

/// Returns the evidence of an outcome, if any. Crashes have a breaker of their own, and uncharged
/// outcomes were no attempts.
pub fn evidence(outcome: &Outcome) -> Option<Evidence<'_>> {
    match outcome {
        Outcome::Done | Outcome::Reply(_) => Some(Evidence::Up),
        Outcome::Requeue { .. } | Outcome::Return { .. } | Outcome::ReturnAfter { .. } => None,
        Outcome::RetryAfter { failure, .. } | Outcome::DeadLetter(failure) => {
            match failure.reason {
                Reason::Failed | Reason::TimedOut | Reason::Stalled => {
                    Some(Evidence::Down(&failure.error))
                }
                Reason::Rejected | Reason::UnroutableReply => Some(Evidence::Up),
                Reason::Crashed
                | Reason::ProtocolError
                | Reason::Undeliverable
                | Reason::Cancelled => None,
            }
        }
    }
}

/// An attempt that has ended.
#[derive(Debug)]
pub struct Attempt<N> {
    /// True if it was the message's first.
    pub is_first: bool,
    /// Time at which the pool took the message in.
    pub taken_at: Option<Instant>,
    /// Name of the message: one that is redelivered because its broker did not learn of the attempt counts
    /// once.
    pub message: N,
}

/// A change of the breaker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transition {
    /// Nearly all attempts fail. Waiting messages must not be tried, except those that the breaker
    /// admits.
    Opened {
        /// Number of failures among the last first attempts.
        failed: usize,
        /// Most common error.
        error: String,
    },
    /// An attempt has succeeded.
    Closed,
}

/// The breaker of one pool.
#[derive(Debug)]
pub struct Breaker {
    rules: Option<Rules>,
    /// The last first attempts, and later ones that have succeeded: `None` for a success.
    recent: VecDeque<Option<Failed>>,
    open: Option<Open>,
    openings: u64,
    transition: Option<Transition>,
}

#[derive(Debug)]
struct Failed {
    message: String,
    error: String,
}

#[derive(Debug)]
struct Open {
    /// Most common error when the breaker opened.
    error: String,
    /// Time at which the breaker opened.
    since: Instant,
    /// Time from which the next message is taken.
    probe_at: Instant,
    /// True if the next message is one that was tried before, if there is any.
    takes_tried: bool,
}

impl Breaker {
    /// Creates a closed breaker; without rules it stays closed.
    pub fn new(rules: Option<Rules>) -> Self {
        Self {
            rules,
            recent: VecDeque::new(),
            open: None,
            openings: 0,
            transition: None,
        }
    }

    /// Replaces the rules. Past attempts still count, as far back as the new rules require.
    pub fn set_rules(&mut self, rules: Option<Rules>) {
        self.rules = rules;
        match rules {
            Some(rules) => self.forget_beyond(rules.of),
            None if self.is_open() => self.close(),
            None => self.recent.clear(),
        }
    }

    /// Returns whether nearly all attempts fail.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Returns the number of openings so far: messages given out before the last one must not be
    /// begun.
    pub fn openings(&self) -> u64 {
        self.openings
    }

    /// Returns the most common error while the breaker is open.
    pub fn error(&self) -> Option<&str> {
        self.open.as_ref().map(|open| open.error.as_str())
    }

    /// Returns the number of messages to keep in addition to those that workers have while the breaker is
    /// open: as many as it evaluates, so that a redelivered message is tried again only after those.
    pub fn at_hand(&self) -> Option<usize> {
        self.rules.filter(|_| self.is_open()).map(|rules| rules.of)
    }

    /// Returns whether another message may be given to a worker.
    pub fn admits(&self, now: Instant) -> bool {
        self.open.as_ref().is_none_or(|open| now >= open.probe_at)
    }

    /// Returns the time at which the breaker admits the next message.
    pub fn probe_at(&self) -> Option<Instant> {
        self.open.as_ref().map(|open| open.probe_at)
    }

    /// Returns, while the breaker is open, whether the next message should be one that was tried
    /// before. These alternate with new ones: the former may fail at first and succeed later, the
    /// latter have all their attempts left.
    pub fn takes_tried(&self) -> Option<bool> {
        self.open.as_ref().map(|open| open.takes_tried)
    }

    /// Records that a message was given to a worker.
    pub fn taken(&mut self, now: Instant) {
        if let (Some(rules), Some(open)) = (self.rules, &mut self.open) {
            open.probe_at = now + rules.probe;
            open.takes_tried = !open.takes_tried;
        }
    }

    /// Records an attempt that has ended.
    pub fn record(
        &mut self,
        evidence: Evidence<'_>,
        attempt: Attempt<impl FnOnce() -> String>,
        now: Instant,
    ) {
        let Some(rules) = self.rules else { return };
        match (&self.open, evidence) {
            // An attempt begun before the breaker opened says nothing about now.
            (Some(open), Evidence::Up) if attempt.taken_at >= Some(open.since) => self.close(),
            (Some(_), _) => {}
            (None, Evidence::Up) => self.note(None, rules, now),
            (None, Evidence::Down(_)) if !attempt.is_first => {}
            (None, Evidence::Down(error)) => {
                let (message, error) = ((attempt.message)(), error.to_owned());
                let same = |other: &Option<Failed>| {
                    other.as_ref().is_some_and(|other| other.message == message)
                };
                self.recent.retain(|other| !same(other));
                self.note(Some(Failed { message, error }), rules, now);
            }
        }
    }

    /// Returns the change since the last call, if any.
    pub fn take_transition(&mut self) -> Option<Transition> {
        self.transition.take()
    }

    fn note(&mut self, attempt: Option<Failed>, rules: Rules, now: Instant) {
        let bad = attempt.is_some();
        self.recent.push_back(attempt);
        self.forget_beyond(rules.of);
        if !bad || self.recent.len() < rules.of {
            return;
        }
        let failed = self.recent.iter().flatten().count();
        if failed >= failures_needed(rules) {
            self.open(failed, rules, now);
        }
    }

    fn forget_beyond(&mut self, of: usize) {
        let surplus = self.recent.len().saturating_sub(of);
        self.recent.drain(..surplus);
    }

    fn open(&mut self, failed: usize, rules: Rules, now: Instant) {
        let error = most_common(self.recent.iter().flatten().map(|failed| &*failed.error));
        self.recent.clear();
        self.openings += 1;
        self.transition = Some(Transition::Opened {
            failed,
            error: error.clone(),
        });
        self.open = Some(Open {
            error,
            since: now,
            probe_at: now + rules.probe,
            takes_tried: true,
        });
    }

    fn close(&mut self) {
        self.open = None;
        self.recent.clear();
        self.transition = Some(Transition::Closed);
    }
}

/// Returns the number of the last first attempts that must have failed.
fn failures_needed(rules: Rules) -> usize {
    #[expect(clippy::cast_precision_loss, reason = "at most a thousand")]
    let share = |count: usize| count as f64 / rules.of as f64;
    // A share such as 0.55 of 20 is a little more than 11 in binary.
    let enough = |count: &usize| share(*count) + 1e-9 >= rules.failures;
    (1..rules.of).find(enough).unwrap_or(rules.of)
}

/// Returns the most common error; of equally frequent ones, the last.
fn most_common<'a>(errors: impl Iterator<Item = &'a str> + Clone) -> String {
    let times = |error: &str| errors.clone().filter(|other| *other == error).count();
    let most = errors.clone().max_by_key(|error| times(error));
    most.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
