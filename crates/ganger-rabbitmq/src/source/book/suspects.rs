//! Suspects: messages over which two or more daemons vanished in succession. In the whole daemon only one of
//! them runs at a time, and nothing but other suspects waits for it. This module knows which suspects wait
//! here, and whose turn it is; the daemon's turn is in `turns.rs`, the decision which message is a suspect in
//! `rules.rs`. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Maximum number that wait here; others wait in a tier. They may not have more than half of the prefetch
/// either.
const WAITING_MAX: usize = 64;
/// Time for which the turn is kept for a copy that must reach the head of its queue first. Another daemon may
/// have it by then.
const COMES_WITHIN: Duration = Duration::from_secs(60);

/// The suspects held here.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    /// Tags of those that wait for their turn.
    waiting: VecDeque<u64>,
    /// Tags and turn numbers of copies that have just arrived and whose turn has begun.
    begun: VecDeque<(u64, u64)>,
    next: Option<TurnState>,
    /// True if the pool knows that suspects wait.
    reported: bool,
}

/// The suspect whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnState {
    /// Its copy is in the queue.
    Coming { turn: u64, until: Instant },
    /// It is here, and is handed out as soon as the pool has room.
    Here(u64),
}

impl Suspects {
    /// Lets a suspect wait for its turn.
    pub(super) fn wait(&mut self, tag: u64) {
        self.waiting.push_back(tag);
    }

    /// Adds a copy whose turn has begun.
    pub(super) fn add_begun(&mut self, tag: u64, turn: u64) {
        self.begun.push_back((tag, turn));
    }

    /// Runs a suspect in its turn although the mark for that could not be published. If its turn was given up
    /// meanwhile it waits for another: it may be another suspect's now.
    pub(super) fn run_unmarked(&mut self, tag: u64, its_turn: Option<u64>) {
        match self.next {
            Some(TurnState::Coming { turn, .. }) if Some(turn) == its_turn => {
                self.next = Some(TurnState::Here(tag));
            }
            _ => self.wait(tag),
        }
    }

    /// Removes a suspect that is given back.
    pub(super) fn remove(&mut self, gone: u64) {
        self.waiting.retain(|tag| *tag != gone);
        self.begun.retain(|(tag, _)| *tag != gone);
        self.next = self.next.filter(|next| *next != TurnState::Here(gone));
    }

    /// Gives up a turn whose copy has not arrived in time.
    pub(super) fn give_up(&mut self, now: Instant) {
        if self.deadline().is_some_and(|until| until <= now) {
            self.next = None;
        }
    }

    /// Returns whether a copy has arrived whose turn has begun.
    pub(crate) fn has_begun(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Takes the first copy that has arrived, with the number of its turn.
    pub(super) fn take_begun(&mut self) -> Option<(u64, u64)> {
        self.begun.pop_front()
    }

    /// Returns whether it is the turn of a copy with this number; `None` if none has the turn.
    pub(super) fn is_its_turn(&self, turn: u64) -> Option<bool> {
        match self.next? {
            TurnState::Coming { turn: ours, .. } => Some(ours == turn),
            TurnState::Here(_) => Some(false),
        }
    }

    /// Marks the suspect as here, to run next.
    pub(super) fn mark_here(&mut self, tag: u64) {
        self.next = Some(TurnState::Here(tag));
    }

    /// Takes the suspect that is here, to be handed out.
    pub(super) fn take_here(&mut self) -> Option<u64> {
        let Some(TurnState::Here(tag)) = self.next else {
            return None;
        };
        self.next = None;
        Some(tag)
    }

    /// Returns whether a suspect has the turn, here or in the queue.
    pub(crate) fn has_turn(&self) -> bool {
        self.next.is_some()
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Begins the turn of the suspect that has waited longest.
    pub(super) fn begin(&mut self, turn: u64, now: Instant) -> Option<u64> {
        let tag = self.waiting.pop_front()?;
        let until = now + COMES_WITHIN;
        self.next = Some(TurnState::Coming { turn, until });
        Some(tag)
    }

    /// Returns whether more wait than the maximum held at this prefetch: a thousand suspects must not take
    /// the place of all other messages.
    pub(crate) fn has_surplus(&self, prefetch: usize) -> bool {
        prefetch > 0 && self.waiting.len() > (prefetch / 2).min(WAITING_MAX)
    }

    /// Takes the suspect that arrived last.
    pub(super) fn take_last(&mut self) -> Option<u64> {
        self.waiting.pop_back()
    }

    /// Returns whether suspects wait, if the pool has to be notified.
    pub(super) fn take_report(&mut self) -> Option<bool> {
        let (before, now) = (self.reported, self.has_waiting());
        self.reported = now;
        (now || before).then_some(now)
    }

    /// Tags of all suspects that are here.
    pub(super) fn tags(&self) -> impl Iterator<Item = u64> {
        let here = self.next.and_then(|next| match next {
            TurnState::Here(tag) => Some(tag),
            TurnState::Coming { .. } => None,
        });
        let begun = self.begun.iter().map(|(tag, _)| *tag);
        self.waiting.iter().copied().chain(begun).chain(here)
    }

    /// Time at which the turn is given up.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.next {
            Some(TurnState::Coming { until, .. }) => Some(until),
            Some(TurnState::Here(_)) | None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_unmarked_does_not_take_the_turn_of_another() {
        let coming = |turn| TurnState::Coming {
            turn,
            until: Instant::now() + COMES_WITHIN,
        };
        let run = |next, its_turn| {
            let mut suspects = Suspects {
                next,
                ..Suspects::default()
            };
            suspects.run_unmarked(7, its_turn);
            (suspects.next, Vec::from(suspects.waiting))
        };
        let here = Some(TurnState::Here(7));
        assert_eq!(run(Some(coming(1)), Some(1)), (here, vec![]));
        for next in [None, Some(TurnState::Here(3)), Some(coming(2))] {
            let (after, waiting) = run(next, Some(1));
            assert!(after == next && waiting == [7], "{next:?} became {after:?}");
        }
        assert_eq!(run(None, None).1, [7], "nobody has the turn");
    }
}
