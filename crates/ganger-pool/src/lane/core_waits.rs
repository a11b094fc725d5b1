//! Assessment of late answers: the worker may have waited for a core. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// Interval between two readings of the kernel's figures for a worker whose answers come late.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time above which an answer is assessed as soon as it arrives.
const LONG: Duration = Duration::from_millis(20);

/// Time without a core, since the start.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Waited {
    /// Wait of the worker.
    pub(super) worker: Duration,
    /// Wait of the daemon's thread that reads its answers.
    pub(super) reader: Duration,
}

/// Number of answers and their total time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) answers: u32,
    pub(super) time: Duration,
}

/// Late answers of a worker, until the kernel has been asked for the cause.
#[derive(Debug)]
pub(super) struct CoreWaits {
    looked_at: Instant,
    /// Figures of that reading, if there were any.
    seen: Option<Waited>,
    /// Late answers since that reading.
    late: Taken,
    /// Time of the answers since that reading that were not late.
    in_time: Duration,
}

impl CoreWaits {
    /// Creates the state before the first reading.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            looked_at: now,
            seen: None,
            late: Taken::default(),
            in_time: Duration::ZERO,
        }
    }

    /// Records the time of answers that were not late.
    pub(super) fn in_time(&mut self, time: Duration) {
        self.in_time += time;
    }

    /// Records late answers. Returns the real time of these and those before them, once it is
    /// known.
    pub(super) fn late(
        &mut self,
        taken: Taken,
        now: Instant,
        look: impl FnOnce() -> Option<Waited>,
    ) -> Option<Taken> {
        let since_look = now - self.looked_at;
        let before = since_look.saturating_sub(taken.time);
        let Some(seen) = self.seen.filter(|_| before < LOOK_EVERY * 2) else {
            // The earlier part of the wait is unknown, so the worker counts as slow as it appears.
            if since_look >= LOOK_EVERY {
                self.begin(now, look());
            }
            return Some(taken);
        };
        self.late.answers += taken.answers;
        self.late.time += taken.time;
        if since_look < LOOK_EVERY && taken.time < LONG * taken.answers {
            return None;
        }
        let waited = look();
        let held_up = waited.map_or(Duration::ZERO, |waited| {
            // Answers in time may have waited for all of their time. Of the reader's own wait, only the share
            // during which the worker was busy is deducted.
            let worker = waited.worker.saturating_sub(seen.worker);
            let reader = waited.reader.saturating_sub(seen.reader);
            let busy = (self.late.time + self.in_time).div_duration_f64(since_look);
            worker.saturating_sub(self.in_time) + reader.mul_f64(busy.clamp(0.0, 1.0))
        });
        let really = Taken {
            time: self.late.time.saturating_sub(held_up),
            ..self.late
        };
        self.begin(now, waited);
        Some(really)
    }

    fn begin(&mut self, now: Instant, seen: Option<Waited>) {
        *self = Self {
            looked_at: now,
            seen,
            ..Self::new(now)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn taken(answers: u32, millis: u32) -> Taken {
        Taken {
            answers,
            time: MS * millis,
        }
    }

    fn waited(worker: u32, reader: u32) -> Option<Waited> {
        Some(Waited {
            worker: MS * worker,
            reader: MS * reader,
        })
    }

    #[test]
    fn of_the_readers_wait_a_worker_has_the_part_that_it_was_busy_for() {
        let begun = Instant::now();
        let mut waits = CoreWaits::new(begun);
        let first = waits.late(taken(1, 2), begun + MS * 100, || waited(7, 30));
        assert_eq!(first, Some(taken(1, 2)), "as slow as it seems");
        let unasked = waits.late(taken(1, 2), begun + MS * 150, || unreachable!());
        assert_eq!(unasked, None, "it waits for the look");
        let really = waits.late(taken(9, 48), begun + MS * 200, || waited(7, 50));
        assert_eq!(really, Some(taken(10, 40)), "busy for a half of the 100 ms");
    }

    #[test]
    fn what_came_in_time_may_have_had_the_workers_wait() {
        let begun = Instant::now();
        let mut waits = CoreWaits::new(begun);
        waits.late(taken(1, 2), begun + MS * 100, || waited(0, 0));
        waits.in_time(MS * 20);
        let really = waits.late(taken(1, 30), begun + MS * 160, || waited(25, 0));
        assert_eq!(really, Some(taken(1, 25)));
    }

    #[test]
    fn after_a_pause_an_answer_is_as_slow_as_it_seems_again() {
        let begun = Instant::now();
        let mut waits = CoreWaits::new(begun);
        waits.late(taken(1, 2), begun + MS * 100, || waited(0, 0));
        let after = waits.late(taken(1, 5), begun + MS * 400, || waited(200, 200));
        assert_eq!(after, Some(taken(1, 5)));
    }
}
