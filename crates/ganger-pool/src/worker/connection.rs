//! Pipe to one connected worker: a buffer in each direction and one readiness to wait for. Reading never
//! waits for writing, nor writing for reading. Frames are split here, and not interpreted.

use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use nix::sys::socket::{Shutdown, shutdown};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use ganger_protocol::frame;
use ganger_protocol::frame::FrameError;

/// Maximum number of bytes that one [`Connection::receive`] takes in, so that a worker that writes without
/// end does not block its lane's other work.
const RECEIVE_BYTES_MAX: usize = 256 * 1024;

/// Minimum space for a read.
const READ_BYTES_MIN: usize = 16 * 1024;

/// Capacity above which an empty buffer is returned to the allocator.
const IDLE_BUFFER_BYTES_MAX: usize = 1024 * 1024;

/// A worker's pipe.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    frame_bytes_max: usize,
    incoming: BytesMut,
    /// True if the worker has closed its side, so that no more can be read.
    ended: bool,
    /// True if the worker had unread bytes when it closed its side.
    left_unread: bool,
    outgoing: BytesMut,
    sent_total: u64,
}

/// Operations possible without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// [`Connection::receive`] has something, the end included.
    pub readable: bool,
    /// [`Connection::flush`] has room.
    pub writable: bool,
}

/// Result of [`Connection::receive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Number of bytes received.
    Some(usize),
    /// Nothing yet.
    WouldBlock,
    /// The worker has closed its side, and everything it wrote has been received.
    Eof,
}

impl Connection {
    pub(super) fn new(stream: UnixStream, frame_bytes_max: usize) -> Self {
        Self {
            stream,
            frame_bytes_max,
            incoming: BytesMut::new(),
            ended: false,
            left_unread: false,
            outgoing: BytesMut::new(),
            sent_total: 0,
        }
    }

    /// Returns the process at the other end: the one that opened the pipe.
    pub fn peer(&self) -> Option<i32> {
        self.stream.peer_cred().ok()?.pid()
    }

    /// Returns the buffer for encoded frames, to be sent by [`Connection::flush`].
    pub fn outgoing(&mut self) -> &mut BytesMut {
        &mut self.outgoing
    }

    /// Returns the number of bytes that wait to be sent.
    pub fn unsent(&self) -> usize {
        self.outgoing.len()
    }

    /// Returns whether the worker closed its side with some bytes unread. Linux reports that by `ECONNRESET`:
    /// see `unix_release_sock` in `net/unix/af_unix.c`.
    pub fn left_unread(&self) -> bool {
        self.left_unread
    }

    /// Returns the number of bytes passed to the kernel since the start.
    pub fn sent_total(&self) -> u64 {
        self.sent_total
    }

