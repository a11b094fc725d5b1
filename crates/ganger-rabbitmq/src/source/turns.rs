//! The turns of suspects: requested, begun with a marked copy, given back. If that copy comes back,
//! the daemon has vanished with it once more.

use tokio::time::Instant;

use super::intake::deliver;
use super::session::Session;
use super::task::Task;
use crate::broker::error::RabbitMqError;

impl Session {
    /// Gives the suspects their turns.
    pub(super) fn take_turns(
        &mut self,
        task: &mut Task,
        now: Instant,
    ) -> Result<(), RabbitMqError> {
        self.deliveries.give_up_turn(now);
        while let Some(turn) = self.deliveries.suspects().begun() {
            let is_ours = self.is_ours(task, turn);
            if let Some((tag, step)) = self.deliveries.take_begun(is_ours) {
                self.act(tag, step)?;
            }
        }
        self.begin_turn(task, now)?;
        let prefetch = usize::from(self.inbox.prefetch());
        while let Some((tag, step)) = self.deliveries.take_surplus_suspect(prefetch) {
            self.act(tag, step)?;
        }
        if self.has_room(task)
            && let Some((token, held)) = self.deliveries.hand_out_suspect()
        {
            task.suspect = Some(token);
            deliver(task, &self.claim, &self.pool, token, held);
        }
        if let Some(some_wait) = self.deliveries.turn_news() {
            task.turn.tell(&task.end, some_wait);
        }
        Ok(())
    }

    /// Returns whether a copy marked with this turn runs here.
    fn is_ours(&self, task: &mut Task, turn: u64) -> bool {
        let asks = || task.suspect.is_none() && !self.closing && task.turn.ask();
        let is_ours = self.deliveries.suspects().is_its_turn(turn);
        is_ours.unwrap_or_else(asks)
    }

    /// Requests the turn while a suspect waits, and begins it with a marked copy.
    fn begin_turn(&mut self, task: &mut Task, now: Instant) -> Result<(), RabbitMqError> {
        if task.suspect.is_some() || self.deliveries.suspects().has_turn() {
            return Ok(());
        }
        if !self.deliveries.suspects().some_wait() {
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
        let Some((tag, step)) = self.deliveries.begin_turn(turn, now) else {
            return Ok(());
        };
        if let Some(held) = self.deliveries.get(tag) {
            let (pool, lapses) = (&self.pool.name, held.arrival.lapses);
            tracing::warn!(
                pool,
                lapses,
                "daemons vanished over a message: it is a suspect, and runs with nothing else in \
                 its worker"
            );
        }
        self.act(tag, step)
    }

    fn has_room(&self, task: &Task) -> bool {
        !self.is_held_up() && task.room() > 0
    }
}
