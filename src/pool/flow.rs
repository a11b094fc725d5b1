//! The messages' way from the source to the lanes: what is taken in, who gets it, how much may
//! come.

use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

use super::{Handle, Pool, dispatch};
use crate::delivery::{CREDIT_MAX, Delivery, Intake};

impl Pool {
    pub(super) fn takes_deliveries(&self) -> bool {
        self.held.is_empty() && !self.source_gone
    }

    pub(super) fn received(&mut self, count: usize, batch: &mut Vec<Delivery>) {
        if count == 0 {
            self.source_gone = true;
            return;
        }
        // While stopping, what no worker has been given goes back.
        if self.stopping.is_none() {
            self.held.extend(batch.drain(..));
        }
        batch.clear();
    }

    /// What no worker has been given goes back.
    pub(super) fn give_back(&mut self) {
        self.held.clear();
        while let Ok(delivery) = self.link.deliveries.try_recv() {
            drop(delivery);
        }
    }

    /// When the first message that waits for a worker has to go back.
    pub(super) fn next_stale(&self) -> Option<Instant> {
        self.held.front()?.begin_by
    }

    /// What has waited for a worker for as long as its broker bears goes back.
    pub(super) fn give_back_stale(&mut self, now: Instant) {
        while self.next_stale().is_some_and(|begin_by| begin_by <= now) {
            self.held.pop_front();
        }
    }

    /// Hands out what is held, as far as there is room. With no worker at all it goes back: others
    /// may have one, and nobody knows when we do.
    pub(super) fn dispatch(&mut self) {
        if !self.slots.values().any(|handle| handle.gauge.open.get()) {
            return self.give_back();
        }
        while let Some(delivery) = self.held.pop_front() {
            if let Some(delivery) = self.place(delivery) {
                self.held.push_front(delivery);
                return;
            }
        }
    }

    /// Gives the message to a lane, or gives it back if none has room.
    fn place(&mut self, mut delivery: Delivery) -> Option<Delivery> {
        let alone = delivery.history.alone;
        let bytes = delivery.message.body.len();
        loop {
            let loads = self.slots.values().map(Handle::load);
            let Some(index) = dispatch::choose(loads, self.turn, alone) else {
                return Some(delivery);
            };
            self.turn = (index + 1) % self.slots.len();
            let handle = self.slots.values().nth(index)?;
            let gauge = &handle.gauge;
            match handle.mailbox.try_send(delivery) {
                Ok(()) => {
                    gauge.load.set(gauge.load.get() + 1);
                    gauge.bytes.set(gauge.bytes.get() + bytes);
                    gauge.alone.set(alone);
                    return None;
                }
                // It is closing this very moment; the next choice is another.
                Err(TrySendError::Closed(back) | TrySendError::Full(back)) => {
                    gauge.open.set(false);
                    delivery = back;
                }
            }
        }
    }

    /// Tells the source how many messages the workers can use.
    pub(super) fn set_credit(&self) {
        let intake = if self.stopping.is_some() {
            Intake::Closed
        } else {
            let open = self.slots.values().filter(|handle| handle.gauge.open.get());
            let wanted: usize = open.map(|handle| handle.gauge.prefetch.get()).sum();
            let most = if self.supervisor.degraded() {
                1
            } else {
                CREDIT_MAX
            };
            Intake::Credit(wanted.min(most))
        };
        self.link.intake.send_if_modified(|current| {
            let changed = *current != intake;
            *current = intake;
            changed
        });
    }
}
