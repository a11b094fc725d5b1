//! Returned messages.
//!
//! Each message that the broker may return is sent with a number of its own in a header, and is returned with
//! it. The broker returns a message before it acknowledges it, and the input is inspected here before the
//! library reads it. So at an acknowledgement one lookup here shows whether its message was returned, without
//! a guess from the message's content. The library's own answer is ignored: it assigns a returned message to
//! whichever acknowledgement comes next.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lapin::BasicProperties;
use lapin::types::AMQPValue;

/// Header with the number. Readers of the replies get it, too; ganger's workers do not.
pub(crate) const HEADER: &str = "x-ganger-publish";

/// Maximum size that the number adds to a message's properties on the wire: the size of a table,
/// and the name with its length, the type and the value of a header.
pub(crate) const NUMBER_BYTES: usize = 4 + 1 + HEADER.len() + 1 + 8;

/// Messages returned over one connection, shared by the publishers and the socket.
#[derive(Debug, Clone, Default)]
pub(crate) struct Returns(Arc<Mutex<ReturnedMessages>>);

#[derive(Debug, Default)]
struct ReturnedMessages {
    next: u64,
    came_back: HashSet<u64>,
    /// Channels of returned messages that can't be identified.
    unnumbered: HashSet<u16>,
}

impl Returns {
    /// Returns a number for a message that is published over this connection.
    pub(crate) fn number(&self) -> u64 {
        let mut seen = self.lock();
        seen.next += 1;
        seen.next
    }

    /// Records a message returned over this channel, with this number.
    pub(crate) fn came_back(&self, channel: u16, number: Option<u64>) {
        let mut seen = self.lock();
        match number {
            Some(number) => drop(seen.came_back.insert(number)),
            None => drop(seen.unnumbered.insert(channel)),
        }
    }

    /// Returns, only once, whether the message was returned. For use after the broker's acknowledgement.
    pub(crate) fn take(&self, number: u64) -> bool {
        self.lock().came_back.remove(&number)
    }

    /// Channels over which a message was returned that can't be identified.
    pub(crate) fn unnumbered(&self) -> Vec<u16> {
        self.lock().unnumbered.iter().copied().collect()
    }

    /// Returns, only once, whether this channel is one of those.
    pub(crate) fn take_unnumbered(&self, channel: u16) -> bool {
        self.lock().unnumbered.remove(&channel)
    }

    fn lock(&self) -> MutexGuard<'_, ReturnedMessages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Properties with this number instead of any other.
pub(crate) fn numbered(properties: BasicProperties, number: u64) -> BasicProperties {
    let mut headers = properties.headers().clone().unwrap_or_default();
    let number = AMQPValue::LongLongInt(i64::from_be_bytes(number.to_be_bytes()));
    headers.insert(HEADER.into(), number);
    properties.with_headers(headers)
}

#[cfg(test)]
mod tests;
