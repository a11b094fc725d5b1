//! Resources that a worker's processes have used so far, as the kernel reports them. The whole group is
//! included, since the program may have been started by another.

use std::fs;
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};

/// Resources used by a group of processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time, in user and kernel mode, including that of children that have exited.
    pub cpu: Duration,
    /// Sum of the peak resident memory of each, in bytes.
    pub peak_bytes: u64,
}

/// Returns the resources used by the live processes of that group; `None` if there are none.
pub fn of_group(leader: u32) -> Option<Usage> {
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let used = pids.filter_map(|pid| of_member(pid, leader));
    used.reduce(|all, one| Usage {
        cpu: all.cpu + one.cpu,
        peak_bytes: all.peak_bytes + one.peak_bytes,
    })
}

fn of_member(pid: u32, leader: u32) -> Option<Usage> {
    let (group, cpu) = group_and_cpu(pid)?;
    if group != u64::from(leader) {
        return None;
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(Usage {
        cpu,
        peak_bytes: peak_bytes(&status).unwrap_or_default(),
    })
}

/// Returns the CPU time that a process has used, including that of its exited children; `None` if it has
/// exited.
pub fn cpu_of(pid: u32) -> Option<Duration> {
    group_and_cpu(pid).map(|(_, cpu)| cpu)
}

fn group_and_cpu(pid: u32) -> Option<(u64, Duration)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (group, ticks) = group_and_ticks(&stat)?;
    let per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
    let per_second = u32::try_from(per_second).ok()?;
    Some((group, Duration::from_secs(ticks) / per_second))
}

/// Parses the group and the ticks in `/proc/<pid>/stat`. The process's name is in parentheses and may contain
/// any character.
fn group_and_ticks(stat: &str) -> Option<(u64, u64)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    // The manual counts from 1 and from the process id: the state, the third, is the first here.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ticks = field(14)? + field(15)? + field(16)? + field(17)?;
    Some((field(5)?, ticks))
}

/// Parses `VmHWM` of `/proc/<pid>/status`. A process that has ended has none.
fn peak_bytes(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_brackets_may_hold_anything() {
        let stat = "7 (a) b (c) S 1 70 7 0 -1 4194560 10 0 0 0 150 50 3 4 20 0 3 0 99 8192 5 1";
        assert_eq!(group_and_ticks(stat), Some((70, 207)));
        assert_eq!(group_and_ticks("7 (a) S 1"), None);
    }

    #[test]
    fn the_peak_is_in_bytes() {
        assert_eq!(peak_bytes("Name:\tx\nVmHWM:\t    12 kB\n"), Some(12 * 1024));
        assert_eq!(peak_bytes("Name:\tx\n"), None);
    }

    #[test]
    fn our_own_group_has_used_something() {
        let group = nix::unistd::getpgrp().as_raw();
        let used = of_group(group.unsigned_abs()).unwrap();
        assert!(used.peak_bytes > 0);
    }
}
