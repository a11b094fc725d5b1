//! Check of the peer at the other end of a pipe: only the worker itself, or a process that it has started, is
//! accepted. The parsing is pure; the search in the process tree reads `/proc`.

use std::fs;

use tokio::net::UnixStream;

/// Maximum number of ancestors of a peer that are checked. A worker behind several wrappers has only a few.
const ANCESTORS_MAX: usize = 64;

/// Worker that a pipe is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    /// Process that was started; it leads its group.
    pub(super) pid: i32,
    /// User that it runs as.
    pub(super) uid: u32,
}

/// Reason that a peer was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum PeerRejection {
    #[error("its credentials are unknown to the kernel")]
    Unknown,
    #[error("it must run as user {expected}: `{uid}`")]
    OtherUser { uid: u32, expected: u32 },
    #[error(
        "it must be process {expected}, of its process group, or descend from it: process `{pid}`"
    )]
    OtherProcess { pid: i32, expected: i32 },
}

/// Checks that the peer is the worker or a process that it has started.
pub(super) fn check(stream: &UnixStream, expected: Expected) -> Result<(), PeerRejection> {
    let credentials = stream.peer_cred().map_err(|_| PeerRejection::Unknown)?;
    let pid = credentials.pid().ok_or(PeerRejection::Unknown)?;
    let uid = credentials.uid();
    if uid != expected.uid {
        return Err(PeerRejection::OtherUser {
            uid,
            expected: expected.uid,
        });
    }
    if belongs(pid, expected.pid, read_stat) {
        Ok(())
    } else {
        Err(PeerRejection::OtherProcess {
            pid,
            expected: expected.pid,
        })
    }
}

/// Returns whether `pid` is the leader, is in its group, or descends from it.
fn belongs(pid: i32, leader: i32, stat: impl Fn(i32) -> Option<Stat>) -> bool {
    let mut current = pid;
    for depth in 0..ANCESTORS_MAX {
        if current == leader {
            return true;
        }
        let Some(found) = stat(current) else {
            return false;
        };
        if depth == 0 && found.group == leader {
            return true;
        }
        current = found.parent;
    }
    false
}

/// Place of a process in the tree, from `/proc/<pid>/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    parent: i32,
    group: i32,
}

fn read_stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses `pid (name) state ppid pgrp …`; the name may itself contain spaces and parentheses, so the fields
/// are counted from its last one.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, after_name) = text.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(1);
    Some(Stat {
        parent: fields.next()?.parse().ok()?,
        group: fields.next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_in_the_tree_is_read_whatever_the_name() {
        let stat = |parent, group| Some(Stat { parent, group });
        let cases = [
            ("12 (sh) S 7 12 12 0 -1 4194304", stat(7, 12)),
            ("12 (a b) c) R 3) S 7 12 12 0", stat(7, 12)),
            ("12 () R 0 0 0", stat(0, 0)),
            ("12 (sh) S 7", None),
            ("12 (sh) S x 12", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_stat(text), expected, "{text}");
        }
    }

    #[test]
    fn only_the_family_belongs() {
        // 10 leads its group; 11 is its child; 12 a grandchild in a session of its own; 13 has lost its
        // parent but stayed in the group; 20 is unrelated; 30 and 31 are a loop.
        let tree = |pid| {
            let (parent, group) = match pid {
                11 => (10, 10),
                12 => (11, 12),
                13 => (1, 10),
                20 => (1, 20),
                30 => (31, 30),
                31 => (30, 30),
                1 => (0, 1),
                _ => return None,
            };
            Some(Stat { parent, group })
        };
        let cases = [
            (10, true),
            (11, true),
            (12, true),
            (13, true),
            (20, false),
            (30, false),
            (0, false),
            (99, false),
        ];
        for (pid, expected) in cases {
            assert_eq!(belongs(pid, 10, tree), expected, "{pid}");
        }
    }

    #[test]
    fn our_own_place_is_read() {
        let stat = read_stat(std::process::id().try_into().unwrap()).unwrap();
        assert_eq!(stat.parent, nix::unistd::getppid().as_raw());
    }
}
