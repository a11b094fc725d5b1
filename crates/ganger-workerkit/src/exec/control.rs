//! Control messages of the daemon outside the frames: lines on stdin, and SIGTERM.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;

use super::error::ExecError;
use ganger_core::names;

/// A control message of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ControlMessage {
    /// Finish the messages in flight and exit.
    Quit,
    /// Abandon this message.
    Cancel(u64),
    /// Abandon all messages and exit.
    Terminate,
    /// A message of a newer daemon.
    Unknown,
}

/// The two channels of control messages.
#[derive(Debug)]
pub(super) struct Control {
    stdin: BufReader<Receiver>,
    /// Line that is being read: kept, so that reading it is cancel-safe.
    line: Vec<u8>,
    is_over: bool,
    signals: UnixStream,
}

impl Control {
    /// Opens the channels. From now on SIGTERM is reported instead of ending the process.
    pub(super) fn open() -> Result<Self, ExecError> {
        let stdin = io::stdin().as_fd().try_clone_to_owned();
        let stdin = stdin.and_then(Receiver::from_owned_fd);
        Ok(Self {
            stdin: BufReader::new(stdin.map_err(|_| ExecError::NoDaemon)?),
            line: Vec::new(),
            is_over: false,
            signals: signals().map_err(ExecError::system("listening for signals failed"))?,
        })
    }

    /// Returns the next line, without its end; none at the end of stdin. Cancel-safe.
    pub(super) async fn line(&mut self) -> Option<String> {
        let read = self.stdin.read_until(b'\n', &mut self.line).await;
        if read.is_err() || !self.line.ends_with(b"\n") {
            return None;
        }
        let line = std::mem::take(&mut self.line);
        Some(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    /// Returns the next control message. Cancel-safe.
    pub(super) async fn wish(&mut self) -> ControlMessage {
        let mut signal = [0; 16];
        if self.is_over {
            drop(self.signals.read(&mut signal).await);
            return ControlMessage::Terminate;
        }
        tokio::select! {
            line = self.stdin.read_until(b'\n', &mut self.line) => {
                let whole = line.is_ok() && self.line.ends_with(b"\n");
                let line = std::mem::take(&mut self.line);
                self.is_over = !whole;
                if whole { meaning(&String::from_utf8_lossy(&line)) } else { ControlMessage::Quit }
            }
            _ = self.signals.read(&mut signal) => ControlMessage::Terminate,
        }
    }
}

fn signals() -> io::Result<UnixStream> {
    let (read, write) = net::UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT] {
        low_level::pipe::register(signal, write.try_clone()?)?;
    }
    read.set_nonblocking(true)?;
    UnixStream::from_std(read)
}

fn meaning(line: &str) -> ControlMessage {
    let line = line.trim_end();
    match line.strip_prefix(names::CANCEL) {
        Some(id) => id
            .trim()
            .parse()
            .map_or(ControlMessage::Unknown, ControlMessage::Cancel),
        None if line == names::QUIT => ControlMessage::Quit,
        // A version 1 worker may go on after `__context_switch__`: a program has no state to save.
        None => ControlMessage::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_not_known_are_ignored() {
        let cases = [
            ("__quit__\n", ControlMessage::Quit),
            ("__quit__\r\n", ControlMessage::Quit),
            ("__cancel__ 7\n", ControlMessage::Cancel(7)),
            (
                "__cancel__ 18446744073709551615\n",
                ControlMessage::Cancel(u64::MAX),
            ),
            ("__cancel__\n", ControlMessage::Unknown),
            ("__cancel__ -1\n", ControlMessage::Unknown),
            ("__context_switch__\n", ControlMessage::Unknown),
            ("__quit\n", ControlMessage::Unknown),
            ("\n", ControlMessage::Unknown),
        ];
        for (line, expected) in cases {
            assert_eq!(meaning(line), expected, "{line:?}");
        }
    }
}
