//! Number of messages that a worker may hold at once, and number fetched for it: pure functions of
//! its recent pace.

use std::time::Duration;

use ganger_config::model::{Pipeline, Prefetch};

/// Deepest window chosen automatically.
pub const AUTO_MAX: usize = 64;
/// Maximum number of bytes in one worker's pipe: beyond it a deep pipe of large bodies costs more
/// than it saves. A single message may be larger.
pub const BYTES_MAX: usize = 512 * 1024;
/// Time in which a worker should empty its pipe, since messages in it can't be called back.
const EMPTIED_IN: Duration = Duration::from_millis(1);
/// Time that a worker should need for the messages given to it together while other workers are
/// idle, and the maximum number of these messages.
const RUN_DONE_IN: Duration = Duration::from_micros(250);
const RUN_MAX: usize = 16;
/// Time for which a worker should be supplied while the source fetches the next batch, and its maximum where
/// fetching takes long: other workers may need the messages.
const SUPPLIED_FOR: Duration = Duration::from_millis(20);
const SUPPLIED_FOR_MAX: Duration = Duration::from_millis(200);
/// Maximum number of messages fetched for a worker automatically.
const PREFETCH_AUTO_MAX: usize = 256;
/// The same maximum where fetching takes long: more messages share the cost of a transaction.
const PREFETCH_AUTO_SLOW_MAX: usize = 1024;
/// Number of answers before which a worker is not considered fast: a worker may answer two messages quickly
/// by chance.
const PROVEN_AFTER: u64 = 100;

/// Pace of a worker's answers, as a moving average over the recent ones.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pace {
    answers: u64,
    seconds: f64,
}

impl Pace {
    /// Records `answers` that took `elapsed` together.
    pub fn record(&mut self, answers: u32, elapsed: Duration) {
        if answers == 0 {
            return;
        }
        let each = elapsed.as_secs_f64() / f64::from(answers);
        // A slowdown must have an effect sooner than a speed-up, since a message behind a slow one waits.
        let weight = if each > self.seconds { 0.25 } else { 0.06 };
        let weight = 1.0 - f64::powi(1.0 - weight, i32::try_from(answers).unwrap_or(i32::MAX));
        self.seconds = if self.answers == 0 {
            each
        } else {
            self.seconds + (each - self.seconds) * weight
        };
        self.answers += u64::from(answers);
    }

    /// Returns the number of messages that the worker finishes in `time`.
    fn in_time(&self, time: Duration) -> usize {
        let count = time.as_secs_f64() / self.seconds.max(1e-9);
        // In range by the clamp; the cast drops only the fraction.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped"
        )]
        let count = count.clamp(0.0, 1e6) as usize;
        count
    }
}

/// Returns the window of a version 1 worker: a power of two, so that it seldom changes.
pub fn version1(pipeline: Pipeline, pace: &Pace) -> usize {
    match pipeline {
        Pipeline::Fixed(frames) => frames,
        Pipeline::Auto if pace.answers < PROVEN_AFTER => 1,
        Pipeline::Auto => {
            let frames = pace.in_time(EMPTIED_IN).clamp(1, AUTO_MAX);
            1 << frames.ilog2()
        }
    }
}

/// Returns the number of messages that a worker with this window and pace may be given together
/// while others have none.
pub fn run(window: usize, pace: &Pace) -> usize {
    match pace.answers < PROVEN_AFTER {
        true => 1,
        false => pace.in_time(RUN_DONE_IN).clamp(1, RUN_MAX).min(window),
    }
}

