//! What is to be thought of an answer that came late: it may have waited for a core. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// Between two looks at the kernel's figures of a worker whose answers come late.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// An answer that takes as long as this is looked at as soon as it is there.
const LONG: Duration = Duration::from_millis(20);

/// For how long there was no core, since the start.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Waited {
    /// For the worker.
    pub(super) worker: Duration,
    /// For our thread that reads its answers.
    pub(super) reader: Duration,
}

/// Some answers and the time they took together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) answers: u32,
    pub(super) time: Duration,
}

/// The answers of a worker that came late, until the kernel has been asked why.
#[derive(Debug)]
pub(super) struct CoreWaits {
    looked_at: Instant,
    /// What was seen then, if there was anything to see.
    seen: Option<Waited>,
    /// What came late since then.
    late: Taken,
    /// What else it took time for.
    in_time: Duration,
}

impl CoreWaits {
    /// Nothing has been looked at.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            looked_at: now,
            seen: None,
            late: Taken::default(),
            in_time: Duration::ZERO,
        }
    }

    /// Answers have come that nothing is to be thought of.
    pub(super) fn in_time(&mut self, time: Duration) {
        self.in_time += time;
    }

    /// Answers have come late. Returns what they and those before them really took, once that is known.
    pub(super) fn late(
        &mut self,
        taken: Taken,
        now: Instant,
        look: impl FnOnce() -> Option<Waited>,
    ) -> Option<Taken> {
        let since_look = now - self.looked_at;
        let before = since_look.saturating_sub(taken.time);
        let Some(seen) = self.seen.filter(|_| before < LOOK_EVERY * 2) else {
            // How much of the wait was before is not known, so it is as slow as it seems.
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
            // What came in time may have waited for all of its time. Of our own wait it had the part
            // that it was busy for.
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
