//! The suspects of the queue: the daemon's turn for them, and the suspect that is in flight.

use tokio::time::Instant;

use ganger_queue::delivery::SourceEnd;
use ganger_queue::exclusive::Turn;

#[derive(Debug)]
pub(super) struct Suspects {
    /// This source's part in the daemon's turn.
    turn: Turn,
    /// Token of the suspect that is in flight.
    out: Option<u64>,
    /// Time before which no suspect is asked for.
    rest: Instant,
}

impl Suspects {
    pub(super) fn new(turn: Turn) -> Self {
        Self {
            turn,
            out: None,
            rest: Instant::now(),
        }
    }

    /// Resolves when it may be this source's turn. Cancel-safe.
    pub(super) async fn called(&mut self) {
        self.turn.called().await;
    }

    /// Returns whether a claim may ask for a suspect.
    pub(super) fn may_be_claimed(&self) -> bool {
        self.out.is_none() && self.turn.is_held()
    }

    /// Joins the queue for the daemon's turn if a suspect waits, and leaves it if none does. Returns whether
    /// a suspect may be claimed now.
    pub(super) fn request_turn(&mut self, suspects_wait: bool, end: &SourceEnd) -> bool {
        if self.out.is_none() && !suspects_wait {
            self.turn.leave();
        }
        let may_ask = self.out.is_none() && Instant::now() >= self.rest;
        let ours = may_ask && suspects_wait && self.turn.ask();
        if !ours {
            self.turn.report(end, suspects_wait);
        }
        ours
    }

    /// Records that a suspect was handed out.
    pub(super) fn handed_out(&mut self, token: u64) {
        self.out = Some(token);
    }

    /// Leaves the turn if the settled delivery was the suspect. Returns whether it was.
    pub(super) fn settled(&mut self, token: u64) -> bool {
        let was_out = self.out == Some(token);
        if was_out {
            self.out = None;
            self.turn.leave();
        }
        was_out
    }

    /// Records that a claim got no suspect although some wait: another program has locked them. Others may
    /// have the turn until the given time.
    pub(super) fn none_claimable(&mut self, until: Instant) {
        if self.out.is_none() {
            self.rest = until;
            self.turn.pause();
        }
    }

    /// Lets other sources have the turn while this one can't use it.
    pub(super) fn pause_turn(&mut self) {
        if self.out.is_none() {
            self.turn.pause();
        }
    }
}
