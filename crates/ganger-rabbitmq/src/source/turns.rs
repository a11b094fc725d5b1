//! The daemon's turn for suspects, as a pool's source uses it: requested while one waits, kept while one
//! runs, given back. The book decides which suspect is next.

use ganger_queue::delivery::SourceEnd;
use ganger_queue::exclusive::{Exclusive, Turn};

/// The turn, and the suspect that has it.
#[derive(Debug)]
pub(super) struct Turns {
    turn: Turn,
    /// Token of the suspect that the pool has, of any connection.
    out: Option<u64>,
}

impl Turns {
    pub(super) fn new(exclusive: &Exclusive, pool: &str) -> Self {
        Self {
            turn: Turn::new(exclusive, pool),
            out: None,
        }
    }

    /// Resolves once it may be this source's turn. Cancel-safe.
    pub(super) async fn called(&self) {
        self.turn.called().await;
    }

    /// Requests the turn. Returns whether this source has it for another suspect.
    pub(super) fn ask(&mut self) -> bool {
        self.out.is_none() && self.turn.ask()
    }

    /// Requests the turn while a suspect waits for which the pool has room. Returns whether it may begin.
    pub(super) fn ask_for(&mut self, has_waiting: bool, has_room: bool) -> bool {
        if self.out.is_some() {
            return false;
        }
        match (has_waiting, has_room) {
            (false, _) => self.turn.leave(),
            (true, false) => self.turn.pause(),
            (true, true) => return self.turn.ask(),
        }
        false
    }

    /// Records that the suspect whose turn it is was handed out to the pool.
    pub(super) fn mark_out(&mut self, token: u64) {
        self.out = Some(token);
    }

    /// Records that a delivery has left the pool, which ends a turn if it had it.
    pub(super) fn is_back(&mut self, token: u64) {
        if self.out == Some(token) {
            self.out = None;
            self.turn.leave();
        }
    }

    /// Records the loss of the connection: only a suspect that the pool has keeps the turn. Others may be
    /// waiting for it, and must not wait for as long as a broker is unreachable.
    pub(super) fn lose(&mut self, end: &SourceEnd) {
        if self.out.is_none() {
            self.turn.leave();
        }
        self.report_waiting(end, false);
    }

    /// Reports to the pool whether suspects wait for others.
    pub(super) fn report_waiting(&self, end: &SourceEnd, has_waiting: bool) {
        self.turn.report(end, has_waiting);
    }
}
