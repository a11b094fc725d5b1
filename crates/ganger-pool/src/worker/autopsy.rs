//! Examination of a hung worker before it is killed: a program of the operator's, such as `py-spy`, started
//! beside it as its user and with its environment, and limited in time and in output. It has a thread of its
//! own, so that neither a pool nor the start of another worker waits for it, and ends with that thread.

use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::thread;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::account::Account;
use super::error::SpawnError;
use super::leader::UnwatchedChild;
use super::{Identity, launch};
use ganger_config::model::{Autopsy, WorkerCommand};

/// Placeholder for the worker's process id in the program's arguments.
const PID: &str = "{pid}";
/// Maximum number of bytes kept from the end of its output.
const KEPT_BYTES_MAX: usize = 8 << 10;
/// Size of output at which it is stopped.
const READ_BYTES_MAX: usize = 4 << 20;
/// Number of bytes per read.
const CHUNK_BYTES: usize = 16 << 10;

/// Result of an autopsy.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Findings {
    /// Last lines of its output, to stdout and stderr.
    pub lines: Vec<String>,
    /// Problem, if there was one.
    pub problem: Option<String>,
}

/// Starts the program. The receiver gets its findings; if it is dropped, they are lost, and the program ends
/// after its time limit at the latest.
///
/// # Errors
/// If no thread can be started for it.
pub fn begin(
    autopsy: &Autopsy,
    command: &WorkerCommand,
    identity: &Identity,
    pid: u32,
) -> io::Result<oneshot::Receiver<Findings>> {
    let pid = pid.to_string();
    let mut words = autopsy.command.iter().map(|word| word.replace(PID, &pid));
    let command = WorkerCommand {
        program: words.next().unwrap_or_default(),
        args: words.collect(),
        // The limits are the worker's: the program that examines it may need more.
        limits: Default::default(),
        ..command.clone()
    };
    let (identity, within) = (identity.clone(), autopsy.within);
    let (tell, told) = oneshot::channel();
    thread::Builder::new()
        .name(format!("autopsy-{}", identity.pool))
        .spawn(move || examine(&command, &identity, within, tell))?;
    Ok(told)
}

fn examine(
    command: &WorkerCommand,
    identity: &Identity,
    within: Duration,
    tell: oneshot::Sender<Findings>,
) {
    let until = Instant::now() + within;
    let started = start(command, identity);
    // Killed with its group and reaped after its output is reported, since both may take some time.
    let mut _program = None;
    let findings = match started {
        Ok((program, written)) => {
            let findings = Transcript::new(written).listen(&program, until, within);
            _program = Some(UnwatchedChild::of(program));
            findings
        }
        Err(problem) => Findings {
            lines: Vec::new(),
            problem: Some(problem),
        },
    };
    drop(tell.send(findings));
}

fn start(command: &WorkerCommand, identity: &Identity) -> Result<(Child, PipeReader), String> {
    let words = |error: SpawnError| match error {
        SpawnError::Program {
            program,
            place,
            cause,
        } => format!("it could not be started: {cause} (looked {place}): `{program}`"),
        other => other.to_string(),
    };
    let account = Account::find(command.user.as_deref()).map_err(words)?;
    let pipe = io::pipe().map_err(|error| format!("creating a pipe for it failed: {error}"));
    let (reader, writer) = pipe?;
    let program = launch::start_beside(command, identity, account, writer).map_err(words)?;
    Ok((program, reader))
}

/// Output of the program so far.
#[derive(Debug)]
struct Transcript {
    written: File,
    kept: Vec<u8>,
    read: usize,
    is_over: bool,
}

impl Transcript {
    fn new(written: PipeReader) -> Self {
        Self {
            written: OwnedFd::from(written).into(),
            kept: Vec::new(),
            read: 0,
            is_over: false,
        }
    }

    /// Reads until it has exited and all its output is read, or until its time limit.
    fn listen(mut self, program: &Child, until: Instant, within: Duration) -> Findings {
        let problem = match self.follow(program, until) {
            Ok(Outcome::Itself) => None,
            Ok(Outcome::Late) => Some(format!("it was stopped after {within:?}")),
            Ok(Outcome::Flood) => Some(format!("it was stopped after {} bytes", self.read)),
            Err(error) => Some(format!("watching it failed: {error}")),
        };
        Findings {
            lines: self.lines(),
            problem,
        }
    }

