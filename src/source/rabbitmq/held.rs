//! What is known of a delivery while it is in our hands.

use bytes::Bytes;
use tokio::time::Instant;

use crate::broker::rabbitmq::republish::Original;
use crate::budget::Hold;
use crate::rules::rabbitmq::Arrival;

/// A delivery in our hands.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) original: Original,
    pub(super) arrival: Arrival,
    pub(super) body: Bytes,
    /// What it takes of the daemon's memory.
    #[expect(dead_code, reason = "it is there to be dropped with the body")]
    pub(super) hold: Hold,
    /// When it came.
    pub(super) since: Instant,
    pub(super) place: HeldState,
    /// How often it was warned that the broker will not wait much longer.
    pub(super) warnings: u8,
}

/// Where a delivery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeldState {
    /// It waits for the pool's credit.
    Here,
    /// The pool has it.
    Out,
    /// It is settled, and something is being published for it.
    Leaving,
    /// It is settled, but the broker refuses what there is to publish for it.
    Aside,
}
