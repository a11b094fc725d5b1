//! Handling of time in which the worker could not be observed: this thread slept, or it was stopped with the
//! whole daemon, or the machine was paused and the worker was stopped as well.

use tokio::time::Instant;

use super::Lane;
use ganger_queue::delivery::Exit;

impl Lane {
    /// Moves all deadlines by the time for which this thread's loop was stopped: no worker is to blame.
    pub(super) fn extend_deadlines(&mut self, now: Instant) {
        if let Some(stood_still) = self.standstills.take_stall(now) {
            self.exchange.postpone(stood_still);
            self.ending.postpone(stood_still);
        }
    }

    /// Takes in events from before a deadline that is noticed late: the worker's output counts, and so does
    /// its exit, which is returned.
    pub(super) async fn catch_up(&mut self) -> Option<Exit> {
        // Readiness is known once the event loop has polled for it.
        tokio::task::yield_now().await;
        tokio::select! {
            biased;
            exit = self.process.wait() => return Some(exit),
            () = std::future::ready(()) => {}
        }
        let is_heard = self.ending.is_heard() && !self.ending.is_closed();
        if is_heard && self.exchange.listens() {
            let now = Instant::now();
            self.extend_deadlines(now);
            let done = self.exchange.read(1);
            self.tag_output();
            self.look_at(done, now);
        }
        None
    }
}
