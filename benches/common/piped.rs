//! A worker at the end of a pipe without a supervisor: it is started, sent messages, and its answers are
//! read.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::BytesMut;
use ganger_core::names::{PIPE_DIR, PIPE_PREFIX};
use ganger_protocol::frame::next_frame;
use ganger_protocol::input::Input;
use ganger_protocol::output::Output;
use ganger_protocol::status::Status;
use ganger_queue::delivery::Message;
use miette::{IntoDiagnostic, WrapErr, ensure, miette};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::noop_worker;

/// Maximum time for a worker to connect.
const CONNECTED_WITHIN: Duration = Duration::from_secs(30);

/// Size of a read: answers are small.
pub(crate) const CHUNK_BYTES: usize = 16 * 1024;

/// The default of the daemon's setting of that name.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// Encodes a message as a version 1 worker gets it.
pub(crate) fn encode(message: &Message, outgoing: &mut BytesMut) -> miette::Result<()> {
    let input = Input {
        span: None,
        message,
        timeout_ms: None,
        id: 1,
        extras: None,
    };
    input.encode(outgoing, FRAME_BYTES_MAX).into_diagnostic()
}

/// Removes the complete answers. Returns their number.
pub(crate) fn decode(incoming: &mut BytesMut) -> miette::Result<usize> {
    let mut answers = 0;
    while let Some(frame) = next_frame(incoming, FRAME_BYTES_MAX).into_diagnostic()? {
        let answer = Output::decode(&frame).into_diagnostic()?;
        ensure!(answer.status == Status::DONE, "a worker failed");
        answers += 1;
    }
    Ok(answers)
}

/// A connected worker.
pub(crate) struct Worker {
    process: Child,
    pub(crate) pipe: UnixStream,
}

impl Worker {
    /// Starts a worker, and waits until it has connected.
    pub(crate) async fn start() -> miette::Result<Self> {
        let name = format!("bench{:032x}", fastrand::u128(..));
        let path = PathBuf::from(format!("{PIPE_DIR}/{PIPE_PREFIX}{name}"));
        let listener = UnixListener::bind(&path).into_diagnostic()?;
        let process = spawn(&name);
        let accepted = timeout(CONNECTED_WITHIN, listener.accept()).await;
        std::fs::remove_file(&path).into_diagnostic()?;
        let (pipe, _) = accepted
            .into_diagnostic()
            .wrap_err("the worker did not connect")?
            .into_diagnostic()?;
        Ok(Self {
            process: process?,
            pipe,
        })
    }

    /// Closes the pipe, at which the worker exits.
    pub(crate) fn stop(self) -> miette::Result<()> {
        let Self { mut process, pipe } = self;
        drop(pipe);
        let status = process.wait().into_diagnostic()?;
        ensure!(status.success(), "the worker failed: {status}");
        Ok(())
    }
}

fn spawn(name: &str) -> miette::Result<Child> {
    let mut process = Command::new(std::env::current_exe().into_diagnostic()?)
        .arg(noop_worker::ROLE)
        .stdin(Stdio::piped())
        .spawn()
        .into_diagnostic()?;
    let stdin = process.stdin.as_mut();
    let stdin = stdin.ok_or_else(|| miette!("a worker without a stdin"))?;
    writeln!(stdin, "{name}").into_diagnostic()?;
    Ok(process)
}
