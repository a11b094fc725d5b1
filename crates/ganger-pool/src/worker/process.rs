//! One child process and its group, from the start to the reaping: spawn, wait, signal, control lines. It
//! makes no decisions; the lane decides on the consequences of an exit.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{SysconfVar, sysconf};
use tokio::time::Instant;

use super::account::Account;
use super::exit::OomKills;
use super::leader::{Leader, UnwatchedChild};
use super::output::{LastLines, Output};
use super::peer::Expected;
use super::pipe::{Listener, Unclaimed};
use super::spawner::Spawner;
use super::subject::Subject;
use super::{Identity, Introduction, exit, launch};
use ganger_config::model;
use ganger_queue::delivery::Exit;

pub use super::error::SpawnError;

/// Maximum length of a control line, in bytes, including its end. POSIX guarantees that a write to a pipe of
/// at most that length is atomic (`PIPE_BUF` is at least this), so that a full stdin never contains half a
/// line.
const CONTROL_LINE_BYTES_MAX: usize = 512;

/// Starts a worker and passes it the name of its pipe. It leads a session of its own, and so a process group,
/// which ends with it.
///
/// Must be called inside a `LocalSet`. If it is dropped before it is done, no process is left.
///
/// # Errors
/// If there is no such program, directory or user, or the daemon lacks a permission that the command needs.
pub async fn spawn(
    spawner: &Spawner,
    command: &Arc<model::WorkerCommand>,
    identity: &Identity,
    introduction: Introduction,
    frame_bytes_max: usize,
) -> Result<Starting, SpawnError> {
    let away = |cause| SpawnError::Watch {
        program: command.program.clone(),
        cause,
    };
    let user = command.user.clone();
    let account = spawner.run(move || Account::find(user.as_deref()));
    let account = account.await.map_err(away)??;
    let uid = account.uid;
    let pipe = Unclaimed::create(command, uid)?;

    let child = {
        let (command, identity) = (Arc::clone(command), identity.clone());
        let place = pipe.place().clone();
        let start = move || {
            launch::start(
                &command,
                &identity,
                account,
                &place,
                introduction,
                frame_bytes_max,
            )
        };
        spawner.run(move || start().map(UnwatchedChild::of))
    };
    let child = child.await.map_err(away)??;
    pipe.check_link(identity);
    OomKills::shared().forget(Instant::now());
    let mut process = Process::watch(child.take(), identity).map_err(away)?;
    process.tell(pipe.name());

    let expected = Expected {
        pid: process.leader.pid().as_raw_nonzero().get(),
        uid: uid.as_raw(),
    };
    Ok(Starting {
        listener: pipe.claim(expected, identity.clone(), frame_bytes_max),
        process,
    })
}

/// Worker that has been started and has not connected yet.
#[derive(Debug)]
pub struct Starting {
    /// The process.
    pub process: Process,
    /// Listener for its connection.
    pub listener: Listener,
}

/// A worker process. On drop its whole group is killed.
#[derive(Debug)]
pub struct Process {
    identity: Identity,
    leader: Leader,
    stdin: Option<File>,
    output: Output,
    /// True if the daemon has sent a SIGKILL, which then explains a death by it.
    killed_by_us: Cell<bool>,
    exit: Option<Exit>,
}

/// Signal that [`Process::signal_group`] sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: asks to leave.
    Terminate,
    /// SIGKILL.
    Kill,
}

