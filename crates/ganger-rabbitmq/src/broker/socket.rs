//! The bytes below AMQP: a socket with or without TLS, in the form that the library expects. The library's
//! own TLS would add dozens of packages for a file format that is not used here.

use std::future::Future;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use async_rs::traits::Reactor;
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio};
use futures_util::stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::frame_limit::FrameLimit;
use super::returned::Returns;
use super::utf8::Utf8Repair;

/// Runtime parts that the library runs on.
pub(crate) type LapinRuntime = RuntimeParts<Tokio, SocketReactor>;

/// The current runtime in the form that the library expects.
///
/// # Panics
/// Outside a runtime.
pub(crate) fn runtime() -> Runtime<LapinRuntime> {
    Runtime::new(LapinRuntime::new(Tokio::current(), SocketReactor))
}

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Stream,
    repair: Utf8Repair,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

impl Socket {
    fn of(stream: Stream) -> Self {
        let repair = Utf8Repair::default();
        Self { stream, repair }
    }

    /// The same socket, which records returned messages in `returns`, and the broker's limit for frames in `limit`.
    pub(crate) fn observed(self, returns: Returns, limit: FrameLimit) -> Self {
        let repair = Utf8Repair::new(returns, limit);
        Self { repair, ..self }
    }
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Self::of(Stream::Plain(stream))
    }
}

impl From<TlsStream<TcpStream>> for Socket {
    fn from(stream: TlsStream<TcpStream>) -> Self {
        Self::of(Stream::Encrypted(Box::new(stream)))
    }
}

impl Stream {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(match self {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
            Self::Encrypted(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
        })?;
        Poll::Ready(Ok(buffer.filled().len()))
    }
}

impl futures_io::AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, repair } = self.get_mut();
        let mut passed = repair.rest(buffer);
        while passed == 0 {
            match ready!(stream.poll_read(cx, buffer))? {
                // The end of the stream.
                0 => break,
                count => passed = repair.pass(buffer, count),
            }
        }
        Poll::Ready(Ok(passed))
    }
}

impl futures_io::AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Encrypted(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Stream::Encrypted(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Encrypted(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Encrypted(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Timers of tokio, and sockets of this crate. The library is given its socket and never creates one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SocketReactor;

impl Reactor for SocketReactor {
    #![expect(
        clippy::manual_async_fn,
        refining_impl_trait_internal,
        reason = "what is returned is never there, so it borrows nothing"
    )]

    type TcpStream = Socket;
    type Sleep = tokio::time::Sleep;

    fn register<H: Read + Write + Send + 'static>(
        &self,
        _: H,
    ) -> io::Result<
        impl futures_io::AsyncRead + futures_io::AsyncWrite + Send + Unpin + 'static + use<H>,
    > {
        Err::<Socket, _>(io::Error::from(io::ErrorKind::Unsupported))
    }

    fn sleep(&self, duration: Duration) -> Self::Sleep {
        tokio::time::sleep(duration)
    }

    fn interval(&self, duration: Duration) -> impl stream::Stream<Item = Instant> + Send + 'static {
        stream::unfold(tokio::time::interval(duration), |mut timer| async {
            let at = timer.tick().await.into_std();
            Some((at, timer))
        })
    }

    fn tcp_connect_addr(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<Socket>> + Send + 'static {
        async move { TcpStream::connect(address).await.map(Socket::from) }
    }
}
