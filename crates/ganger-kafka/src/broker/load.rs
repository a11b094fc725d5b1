//! How much is published and not confirmed, and how much of it is enough. Pure.

/// With so much not confirmed, nothing more should be begun that may have to be published.
pub(crate) const OPEN_MAX: usize = 1000;
const OPEN_BYTES_MAX: usize = 16 << 20;

/// How much there is of something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    count: usize,
    bytes: usize,
}

impl Load {
    /// One more, of so many bytes.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes;
    }

    /// One less.
    pub(crate) fn take(&mut self, bytes: usize) {
        self.count -= 1;
        self.bytes -= bytes;
    }

    /// Whether it is all that there should be.
    pub(crate) fn is_full(self) -> bool {
        self.count >= OPEN_MAX || self.bytes >= OPEN_BYTES_MAX
    }
}
