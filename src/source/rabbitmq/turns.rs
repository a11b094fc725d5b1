//! The turns of suspects: asked for, begun with a copy that says so, given back. If that copy comes
//! back, the daemon has vanished with it once more.

use tokio::time::Instant;

use super::publication::Publication;
use super::session::Session;
use super::task::Task;
use crate::broker::rabbitmq::error::RabbitMqError;

impl Session {
    /// Lets the suspects have their turns.
    pub(super) fn take_turns(
        &mut self,
        task: &mut Task,
        now: Instant,
    ) -> Result<(), RabbitMqError> {
        self.suspects.give_up(now);
        while let Some((tag, turn)) = self.suspects.take_begun() {
            self.turn_has_begun(task, tag, turn)?;
        }
        self.begin_turn(task, now)?;
        let prefetch = usize::from(self.inbox.prefetch());
        while let Some(tag) = self.suspects.take_surplus(prefetch) {
            self.publish_for(tag, Publication::Aside)?;
        }
        if self.has_room(task)
            && let Some(tag) = self.suspects.take_here()
        {
            task.suspect = Some(self.token(tag));
            self.deliver(task, tag);
        }
        if let Some(some_wait) = self.suspects.news() {
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
        let is_ours = self.suspects.is_its_turn(turn);
        let asks = || task.suspect.is_none() && !self.closing && task.turn.ask();
        let is_ours = is_ours.unwrap_or_else(asks);
        if is_ours {
            self.suspects.is_here(tag);
            return Ok(());
        }
        self.publish_for(tag, Publication::Back)
    }

    /// Asks for the turn while one waits, and begins it with a copy that says so.
    fn begin_turn(&mut self, task: &mut Task, now: Instant) -> Result<(), RabbitMqError> {
        if task.suspect.is_some() || self.suspects.has_turn() {
            return Ok(());
        }
        if !self.suspects.some_wait() {
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
        let turn = fastrand::u64(..);
        let Some(tag) = self.suspects.begin(turn, now) else {
            return Ok(());
        };
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
        self.publish_for(tag, Publication::Turn)
    }

    fn has_room(&self, task: &Task) -> bool {
        !self.is_held_up() && task.room() > 0
    }
}