    /// Waits until the pipe can be read, or, with bytes unsent, written. After the worker's end of file it
    /// waits only for writing; with nothing unsent, for ever. Cancel-safe.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn ready(&self) -> io::Result<Ready> {
        // Known readiness is returned without a check of the task's budget, and an exhausted budget reads as
        // "would block": without this the two could spin.
        tokio::task::consume_budget().await;
        let interest = match (self.ended, self.outgoing.is_empty()) {
            (false, true) => Interest::READABLE,
            (false, false) => Interest::READABLE | Interest::WRITABLE,
            (true, false) => Interest::WRITABLE,
            (true, true) => return std::future::pending().await,
        };
        let ready = self.stream.ready(interest).await?;
        Ok(Ready {
            readable: ready.is_readable(),
            writable: ready.is_writable(),
        })
    }

    /// Writes unsent bytes until none are left or the pipe is full. Never waits.
    ///
    /// # Errors
    /// A broken pipe or a reset means that the worker has closed its side. Bytes that it wrote before can
    /// still be received. Unsent bytes are dropped then.
    pub fn flush(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match now(self.stream.write(&self.outgoing)) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(written)) => {
                    self.outgoing.advance(written);
                    self.sent_total += written as u64;
                }
                Poll::Ready(Err(error)) => {
                    self.outgoing.clear();
                    return Err(error);
                }
            }
        }
        give_back(&mut self.outgoing);
        Ok(())
    }

    /// Takes in the available bytes, at most about 256 KiB. Never waits; a task that has used up
    /// its budget gets "would block". Take the frames out with [`Connection::next_frame`] before
    /// the next call, so that a length is checked before its bytes pile up.
    ///
    /// # Errors
    /// If the pipe can't be read. A worker that closed it without reading everything is no error:
    /// its bytes come first, then the end.
    pub fn receive(&mut self) -> io::Result<Received> {
        let mut total = 0;
        while total < RECEIVE_BYTES_MAX && !self.ended {
            match self.read_once() {
                Poll::Pending => break,
                // The end is returned by a call of its own: it can be read again.
                Poll::Ready(Ok(0)) if total > 0 => break,
                Poll::Ready(Ok(0)) => self.ended = true,
                Poll::Ready(Ok(bytes)) => total += bytes,
                // The kernel reports this once, and end of file from then on.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => {
                    self.left_unread = true;
                }
                Poll::Ready(Err(error)) => {
                    self.ended = true;
                    return Err(error);
                }
            }
        }
        Ok(match total {
            0 if self.ended => Received::Eof,
            0 => Received::WouldBlock,
            bytes => Received::Some(bytes),
        })
    }

    fn read_once(&mut self) -> Poll<io::Result<usize>> {
        give_back(&mut self.incoming);
        self.incoming.reserve(READ_BYTES_MIN);
        let mut room = bytes::BufMut::limit(&mut self.incoming, RECEIVE_BYTES_MAX);
        now(self.stream.read_buf(&mut room))
    }

    /// Takes the next whole frame, without its length, out of the received bytes.
    ///
    /// # Errors
    /// If its length breaks the protocol: nothing that follows can be read.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        frame::next_frame(&mut self.incoming, self.frame_bytes_max)
    }

    /// Returns the received bytes that are not a whole frame yet, or not a frame at all.
    pub fn unread(&self) -> &[u8] {
        &self.incoming
    }

    /// Closes the daemon's side, so that the worker reads an end of file. Unsent bytes are dropped; bytes
    /// that the worker writes can still be received.
    pub fn finish_sending(&mut self) {
        self.outgoing.clear();
        if let Err(error) = shutdown(self.stream.as_raw_fd(), Shutdown::Write) {
            tracing::debug!(%error, "the worker's pipe was closed before we closed our side");
        }
    }
}