impl Process {
    fn watch(mut child: Child, identity: &Identity) -> io::Result<Self> {
        let pid = child.id();
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        // From here on the group is killed and its leader reaped, whatever fails.
        let leader = Leader::watch(child)?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(io::Error::other("a standard stream is not a pipe"));
        };
        Ok(Self {
            identity: identity.clone(),
            leader,
            stdin: Some(never_waiting(stdin.into())?),
            output: Output::read(identity.clone(), pid, stdout.into(), stderr.into())?,
            killed_by_us: Cell::new(false),
            exit: None,
        })
    }

    /// Returns the process id, which is also that of its group.
    pub fn pid(&self) -> u32 {
        self.leader.pid().as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits for its exit. When this returns, the rest of its group has been sent SIGKILL. Cancel-safe; a
    /// further call returns the same.
    pub async fn wait(&mut self) -> Exit {
        if let Some(exit) = self.exit {
            return exit;
        }
        let exit = match self.leader.ended().await {
            Ok(status) => {
                // Read in any case: a kill counted now explains no later death.
                let kills = OomKills::shared().have_grown(Instant::now());
                exit::from_status(&status, || !self.killed_by_us.get() && kills)
            }
            Err(error) => {
                tracing::error!(
                    pool = %self.identity.pool, worker = self.identity.slot, pid = self.pid(),
                    %error, "a worker's exit status is unavailable; was SIGCHLD ignored?"
                );
                Exit::default()
            }
        };
        self.exit = Some(exit);
        exit
    }

    /// Sends a signal to the whole group; does nothing after the end.
    pub fn signal_group(&self, signal: Signal) {
        let signal = match signal {
            Signal::Terminate => rustix::process::Signal::TERM,
            Signal::Kill => {
                self.killed_by_us.set(true);
                rustix::process::Signal::KILL
            }
        };
        self.leader.signal_group(signal);
    }

    /// Writes a control line to its stdin, without waiting. Returns whether the whole line was written; if
    /// stdin is full or closed, that is logged.
    pub fn tell(&mut self, line: &str) -> bool {
        let told = self.try_write_line(line);
        if let Err(error) = &told {
            tracing::warn!(
                pool = %self.identity.pool, worker = self.identity.slot, pid = self.pid(), line,
                "writing a control line to a worker's stdin failed: {error}"
            );
        }
        told.is_ok()
    }

    fn try_write_line(&self, line: &str) -> io::Result<()> {
        let line = format!("{line}\n");
        if line.len() > CONTROL_LINE_BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut stdin = self.stdin.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        stdin.write_all(line.as_bytes())
    }

    /// Closes its stdin, so that it reads an end of file there.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Records that a new message begins.
    pub fn begin(&self, now: Instant) {
        OomKills::shared().forget(now);
    }

    /// Ties the lines that it prints from now on to a message in the log.
    pub fn working_on(&self, subject: Option<Subject<'_>>) {
        self.output.working_on(subject);
    }

    /// Returns, after its exit, the last lines that it wrote to stderr, at most 64, each cut at 1 KiB. Waits
    /// until stderr has been read to its end, but no longer than `at_most`: a process that left the group may
    /// hold it open for ever.
    pub async fn last_words(&mut self, at_most: Duration) -> Vec<String> {
        self.output.last_words(at_most).await
    }

    /// Returns, after its exit, the last lines of both streams. Waits for each as `last_words` does.
    pub async fn all_printed(&mut self, at_most: Duration) -> LastLines {
        self.output.all_printed(at_most).await
    }

    /// Returns the last lines that it printed.
    pub fn last_lines(&self) -> LastLines {
        self.output.last_lines()
    }

    /// Returns the resident memory of this one process, in bytes; `None` after its end.
    pub fn resident_bytes(&self) -> Option<u64> {
        resident_bytes(self.pid())
    }
}

/// Returns the resident memory of a process, in bytes; `None` if it has ended.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let page = sysconf(SysconfVar::PAGE_SIZE).ok()??;
    resident_pages(&statm)?.checked_mul(page.try_into().ok()?)
}

/// Returns the second number of `/proc/<pid>/statm`. A process that has ended has none.
fn resident_pages(statm: &str) -> Option<u64> {
    let pages = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    (pages > 0).then_some(pages)
}

/// Makes the daemon's end of the pipe non-blocking; the worker's is an open file description of its own.
fn never_waiting(stdin: OwnedFd) -> io::Result<File> {
    fcntl(&stdin, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(File::from(stdin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_pages_are_the_second_number() {
        let cases = [
            ("1200 340 200 1 0 500 0\n", Some(340)),
            ("0 0 0 0 0 0 0\n", None),
            ("1200", None),
            ("1200 many", None),
            ("", None),
        ];
        for (statm, pages) in cases {
            assert_eq!(resident_pages(statm), pages);
        }
    }
}
