//! Reading of a message that arrives: its original, its marks, and this process's records of it. It outlives
//! a connection.

use bytes::Bytes;
use lapin::message::Delivery;

use super::survived::{Fingerprint, Survived};
use crate::broker::republish::{Original, Received, claims_to_be_of, unwrap};
use crate::broker::signature::CopyKey;
use crate::broker::utf8::restore;
use crate::rules::Arrival;
use ganger_config::model::PoolConfig;

/// Records about arriving messages.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// Key by which copies are recognised.
    key: CopyKey,
    /// True if an unsigned copy has been logged.
    warned_of_unsigned: bool,
    survived: Survived,
}

impl Arrivals {
    pub(super) fn new(key: CopyKey) -> Self {
        Self {
            key,
            warned_of_unsigned: false,
            survived: Survived::default(),
        }
    }

    /// Records the loss of a connection with these messages held.
    pub(super) fn lost(&mut self, held: impl Iterator<Item = Fingerprint>) {
        self.survived.lost(held);
    }

    /// Reads a message of a pool.
    pub(super) fn read(
        &mut self,
        delivery: Delivery,
        pool: &PoolConfig,
    ) -> (Original, Arrival, Bytes) {
        let is_copy = self.is_copy(&delivery, pool);
        let received = Received {
            properties: delivery.properties,
            exchange: delivery.exchange,
            routing_key: delivery.routing_key,
            redelivered: delivery.redelivered,
        };
        let shown = restore::readable(&received);
        let is_unreadable = shown.is_some();
        let (original, mut arrival) = unwrap(shown.unwrap_or(received), is_copy);
        arrival.is_unreadable = is_unreadable;
        if original.properties.message_id().is_none() {
            arrival.number.get_or_insert_with(|| fastrand::u64(..));
        }
        let body = Bytes::from(delivery.data);
        if arrival.redelivered && !self.survived.is_empty() {
            let print = Fingerprint::of(&original, &body);
            arrival.excused = self.survived.excused(print, arrival.returns);
        }
        (original, arrival, body)
    }

    /// Returns whether it is a copy of a message of this queue, made by a daemon. A message that only claims
    /// to be a copy is treated like any other: its attempts start from zero.
    fn is_copy(&mut self, delivery: &Delivery, pool: &PoolConfig) -> bool {
        if !claims_to_be_of(&delivery.properties, &pool.queue) {
            return false;
        }
        let is_signed = self.key.knows(&delivery.properties, &delivery.data);
        if !is_signed && !std::mem::replace(&mut self.warned_of_unsigned, true) {
            tracing::warn!(
                pool = pool.name,
                queue = %pool.queue,
                "message claims to be a copy made by ganger but is not signed by this source: its \
                 `x-ganger-` headers are ignored and its attempts start at zero. Either another \
                 program writes these headers, or another daemon of this queue has a different \
                 password: give all of them the same `signing_secret`"
            );
        }
        is_signed
    }
}
