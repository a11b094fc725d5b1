//! Queues that have accepted nothing from this daemon for so long, in time in which the broker was accepting,
//! that they are given up. Pure.

use std::collections::HashMap;
use std::time::Duration;

use lapin::types::ShortString;
use tokio::time::Instant;

use ganger_queue::publishing::UNDELIVERABLE_AFTER;

/// Time after which a rejection counts as the first again: waiting publications are retried much sooner, and
/// nothing is known of the queue in between.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(1);

/// Maximum number of known queues; beyond it the one that rejected longest ago is removed.
const KNOWN_MAX: usize = 1024;

/// State of a queue that has just not accepted a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefusalState {
    /// It may be full for a moment.
    MayBeFull,
    /// It is given up, and was not before.
    JustGivenUp,
    /// It was given up before.
    GivenUpBefore,
}

/// The queues that accept nothing.
#[derive(Debug, Default)]
pub(super) struct Targets {
    known: HashMap<ShortString, Refusal>,
    /// Queues of withdrawn publications whose verdict may still arrive, by publisher's number.
    forgotten: HashMap<u64, ShortString>,
    /// Total time in which the broker was accepting publications, up to `since`.
    accepting_time: Duration,
    /// Time since which it accepts; `None` while it does not.
    since: Option<Instant>,
}

/// Rejections by a queue, in time in which the broker was accepting.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    first: Duration,
    last: Duration,
    is_given_up: bool,
}

impl Targets {
    /// Records whether the broker accepts publications from now on.
    pub(super) fn set_accepting(&mut self, accepts: bool, now: Instant) {
        self.accepting_time = self.clock(now);
        self.since = accepts.then_some(now);
    }

    fn clock(&self, now: Instant) -> Duration {
        let current = self.since.map(|since| now.duration_since(since));
        self.accepting_time + current.unwrap_or_default()
    }

    /// Records that a queue has not accepted a publication.
    pub(super) fn refused(&mut self, queue: &ShortString, now: Instant) -> RefusalState {
        let clock = self.clock(now);
        if !self.known.contains_key(queue) {
            self.make_room();
        }
        let refusal = self.known.entry(queue.clone()).or_insert(Refusal {
            first: clock,
            last: clock,
            is_given_up: false,
        });
        if refusal.is_given_up {
            refusal.last = clock;
            return RefusalState::GivenUpBefore;
        }
        if clock - refusal.last >= FORGOTTEN_AFTER {
            refusal.first = clock;
        }
        refusal.last = clock;
        refusal.is_given_up = clock - refusal.first >= UNDELIVERABLE_AFTER;
        if refusal.is_given_up {
            RefusalState::JustGivenUp
        } else {
            RefusalState::MayBeFull
        }
    }

    fn make_room(&mut self) {
        if self.known.len() < KNOWN_MAX {
            return;
        }
        let oldest = self.known.iter().min_by_key(|(_, refusal)| refusal.last);
        if let Some(oldest) = oldest.map(|(queue, _)| queue.clone()) {
            self.known.remove(&oldest);
        }
    }

    /// Records that a queue has accepted a publication. Returns whether it was given up.
    pub(super) fn accepted(&mut self, queue: &ShortString) -> bool {
        let refusal = self.known.remove(queue);
        refusal.is_some_and(|refusal| refusal.is_given_up)
    }

    /// Returns whether the queue is given up.
    fn is_given_up(&self, queue: &str) -> bool {
        let known = self.known.get(queue);
        known.is_some_and(|refusal| refusal.is_given_up)
    }

    /// Returns whether sending to this queue is useless: it is given up, and has not even answered to earlier
    /// publications.
    pub(super) fn is_unresponsive(&self, queue: &str) -> bool {
        self.is_given_up(queue) && self.forgotten.values().any(|other| other.as_str() == queue)
    }

    /// Records that a publication is withdrawn, whose verdict may still arrive.
    pub(super) fn forget(&mut self, id: u64, queue: ShortString) {
        self.forgotten.insert(id, queue);
    }

    /// Queue of a withdrawn publication whose verdict has arrived.
    pub(super) fn remember(&mut self, id: u64) -> Option<ShortString> {
        self.forgotten.remove(&id)
    }

