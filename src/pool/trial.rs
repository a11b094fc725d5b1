//! The trial of a new worker in a rolling restart: when it counts as one that works. To connect is
//! no proof: a build may do that and die on its first message. Pure; the clock is the caller's.

use std::time::Duration;

use tokio::time::Instant;

/// So many answers, whatever they say, show that it works on what it gets.
const ANSWERS: u64 = 5;
/// With nothing to do it stays up for so long.
const IDLE: Duration = Duration::from_secs(5);
/// A long task is not waited for to its end.
pub const BUSY: Duration = Duration::from_secs(60);

/// What a worker on trial shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Its answers so far.
    pub answers: u64,
    /// Those among them that are no failure.
    pub successes: u64,
    /// It has something in hand.
    pub busy: bool,
    /// How long that is waited for.
    pub busy_max: Duration,
}

/// A worker's trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    busy: bool,
    /// Since when it is busy, or is not.
    since: Instant,
    /// How long what it has in hand is waited for.
    busy_max: Duration,
    /// One before it in its place has served its time: it is passed.
    served: bool,
}

impl Trial {
    /// It begins when the worker has connected.
    pub fn begin(now: Instant) -> Self {
        Self {
            busy: false,
            since: now,
            busy_max: BUSY,
            served: false,
        }
    }

    /// The worker's successor has connected, which is tried in its place.
    pub fn begin_again(self, now: Instant) -> Self {
        Self {
            served: self.served,
            ..Self::begin(now)
        }
    }

    /// A limit of its own has ended the worker before it could show more, and well: with small
    /// limits none would ever come further. It counts once its successor is up.
    pub fn served(self) -> Self {
        Self {
            served: true,
            ..self
        }
    }

    /// Takes in what the worker shows now. Returns whether it has passed.
    pub fn passes(&mut self, seen: Seen, now: Instant) -> bool {
        self.busy_max = seen.busy_max;
        if self.busy != seen.busy {
            *self = Self {
                busy: seen.busy,
                since: now,
                ..*self
            };
        }
        self.served || seen.successes > 0 || seen.answers >= ANSWERS || self.ends() <= now
    }

    /// When it is passed if nothing happens before.
    pub fn ends(&self) -> Instant {
        self.since + if self.busy { self.busy_max } else { IDLE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(answers: u64, successes: u64, busy: bool) -> Seen {
        Seen {
            answers,
            successes,
            busy,
            busy_max: BUSY,
        }
    }

    #[test]
    fn a_trial_is_passed_by_work_or_by_time() {
        let table = [
            (seen(0, 0, false), 0, false),
            (seen(1, 1, true), 0, true),
            (seen(4, 0, true), 59, false),
            (seen(5, 0, true), 0, true),
            (seen(0, 0, false), 4, false),
            (seen(0, 0, false), 5, true),
            (seen(0, 0, true), 59, false),
            (seen(0, 0, true), 60, true),
        ];
        let now = Instant::now();
        for (seen, seconds, passed) in table {
            let mut trial = Trial::begin(now);
            let nothing_yet = Seen {
                answers: 0,
                successes: 0,
                ..seen
            };
            assert!(!trial.passes(nothing_yet, now));
            let later = now + Duration::from_secs(seconds);
            assert_eq!(
                trial.passes(seen, later),
                passed,
                "{seen:?} after {seconds} s"
            );
        }
    }

    #[test]
    fn who_may_be_killed_later_is_waited_for_until_then() {
        let (now, limit) = (Instant::now(), 5 * BUSY);
        let starts = Seen {
            busy_max: limit,
            ..seen(0, 0, true)
        };
        let mut trial = Trial::begin(now);
        assert!(!trial.passes(starts, now));
        assert_eq!(trial.ends(), now + limit);
        assert!(!trial.passes(starts, now + BUSY));
        assert!(trial.passes(starts, now + limit));
    }

    #[test]
    fn failures_now_and_then_are_neither_idle_nor_busy_for_long() {
        let start = Instant::now();
        let mut trial = Trial::begin(start);
        for step in 0..8_u64 {
            let now = start + Duration::from_secs(4 * step);
            let seen = seen(step / 2, 0, step % 2 == 0);
            assert!(!trial.passes(seen, now), "{step}");
        }
    }
}
