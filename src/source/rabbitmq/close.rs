//! The end of a connection: the close in order, and what is left of one that is lost.

use std::rc::Rc;

use super::held::{Held, HeldState};
use super::session::Session;
use super::survived::Fingerprint;

impl Session {
    /// Ends the connection in order.
    pub(super) async fn close(self) {
        let Self {
            broker,
            acks,
            inbox,
            outbox,
            events,
            checks,
            ..
        } = self;
        drop((inbox, events, checks));
        acks.close().await;
        outbox.close().await;
        if let Some(broker) = Rc::into_inner(broker) {
            broker.close().await;
        }
    }

    /// What the messages in hand look like.
    pub(super) fn fingerprints(&self) -> impl Iterator<Item = Fingerprint> {
        let held = self.ledger.iter();
        held.map(|(_, held)| Fingerprint::of(&held.original, &held.body))
    }

    /// The connection is lost. Returns how many messages were settled without the broker knowing.
    pub(super) fn abandon(self) -> u64 {
        let left = |held: &Held| matches!(held.place, HeldState::Leaving | HeldState::Aside);
        let leaving = self.ledger.iter().filter(|(_, held)| left(held)).count();
        self.outbox.abandon();
        u64::try_from(leaving + self.ledger.settled()).unwrap_or(u64::MAX)
    }
}
