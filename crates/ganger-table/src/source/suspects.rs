//! The suspects of the queue: the daemon's turn for them, and what becomes of it where they can't be had.

use tokio::time::Instant;

use super::Task;

impl Task {
    /// Gets in line for the daemon's turn while a suspect waits, and out of it when none does.
    /// Returns whether one may be claimed now.
    pub(super) fn line_up(&mut self, suspects_wait: bool) -> bool {
        if self.suspect.is_none() && !suspects_wait {
            self.turn.leave();
        }
        let may_ask = self.suspect.is_none() && Instant::now() >= self.suspects_rest;
        let ours = may_ask && suspects_wait && self.turn.ask();
        if !ours {
            self.turn.tell(&self.end, suspects_wait);
        }
        ours
    }

    /// Another program has the suspects that wait locked: others may have the turn until the next look.
    pub(super) fn leave_suspects(&mut self) {
        self.suspects_rest = self.next_look;
        self.step_aside();
    }

    /// Lets other sources have the turn while we could not use it.
    pub(super) fn step_aside(&mut self) {
        if self.suspect.is_none() {
            self.turn.pause();
        }
    }
}