/// Polls a future once. The readiness that matters is awaited in [`Connection::ready`], with a waker of its
/// own. The polled forms of reading and writing are used because, unlike `try_read` and `try_write`, they
/// take a short read or write as the sign that the pipe is drained or full, and so save the call that would
/// only return "would block".
fn now<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Frees an oversized empty buffer: one huge frame must not occupy its memory for the rest of a worker's
/// life.
fn give_back(buffer: &mut BytesMut) {
    if buffer.is_empty() && buffer.capacity() > IDLE_BUFFER_BYTES_MAX {
        *buffer = BytesMut::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BufMut;
    use tokio::io::AsyncWriteExt;

    fn pair() -> (Connection, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Connection::new(ours, 1024 * 1024), theirs)
    }

    fn frame(body: &[u8]) -> BytesMut {
        let mut frame = BytesMut::new();
        frame.put_u32(body.len().try_into().unwrap());
        frame.put_slice(body);
        frame
    }

    async fn next(connection: &mut Connection) -> Option<Bytes> {
        loop {
            if let Some(frame) = connection.next_frame().unwrap() {
                return Some(frame);
            }
            connection.ready().await.unwrap();
            if connection.receive().unwrap() == Received::Eof {
                return None;
            }
        }
    }

    #[tokio::test]
    async fn frames_arrive_however_they_are_split() {
        let (mut connection, mut theirs) = pair();
        let bytes = [frame(b"one"), frame(b"two")].concat();
        let writer = async {
            for byte in bytes {
                theirs.write_all(&[byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
            drop(theirs);
        };
        let reader = async {
            assert_eq!(next(&mut connection).await.unwrap(), "one");
            assert_eq!(next(&mut connection).await.unwrap(), "two");
            assert_eq!(next(&mut connection).await, None);
        };
        tokio::join!(writer, reader);
    }

    #[tokio::test]
    async fn a_full_pipe_is_waited_for_and_does_not_stop_reading() {
        let (mut connection, mut theirs) = pair();
        let big = vec![7; 900_000];
        connection.outgoing().extend_from_slice(&frame(&big));
        connection.ready().await.unwrap();
        connection.flush().unwrap();
        let left = connection.unsent();
        assert!(left > 0, "the pipe holds less than the frame");

        // The peer writes before it reads: its bytes must be received while this side is blocked.
        theirs.write_all(&frame(b"answer")).await.unwrap();
        assert_eq!(next(&mut connection).await.unwrap(), "answer");
        assert_eq!(connection.unsent(), left);

        let mut read = vec![0; big.len() + 4];
        let reader = theirs.read_exact(&mut read);
        let writer = async {
            while connection.unsent() > 0 {
                assert!(connection.ready().await.unwrap().writable);
                connection.flush().unwrap();
            }
        };
        tokio::join!(reader, writer).0.unwrap();
        assert_eq!(&read[4..], big);
        assert_eq!(connection.sent_total(), 900_004);
    }

    #[tokio::test]
    async fn a_closed_peer_breaks_writing_but_what_it_wrote_is_read() {
        let (mut connection, mut theirs) = pair();
        connection
            .outgoing()
            .extend_from_slice(&frame(b"never read"));
        connection.ready().await.unwrap();
        connection.flush().unwrap();
        theirs.write_all(&frame(b"last words")).await.unwrap();
        drop(theirs);

        connection.outgoing().extend_from_slice(&frame(b"too late"));
        let error = loop {
            connection.ready().await.unwrap();
            if let Err(error) = connection.flush() {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(next(&mut connection).await.unwrap(), "last words");
        assert_eq!(next(&mut connection).await, None);
        assert_eq!(connection.receive().unwrap(), Received::Eof);
    }

    #[tokio::test]
    async fn an_end_that_comes_with_the_last_bytes_is_told_too() {
        for leaves_something_unread in [false, true] {
            let (mut connection, mut theirs) = pair();
            if leaves_something_unread {
                connection.outgoing().extend_from_slice(&frame(b"unread"));
                connection.flush().unwrap();
            }
            theirs.write_all(&frame(b"last words")).await.unwrap();
            drop(theirs);

            assert!(connection.ready().await.unwrap().readable);
            assert_eq!(connection.receive().unwrap(), Received::Some(14));
            let ready = pin!(connection.ready()).poll(&mut Context::from_waker(Waker::noop()));
            assert!(ready.is_ready(), "nobody would ask for the end");
            assert_eq!(connection.receive().unwrap(), Received::Eof);
            assert_eq!(connection.left_unread(), leaves_something_unread);
        }
    }

    #[tokio::test]
    async fn after_the_end_only_unsent_bytes_are_waited_for() {
        let (mut connection, theirs) = pair();
        drop(theirs);
        assert_eq!(next(&mut connection).await, None);
        let idle = pin!(connection.ready()).poll(&mut Context::from_waker(Waker::noop()));
        assert!(idle.is_pending());
        connection.outgoing().extend_from_slice(b"x");
        assert!(connection.ready().await.unwrap().writable);
    }

    #[tokio::test]
    async fn finishing_shows_the_worker_an_end_and_still_hears_it() {
        let (mut connection, mut theirs) = pair();
        connection.finish_sending();
        assert_eq!(theirs.read(&mut [0; 1]).await.unwrap(), 0);
        theirs.write_all(&frame(b"bye")).await.unwrap();
        assert_eq!(next(&mut connection).await.unwrap(), "bye");
    }

    #[tokio::test]
    async fn a_budget_that_is_used_up_hides_what_is_there_until_the_next_turn() {
        let (mut connection, mut theirs) = pair();
        theirs.write_all(&frame(b"answer")).await.unwrap();
        connection.ready().await.unwrap();
        let spend =
            || pin!(tokio::task::consume_budget()).poll(&mut Context::from_waker(Waker::noop()));
        while spend().is_ready() {}
        assert_eq!(connection.receive().unwrap(), Received::WouldBlock);
        tokio::task::yield_now().await;
        assert_eq!(connection.receive().unwrap(), Received::Some(10));
    }

    #[tokio::test]
    async fn one_receive_is_bounded() {
        let (mut connection, mut theirs) = pair();
        let writer = async {
            let flood = vec![0; 64 * 1024];
            while theirs.write_all(&flood).await.is_ok() {}
        };
        let reader = async {
            for _ in 0..50 {
                connection.ready().await.unwrap();
                if let Received::Some(bytes) = connection.receive().unwrap() {
                    assert!(bytes < 2 * RECEIVE_BYTES_MAX, "{bytes}");
                }
                connection.incoming.clear();
            }
            drop(connection);
        };
        tokio::join!(writer, reader);
    }
}
