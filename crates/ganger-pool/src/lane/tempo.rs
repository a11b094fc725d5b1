//! Speed of a worker, derived from the times at which its answers come. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::blame::Version;
use super::core_waits::{CoreWaits, Taken, Waited};
use crate::window;
use crate::window::Pace;
use ganger_config::model::PoolConfig;

/// Numbers of messages that a worker wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wants {
    /// Maximum number for it.
    pub(super) window: usize,
    /// Number to fetch for it.
    pub(super) prefetch: usize,
    /// Number that it processes at once.
    pub(super) at_once: usize,
    /// Number that it may be given together while others have none.
    pub(super) run: usize,
}

/// Time per answer above which the worker may have waited for a core, which is then checked.
const LATE: Duration = Duration::from_millis(1);

/// Pace of a worker. One that waits for a core is not slow.
#[derive(Debug)]
pub(super) struct Tempo {
    pace: Pace,
    waits: CoreWaits,
    /// Number of answers that the pace does not include yet.
    unpaced: u32,
    /// Time since which the worker has been busy without an answer.
    busy_since: Instant,
}

impl Tempo {
    /// Creates the tempo of a worker that has not answered yet.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            pace: Pace::default(),
            waits: CoreWaits::new(now),
            unpaced: 0,
            busy_since: now,
        }
    }

    /// Records that the worker, idle before, has work now.
    pub(super) fn begins(&mut self, now: Instant) {
        self.busy_since = now;
    }

    /// Counts an answer.
    pub(super) fn answered(&mut self) {
        self.unpaced += 1;
    }

    /// Accounts for the answers once all available ones were taken in; they may have been available since
    /// `available_since`. `waited` is the time without a core since the start, if it is known. Returns the
    /// findings about the worker's real time.
    pub(super) fn caught_up(
        &mut self,
        now: Instant,
        available_since: Instant,
        waited: impl FnOnce() -> Option<Waited>,
    ) -> Option<Taken> {
        if self.unpaced == 0 {
            return None;
        }
        let answers = std::mem::take(&mut self.unpaced);
        let time = available_since.saturating_duration_since(self.busy_since);
        let taken = Taken { answers, time };
        self.busy_since = now;
        let really = match time <= LATE * answers {
            true => {
                self.waits.in_time(time);
                Some(taken)
            }
            false => self.waits.late(taken, now, waited),
        };
        if let Some(Taken { answers, time }) = really {
            self.pace.record(answers, time);
        }
        really
    }

    /// Returns the numbers of messages that it wants from a source whose turns take that long.
    pub(super) fn wants(&self, version: Version, policy: &PoolConfig, turn: Duration) -> Wants {
        let (window, at_once) = match version {
            Version::Unknown => (1, 1),
            Version::One => (window::version1(policy.pipeline, &self.pace), 1),
            Version::Two { concurrency } => (concurrency, concurrency),
        };
        let prefetch = window::prefetch(policy.prefetch, window, &self.pace, turn);
        let run = match version {
            Version::One => window::run(window, &self.pace),
            Version::Unknown | Version::Two { .. } => 1,
        };
        Wants {
            window,
            prefetch,
            at_once,
            run,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_config::model::Pipeline;

    /// Worker whose answers take some time each, part of it spent waiting for a core.
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
                self.tempo.caught_up(self.now, self.now, || {
                    self.looks += 1;
                    Some(Waited {
                        worker: self.waited,
                        reader: Duration::ZERO,
                    })
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
        // Not checked: fast answers that all waited, and waits while no message was in flight.
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
            tempo.caught_up(now, now, || {
                looks += 1;
                None
            });
        }
        assert_eq!(window::version1(Pipeline::Auto, &tempo.pace), 1);
        assert!((1..=3).contains(&looks), "{looks} looks at ten late ones");
    }

    #[test]
    fn late_answers_are_looked_at_ten_times_a_second() {
        let mut worker = Worker::new();
        worker.answers(20_000, 100, 0);
        assert_eq!(worker.looks, 0, "nothing comes late");
        worker.answers(2_000, 2_000, 1_970);
        assert!((30..=41).contains(&worker.looks), "{}", worker.looks);
        assert_eq!(worker.window(), 32);
    }

    #[test]
    fn slow_answers_among_late_ones_are_believed_after_a_look() {
        let mut worker = Worker::new();
        worker.answers(2_000, 2_000, 1_990);
        assert_eq!(worker.window(), 64);
        worker.answers(25, 5_000, 0);
        assert_eq!(worker.window(), 1);
    }

    #[test]
    fn an_answer_that_may_have_been_there_for_long_is_not_slow() {
        let mut worker = Worker::new();
        for _ in 0..200 {
            let available_since = worker.now + Duration::from_micros(10);
            worker.now += Duration::from_millis(3);
            worker.tempo.answered();
            worker.tempo.caught_up(worker.now, available_since, || None);
        }
        assert_eq!(worker.window(), 64);
    }
}
