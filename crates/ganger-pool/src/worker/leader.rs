//! Process that leads a group: watched until it exits, killed with its whole group, and reaped only after
//! that, so that its id can't be reused before. This file does not know its identity or its work.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;

use nix::errno::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, pidfd_open,
    waitid,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::orphans;

/// Process that leads a group, as long as it is not reaped: until then neither its id nor its group's can be
/// reused. A worker leads a session as well, and so can't leave its group. On drop the group is killed.
#[derive(Debug)]
pub struct Leader {
    pid: Pid,
    pidfd: AsyncFd<OwnedFd>,
    reaped: Cell<bool>,
}

impl Leader {
    /// Watches a child that leads its group. Must be called inside a runtime.
    ///
    /// # Errors
    /// If it can't be watched; then it is killed.
    pub fn watch(child: Child) -> io::Result<Self> {
        let pid = Pid::from_child(&child);
        match pollable(pid) {
            Ok(pidfd) => Ok(Self {
                pid,
                pidfd,
                reaped: Cell::new(false),
            }),
            Err(error) => {
                drop(UnwatchedChild::of(child));
                Err(error)
            }
        }
    }

    /// Returns the process id, which is also that of its group.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for its exit, and leaves the rest of the group alone. Cancel-safe.
    ///
    /// # Errors
    /// If another part of the program has reaped it.
    pub async fn exited(&self) -> io::Result<()> {
        let ended = until_ended(&self.pidfd, self.pid).await;
        if ended.as_ref().is_err_and(is_not_ours) {
            self.reaped.set(true);
        }
        ended
    }

    /// Waits for the exit, kills the rest of the group, and only then reaps. Cancel-safe; must not be called
    /// again after it returned.
    ///
    /// # Errors
    /// If another part of the program has reaped it.
    pub async fn ended(&self) -> io::Result<WaitIdStatus> {
        self.exited().await?;
        self.signal_group(Signal::KILL);
        self.reaped.set(true);
        orphans::reap_own(self.pid)?.ok_or_else(|| io::Error::other("it ended and then did not"))
    }

    /// Sends a signal to the whole group; does nothing after the end.
    pub fn signal_group(&self, signal: Signal) {
        if self.reaped.get() {
            return;
        }
        if let Err(error) = kill_process_group(self.pid, signal) {
            tracing::warn!(
                pid = self.pid.as_raw_nonzero(), ?signal, %error,
                "signalling a worker's process group failed"
            );
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if self.reaped.get() {
            return;
        }
        self.signal_group(Signal::KILL);
        if let Err(error) = reap_later(self.pid, &self.pidfd) {
            tracing::debug!(
                pid = self.pid.as_raw_nonzero(), %error,
                "a killed worker stays a zombie until the daemon ends"
            );
        }
    }
}

/// Returns a descriptor that is readable once the process has ended.
pub(super) fn pollable(pid: Pid) -> io::Result<AsyncFd<OwnedFd>> {
    watched(pidfd_open(pid, PidfdFlags::empty())?)
}

#[expect(
    deprecated,
    reason = "its successor is unsafe for types whose descriptor may change; an OwnedFd's does not"
)]
fn watched(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(pidfd, Interest::READABLE)
}

/// Waits until the process has ended, and leaves it a zombie.
async fn until_ended(pidfd: &AsyncFd<OwnedFd>, pid: Pid) -> io::Result<()> {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    loop {
        let mut readiness = pidfd.readable().await?;
        if waitid(WaitId::Pid(pid), look)?.is_some() {
            return Ok(());
        }
        readiness.clear_ready();
    }
}

/// Returns whether another part of the program has reaped it, so that its id may have been reused.
fn is_not_ours(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ECHILD as i32)
}

/// Reaps a process that was just killed and takes a moment to exit; the runtime waits for it.
fn reap_later(pid: Pid, pidfd: &AsyncFd<OwnedFd>) -> io::Result<()> {
    if orphans::reap_own(pid)?.is_some() {
        return Ok(());
    }
    let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
    let pidfd = watched(pidfd.as_fd().try_clone_to_owned()?)?;
    runtime.spawn(async move {
        if let Err(error) = until_ended(&pidfd, pid)
            .await
            .and_then(|()| orphans::reap_own(pid))
        {
            tracing::debug!(pid = pid.as_raw_nonzero(), %error, "reaping a killed worker failed");
        }
    });
    Ok(())
}

/// Process that is not watched yet. On drop it is killed with its group and reaped.
#[derive(Debug)]
pub(super) struct UnwatchedChild(Option<Child>);

impl UnwatchedChild {
    pub(super) fn of(child: Child) -> Self {
        Self(Some(child))
    }

    pub(super) fn take(mut self) -> Child {
        self.0.take().expect("it is taken by value, so only once")
    }
}

impl Drop for UnwatchedChild {
    fn drop(&mut self) {
        let Some(child) = self.0.take() else {
            return;
        };
        let pid = Pid::from_child(&child);
        let until_ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        // It may have children already.
        let killed = kill_process_group(pid, Signal::KILL).map_err(io::Error::from);
        let ended = killed.and_then(|()| Ok(waitid(WaitId::Pid(pid), until_ended)?));
        if let Err(error) = ended.and_then(|_| orphans::reap_own(pid)) {
            tracing::debug!(pid = child.id(), %error, "killing a worker that is no longer needed failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn one_that_nobody_wants_leaves_no_children() {
        let mut command = Command::new("sh");
        command
            .args(["-c", "(sleep 10; echo late) & echo ready; wait"])
            .stdout(Stdio::piped())
            .process_group(0);
        let mut child = orphans::start(|| command.spawn()).unwrap();
        let pid = Pid::from_child(&child);
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        stdout.read_line(&mut said).unwrap();
        drop(UnwatchedChild::of(child));
        assert!(waitid(WaitId::Pid(pid), WaitIdOptions::EXITED).is_err());
        stdout.read_to_string(&mut said).unwrap();
        assert_eq!(said, "ready\n");
    }
}
