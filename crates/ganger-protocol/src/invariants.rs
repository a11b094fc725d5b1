//! Invariants for any input bytes: one function for each promise, called by the fuzz targets, by
//! the property tests and over the seed corpus.

use bytes::{Bytes, BytesMut};

use super::frame;
use super::frame::FrameError;
use super::output::Output;
use super::task::Task;

/// Maximum length of a frame that [`frames_split_alike`] lets pass: small, so that short inputs
/// meet it.
const FRAME_BYTES_MAX: usize = 1 << 12;

/// Checks that a worker's bytes are either refused or understood: what is understood, written in
/// the canonical form, means the same. A value that is no map is understood from version 1 workers
/// alone.
///
/// # Panics
/// If that does not hold.
pub fn output_is_refused_or_understood(frame: &[u8]) {
    let Ok(output) = Output::decode_version1(frame) else {
        return;
    };
    let mut canonical = BytesMut::new();
    output.encode(&mut canonical);
    let again = Output::decode(&canonical[frame::LENGTH_BYTES..]);
    assert_eq!(again, Ok(output), "the canonical form means something else");
}

/// Checks that the worker's side does not panic either.
pub fn task_is_refused_or_understood(frame: &[u8]) {
    drop(Task::decode(frame));
}

/// Checks that a stream gives the same frames, the same rest and the same error however it is cut
/// into reads. The cuts are `step` bytes apart.
///
/// # Panics
/// If that does not hold.
pub fn frames_split_alike(stream: &[u8], step: usize) {
    let at_once = split([stream]);
    let in_steps = split(stream.chunks(step.max(1)));
    assert_eq!(at_once, in_steps, "frames depend on how the stream was cut");
}

/// Content of a stream: its whole frames, the bytes left over, and the error that ended it.
#[derive(Debug, PartialEq)]
pub struct Split {
    /// The whole frames, in order.
    pub frames: Vec<Bytes>,
    /// Remaining bytes, too few for a frame, where there is no error.
    pub rest: Bytes,
    /// Error of the length that ended it.
    pub error: Option<FrameError>,
}

/// Splits a stream that comes in `reads`, with the limit of [`frames_split_alike`].
pub fn split<'a>(reads: impl IntoIterator<Item = &'a [u8]>) -> Split {
    split_within(reads, FRAME_BYTES_MAX)
}

/// Splits a stream that comes in `reads`.
pub fn split_within<'a>(
    reads: impl IntoIterator<Item = &'a [u8]>,
    frame_bytes_max: usize,
) -> Split {
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    for read in reads {
        buffer.extend_from_slice(read);
        loop {
            match frame::next_frame(&mut buffer, frame_bytes_max) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => {
                    return Split {
                        frames,
                        rest: Bytes::new(),
                        error: Some(error),
                    };
                }
            }
        }
    }
    let rest = buffer.freeze();
    Split {
        frames,
        rest,
        error: None,
    }
}