/// Returns the number of messages to fetch for a worker with this window and pace, those in
/// progress included. While the source takes its `turn`, it holds half of them and the worker has
/// the others.
pub fn prefetch(prefetch: Prefetch, window: usize, pace: &Pace, turn: Duration) -> usize {
    match prefetch {
        Prefetch::PerWorker(messages) => messages.max(window),
        Prefetch::Auto if pace.answers == 0 => window + 1,
        // A power of two as well, so that it seldom changes.
        Prefetch::Auto => {
            let time = (turn * 2).clamp(SUPPLIED_FOR, SUPPLIED_FOR_MAX);
            let most = match time {
                SUPPLIED_FOR => PREFETCH_AUTO_MAX,
                _ => PREFETCH_AUTO_SLOW_MAX,
            };
            let supply = pace.in_time(time).clamp(1, most);
            (1 << supply.ilog2()).max(window + 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn paced(answers: u64, micros: f64) -> Pace {
        Pace {
            answers,
            seconds: micros / 1e6,
        }
    }

    #[test]
    fn a_window_is_as_deep_as_is_emptied_in_a_millisecond() {
        let table = [
            (0, 0.0, 1),
            (99, 1.0, 1),
            (100, 1.0, 64),
            (100, 15.0, 64),
            (100, 16.0, 32),
            (100, 100.0, 8),
            (100, 400.0, 2),
            (100, 501.0, 1),
            (100, 2_000_000.0, 1),
        ];
        for (answers, micros, window) in table {
            let got = version1(Pipeline::Auto, &paced(answers, micros));
            assert_eq!(got, window, "{answers} answers at {micros} µs");
        }
        assert_eq!(version1(Pipeline::Fixed(5), &paced(0, 0.0)), 5);
    }

    #[test]
    fn a_run_is_done_in_a_quarter_of_a_millisecond_and_fits_the_window() {
        let table = [
            (99, 1.0, 64, 1),
            (100, 1.0, 64, 16),
            (100, 15.0, 64, 16),
            (100, 20.0, 32, 12),
            (100, 100.0, 8, 2),
            (100, 200.0, 4, 1),
            (100, 2_000_000.0, 1, 1),
            (100, 1.0, 3, 3),
        ];
        for (answers, micros, window, most) in table {
            let got = run(window, &paced(answers, micros));
            assert_eq!(got, most, "{answers} answers at {micros} µs");
        }
    }

    #[test]
    fn prefetch_follows_the_pace_and_never_falls_below_the_window() {
        let prefetch = |set, window, pace| prefetch(set, window, &pace, Duration::ZERO);
        assert_eq!(prefetch(Prefetch::Auto, 1, paced(0, 0.0)), 2);
        assert_eq!(prefetch(Prefetch::Auto, 1, paced(10, 1e6)), 2);
        assert_eq!(prefetch(Prefetch::Auto, 1, paced(10, 3_000.0)), 4);
        assert_eq!(prefetch(Prefetch::Auto, 64, paced(1000, 5.0)), 256);
        assert_eq!(prefetch(Prefetch::PerWorker(3), 8, paced(0, 0.0)), 8);
        assert_eq!(prefetch(Prefetch::PerWorker(30), 8, paced(0, 0.0)), 30);
    }

    #[test]
    fn prefetch_lasts_for_two_turns_of_a_slow_source() {
        let turns = [(0, 4), (10, 4), (20, 8), (50, 32), (100, 64), (60_000, 64)];
        for (turn, messages) in turns {
            let turn = Duration::from_millis(turn);
            let got = prefetch(Prefetch::Auto, 1, &paced(10, 3_000.0), turn);
            assert_eq!(got, messages, "{turn:?}");
            let fixed = prefetch(Prefetch::PerWorker(3), 1, &paced(10, 3_000.0), turn);
            assert_eq!(fixed, 3);
        }
    }

    #[test]
    fn more_is_fetched_for_a_fast_worker_of_a_slow_source() {
        for (turn, messages) in [(10, 256), (11, 1024), (200, 1024)] {
            let turn = Duration::from_millis(turn);
            let got = prefetch(Prefetch::Auto, 64, &paced(1000, 5.0), turn);
            assert_eq!(got, messages, "{turn:?}");
        }
    }

    #[test]
    fn one_slow_message_is_believed_at_once() {
        let mut pace = Pace::default();
        for _ in 0..200 {
            pace.record(1, Duration::from_micros(10));
        }
        assert_eq!(version1(Pipeline::Auto, &pace), 64);
        pace.record(1, Duration::from_millis(20));
        assert_eq!(version1(Pipeline::Auto, &pace), 1);
    }

    proptest! {
        #[test]
        fn the_window_stays_in_bounds(samples in proptest::collection::vec((1u32..100, 0u64..10_000_000), 0..300)) {
            let mut pace = Pace::default();
            for (answers, micros) in samples {
                pace.record(answers, Duration::from_micros(micros));
                let window = version1(Pipeline::Auto, &pace);
                prop_assert!((1..=AUTO_MAX).contains(&window));
                prop_assert!(prefetch(Prefetch::Auto, window, &pace, Duration::ZERO) > window);
            }
        }
    }
}