    fn follow(&mut self, program: &Child, until: Instant) -> io::Result<Outcome> {
        let flags = OFlag::from_bits_retain(fcntl(&self.written, FcntlArg::F_GETFL)?);
        fcntl(&self.written, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        let end = pidfd_open(Pid::from_child(program), PidfdFlags::empty())?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Outcome::Late);
            }
            let (is_readable, has_ended) = self.wait(&end, left)?;
            if is_readable {
                self.take()?;
            } else if has_ended {
                return Ok(Outcome::Itself);
            }
            if self.read > READ_BYTES_MAX {
                return Ok(Outcome::Flood);
            }
        }
    }

    /// Returns whether there is output to read, and whether it has exited.
    fn wait(&self, end: &OwnedFd, left: Duration) -> io::Result<(bool, bool)> {
        let mut ready = [
            PollFd::new(end.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.written.as_fd(), PollFlags::POLLIN),
        ];
        let watched = if self.is_over { 1 } else { 2 };
        // Rounded up, or the last part of a millisecond would be spent in a busy loop.
        let millis = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
        match poll(&mut ready[..watched], PollTimeout::from(millis)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
        let is_readable = ready[..watched].get(1).is_some_and(is_ready);
        Ok((is_readable, is_ready(&ready[0])))
    }

    fn take(&mut self) -> io::Result<()> {
        let mut chunk = [0; CHUNK_BYTES];
        match self.written.read(&mut chunk) {
            Ok(0) => self.is_over = true,
            Ok(count) => {
                self.read += count;
                self.kept.extend_from_slice(&chunk[..count]);
                let surplus = self.kept.len().saturating_sub(KEPT_BYTES_MAX);
                self.kept.drain(..surplus);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns the kept output line by line; the first may be the end of one.
    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.kept);
        let cut = self.read - self.kept.len();
        let note = (cut > 0).then(|| format!("({cut} bytes cut) …"));
        let lines = text.lines().map(|line| line.trim_end().to_owned());
        note.into_iter().chain(lines).collect()
    }
}

enum Outcome {
    Itself,
    Late,
    Flood,
}

#[cfg(test)]
mod tests {
    use super::super::tests::{command, identity};
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    async fn findings(words: &[&str], within: Duration) -> Findings {
        let autopsy = Autopsy {
            command: words.iter().map(|word| (*word).to_owned()).collect(),
            within,
        };
        let mut worker = command("true", &[]);
        worker.env.insert("WORD".into(), "of the pool".into());
        let begun = begin(&autopsy, &worker, &identity(), 4711).unwrap();
        begun.await.unwrap()
    }

    fn shell(script: &str) -> [&str; 4] {
        ["/bin/sh", "-c", script, "{pid}"]
    }

    #[tokio::test]
    async fn what_it_says_of_the_worker_is_kept() {
        let script = "echo \"$0 $WORD\"; echo and this >&2; exit 3";
        let found = findings(&shell(script), LONG).await;
        let lines = ["4711 of the pool", "and this"].map(ToOwned::to_owned);
        assert_eq!((found.lines, found.problem), (lines.to_vec(), None));
    }

    #[tokio::test]
    async fn one_that_does_not_end_is_stopped_with_its_children() {
        let script = "echo begun; (exec sleep 1000) & echo $!; wait";
        let found = findings(&shell(script), Duration::from_millis(500)).await;
        assert_eq!(found.lines[0], "begun");
        assert_eq!(found.problem.unwrap(), "it was stopped after 500ms");
        let child: i32 = found.lines[1].parse().unwrap();
        let stat = || std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        while stat().contains("(sleep) S") {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_child_that_holds_its_output_open_is_not_waited_for() {
        let found = findings(&shell("sleep 1000 & echo done"), LONG).await;
        assert_eq!(
            (found.lines, found.problem),
            (vec!["done".to_owned()], None)
        );
    }

    #[tokio::test]
    async fn of_a_flood_the_end_is_kept() {
        let found = findings(&shell("yes flooded"), LONG).await;
        assert!(found.problem.unwrap().starts_with("it was stopped after "));
        let bytes: usize = found.lines.iter().map(|line| line.len() + 1).sum();
        assert!(bytes < KEPT_BYTES_MAX + 64, "{bytes}");
        assert!(found.lines[0].ends_with("bytes cut) …"));
        assert_eq!(found.lines[500], "flooded");
    }

    #[tokio::test]
    async fn one_that_is_not_there_is_told() {
        let found = findings(&["no-such-program"], LONG).await;
        let problem = found.problem.unwrap();
        assert!(problem.starts_with("it could not be started"), "{problem}");
        assert!(problem.ends_with("`no-such-program`"), "{problem}");
    }
}
