//! A message in flight to the broker. Pure.

use tokio::time::Instant;

/// A message that was sent over a track.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flight {
    pub(super) track: usize,
    pub(super) bytes: usize,
    pub(super) since: Instant,
    /// True if the broker has not answered to it for long.
    pub(super) is_silent: bool,
}

impl Flight {
    pub(super) fn unconfirmed(&self, id: u64) -> Unconfirmed {
        let (since, bytes) = (self.since, self.bytes);
        Unconfirmed { id, since, bytes }
    }
}

/// A message that was sent and that the broker has not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unconfirmed {
    pub(crate) id: u64,
    /// Time at which it was sent.
    pub(crate) since: Instant,
    /// Size of its body.
    pub(crate) bytes: usize,
}
