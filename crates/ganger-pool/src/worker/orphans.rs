//! Reaping of adopted children. As PID 1 of a container the daemon inherits every orphan there and has to
//! reap it, but it must not take a worker's exit status from the lane that waits for it.

use std::collections::BTreeSet;
use std::process::{self, Child};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::{fs, io};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process, waitid};

/// Lock held while a child of the daemon's own is being started and is not registered yet; held by any number
/// of threads, none of which waits for another.
static STARTING: RwLock<()> = RwLock::new(());

/// The daemon's own children that are not reaped yet.
static OURS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn ours() -> MutexGuard<'static, BTreeSet<i32>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a child of the daemon's own.
pub fn start(start: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
    let _starting = STARTING.read();
    let child = start()?;
    ours().insert(Pid::from_child(&child).as_raw_nonzero().get());
    Ok(child)
}

/// Reaps a child of the daemon's own, if it has exited.
pub(super) fn reap_own(pid: Pid) -> io::Result<Option<WaitIdStatus>> {
    // Its id may be reused once it is reaped, so both are one step.
    let mut ours = ours();
    let ended = reap_one(pid)?;
    if ended.is_some() {
        ours.remove(&pid.as_raw_nonzero().get());
    }
    Ok(ended)
}

fn reap_one(pid: Pid) -> io::Result<Option<WaitIdStatus>> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    Ok(waitid(WaitId::Pid(pid), options)?)
}

/// Reaps all children that have exited and are not the daemon's own. Returns false if they can't be
/// distinguished now, since one of the latter is being started.
pub fn reap() -> bool {
    let Ok(_nobody_starts) = STARTING.try_write() else {
        return false;
    };
    for pid in ended_children() {
        if ours().contains(&pid.as_raw_nonzero().get()) {
            continue;
        }
        match reap_one(pid) {
            Ok(_) => tracing::debug!(pid = pid.as_raw_nonzero(), "orphan reaped"),
            Err(error) => {
                tracing::debug!(pid = pid.as_raw_nonzero(), %error, "reaping an orphan failed");
            }
        }
    }
    true
}

/// Makes the orphans of the workers children of this process from now on, as those of PID 1 are.
///
/// # Errors
/// If the kernel refuses.
pub fn adopt() -> io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

/// Kills all children, own and adopted, and their children, until there are none: for a program that is about
/// to exit and has adopted them. May block for a moment.
pub fn end_all() {
    loop {
        let children = children(|_| true);
        if children.is_empty() {
            return;
        }
        for pid in children {
            // Until it is reaped here, its id can't be reused.
            let killed = kill_process(pid, Signal::KILL).map_err(io::Error::from);
            let until_ended = WaitIdOptions::EXITED;
            let ended = killed.and_then(|()| Ok(waitid(WaitId::Pid(pid), until_ended)?));
            if let Err(error) = ended {
                tracing::debug!(pid = pid.as_raw_nonzero(), %error, "killing a child process failed");
                return;
            }
        }
    }
}

/// Returns the zombies among the children. A wait for any child would report one, and the same one again and
/// again.
fn ended_children() -> Vec<Pid> {
    children(|state| state == "Z")
}

/// Returns the children in the states that `is_meant` selects.
fn children(is_meant: impl Fn(&str) -> bool) -> Vec<Pid> {
    let parent = process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let meant = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        state_under(&stat, parent).is_some_and(&is_meant)
    };
    pids.filter(meant).filter_map(Pid::from_raw).collect()
}

/// Returns the state of a child of that process. Fields of `/proc/<pid>/stat`: number, name in
/// brackets, state, parent.
fn state_under(stat: &str, parent: u32) -> Option<&str> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    (fields.next()?.parse() == Ok(parent)).then_some(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_known_whatever_they_are_called() {
        let cases = [
            ("7 (sh) Z 1 7 7 0", Some("Z")),
            ("7 (a) b) (c) Z 1 7 7 0", Some("Z")),
            ("7 (sh) S 1 7 7 0", Some("S")),
            ("7 (sh) Z 12 7 7 0", None),
            ("7 (Z 1) S 12 7", None),
            ("", None),
        ];
        for (stat, expected) in cases {
            assert_eq!(state_under(stat, 1), expected, "{stat}");
        }
    }
}
