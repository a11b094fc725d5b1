//! Progress of a worker's end, its cause and the next step. Pure: it is given events and returns
//! the phases that begin; the lane applies them to the worker.

use std::time::Duration;

use tokio::time::Instant;

use super::blame::Cause;
use ganger_core::shutdown::Phase;
use ganger_queue::delivery::Exit;
use ganger_telemetry::metrics::WorkerEnd;

/// Grace for a worker that has closed its pipe to exit by itself, before its stop begins.
const CLOSED_PIPE_GRACE: Duration = Duration::from_secs(1);

/// Progress of a worker's end.
#[derive(Debug)]
pub(super) struct Ending {
    phase: Phase,
    since: Instant,
    /// True if it is recycled for tasks, age or memory.
    recycled: bool,
    /// Time at which it closed its end of the pipe.
    closed_at: Option<Instant>,
    /// Cause for which it was killed or made to leave.
    cause: Option<Cause>,
    /// True while it is examined before it is killed for that cause.
    is_examined: bool,
    broke_protocol: bool,
}

impl Ending {
    /// Creates the state of an end that has not begun.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            phase: Phase::Running,
            since: now,
            recycled: false,
            closed_at: None,
            cause: None,
            is_examined: false,
            broke_protocol: false,
        }
    }

    /// Returns whether the worker is neither stopping nor being recycled.
    pub(super) fn is_wanted(&self) -> bool {
        self.phase == Phase::Running && !self.recycled
    }

    /// Returns whether the worker may be given messages.
    pub(super) fn takes_work(&self) -> bool {
        self.is_wanted() && self.cause.is_none() && self.closed_at.is_none()
    }

    /// Returns whether the worker's output still counts: it keeps to the protocol, and it is not killed yet,
    /// or is killed only over a message's time limit, where an answer at the last moment is accepted.
    pub(super) fn is_heard(&self) -> bool {
        let for_time = matches!(self.cause, Some(Cause::TimedOut(_) | Cause::Cancelled(_)));
        let is_killed = self.is_condemned() && !for_time;
        !self.broke_protocol && (self.is_examined || !is_killed)
    }

    /// Sets whether the worker is being examined before it is killed.
    pub(super) fn examine(&mut self, is_examined: bool) {
        self.is_examined = is_examined;
    }

    /// Returns whether the worker has closed its end of the pipe.
    pub(super) fn is_closed(&self) -> bool {
        self.closed_at.is_some()
    }

    /// Returns whether the worker has been killed or made to exit.
    pub(super) fn is_condemned(&self) -> bool {
        self.cause.is_some()
    }

    /// Returns whether the daemon asked the worker to exit.
    pub(super) fn is_asked(&self) -> bool {
        let cancelled = matches!(self.cause, Some(Cause::Cancelled(_)));
        cancelled || self.recycled || self.phase >= Phase::Draining
    }

    /// Returns the cause of the worker's end, now that its process has exited.
    pub(super) fn cause(&self) -> Cause {
        let of_itself = match self.phase {
            Phase::Running | Phase::Draining => Cause::Died,
            _ => Cause::Stopped,
        };
        self.cause.clone().unwrap_or(of_itself)
    }

    /// Returns the kind of the worker's end, for the metrics.
    pub(super) fn how(&self, cause: &Cause, exit: Exit) -> WorkerEnd {
        match cause {
            Cause::TimedOut(_) => WorkerEnd::TimedOut,
            Cause::Cancelled(_) => WorkerEnd::Asked,
            Cause::Stalled(_) => WorkerEnd::Stalled,
            Cause::PipeClosed | Cause::ProtocolError(_) => WorkerEnd::ProtocolError,
            Cause::Died | Cause::Stopped if self.recycled => WorkerEnd::Recycled,
            Cause::Died | Cause::Stopped if self.is_asked() => WorkerEnd::Asked,
            Cause::Died | Cause::Stopped if exit.oom => WorkerEnd::OutOfMemory,
            Cause::Died | Cause::Stopped if exit.signal.is_some() => WorkerEnd::Killed,
            Cause::Died | Cause::Stopped => WorkerEnd::Exited,
        }
    }

    /// Marks the worker for recycling: it exits as soon as it is idle.
    pub(super) fn recycle(&mut self) {
        self.recycled = true;
    }

    /// Records that the worker has closed its end of the pipe. Returns whether that is new.
    pub(super) fn closed(&mut self, now: Instant) -> bool {
        let is_news = self.closed_at.is_none();
        self.closed_at.get_or_insert(now);
        is_news
    }

    /// Records a cause for killing the worker. Returns whether to kill it: only the first cause counts.
    pub(super) fn condemn(&mut self, cause: Cause) -> bool {
        self.broke_protocol |= matches!(cause, Cause::ProtocolError(_));
        let is_first = self.cause.is_none();
        self.cause.get_or_insert(cause);
        is_first
    }

    /// Moves all deadlines by a time in which the worker could not be observed.
    pub(super) fn postpone(&mut self, by: Duration) {
        self.since += by;
        self.closed_at = self.closed_at.map(|at| at + by);
    }

    /// Returns the phases that begin now, in order. `asked` is the phase its stop should reach.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        asked: Phase,
        is_idle: bool,
        stop_timeout: Duration,
    ) -> Vec<Phase> {
        // Nearly always empty, so that nothing is allocated.
        let mut begun = Vec::new();
        if self.closed_ends().is_some_and(|end| end <= now) {
            self.cause = Some(Cause::PipeClosed);
            // It may be cleaning up: it is asked to exit like any other.
            begun.push(self.enter(Phase::Quitting, now));
        }
        while self.phase < asked {
            begun.push(self.enter(self.phase.next(), now));
        }
        let leaves = self.recycled || (Phase::Draining..Phase::Quitting).contains(&self.phase);
        while leaves && is_idle && self.phase < Phase::Quitting {
            begun.push(self.enter(self.phase.next(), now));
        }
        if self.phase_ends(stop_timeout).is_some_and(|end| end <= now) {
            begun.push(self.enter(self.phase.next(), now));
        }
        begun
    }

    /// Returns the next time at which [`Ending::advance`] begins a phase by itself.
    pub(super) fn next(&self, stop_timeout: Duration) -> Option<Instant> {
        [self.closed_ends(), self.phase_ends(stop_timeout)]
            .into_iter()
            .flatten()
            .min()
    }

    fn enter(&mut self, phase: Phase, now: Instant) -> Phase {
        self.phase = phase;
        self.since = now;
        phase
    }

    fn closed_ends(&self) -> Option<Instant> {
        let unasked = self.phase < Phase::Quitting && self.cause.is_none();
        Some(self.closed_at.filter(|_| unasked)? + CLOSED_PIPE_GRACE)
    }

    fn phase_ends(&self, stop_timeout: Duration) -> Option<Instant> {
        Some(self.since + self.phase.lasts(stop_timeout)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::blame::Late;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_worker_with_nothing_in_hand_is_asked_to_quit_at_once() {
        let now = Instant::now();
        let table = [
            (Phase::Running, true, vec![]),
            (Phase::Draining, false, vec![Phase::Draining]),
            (
                Phase::Draining,
                true,
                vec![Phase::Draining, Phase::Yielding, Phase::Quitting],
            ),
            (
                Phase::Yielding,
                false,
                vec![Phase::Draining, Phase::Yielding],
            ),
        ];
        for (asked, is_idle, begun) in table {
            let mut ending = Ending::new(now);
            assert_eq!(ending.advance(now, asked, is_idle, SECOND), begun);
            assert_eq!(ending.is_asked(), asked > Phase::Running);
        }
    }

    #[test]
    fn each_end_is_counted_for_what_it_was() {
        let (fresh, mut worn, mut asked) = {
            let new = || Ending::new(Instant::now());
            (new(), new(), new())
        };
        worn.recycle();
        asked.advance(Instant::now(), Phase::Draining, true, SECOND);
        let left = Exit {
            code: Some(0),
            ..Exit::default()
        };
        let shot = Exit {
            signal: Some(9),
            ..Exit::default()
        };
        let oom = Exit { oom: true, ..shot };
        let table = [
            (&fresh, Cause::Died, left, WorkerEnd::Exited),
            (&fresh, Cause::Died, shot, WorkerEnd::Killed),
            (&fresh, Cause::Died, oom, WorkerEnd::OutOfMemory),
            (
                &fresh,
                Cause::TimedOut(Late::Only(1)),
                shot,
                WorkerEnd::TimedOut,
            ),
            (
                &fresh,
                Cause::Stalled(Late::Only(1)),
                shot,
                WorkerEnd::Stalled,
            ),
            (&fresh, Cause::PipeClosed, left, WorkerEnd::ProtocolError),
            (&worn, Cause::Stopped, left, WorkerEnd::Recycled),
            (&asked, Cause::Stopped, shot, WorkerEnd::Asked),
        ];
        for (ending, cause, exit, how) in table {
            assert_eq!(ending.how(&cause, exit), how, "{cause:?} {exit:?}");
        }
    }

    #[test]
    fn a_worn_worker_leaves_when_it_has_nothing_in_hand() {
        let now = Instant::now();
        let mut ending = Ending::new(now);
        ending.recycle();
        assert!(!ending.takes_work() && ending.is_asked());
        assert!(
            ending
                .advance(now, Phase::Running, false, SECOND)
                .is_empty()
        );
        let begun = ending.advance(now, Phase::Running, true, SECOND);
        assert_eq!(begun, [Phase::Draining, Phase::Yielding, Phase::Quitting]);
        assert_eq!(ending.next(SECOND), Some(now + SECOND));
        assert_eq!(ending.cause(), Cause::Stopped);
    }

    #[test]
    fn who_closes_its_pipe_and_lives_on_is_made_to_leave() {
        let now = Instant::now();
        let mut ending = Ending::new(now);
        assert!(ending.closed(now) && !ending.closed(now + SECOND));
        assert!(!ending.takes_work() && !ending.is_condemned());
        assert_eq!(ending.next(SECOND), Some(now + CLOSED_PIPE_GRACE));
        let grace_is_over = now + CLOSED_PIPE_GRACE;
        let begun = ending.advance(grace_is_over, Phase::Running, false, 5 * SECOND);
        assert_eq!(begun, [Phase::Quitting]);
        assert_eq!(ending.cause(), Cause::PipeClosed);
        assert_eq!(ending.next(5 * SECOND), Some(grace_is_over + 5 * SECOND));
    }

    #[test]
    fn there_is_one_cause_and_who_was_only_late_is_heard_still() {
        let mut ending = Ending::new(Instant::now());
        assert!(ending.condemn(Cause::TimedOut(Late::Only(3))) && ending.is_heard());
        assert!(!ending.condemn(Cause::Stalled(Late::Only(1))) && ending.is_heard());
        assert!(!ending.condemn(Cause::ProtocolError("x".into())) && !ending.is_heard());
        assert_eq!(ending.cause(), Cause::TimedOut(Late::Only(3)));
    }

    #[test]
    fn who_is_looked_at_before_it_is_killed_is_heard() {
        let mut ending = Ending::new(Instant::now());
        assert!(ending.condemn(Cause::Stalled(Late::Only(1))) && !ending.is_heard());
        ending.examine(true);
        assert!(ending.is_heard() && !ending.takes_work());
        ending.examine(false);
        assert!(!ending.is_heard());
    }

    #[derive(Debug, Clone)]
    enum Stimulus {
        Asked(Phase),
        Idle(bool),
        Recycled,
        Closed,
        Killed(Cause),
        Passes(Duration),
    }

    fn stimuli() -> impl Strategy<Value = Stimulus> {
        let phases = [
            Phase::Draining,
            Phase::Yielding,
            Phase::Quitting,
            Phase::Terminating,
            Phase::Killing,
        ];
        let causes = [
            Cause::TimedOut(Late::Only(1)),
            Cause::Stalled(Late::Any),
            Cause::ProtocolError(String::new()),
        ];
        prop_oneof![
            proptest::sample::select(phases.to_vec()).prop_map(Stimulus::Asked),
            any::<bool>().prop_map(Stimulus::Idle),
            Just(Stimulus::Recycled),
            Just(Stimulus::Closed),
            proptest::sample::select(causes.to_vec()).prop_map(Stimulus::Killed),
            (0u64..3_000).prop_map(|millis| Stimulus::Passes(Duration::from_millis(millis))),
        ]
    }

    proptest! {
        /// For all events in any order: each phase begins once, in its order and with none skipped
        /// but by a closed pipe; no work after the first; and nothing that is due is left.
        #[test]
        fn an_end_goes_one_way(all in proptest::collection::vec(stimuli(), 0..60)) {
            let mut now = Instant::now();
            let mut ending = Ending::new(now);
            let (mut asked, mut is_idle, mut phase) = (Phase::Running, false, Phase::Running);
            let mut unheard = false;
            for one in all {
                match one {
                    Stimulus::Asked(later) => asked = asked.max(later),
                    Stimulus::Idle(idle) => is_idle = idle,
                    Stimulus::Recycled => ending.recycle(),
                    Stimulus::Closed => drop(ending.closed(now)),
                    Stimulus::Killed(cause) => {
                        unheard |= !matches!(cause, Cause::TimedOut(_)) && ending.cause.is_none();
                        unheard |= matches!(cause, Cause::ProtocolError(_));
                        ending.condemn(cause);
                    }
                    Stimulus::Passes(time) => now += time,
                }
                for next in ending.advance(now, asked, is_idle, SECOND) {
                    let jumps = ending.cause == Some(Cause::PipeClosed) && next == Phase::Quitting;
                    prop_assert!(next == phase.next() || jumps && next > phase);
                    phase = next;
                }
                unheard |= ending.cause == Some(Cause::PipeClosed);
                prop_assert!(phase >= asked);
                prop_assert!(!is_idle || !ending.is_asked() || phase >= Phase::Quitting);
                prop_assert!(!ending.takes_work() || phase == Phase::Running);
                prop_assert_eq!(ending.is_heard(), !unheard);
                prop_assert!(ending.next(SECOND).is_none_or(|next| next > now));
            }
        }
    }
}
