//! The stop of a pool: its deadlines and its result. The pool acts on them.

use std::time::Duration;

use tokio::time::Instant;

/// Time allowed for the last settlements when everything else is done.
const SETTLE_WITHIN: Duration = Duration::from_secs(10);
/// Number of phases from the request to yield to SIGKILL: yielding, quitting, terminating.
const PHASES_TO_SIGKILL: u32 = 3;
/// Time allowed for killed workers to exit when the stop is escalated.
const ABANDON_WITHIN: Duration = Duration::from_secs(1);
/// Interval at which the log names what delays a stop.
const LAGGARDS_EVERY: Duration = Duration::from_secs(5);

/// Reason for which a pool failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The source ended without being asked to.
    #[error("the source ended unexpectedly")]
    SourceEnded,
    /// The source could not write the last settlements; their messages will be redelivered.
    #[error("the last settlements could not be written within {SETTLE_WITHIN:?}")]
    Unsettled,
}

/// A stop under way.
#[derive(Debug)]
pub(super) struct Stopping {
    yield_at: Instant,
    /// Time at which workers that survived even SIGKILL are left to the kernel.
    abandon_at: Instant,
    /// Time at which the source is given up, once every worker has exited.
    give_up_at: Option<Instant>,
    name_laggards_at: Instant,
    /// The source ended before it was asked to.
    source_failed: bool,
}

impl Stopping {
    /// Begins a stop. The source may have ended before.
    pub(super) fn begin(
        now: Instant,
        drain_timeout: Duration,
        stop_timeout: Duration,
        source_is_gone: bool,
    ) -> Self {
        Self {
            yield_at: now + drain_timeout,
            abandon_at: now + drain_timeout + PHASES_TO_SIGKILL * stop_timeout + LAGGARDS_EVERY,
            give_up_at: None,
            name_laggards_at: now + LAGGARDS_EVERY,
            source_failed: source_is_gone,
        }
    }

    /// Makes the pending deadlines due now. If all workers are already being killed, they get little more
    /// time.
    pub(super) fn escalate_stop(&mut self, now: Instant, all_are_being_killed: bool) {
        self.yield_at = now;
        self.give_up_at = self.give_up_at.map(|_| now);
        if all_are_being_killed {
            self.abandon_at = now + ABANDON_WITHIN;
        }
    }

    /// Moves all deadlines by a time in which nothing that was due could be done.
    pub(super) fn postpone(&mut self, by: Duration) {
        self.yield_at += by;
        self.abandon_at += by;
        self.give_up_at = self.give_up_at.map(|at| at + by);
        self.name_laggards_at += by;
    }

    pub(super) fn next_alarm(&self, has_workers: bool) -> Option<Instant> {
        let alarms = [
            Some(self.yield_at),
            Some(self.name_laggards_at),
            Some(self.abandon_at).filter(|_| has_workers),
            self.give_up_at,
        ];
        alarms.into_iter().flatten().min()
    }

    /// Returns whether the workers are to be asked to yield. From then on each lane goes through
    /// its phases by itself.
    pub(super) fn yields(&mut self, now: Instant) -> bool {
        is_due(&mut self.yield_at, now)
    }

    /// Returns whether the log should name what delays the stop.
    pub(super) fn is_delay_log_due(&mut self, now: Instant) -> bool {
        is_due(&mut self.name_laggards_at, now)
    }

    /// Returns whether the remaining workers are to be left to the kernel.
    pub(super) fn abandons(&self, now: Instant) -> bool {
        self.abandon_at <= now
    }

    /// Returns the pool's result, once every worker has exited: that of the source, as soon as it has ended
    /// or its time has run out.
    pub(super) fn result(
        &mut self,
        now: Instant,
        source_is_gone: bool,
    ) -> Option<Result<(), PoolError>> {
        let gives_up = *self.give_up_at.get_or_insert(now + SETTLE_WITHIN) <= now;
        match () {
            () if self.source_failed => Some(Err(PoolError::SourceEnded)),
            () if source_is_gone => Some(Ok(())),
            () if gives_up => Some(Err(PoolError::Unsettled)),
            () => None,
        }
    }
}

/// Returns whether the deadline has passed, and then moves it to the next one.
fn is_due(at: &mut Instant, now: Instant) -> bool {
    let is_due = *at <= now;
    if is_due {
        *at = now + LAGGARDS_EVERY;
    }
    is_due
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gives_up(stopping: &mut Stopping, now: Instant) -> bool {
        stopping.result(now, false) == Some(Err(PoolError::Unsettled))
    }

    #[test]
    fn each_deadline_comes_when_it_should() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut stopping = Stopping::begin(start, 30 * second, 2 * second, false);
        assert_eq!(stopping.next_alarm(true), Some(start + LAGGARDS_EVERY));
        assert!(!stopping.yields(start + 29 * second));
        assert!(stopping.yields(start + 30 * second));
        assert!(stopping.is_delay_log_due(start + 30 * second));
        assert!(!stopping.is_delay_log_due(start + 34 * second));
        // Asked to yield, to quit, to terminate, and then some time to be gone.
        assert!(!stopping.abandons(start + 40 * second));
        assert!(stopping.abandons(start + 41 * second));
        let gone = start + 50 * second;
        assert!(!gives_up(&mut stopping, gone));
        assert!(gives_up(&mut stopping, gone + SETTLE_WITHIN));
    }

    #[test]
    fn a_standstill_moves_all_of_them() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut stopping = Stopping::begin(start, 30 * second, 2 * second, false);
        assert!(!gives_up(&mut stopping, start));
        stopping.postpone(100 * second);
        let late = start + 104 * second;
        assert!(!stopping.yields(late) && !stopping.abandons(late));
        assert!(!gives_up(&mut stopping, late));
        assert!(stopping.next_alarm(true) > Some(late));
        assert!(stopping.yields(start + 130 * second));
    }

    #[test]
    fn a_hurry_ends_what_is_waited_for() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut stopping = Stopping::begin(start, 30 * second, 30 * second, false);
        stopping.escalate_stop(start, false);
        assert!(stopping.yields(start) && !stopping.abandons(start + ABANDON_WITHIN));
        assert!(!gives_up(&mut stopping, start));
        stopping.escalate_stop(start, true);
        assert!(stopping.abandons(start + ABANDON_WITHIN));
        assert!(gives_up(&mut stopping, start));
    }

    #[test]
    fn only_a_source_that_ends_when_asked_to_ends_well() {
        let now = Instant::now();
        let result = |gone_before, is_gone| {
            let mut stopping = Stopping::begin(now, Duration::ZERO, Duration::ZERO, gone_before);
            stopping.result(now, is_gone)
        };
        assert_eq!(result(false, false), None);
        assert_eq!(result(false, true), Some(Ok(())));
        assert_eq!(result(true, true), Some(Err(PoolError::SourceEnded)));
    }
}