    /// Clears the withdrawn publications, whose connection is lost.
    pub(super) fn lose(&mut self) {
        self.forgotten.clear();
    }
}

/// Reason why a queue is given up.
pub(super) fn given_up_reason() -> String {
    format!("the queue has accepted nothing for {UNDELIVERABLE_AFTER:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_secs(5);

    /// Rejects every five seconds for that long; returns the state at the end.
    fn refuse(
        targets: &mut Targets,
        queue: &str,
        now: &mut Instant,
        lasting: Duration,
    ) -> RefusalState {
        let until = *now + lasting;
        let mut state = targets.refused(&queue.into(), *now);
        while *now < until {
            *now += STEP;
            state = targets.refused(&queue.into(), *now);
        }
        state
    }

    fn listening() -> (Targets, Instant) {
        let (mut targets, now) = (Targets::default(), Instant::now());
        targets.set_accepting(true, now);
        (targets, now)
    }

    #[test]
    fn five_minutes_are_waited_for_and_no_longer() {
        let (mut targets, mut now) = listening();
        let state = refuse(&mut targets, "full", &mut now, UNDELIVERABLE_AFTER - STEP);
        assert_eq!(state, RefusalState::MayBeFull);
        assert!(!targets.is_given_up("full"));
        now += STEP;
        let full = "full".into();
        assert_eq!(targets.refused(&full, now), RefusalState::JustGivenUp);
        assert_eq!(targets.refused(&full, now), RefusalState::GivenUpBefore);
        assert!(targets.is_given_up("full") && !targets.is_given_up("other"));
    }

    #[test]
    fn one_that_takes_something_is_waited_for_anew() {
        let (mut targets, mut now) = listening();
        refuse(&mut targets, "full", &mut now, UNDELIVERABLE_AFTER - STEP);
        assert!(!targets.accepted(&"full".into()));
        now += STEP;
        let state = refuse(&mut targets, "full", &mut now, UNDELIVERABLE_AFTER - STEP);
        assert_eq!(state, RefusalState::MayBeFull);
        refuse(&mut targets, "full", &mut now, STEP);
        assert!(targets.is_given_up("full") && targets.accepted(&"full".into()));
        assert!(!targets.is_given_up("full"));
    }

    #[test]
    fn time_in_which_the_broker_does_not_listen_is_not_counted() {
        let (mut targets, mut now) = listening();
        refuse(&mut targets, "full", &mut now, UNDELIVERABLE_AFTER - STEP);
        targets.set_accepting(false, now);
        now += UNDELIVERABLE_AFTER * 10;
        assert_eq!(
            targets.refused(&"full".into(), now),
            RefusalState::MayBeFull
        );
        targets.set_accepting(true, now);
        assert_eq!(
            targets.refused(&"full".into(), now),
            RefusalState::MayBeFull
        );
        now += STEP;
        assert_eq!(
            targets.refused(&"full".into(), now),
            RefusalState::JustGivenUp
        );
    }

    #[test]
    fn two_refusals_with_nothing_between_say_nothing_of_the_time_between() {
        let (mut targets, mut now) = listening();
        let full = "full".into();
        assert_eq!(targets.refused(&full, now), RefusalState::MayBeFull);
        now += UNDELIVERABLE_AFTER * 2;
        assert_eq!(targets.refused(&full, now), RefusalState::MayBeFull);
        // A queue that is given up stays so until it accepts a publication.
        refuse(&mut targets, "full", &mut now, UNDELIVERABLE_AFTER);
        now += UNDELIVERABLE_AFTER * 2;
        assert_eq!(targets.refused(&full, now), RefusalState::GivenUpBefore);
    }

    #[test]
    fn no_more_are_known_than_there_is_room_for() {
        let (mut targets, mut now) = listening();
        for n in 0..=KNOWN_MAX {
            now += Duration::from_millis(1);
            targets.refused(&n.to_string().into(), now);
        }
        assert_eq!(targets.known.len(), KNOWN_MAX);
        assert!(!targets.known.contains_key("0"), "the oldest went");
    }
}
