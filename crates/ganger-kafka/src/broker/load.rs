//! Amount of unconfirmed publications, and its limits. Pure.

/// Number of unconfirmed publications at which no work is begun that may have to be published.
pub(crate) const OPEN_MAX: usize = 1000;
const OPEN_BYTES_MAX: usize = 16 << 20;

/// Number and size of items.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    count: usize,
    bytes: usize,
}

impl Load {
    /// Adds an item of that size.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes;
    }

    /// Removes an item of that size.
    pub(crate) fn take(&mut self, bytes: usize) {
        self.count -= 1;
        self.bytes -= bytes;
    }

    /// Returns whether the limit is reached.
    pub(crate) fn is_full(self) -> bool {
        self.count >= OPEN_MAX || self.bytes >= OPEN_BYTES_MAX
    }
}
