//! The breaker on failures: when nearly all first attempts fail, what the workers depend on is down
//! and trying on only spends the attempts of the backlog. Pure state: it is told what became of each
//! attempt and what time it is, and says whether another message may be taken.

use std::collections::VecDeque;

use tokio::time::Instant;

use ganger_config::model::Breaker as Rules;
use ganger_queue::delivery::{Outcome, Reason};

/// What an attempt tells of what its worker depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign<'a> {
    /// It is there: the work is done, or was refused for good.
    Up,
    /// It may be down, with the error.
    Down(&'a str),
}

/// What an outcome tells; none if nothing. A crash has a breaker of its own, and what is uncharged
/// was no attempt.
pub fn sign(outcome: &Outcome) -> Option<Sign<'_>> {
    match outcome {
        Outcome::Done | Outcome::Reply(_) => Some(Sign::Up),
        Outcome::Requeue { .. } | Outcome::Return { .. } | Outcome::ReturnAfter { .. } => None,
        Outcome::RetryAfter { failure, .. } | Outcome::DeadLetter(failure) => {
            match failure.reason {
                Reason::Failed | Reason::TimedOut | Reason::Stalled => {
                    Some(Sign::Down(&failure.error))
                }
                Reason::Rejected | Reason::UnroutableReply => Some(Sign::Up),
                Reason::Crashed
                | Reason::ProtocolError
                | Reason::Undeliverable
                | Reason::Cancelled => None,
            }
        }
    }
}

/// An attempt that has come to its end.
#[derive(Debug)]
pub struct Attempt<N> {
    /// It was the message's first.
    pub is_first: bool,
    /// When the pool took the message in.
    pub taken_at: Option<Instant>,
    /// Names the message: one that comes again because its broker did not hear of the attempt counts
    /// once.
    pub message: N,
}

/// What has changed since the pool last asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// Nearly all fail. What waits is not to be tried, but for what the breaker admits.
    Opened {
        /// How many of the last first attempts had failed.
        failed: usize,
        /// The error that most of them had.
        error: String,
    },
    /// One has succeeded.
    Closed,
}

/// The breaker of one pool.
#[derive(Debug)]
pub struct Breaker {
    rules: Option<Rules>,
    /// The last first attempts, and later ones that have succeeded: none for one that has not failed.
    recent: VecDeque<Option<Failed>>,
    open: Option<Open>,
    openings: u64,
    news: Option<News>,
}

#[derive(Debug)]
struct Failed {
    message: String,
    error: String,
}

#[derive(Debug)]
struct Open {
    /// The error that most had when it opened.
    error: String,
    /// When it opened.
    since: Instant,
    /// From when on the next one is taken.
    probe_at: Instant,
    /// The next is one that was tried before, if there is any.
    takes_tried: bool,
}

impl Breaker {
    /// Closed; without rules it stays so.
    pub fn new(rules: Option<Rules>) -> Self {
        Self {
            rules,
            recent: VecDeque::new(),
            open: None,
            openings: 0,
            news: None,
        }
    }

    /// Other rules. What it has seen counts on, as far as they look back.
    pub fn set_rules(&mut self, rules: Option<Rules>) {
        self.rules = rules;
        match rules {
            Some(rules) => self.forget_beyond(rules.of),
            None if self.is_open() => self.close(),
            None => self.recent.clear(),
        }
    }

    /// Whether nearly everything fails.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// How often it has opened so far: what was handed out before the last time is not to be begun.
    pub fn openings(&self) -> u64 {
        self.openings
    }

    /// The error that most had, while it is open.
    pub fn error(&self) -> Option<&str> {
        self.open.as_ref().map(|open| open.error.as_str())
    }

    /// How many messages to have at hand beside those that workers have, while it is open: as many
    /// as it looks at, so that a message that comes back is tried again only after those.
    pub fn at_hand(&self) -> Option<usize> {
        self.rules.filter(|_| self.is_open()).map(|rules| rules.of)
    }

    /// Whether another message may be given to a worker.
    pub fn admits(&self, now: Instant) -> bool {
        self.open.as_ref().is_none_or(|open| now >= open.probe_at)
    }

    /// When it next admits one.
    pub fn probe_at(&self) -> Option<Instant> {
        self.open.as_ref().map(|open| open.probe_at)
    }

    /// While it is open: whether the next should be one that was tried before. They take turns with
    /// those that were not: the former may fail at first and succeed later, the latter have all their
    /// attempts left.
    pub fn takes_tried(&self) -> Option<bool> {
        self.open.as_ref().map(|open| open.takes_tried)
    }

    /// A message was given to a worker.
    pub fn taken(&mut self, now: Instant) {
        if let (Some(rules), Some(open)) = (self.rules, &mut self.open) {
            open.probe_at = now + rules.probe;
            open.takes_tried = !open.takes_tried;
        }
    }

    /// An attempt has come to its end.
    pub fn told(
        &mut self,
        sign: Sign<'_>,
        attempt: Attempt<impl FnOnce() -> String>,
        now: Instant,
    ) {
        let Some(rules) = self.rules else { return };
        match (&self.open, sign) {
            // What was begun before it opened tells nothing of now.
            (Some(open), Sign::Up) if attempt.taken_at >= Some(open.since) => self.close(),
            (Some(_), _) => {}
            (None, Sign::Up) => self.note(None, rules, now),
            (None, Sign::Down(_)) if !attempt.is_first => {}
            (None, Sign::Down(error)) => {
                let (message, error) = ((attempt.message)(), error.to_owned());
                let same = |other: &Option<Failed>| {
                    other.as_ref().is_some_and(|other| other.message == message)
                };
                self.recent.retain(|other| !same(other));
                self.note(Some(Failed { message, error }), rules, now);
            }
        }
    }

    /// What has changed since this was last asked.
    pub fn news(&mut self) -> Option<News> {
        self.news.take()
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
        self.news = Some(News::Opened {
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
        self.news = Some(News::Closed);
    }
}

/// How many of the last first attempts must have failed.
fn failures_needed(rules: Rules) -> usize {
    #[expect(clippy::cast_precision_loss, reason = "at most a thousand")]
    let share = |count: usize| count as f64 / rules.of as f64;
    // A share such as 0.55 of 20 is a little more than 11 in binary.
    let enough = |count: &usize| share(*count) + 1e-9 >= rules.failures;
    (1..rules.of).find(enough).unwrap_or(rules.of)
}

/// Of several that come equally often, the last.
fn most_common<'a>(errors: impl Iterator<Item = &'a str> + Clone) -> String {
    let times = |error: &str| errors.clone().filter(|other| *other == error).count();
    let most = errors.clone().max_by_key(|error| times(error));
    most.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
