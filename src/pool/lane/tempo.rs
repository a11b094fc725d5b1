//! How fast a worker answers, taken from the moments at which its answers come. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::blame::Version;
use crate::config::model::PoolConfig;
use crate::pool::window;
use crate::pool::window::Pace;

/// How many messages a worker wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wants {
    /// So many it may have.
    pub(super) window: usize,
    /// So many are to be fetched for it.
    pub(super) prefetch: usize,
    /// So many it works on at once.
    pub(super) at_once: usize,
}

/// Where the wait for a core is looked at after an answer: one that takes this long could be a slow one.
const SLOW: Duration = Duration::from_millis(1);
/// How long it is looked at after that.
const LOOKED_AT_FOR: Duration = Duration::from_secs(1);

/// A worker's pace: a worker that waits for a core is not slow.
#[derive(Debug)]
pub(super) struct Tempo {
    pace: Pace,
    waits: CoreWaits,
    /// Answers that the pace does not know of yet.
    unpaced: u32,
    /// Since when the worker has been busy without an answer.
    busy_since: Instant,
}

impl Tempo {
    /// Of a worker that has not answered yet.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            pace: Pace::default(),
            waits: CoreWaits::new(now),
            unpaced: 0,
            busy_since: now,
        }
    }

    /// It had nothing in hand, and has something now.
    pub(super) fn begins(&mut self, now: Instant) {
        self.busy_since = now;
    }

    /// It has answered once more.
    pub(super) fn answered(&mut self) {
        self.unpaced += 1;
    }

    /// All answers that are there have been taken in. So long have they been held up for want of a core
    /// since the worker's start, if that is known.
    pub(super) fn caught_up(&mut self, now: Instant, waited: impl FnOnce() -> Option<Duration>) {
        if self.unpaced > 0 {
            let elapsed = now - self.busy_since;
            if elapsed > SLOW * self.unpaced {
                self.waits.until = now + LOOKED_AT_FOR;
            }
            let without_core = self.waits.since(self.busy_since, now, waited);
            let elapsed = elapsed.saturating_sub(without_core);
            self.pace.record(self.unpaced, elapsed);
            self.unpaced = 0;
            self.busy_since = now;
        }
    }

    /// How many messages it wants from a source that takes such turns.
    pub(super) fn wants(&self, version: Version, policy: &PoolConfig, turn: Duration) -> Wants {
        let (window, at_once) = match version {
            Version::Unknown => (1, 1),
            Version::One => (window::version1(policy.pipeline, &self.pace), 1),
            Version::Two { concurrency } => (concurrency, concurrency),
        };
        let prefetch = window::prefetch(policy.prefetch, window, &self.pace, turn);
        Wants {
            window,
            prefetch,
            at_once,
        }
    }
}

/// How long a worker has waited for a core.
#[derive(Debug)]
struct CoreWaits {
    /// Until when it is looked at: a fast worker's is not worth the look.
    until: Instant,
    looked_at: Instant,
    /// What was seen then.
    seen: Duration,
}

impl CoreWaits {
    fn new(now: Instant) -> Self {
        Self {
            until: now,
            looked_at: now,
            seen: Duration::ZERO,
        }
    }

    /// How long it has certainly waited since then; that it had nothing in hand at the last look, or
    /// answers that were not worth a look, may have taken a part of what came since.
    fn since(
        &mut self,
        then: Instant,
        now: Instant,
        waited: impl FnOnce() -> Option<Duration>,
    ) -> Duration {
        if now >= self.until || now - self.looked_at < SLOW {
            return Duration::ZERO;
        }
        let Some(waited) = waited() else {
            self.until = now; // nor would the next look tell
            return Duration::ZERO;
        };
        let all = waited.saturating_sub(self.seen);
        let before = then.saturating_duration_since(self.looked_at);
        (self.looked_at, self.seen) = (now, waited);
        all.saturating_sub(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::model::Pipeline;

    /// A worker whose answers take some time each, of which it waits for a core for some.
    struct Worker {
        tempo: Tempo,
        now: Instant,
        waited: Duration,
        looks: u32,
    }

    impl Worker {
        fn new() -> Self {
            let now = Instant::now();
            let tempo = Tempo::new(now);
            let waited = Duration::ZERO;
            Self {
                tempo,
                now,
                waited,
                looks: 0,
            }
        }

        fn answers(&mut self, times: u32, micros: u64, without_core: u64) {
            for _ in 0..times {
                self.now += Duration::from_micros(micros);
                self.waited += Duration::from_micros(without_core);
                self.tempo.answered();
                self.tempo.caught_up(self.now, || {
                    self.looks += 1;
                    Some(self.waited)
                });
            }
        }

        fn idles(&mut self, time: Duration) {
            self.now += time;
            self.tempo.begins(self.now);
        }

        fn window(&self) -> usize {
            window::version1(Pipeline::Auto, &self.tempo.pace)
        }
    }

    #[test]
    fn a_worker_that_waits_for_a_core_is_not_slow() {
        let mut worker = Worker::new();
        worker.answers(300, 20_000, 19_900);
        assert_eq!(worker.window(), 8);
        worker.answers(300, 20_000, 0);
        assert_eq!(worker.window(), 1);
    }

    #[test]
    fn a_slow_answer_is_believed_after_others_have_waited() {
        let mut worker = Worker::new();
        worker.answers(300, 20_000, 19_990);
        assert_eq!(worker.window(), 64);
        worker.answers(1, 300_000, 0);
        assert_eq!(worker.window(), 1);
    }

    #[test]
    fn waits_of_before_do_not_excuse_a_slow_answer() {
        let mut worker = Worker::new();
        // What nobody looked at: fast ones that all waited, and waits while nothing was in hand.
        worker.answers(3000, 15, 14);
        assert_eq!((worker.window(), worker.looks), (64, 0));
        worker.answers(1, 40_000, 0);
        assert_eq!(worker.window(), 1);
        worker.waited += Duration::from_secs(1);
        worker.idles(Duration::from_secs(2));
        worker.answers(1, 40_000, 0);
        assert_eq!(worker.window(), 1);
    }

    #[test]
    fn a_worker_of_which_nothing_is_known_is_as_slow_as_it_seems() {
        let mut tempo = Tempo::new(Instant::now());
        let mut now = tempo.busy_since;
        let mut looks = 0;
        for micros in std::iter::repeat_n(100, 300)
            .chain([20_000; 10])
            .chain([100; 10])
        {
            now += Duration::from_micros(micros);
            tempo.answered();
            tempo.caught_up(now, || {
                looks += 1;
                None
            });
        }
        assert_eq!(window::version1(Pipeline::Auto, &tempo.pace), 1);
        assert_eq!(looks, 10, "only the slow ones are worth a look");
    }

    #[test]
    fn waits_are_looked_at_a_thousand_times_a_second_at_most() {
        let mut worker = Worker::new();
        worker.answers(1, 2_000, 0);
        worker.answers(4_000, 100, 0);
        assert!((200..=401).contains(&worker.looks), "{}", worker.looks);
        // A second after the last slow one nobody looks.
        let before = worker.looks;
        worker.answers(20_000, 100, 0);
        assert!(worker.looks - before < 1_000, "{}", worker.looks);
    }
}
