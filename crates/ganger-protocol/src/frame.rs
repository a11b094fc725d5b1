//! Frames: a length of four bytes, big-endian, then that many bytes. Their content is not
//! interpreted here.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use rmp_serde::Serializer;
use serde::Serialize;

/// Size of a frame's length, in bytes.
pub const LENGTH_BYTES: usize = 4;

/// Maximum length that can be encoded: the length's top bit is never set, for workers that read it
/// as a signed number.
const TELLABLE_BYTES_MAX: usize = 0x7fff_ffff;

/// Number of bytes reserved for everything around a body, so that a usual frame grows `out` once.
const AROUND_THE_BODY_BYTES: usize = 256;

/// A length that no frame may have. The bytes that follow can't be interpreted: the connection is
/// unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is 0.
    #[error("a frame must hold at least one byte: its length is 0")]
    Empty,
    /// The top bit is set: read as a signed number, it is negative.
    #[error("a frame's length must not have its top bit set: {length:#010x}")]
    TopBit {
        /// The length as received.
        length: u32,
    },
    /// The frame is longer than `frame_bytes_max`.
    #[error("a frame must be at most {max} bytes (frame_bytes_max): {bytes}")]
    TooLarge {
        /// The length as received.
        bytes: usize,
        /// Maximum length.
        max: usize,
    },
}

/// Splits the next whole frame off the front of `buffer`, without its length; `None` if there are
/// too few bytes yet. The length is checked as soon as it is there: nothing is reserved or awaited
/// for a length that is not allowed, nor reserved at all before the bytes come.
pub fn next_frame(
    buffer: &mut BytesMut,
    frame_bytes_max: usize,
) -> Result<Option<Bytes>, FrameError> {
    let Some(length) = buffer.first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let bytes = check_length(u32::from_be_bytes(*length), frame_bytes_max)?;
    if buffer.len() - LENGTH_BYTES < bytes {
        return Ok(None);
    }
    buffer.advance(LENGTH_BYTES);
    Ok(Some(buffer.split_to(bytes).freeze()))
}

fn check_length(length: u32, max: usize) -> Result<usize, FrameError> {
    let bytes = usize::try_from(length).unwrap_or(usize::MAX);
    match bytes {
        0 => Err(FrameError::Empty),
        _ if bytes > TELLABLE_BYTES_MAX => Err(FrameError::TopBit { length }),
        _ if bytes > max => Err(FrameError::TooLarge { bytes, max }),
        _ => Ok(bytes),
    }
}

/// A frame that was not written because it would be too large.
#[derive(Debug)]
pub(super) struct Oversized {
    pub(super) bytes: usize,
    pub(super) max: usize,
}

/// Appends a frame that holds `payload`. On error `out` is as before. `body_bytes` is the expected
/// size of the payload's one large part.
pub(super) fn append(
    out: &mut BytesMut,
    payload: &impl Serialize,
    body_bytes: usize,
    frame_bytes_max: usize,
) -> Result<(), Oversized> {
    let max = frame_bytes_max.min(TELLABLE_BYTES_MAX);
    let start = out.len();
    out.reserve(LENGTH_BYTES + body_bytes.min(max) + AROUND_THE_BODY_BYTES);
    out.put_u32(0);
    let mut writer = Bounded { out, bytes: 0, max };
    payload
        .serialize(&mut Serializer::new(&mut writer))
        .expect("a writer that takes everything and maps of known length do not fail");
    let bytes = writer.bytes;
    match u32::try_from(bytes) {
        Ok(length) if bytes <= max => {
            out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
            Ok(())
        }
        _ => {
            out.truncate(start);
            Err(Oversized { bytes, max })
        }
    }
}

/// Keeps the bytes that fit and counts all, so that an oversized frame is neither copied nor of
/// unknown size.
struct Bounded<'a> {
    out: &'a mut BytesMut,
    bytes: usize,
    max: usize,
}

impl io::Write for Bounded<'_> {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.bytes += part.len();
        if self.bytes <= self.max {
            self.out.extend_from_slice(part);
        }
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 16;

    fn split(bytes: &[u8]) -> (Result<Option<Bytes>, FrameError>, BytesMut) {
        let mut buffer = BytesMut::from(bytes);
        let frame = next_frame(&mut buffer, MAX);
        (frame, buffer)
    }

    #[test]
    fn waits_for_the_whole_frame() {
        let whole = [0, 0, 0, 2, 7, 8];
        for cut in 0..whole.len() {
            let (frame, left) = split(&whole[..cut]);
            assert_eq!(frame, Ok(None));
            assert_eq!(left, whole[..cut]);
        }
        let (frame, left) = split(&[0, 0, 0, 2, 7, 8, 9]);
        assert_eq!(frame, Ok(Some(Bytes::from_static(&[7, 8]))));
        assert_eq!(left, [9][..]);
    }

    #[test]
    fn judges_the_length_before_the_bytes_come() {
        assert_eq!(split(&[0, 0, 0, 0]).0, Err(FrameError::Empty));
        assert_eq!(
            split(&[0x80, 0, 0, 0]).0,
            Err(FrameError::TopBit {
                length: 0x8000_0000
            })
        );
        assert_eq!(
            split(&[0, 0, 0, 17]).0,
            Err(FrameError::TooLarge {
                bytes: 17,
                max: MAX
            })
        );
        assert_eq!(split(&[0, 0, 0, 16]).0, Ok(None));
    }

    #[test]
    fn a_claimed_length_reserves_nothing() {
        let mut buffer = BytesMut::from(&[0x7f, 0xff, 0xff, 0xff][..]);
        let capacity = buffer.capacity();
        assert_eq!(next_frame(&mut buffer, usize::MAX), Ok(None));
        assert_eq!(buffer.capacity(), capacity);
    }

    #[test]
    fn an_oversized_payload_leaves_no_trace_and_is_counted() {
        let mut out = BytesMut::from(&b"before"[..]);
        let error = append(&mut out, &"x".repeat(100), 100, MAX).unwrap_err();
        assert_eq!((error.bytes, error.max), (102, MAX));
        assert_eq!(out, "before");
        assert!(out.capacity() < 1000);
    }

    #[test]
    fn a_payload_of_just_the_limit_fits() {
        let mut out = BytesMut::new();
        append(&mut out, &"x".repeat(MAX - 1), MAX, MAX).unwrap();
        assert_eq!(out.len(), LENGTH_BYTES + MAX);
        assert_eq!(next_frame(&mut out, MAX).unwrap().unwrap().len(), MAX);
    }
}
