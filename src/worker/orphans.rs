//! Children that are not ours. As PID 1 of a container the daemon inherits every orphan there and
//! has to reap it; how a worker ended must not be taken from the lane that waits to know.

use std::collections::BTreeSet;
use std::process::{self, Child};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::{fs, io};

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, waitid};

/// Held while a child of ours is being started, and not yet known to be one; by any number of
/// threads, none of which waits for another.
static STARTING: RwLock<()> = RwLock::new(());

/// Children of ours that are not reaped yet.
static OURS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn ours() -> MutexGuard<'static, BTreeSet<i32>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a child of ours.
pub(super) fn start(start: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
    let _starting = STARTING.read();
    let child = start()?;
    ours().insert(Pid::from_child(&child).as_raw_nonzero().get());
    Ok(child)
}

/// Reaps a child of ours, if it has ended.
pub(super) fn reap_own(pid: Pid) -> io::Result<Option<WaitIdStatus>> {
    // Once it is reaped its number may be given to another, so both are one step.
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

/// Reaps all children that have ended and are not ours. Returns false if that can't be told just
/// now: a child of ours is being started.
pub fn reap() -> bool {
    let Ok(_nobody_starts) = STARTING.try_write() else {
        return false;
    };
    for pid in ended_children() {
        if ours().contains(&pid.as_raw_nonzero().get()) {
            continue;
        }
        match reap_one(pid) {
            Ok(_) => tracing::debug!(pid = pid.as_raw_nonzero(), "an orphan was reaped"),
            Err(error) => {
                tracing::debug!(pid = pid.as_raw_nonzero(), %error, "an orphan can't be reaped");
            }
        }
    }
    true
}

/// Our zombies. A wait for just any child would tell of one, and again and again of the same.
fn ended_children() -> Vec<Pid> {
    let parent = process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let ended = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        is_zombie_of(&stat, parent)
    };
    pids.filter(ended).filter_map(Pid::from_raw).collect()
}

/// What `/proc/<pid>/stat` says: number, name in brackets, state, parent.
fn is_zombie_of(stat: &str, parent: u32) -> bool {
    let mut fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace();
    fields.next() == Some("Z")
        && fields
            .next()
            .is_some_and(|field| field.parse() == Ok(parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zombies_are_known_whatever_they_are_called() {
        let cases = [
            ("7 (sh) Z 1 7 7 0", true),
            ("7 (a) b) (c) Z 1 7 7 0", true),
            ("7 (sh) S 1 7 7 0", false),
            ("7 (sh) Z 12 7 7 0", false),
            ("7 (Z 1) S 12 7", false),
            ("", false),
        ];
        for (stat, expected) in cases {
            assert_eq!(is_zombie_of(stat, 1), expected, "{stat}");
        }
    }
}
