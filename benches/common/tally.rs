//! Reports of received messages by workers, without slowing them down: a worker that has been idle for some
//! milliseconds reports the number of messages that it has received since its last report, and the time of
//! the last one. A busy worker reports nothing.

use std::io::{self, ErrorKind, Read};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use miette::{IntoDiagnostic, WrapErr, ensure, miette};
use tempfile::TempDir;

use super::machine::monotonic_nanos;

/// Idle time after which a worker reports.
pub(crate) const IDLE_FOR: Duration = Duration::from_millis(5);

/// Timeout after which a missing message counts as lost.
const TOLD_WITHIN: Duration = Duration::from_secs(120);

/// Size of both numbers, little-endian.
const BYTES: usize = 16;

/// A worker's report. `noop_worker.py` uses the same format.
#[derive(Debug, Clone, Copy)]
struct Told {
    received: u64,
    /// Time by CLOCK_MONOTONIC, which all processes of a machine share.
    last_nanos: i64,
}

impl Told {
    fn to_bytes(self) -> Vec<u8> {
        [self.received.to_le_bytes(), self.last_nanos.to_le_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (received, last_nanos) = bytes.split_first_chunk()?;
        Some(Self {
            received: u64::from_le_bytes(*received),
            last_nanos: i64::from_le_bytes(last_nanos.try_into().ok()?),
        })
    }
}

/// The listening end.
#[derive(Debug)]
pub(crate) struct Tally {
    socket: UnixDatagram,
    directory: TempDir,
}

impl Tally {
    pub(crate) fn open() -> miette::Result<Self> {
        // Not in the target directory: the path of a socket must be short.
        let directory = TempDir::with_prefix("ganger-bench-").into_diagnostic()?;
        let socket = UnixDatagram::bind(path_in(&directory)).into_diagnostic()?;
        let timeout = socket.set_read_timeout(Some(TOLD_WITHIN));
        timeout.into_diagnostic()?;
        Ok(Self { socket, directory })
    }

    /// Returns the path of the socket.
    pub(crate) fn path(&self) -> PathBuf {
        path_in(&self.directory)
    }

    /// Waits until `messages` messages were reported. Returns the time of the last one, in nanoseconds of
    /// CLOCK_MONOTONIC.
    pub(crate) fn wait_for(&self, messages: usize) -> miette::Result<i64> {
        let (mut received, mut last_nanos) = (0, i64::MIN);
        while received < messages {
            let told = self.hear().wrap_err_with(|| {
                format!("{received} of {messages} messages have come, and then no more")
            })?;
            received += usize::try_from(told.received).into_diagnostic()?;
            last_nanos = last_nanos.max(told.last_nanos);
        }
        ensure!(
            received == messages,
            "{received} messages instead of {messages}"
        );
        Ok(last_nanos)
    }

    fn hear(&self) -> miette::Result<Told> {
        let mut bytes = [0; BYTES];
        let length = self.socket.recv(&mut bytes).into_diagnostic()?;
        let told = Told::from_bytes(&bytes[..length]);
        told.ok_or_else(|| miette!("a worker tells something of {length} bytes"))
    }
}

fn path_in(directory: &TempDir) -> PathBuf {
    directory.path().join("tally")
}

/// A worker's end, if it was asked to report.
#[derive(Debug)]
pub(crate) struct Teller {
    socket: Option<UnixDatagram>,
    untold: u64,
    last_nanos: i64,
    /// True if the pipe is read with a timeout.
    is_impatient: bool,
}

impl Teller {
    pub(crate) fn connect(path: Option<&Path>) -> miette::Result<Self> {
        let socket = path.map(|path| {
            let socket = UnixDatagram::unbound().into_diagnostic()?;
            let connected = socket.connect(path);
            connected.map_err(|error| miette!("{}: {error}", path.display()))?;
            Ok::<_, miette::Report>(socket)
        });
        Ok(Self {
            socket: socket.transpose()?,
            untold: 0,
            last_nanos: 0,
            is_impatient: false,
        })
    }

    /// Counts messages that were received now.
    pub(crate) fn count(&mut self, messages: usize) {
        if self.socket.is_some() && messages > 0 {
            self.last_nanos = monotonic_nanos();
            self.untold += u64::try_from(messages).unwrap_or(u64::MAX);
        }
    }

    /// Reads from the pipe; reports before a long wait.
    pub(crate) fn read(&mut self, pipe: &mut UnixStream, chunk: &mut [u8]) -> io::Result<usize> {
        let has_news = self.untold > 0;
        if has_news != self.is_impatient {
            pipe.set_read_timeout(has_news.then_some(IDLE_FOR))?;
            self.is_impatient = has_news;
        }
        match pipe.read(chunk) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.tell()?;
                self.read(pipe, chunk)
            }
            read => read,
        }
    }

    fn tell(&mut self) -> io::Result<()> {
        let told = Told {
            received: std::mem::take(&mut self.untold),
            last_nanos: self.last_nanos,
        };
        if let Some(socket) = &self.socket {
            socket.send(&told.to_bytes())?;
        }
        Ok(())
    }
}
