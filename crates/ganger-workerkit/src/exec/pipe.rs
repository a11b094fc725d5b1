//! A worker's side of the daemon's pipe: whole frames in, whole frames out.

use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use rustix::net::{Shutdown, shutdown};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::answer::too_large;
use super::error::ExecError;
use ganger_protocol::frame::LENGTH_BYTES;
use ganger_protocol::{Output, Status, next_frame};

/// Minimum space for a read.
const READ_BYTES_MIN: usize = 16 * 1024;
/// Capacity beyond which an empty buffer is returned to the allocator.
const IDLE_BUFFER_BYTES_MAX: usize = 1024 * 1024;

/// The daemon's pipe.
#[derive(Debug)]
pub(super) struct Pipe {
    stream: UnixStream,
    incoming: BytesMut,
    frame_bytes_max: usize,
}

impl Pipe {
    /// Opens the pipe.
    pub(super) async fn connect(path: PathBuf, frame_bytes_max: usize) -> Result<Self, ExecError> {
        match UnixStream::connect(&path).await {
            Ok(stream) => Ok(Self {
                stream,
                incoming: BytesMut::new(),
                frame_bytes_max,
            }),
            Err(cause) => Err(ExecError::Connect { path, cause }),
        }
    }

    /// Returns the next frame, without its length; none at the end of file. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ExecError> {
        loop {
            if let Some(frame) = next_frame(&mut self.incoming, self.frame_bytes_max)? {
                return Ok(Some(frame));
            }
            if self.incoming.is_empty() && self.incoming.capacity() > IDLE_BUFFER_BYTES_MAX {
                self.incoming = BytesMut::new();
            }
            self.incoming.reserve(READ_BYTES_MIN);
            let read = self.stream.read_buf(&mut self.incoming).await;
            if read.map_err(ExecError::Broken)? == 0 {
                return Ok(None);
            }
        }
    }

    /// Makes the daemon unable to send another frame. Frames can still be written.
    pub(super) fn refuse_more(&self) -> Result<(), ExecError> {
        let done = shutdown(&self.stream, Shutdown::Read);
        done.map_err(|error| ExecError::Broken(error.into()))
    }

    /// Writes a frame; instead of one that is too large for the daemon, an error that says so.
    pub(super) async fn send(&mut self, output: &Output) -> Result<(), ExecError> {
        let max = self.frame_bytes_max;
        let mut frame = encoded(output);
        if frame.len() - LENGTH_BYTES > max {
            frame = encoded(&Output::new(
                Status::UNKNOWN_ERROR,
                output.id,
                too_large(max),
            ));
        }
        let written = self.stream.write_all(&frame).await;
        written.map_err(ExecError::Broken)
    }
}

fn encoded(output: &Output) -> BytesMut {
    let mut frame = BytesMut::new();
    output.encode(&mut frame);
    frame
}
