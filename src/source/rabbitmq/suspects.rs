//! Suspects: messages over which daemons vanished, twice in a row or more. One at a time runs, of
//! the whole daemon, and nothing but other suspects waits for it. Its turn begins with a copy that
//! says so; if that comes back, the daemon has vanished with it once more. Who is a suspect is
//! decided in `rules.rs`.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::Task;
use super::publication::Publication;
use super::session::Session;
use crate::broker::rabbitmq::error::RabbitMqError;

/// The most that wait in hand; others wait in a tier. Nor may they have more than half of what the
/// broker sends ahead.
const WAITING_MAX: usize = 64;
/// How long the turn is kept for a copy that must come to the head of its queue first. Another
/// daemon may have it by then.
const COMES_WITHIN: Duration = Duration::from_secs(60);

/// The suspects in our hands.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// Tags of those that wait for their turn.
    waiting: VecDeque<u64>,
    /// Tags of copies whose turn has begun, with its number, that have just come.
    begun: VecDeque<(u64, u64)>,
    next: Option<Next>,
    /// The pool knows that some wait.
    told: bool,
}

/// The one whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Its copy is on its way through the queue.
    Coming { turn: u64, until: Instant },
    /// It is here, and goes out as soon as the pool has room.
    Here(u64),
}

impl Suspects {
    /// One must wait for its turn.
    pub(super) fn wait(&mut self, tag: u64) {
        self.waiting.push_back(tag);
    }

    /// One has come whose turn has begun.
    pub(super) fn come(&mut self, tag: u64, turn: u64) {
        self.begun.push_back((tag, turn));
    }

    /// One runs in its turn although nothing could be published to say so. If its turn was given up
    /// meanwhile it waits for another: it may be somebody else's now.
    pub(super) fn run_unmarked(&mut self, tag: u64, its_turn: Option<u64>) {
        match self.next {
            Some(Next::Coming { turn, .. }) if Some(turn) == its_turn => {
                self.next = Some(Next::Here(tag));
            }
            _ => self.wait(tag),
        }
    }

    /// Forgets those that go back.
    pub(super) fn retain(&mut self, stays: impl Fn(u64) -> bool) {
        self.waiting.retain(|tag| stays(*tag));
        self.begun.retain(|(tag, _)| stays(*tag));
        self.next = self.next.filter(|next| match next {
            Next::Here(tag) => stays(*tag),
            Next::Coming { .. } => true,
        });
    }

    /// Takes all that are here.
    pub(super) fn drain(&mut self) -> Vec<u64> {
        let mut all: Vec<u64> = self.waiting.drain(..).collect();
        all.extend(self.begun.drain(..).map(|(tag, _)| tag));
        if let Some(Next::Here(tag)) = self.next.take() {
            all.push(tag);
        }
        all
    }

    /// When the turn is given up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.next {
            Some(Next::Coming { until, .. }) => Some(until),
            Some(Next::Here(_)) | None => None,
        }
    }
}

impl Session {
    /// Lets the suspects have their turns.
    pub(super) fn take_turns(
        &mut self,
        task: &mut Task,
        now: Instant,
    ) -> Result<(), RabbitMqError> {
        if self.suspects.deadline().is_some_and(|until| until <= now) {
            self.suspects.next = None;
        }
        while let Some((tag, turn)) = self.suspects.begun.pop_front() {
            self.turn_has_begun(task, tag, turn)?;
        }
        self.begin_turn(task, now)?;
        self.set_aside()?;
        if let Some(Next::Here(tag)) = self.suspects.next
            && self.has_room(task)
        {
            self.suspects.next = None;
            task.suspect = Some(self.token(tag));
            self.deliver(task, tag);
        }
        let some_wait = !self.suspects.waiting.is_empty();
        if some_wait || self.suspects.told {
            self.suspects.told = some_wait;
            task.turn.tell(&task.end, some_wait);
        }
        Ok(())
    }

    /// A copy has come that says so. If it isn't its turn here it must not be held as if it were: it
    /// would be charged for what another does meanwhile.
    fn turn_has_begun(
        &mut self,
        task: &mut Task,
        tag: u64,
        turn: u64,
    ) -> Result<(), RabbitMqError> {
        let is_ours = match self.suspects.next {
            Some(Next::Coming { turn: ours, .. }) => ours == turn,
            Some(Next::Here(_)) => false,
            None => task.suspect.is_none() && !self.closing && task.turn.ask(),
        };
        if is_ours {
            self.suspects.next = Some(Next::Here(tag));
            return Ok(());
        }
        self.publish_for(tag, Publication::Back)
    }

    /// Asks for the turn while one waits, and begins it with a copy that says so.
    fn begin_turn(&mut self, task: &mut Task, now: Instant) -> Result<(), RabbitMqError> {
        if task.suspect.is_some() || self.suspects.next.is_some() {
            return Ok(());
        }
        if self.suspects.waiting.is_empty() {
            task.turn.leave();
            return Ok(());
        }
        if !self.has_room(task) {
            task.turn.pause();
            return Ok(());
        }
        if !task.turn.ask() {
            return Ok(());
        }
        let Some(tag) = self.suspects.waiting.pop_front() else {
            return Ok(());
        };
        let turn = fastrand::u64(..);
        if let Some(held) = self.ledger.get_mut(tag) {
            held.arrival.turn = Some(turn);
            let (pool, lapses) = (&self.pool.name, held.arrival.lapses);
            tracing::warn!(
                pool,
                lapses,
                "daemons vanished over a message: it is a suspect, and runs with nothing else in \
                 its worker"
            );
        }
        let until = now + COMES_WITHIN;
        self.suspects.next = Some(Next::Coming { turn, until });
        self.publish_for(tag, Publication::Turn)
    }

    fn has_room(&self, task: &Task) -> bool {
        !self.is_held_up() && task.room() > 0
    }

    /// A thousand suspects must not take the place of all others.
    fn set_aside(&mut self) -> Result<(), RabbitMqError> {
        let prefetch = usize::from(self.consumers.prefetch());
        if prefetch == 0 {
            return Ok(());
        }
        let most = (prefetch / 2).min(WAITING_MAX);
        while self.suspects.waiting.len() > most {
            let Some(tag) = self.suspects.waiting.pop_back() else {
                break;
            };
            self.publish_for(tag, Publication::Aside)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_unmarked_does_not_take_the_turn_of_another() {
        let coming = |turn| Next::Coming {
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
        let here = Some(Next::Here(7));
        assert_eq!(run(Some(coming(1)), Some(1)), (here, vec![]));
        for next in [None, Some(Next::Here(3)), Some(coming(2))] {
            let (after, waiting) = run(next, Some(1));
            assert!(after == next && waiting == [7], "{next:?} became {after:?}");
        }
        assert_eq!(run(None, None).1, [7], "nobody has the turn");
    }
}
