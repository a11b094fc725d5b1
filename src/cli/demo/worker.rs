//! The demo's worker: a complete worker over the public protocol, in a process of its own. It
//! counts the primes below the number in the message and records that before it answers.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use bytes::BytesMut;
use miette::{IntoDiagnostic, WrapErr};

use super::super::common::CommandResult;
use ganger_core::names::{PIPE_DIR, PIPE_PREFIX};
use ganger_protocol::Task;
use ganger_protocol::frame::next_frame;
use ganger_protocol::output::Output;
use ganger_protocol::status::Status;

/// Variable that names the file for the workers' records.
pub(super) const RECORD: &str = "DEMO_RECORD";
/// Variable with the number of messages that the worker may be handed at once.
pub(super) const CONCURRENCY: &str = "DEMO_CONCURRENCY";
/// Maximum size of a frame: a demo's messages are small.
const FRAME_BYTES_MAX: usize = 1 << 20;

pub(super) fn run() -> CommandResult {
    let record = std::env::var_os(RECORD).ok_or_else(|| {
        miette::miette!("{RECORD} is not set: this worker is started by `ganger demo`")
    })?;
    let record = OpenOptions::new()
        .append(true)
        .create(true)
        .open(record)
        .into_diagnostic()?;
    let mut name = String::new();
    io::stdin().lock().read_line(&mut name).into_diagnostic()?;
    let path = format!("{PIPE_DIR}/{PIPE_PREFIX}{}", name.trim_end());
    let pipe = UnixStream::connect(&path)
        .into_diagnostic()
        .wrap_err(path)?;
    let concurrency = std::env::var(CONCURRENCY).unwrap_or_else(|_| "1".into());
    serve(pipe, &concurrency, record).into_diagnostic()?;
    Ok(ExitCode::SUCCESS)
}

/// Answers the messages that came together with one write.
fn serve(mut pipe: UnixStream, concurrency: &str, mut record: File) -> io::Result<()> {
    let mut hello = Output::new(Status::HELLO, None, "");
    hello.headers = Some(vec![
        ("sdk".into(), "demo".into()),
        ("concurrency".into(), concurrency.into()),
    ]);
    let mut answers = BytesMut::new();
    hello.encode(&mut answers);
    let mut read = BytesMut::new();
    let mut chunk = [0; 16 * 1024];
    loop {
        pipe.write_all(&answers)?;
        answers.clear();
        match pipe.read(&mut chunk)? {
            0 => return Ok(()),
            count => read.extend_from_slice(&chunk[..count]),
        }
        while let Some(frame) = next_frame(&mut read, FRAME_BYTES_MAX).map_err(io::Error::other)? {
            let task = Task::decode(&frame).map_err(io::Error::other)?;
            work(&task, &mut record)?.encode(&mut answers);
        }
    }
}

fn work(task: &Task, record: &mut File) -> io::Result<Output> {
    let text = String::from_utf8_lossy(&task.message);
    let Ok(limit) = text.parse() else {
        return Ok(Output::new(
            Status::REJECT,
            task.id,
            format!("not a number: {text}"),
        ));
    };
    let primes = primes_below(limit);
    // One write of one short line: a kill leaves it whole or leaves it out.
    let line = format!("{} {}\n", task.correlation_id, task.attempt.unwrap_or(1));
    record.write_all(line.as_bytes())?;
    Ok(Output::new(Status::DONE, task.id, primes.to_string()))
}

fn primes_below(limit: u32) -> usize {
    let is_prime = |n: &u32| {
        (2..)
            .take_while(|d| d * d <= *n)
            .all(|d| !n.is_multiple_of(d))
    };
    (2..limit).filter(is_prime).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_primes() {
        assert_eq!(
            [0, 2, 3, 10, 100, 1000].map(primes_below),
            [0, 0, 1, 4, 25, 168]
        );
    }
}
