//! The end of a connection: the close in order, and the cleanup after one that is lost.

use std::rc::Rc;

use super::session::Session;

impl Session {
    /// Closes the connection in order.
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

    /// Gives up a lost connection. Returns how many messages were settled without the broker knowing.
    pub(super) fn abandon(self) -> u64 {
        self.outbox.abandon();
        u64::try_from(self.deliveries.unsure()).unwrap_or(u64::MAX)
    }
}
