//! Suspects: messages over which daemons vanished, twice in a row or more. One at a time runs, in
//! the whole daemon, and nothing but other suspects waits for it. Here is which of ours wait, and
//! whose turn it is; the actions are in `turns.rs`, the decision who is a suspect in `rules.rs`.
//! Pure.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Maximum number that wait in hand; others wait in a tier. Nor may they have more than half of the
/// prefetch.
const WAITING_MAX: usize = 64;
/// Time that the turn is kept for a copy that must come to the head of its queue first. Another
/// daemon may have it by then.
const COMES_WITHIN: Duration = Duration::from_secs(60);

/// The suspects in our hands.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// Tags of those that wait for their turn.
    waiting: VecDeque<u64>,
    /// Tags and turn numbers of copies that have just come and whose turn has begun.
    begun: VecDeque<(u64, u64)>,
    next: Option<TurnState>,
    /// The pool knows that suspects wait.
    told: bool,
}

/// The one whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnState {
    /// Its copy is on its way through the queue.
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
    pub(super) fn come(&mut self, tag: u64, turn: u64) {
        self.begun.push_back((tag, turn));
    }

    /// Runs a suspect in its turn although nothing could be published to say so. If its turn was
    /// given up meanwhile it waits for another: it may be somebody else's now.
    pub(super) fn run_unmarked(&mut self, tag: u64, its_turn: Option<u64>) {
        match self.next {
            Some(TurnState::Coming { turn, .. }) if Some(turn) == its_turn => {
                self.next = Some(TurnState::Here(tag));
            }
            _ => self.wait(tag),
        }
    }

    /// Forgets suspects that go back.
    pub(super) fn retain(&mut self, stays: impl Fn(u64) -> bool) {
        self.waiting.retain(|tag| stays(*tag));
        self.begun.retain(|(tag, _)| stays(*tag));
        self.next = self.next.filter(|next| match next {
            TurnState::Here(tag) => stays(*tag),
            TurnState::Coming { .. } => true,
        });
    }

    /// Takes all suspects that are here.
    pub(super) fn drain(&mut self) -> Vec<u64> {
        let mut all: Vec<u64> = self.waiting.drain(..).collect();
        all.extend(self.begun.drain(..).map(|(tag, _)| tag));
        if let Some(TurnState::Here(tag)) = self.next.take() {
            all.push(tag);
        }
        all
    }

    /// Gives up a turn that has not come in time.
    pub(super) fn give_up(&mut self, now: Instant) {
        if self.deadline().is_some_and(|until| until <= now) {
            self.next = None;
        }
    }

    /// Number of the turn of the first copy that has come.
    pub(super) fn begun(&self) -> Option<u64> {
        self.begun.front().map(|(_, turn)| *turn)
    }

    /// Takes the first copy that has come.
    pub(super) fn take_begun(&mut self) -> Option<u64> {
        self.begun.pop_front().map(|(tag, _)| tag)
    }

    /// Returns whether it is the turn of a copy with this number; `None` if none has the turn.
    pub(super) fn is_its_turn(&self, turn: u64) -> Option<bool> {
        match self.next? {
            TurnState::Coming { turn: ours, .. } => Some(ours == turn),
            TurnState::Here(_) => Some(false),
        }
    }

    /// Marks the suspect as here, to run next.
    pub(super) fn is_here(&mut self, tag: u64) {
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

    /// Returns whether a suspect has the turn, here or on its way.
    pub(super) fn has_turn(&self) -> bool {
        self.next.is_some()
    }

    pub(super) fn some_wait(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Begins the turn of the suspect that has waited longest.
    pub(super) fn begin(&mut self, turn: u64, now: Instant) -> Option<u64> {
        let tag = self.waiting.pop_front()?;
        let until = now + COMES_WITHIN;
        self.next = Some(TurnState::Coming { turn, until });
        Some(tag)
    }

    /// Takes a suspect beyond the maximum in hand at this prefetch: a thousand must not take the
    /// place of all others.
    pub(super) fn take_surplus(&mut self, prefetch: usize) -> Option<u64> {
        let most = (prefetch / 2).min(WAITING_MAX);
        if prefetch == 0 || self.waiting.len() <= most {
            return None;
        }
        self.waiting.pop_back()
    }

    /// Returns whether suspects wait, if the pool is to be told.
    pub(super) fn news(&mut self) -> Option<bool> {
        let (before, now) = (self.told, self.some_wait());
        self.told = now;
        (now || before).then_some(now)
    }

    /// Tags of all suspects that are here, in order.
    #[cfg(test)]
    pub(super) fn tags(&self) -> Vec<u64> {
        let here = self.next.and_then(|next| match next {
            TurnState::Here(tag) => Some(tag),
            TurnState::Coming { .. } => None,
        });
        let begun = self.begun.iter().map(|(tag, _)| *tag);
        let mut tags: Vec<u64> = self
            .waiting
            .iter()
            .copied()
            .chain(begun)
            .chain(here)
            .collect();
        tags.sort_unstable();
        tags
    }

    /// Time at which the turn is given up.
    pub(super) fn deadline(&self) -> Option<Instant> {
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
