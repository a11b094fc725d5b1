//! Programs that are started for messages lead process groups of their own, so that one can be abandoned
//! without the others. A daemon that kills this worker kills the worker's group, which they are not in.
//! Therefore a second process watches: it knows each group before its program begins, and when this worker
//! ends, for whatever reason, it kills the remaining groups and removes their files.
//!
//! It holds this worker's stderr open meanwhile, which the daemon reads to its end before it redelivers a
//! dead worker's messages.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::error::ExecError;
use ganger_pool::worker::leader::Leader;
use ganger_pool::worker::orphans;

/// The command that runs [`watch`].
const COMMAND: &str = "exec-guard";

/// The guard process, and the directory that it removes.
#[derive(Debug)]
pub(super) struct Guard {
    process: Leader,
    told: Arc<OwnedFd>,
    directory: TempDir,
}

impl Guard {
    /// Starts the guard process.
    pub(super) fn start() -> Result<Self, ExecError> {
        let directory = private_directory();
        let directory = directory.map_err(ExecError::system(
            "creating the directory for messages failed",
        ))?;
        let (process, told) = spawn(directory.path()).map_err(ExecError::system(
            "starting the guard of process groups failed",
        ))?;
        Ok(Self {
            process,
            told: Arc::new(told),
            directory,
        })
    }

    /// Returns the pipe to which each program writes the number of its group before it begins.
    pub(super) fn stdin(&self) -> &Arc<OwnedFd> {
        &self.told
    }

    /// Returns the private directory, which is removed in the end.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Reports that a group has ended: its number may soon be reused.
    pub(super) fn forget(&self, group: rustix::process::Pid) -> io::Result<()> {
        let gone = (-group.as_raw_nonzero().get()).to_ne_bytes();
        nix::unistd::write(&self.told, &gone)?;
        Ok(())
    }

    /// Waits for the end of the guard process, which should not come before ours. Cancel-safe.
    pub(super) async fn ended(&self) {
        // Whether it ended or can't be watched: it guards nothing.
        drop(self.process.exited().await);
    }
}

/// Creates a temporary directory that only its owner can enter, whatever the umask.
fn private_directory() -> io::Result<TempDir> {
    tempfile::Builder::new()
        .prefix("ganger-exec-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir()
}

fn spawn(directory: &Path) -> io::Result<(Leader, OwnedFd)> {
    // Not by its path, which may be a newer program's by now.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("ganger")
        .arg(COMMAND)
        .arg(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .process_group(0);
    let mut child = orphans::start(|| command.spawn())?;
    let told = child.stdin.take();
    let process = Leader::watch(child)?;
    let told = told.ok_or_else(|| io::Error::other("its stdin is not a pipe"))?;
    Ok((process, told.into()))
}

/// Reads the numbers of process groups from stdin until its end, negative ones for those that have ended;
/// kills the remaining groups, and removes the directory.
///
/// # Errors
/// If stdin can't be read; the groups are killed all the same.
pub fn watch(directory: &Path) -> io::Result<()> {
    let mut groups = BTreeSet::new();
    let heard = listen(io::stdin().lock(), &mut groups);
    for group in groups {
        if let Err(error) = killpg(Pid::from_raw(group), Signal::SIGKILL)
            && error != Errno::ESRCH
        {
            drop(writeln!(
                io::stderr(),
                "killing process group {group} failed: {error}"
            ));
        }
    }
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => heard.and(Err(error)),
        _ => heard,
    }
}

fn listen(mut told: impl Read, groups: &mut BTreeSet<i32>) -> io::Result<()> {
    let mut number = [0; size_of::<i32>()];
    loop {
        match told.read_exact(&mut number) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        // 0 and 1 would be ourselves and everyone.
        match i32::from_ne_bytes(number) {
            group @ 2.. => drop(groups.insert(group)),
            group => drop(groups.remove(&group.saturating_neg())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_is_left_alone() {
        let told = [7, 8, -7, 1, 0, -1, 9, -9, 9, i32::MIN];
        let bytes: Vec<u8> = told.iter().flat_map(|n: &i32| n.to_ne_bytes()).collect();
        let mut groups = BTreeSet::new();
        listen(&bytes[..], &mut groups).unwrap();
        assert_eq!(groups, BTreeSet::from([8, 9]));
    }

    #[test]
    fn half_a_number_is_none() {
        let mut groups = BTreeSet::new();
        listen(&[7, 0][..], &mut groups).unwrap();
        assert_eq!(groups, BTreeSet::new());
    }
}
