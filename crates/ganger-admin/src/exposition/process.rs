//! Resource usage of the daemon and its workers, read from the kernel on request: nothing is measured
//! meanwhile.

use std::collections::BTreeMap;
use std::fs;

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{SysconfVar, sysconf};

use ganger_pool::overview::Status;

/// Resource usage of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProcessUse {
    /// CPU time so far, in user and kernel mode, in seconds.
    pub cpu_seconds: f64,
    /// Resident memory, in bytes.
    pub resident_bytes: u64,
    /// Virtual memory, in bytes.
    pub virtual_bytes: u64,
    /// Number of threads.
    pub threads: u64,
}

/// Resource usage of several processes, by their ids.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Processes {
    by_pid: BTreeMap<u32, ProcessUse>,
    /// Number of open files of the daemon.
    pub open_files: Option<u64>,
    /// Maximum number of its open files.
    pub open_files_max: Option<u64>,
}

impl Processes {
    /// Reads the usage of the daemon and of every running worker.
    pub fn look(status: &Status) -> Self {
        let units = Units::of_system();
        let workers = status.pools.iter().flat_map(|pool| &pool.workers);
        let pids = workers.filter_map(|worker| worker.pid).chain([status.pid]);
        let look = |pid: u32| Some((pid, look(pid, units)?));
        Self {
            by_pid: pids.filter_map(look).collect(),
            open_files: fs::read_dir("/proc/self/fd")
                .ok()
                .map(|files| files.count() as u64),
            open_files_max: getrlimit(Resource::RLIMIT_NOFILE)
                .ok()
                .map(|(soft, _)| soft),
        }
    }

    /// Returns the usage of that process; none if it has ended meanwhile.
    pub fn of(&self, pid: u32) -> Option<&ProcessUse> {
        self.by_pid.get(&pid)
    }
}

/// Units of the kernel's counts.
#[derive(Debug, Clone, Copy)]
struct Units {
    ticks_per_second: f64,
    page_bytes: u64,
}

impl Units {
    fn of_system() -> Self {
        let number = |variable| {
            sysconf(variable)
                .ok()
                .flatten()
                .and_then(|n| u32::try_from(n).ok())
        };
        Self {
            ticks_per_second: number(SysconfVar::CLK_TCK).unwrap_or(100).into(),
            page_bytes: number(SysconfVar::PAGE_SIZE).unwrap_or(4096).into(),
        }
    }
}

fn look(pid: u32, units: Units) -> Option<ProcessUse> {
    parse(
        &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?,
        units,
    )
}

/// Parses `/proc/<pid>/stat` (proc_pid_stat(5)). The program's name is in brackets and may hold anything, so
/// that the fields are counted from the last closing one.
fn parse(stat: &str, units: Units) -> Option<ProcessUse> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    // The manual counts from 1 and from the process id: the state, the third, is the first here.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    #[expect(clippy::cast_precision_loss, reason = "a time for people")]
    let cpu_seconds = (field(14)? + field(15)?) as f64 / units.ticks_per_second;
    Some(ProcessUse {
        cpu_seconds,
        threads: field(20)?,
        virtual_bytes: field(23)?,
        resident_bytes: field(24)?.saturating_mul(units.page_bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_moves_nothing() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 10 0 0 0 150 50 0 0 20 0 3 0 99 8192 5 18446744073709551615 1";
        let units = Units {
            ticks_per_second: 100.0,
            page_bytes: 4096,
        };
        let expected = ProcessUse {
            cpu_seconds: 2.0,
            resident_bytes: 5 * 4096,
            virtual_bytes: 8192,
            threads: 3,
        };
        assert_eq!(parse(stat, units), Some(expected));
        assert_eq!(parse("7 (a) S 1", units), None);
    }

    #[test]
    fn this_process_uses_something() {
        let used = look(std::process::id(), Units::of_system()).unwrap();
        assert!(used.resident_bytes > 0 && used.threads > 0);
    }
}
