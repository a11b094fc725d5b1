//! The limit for frames of a connection. The library fills the memory for many frames with zeros when it learns the limit
//! from the broker, 8 MiB with RabbitMQ's own; if it is told the limit before, memory is taken as it is used. So a
//! connection is opened with the usual limit, and once more if the broker has a larger one.

use std::sync::{Arc, OnceLock};

/// The limit that RabbitMQ has by default, in bytes.
pub(crate) const USUAL_BYTES: u32 = 128 << 10;
/// Limit for a broker that has none, in bytes: larger frames with texts are not repaired.
const WITHOUT_BYTES: u32 = 1 << 20;
/// Maximum of the limit, in bytes: the library reserves the addresses for 64 frames.
const BYTES_MAX: u32 = 16 << 20;

/// The limit that a broker has told at the beginning of a connection. Shared by the socket and who connects.
#[derive(Debug, Clone, Default)]
pub(crate) struct FrameLimit(Arc<OnceLock<u32>>);

impl FrameLimit {
    /// Records the limit, in bytes; zero for none.
    pub(crate) fn told(&self, bytes: u32) {
        self.0.get_or_init(|| bytes);
    }

    /// Returns the limit for a connection, in bytes, if the usual one is too small for that broker.
    pub(crate) fn beyond_usual(&self) -> Option<u32> {
        match self.0.get() {
            Some(0) => Some(WITHOUT_BYTES),
            Some(bytes) if *bytes > USUAL_BYTES => Some(BYTES_MAX.min(*bytes)),
            Some(_) | None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_larger_limit_is_of_interest() {
        let beyond = |bytes: &[u32]| {
            let limit = FrameLimit::default();
            bytes.iter().for_each(|bytes| limit.told(*bytes));
            limit.beyond_usual()
        };
        assert_eq!(beyond(&[]), None);
        assert_eq!(beyond(&[8192]), None);
        assert_eq!(beyond(&[USUAL_BYTES]), None);
        assert_eq!(beyond(&[USUAL_BYTES + 1, 0]), Some(USUAL_BYTES + 1));
        assert_eq!(beyond(&[0]), Some(WITHOUT_BYTES));
        assert_eq!(beyond(&[u32::MAX]), Some(BYTES_MAX));
    }
}
