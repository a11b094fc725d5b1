//! The suspects of the queue: the daemon's turn for them, and the one that is out.

use tokio::time::Instant;

use ganger_queue::delivery::SourceEnd;
use ganger_queue::exclusive::Turn;

#[derive(Debug)]
pub(super) struct Suspects {
    /// Our part in the daemon's turn.
    turn: Turn,
    /// The token of the one that is out.
    out: Option<u64>,
    /// Time before which none is asked for.
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

    /// Resolves when it may be our turn. Loses nothing when it is dropped.
    pub(super) async fn called(&mut self) {
        self.turn.called().await;
    }

    /// Returns whether a claim may ask for one.
    pub(super) fn may_be_claimed(&self) -> bool {
        self.out.is_none() && self.turn.is_held()
    }

    /// Joins the line for the daemon's turn if a suspect waits, and leaves it if none does. Returns
    /// whether one may be claimed now.
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

    /// One is out.
    pub(super) fn handed_out(&mut self, token: u64) {
        self.out = Some(token);
    }

    /// Leaves the turn if it was that one which is settled. Returns whether it was.
    pub(super) fn settled(&mut self, token: u64) -> bool {
        let was_out = self.out == Some(token);
        if was_out {
            self.out = None;
            self.turn.leave();
        }
        was_out
    }

    /// A claim that could ask for one has got none though some wait: another program has them locked. Others may
    /// have the turn until then.
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
