//! Frames out of what has arrived, in pieces of any size. No pipe is read here.

use crate::Error;

/// What one read may bring, unless a frame is longer.
const READ_BYTES: usize = 1 << 16;
/// The length before each frame.
const LENGTH_BYTES: usize = 4;

/// What has arrived and is not taken yet.
#[derive(Debug)]
pub(crate) struct Frames {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    frame_bytes_max: usize,
}

impl Frames {
    pub(crate) fn new(frame_bytes_max: usize) -> Self {
        Self {
            buffer: vec![0; READ_BYTES],
            start: 0,
            end: 0,
            frame_bytes_max,
        }
    }

    /// The next frame, without its length, if it has come whole.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, Error> {
        let Some(size) = self.size()? else {
            return Ok(None);
        };
        let first = self.start + LENGTH_BYTES;
        if self.end - first < size {
            return Ok(None);
        }
        self.start = first + size;
        Ok(Some(&self.buffer[first..self.start]))
    }

    /// Where the next bytes go: never empty, and large enough for the frame that has begun.
    pub(crate) fn space(&mut self) -> Result<&mut [u8], Error> {
        let whole = self
            .size()?
            .map_or(LENGTH_BYTES + 1, |size| LENGTH_BYTES + size);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > READ_BYTES {
                self.buffer = vec![0; READ_BYTES];
            }
        }
        if self.start + whole > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if whole > self.buffer.len() {
                self.buffer.resize(whole, 0);
            }
        }
        Ok(&mut self.buffer[self.end..])
    }

    /// So many bytes have been put into the space.
    pub(crate) fn filled(&mut self, count: usize) {
        self.end += count;
    }

    /// The length of the frame that has begun, judged before anything is made of it.
    fn size(&self) -> Result<Option<usize>, Error> {
        let Some(length) = self.buffer[self.start..self.end].first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let most = self.frame_bytes_max;
        let reason = match u32::from_be_bytes(*length) {
            0 => "a frame's length must be 1 or more: 0".to_owned(),
            top @ 0x8000_0000.. => {
                format!("a frame's length must not have its top bit set: {top:#x}")
            }
            size => match usize::try_from(size) {
                Ok(size) if size <= most => return Ok(Some(size)),
                _ => format!("a frame must have at most {most} bytes (frame_bytes_max): {size}"),
            },
        };
        Err(Error::Protocol(reason))
    }
}
