//! Which published messages came back.
//!
//! Whatever the broker may return is sent with a number of its own in a header, and comes back with
//! it. The broker returns a message before it acknowledges it, and we look at what comes in before
//! the library does. So whoever hears of an acknowledgement finds here whether it is of a message
//! that came back: one look, and no guess by what a message looks like. The library's own word on it
//! is not listened to: it hands a returned message to whichever acknowledgement comes next.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lapin::BasicProperties;
use lapin::types::AMQPValue;

/// The header with the number. Whoever reads our replies gets it, too; workers of ours do not.
pub(crate) const HEADER: &str = "x-ganger-publish";

/// What the number adds to a message's properties on the wire, at most: the size of a table, and the
/// name with its length, the type and the value of a header.
pub(crate) const NUMBER_BYTES: usize = 4 + 1 + HEADER.len() + 1 + 8;

/// What has come back over one connection, shared by those who publish and the socket.
#[derive(Debug, Clone, Default)]
pub(crate) struct Returns(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    next: u64,
    came_back: HashSet<u64>,
    /// Of which nobody can tell what it was, by its channel.
    unnumbered: HashSet<u16>,
}

impl Returns {
    /// A number for something that is published over this connection.
    pub(crate) fn number(&self) -> u64 {
        let mut seen = self.seen();
        seen.next += 1;
        seen.next
    }

    /// A message came back over this channel, with this number.
    pub(crate) fn came_back(&self, channel: u16, number: Option<u64>) {
        let mut seen = self.seen();
        match number {
            Some(number) => drop(seen.came_back.insert(number)),
            None => drop(seen.unnumbered.insert(channel)),
        }
    }

    /// Whether that one came back, told once. To be asked when the broker has acknowledged it.
    pub(crate) fn take(&self, number: u64) -> bool {
        self.seen().came_back.remove(&number)
    }

    /// The channels over which something came back of which nobody can tell what it was.
    pub(crate) fn unnumbered(&self) -> Vec<u16> {
        self.seen().unnumbered.iter().copied().collect()
    }

    /// Whether that is so of one channel, told once.
    pub(crate) fn take_unnumbered(&self, channel: u16) -> bool {
        self.seen().unnumbered.remove(&channel)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The properties with this number instead of any other.
pub(crate) fn numbered(properties: BasicProperties, number: u64) -> BasicProperties {
    let mut headers = properties.headers().clone().unwrap_or_default();
    let number = AMQPValue::LongLongInt(i64::from_be_bytes(number.to_be_bytes()));
    headers.insert(HEADER.into(), number);
    properties.with_headers(headers)
}

#[cfg(test)]
mod tests;
