//! State of the machine: read anew for each sample, and only as far as the rules need it.

use std::fs;
use std::path::Path;

use super::autoscale::Machine;
use crate::worker::process::resident_bytes;
use ganger_config::model::Autoscale;

/// Maximum number of workers whose size is measured.
const WORKERS_LOOKED_AT: usize = 8;

/// State kept from one sample to the next.
#[derive(Debug, Default)]
pub(super) struct MachineWatch {
    /// Processor time: busy and total.
    cpu: Option<(u64, u64)>,
}

impl MachineWatch {
    /// Returns the state of the machine, with these workers on it.
    pub(super) fn look(
        &mut self,
        rules: &Autoscale,
        workers: impl Iterator<Item = u32>,
    ) -> Machine {
        let mut machine = Machine::default();
        if rules.memory_free_min.is_some() {
            let workers = workers.take(WORKERS_LOOKED_AT).filter_map(resident_bytes);
            machine.memory_free = memory_free();
            machine.worker_bytes = workers.max();
        }
        if rules.cpu_max.is_some() {
            machine.cpu = self.cpu_since_last_look();
        }
        machine
    }

    fn cpu_since_last_look(&mut self) -> Option<f64> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let now = cpu_times(&stat)?;
        share(self.cpu.replace(now)?, now)
    }
}

/// Returns the free memory of the machine, or of the daemon's cgroup or one of its ancestors if that has
/// less.
fn memory_free() -> Option<u64> {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| available(&text));
    let ours = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let cgroups = ours.lines().filter_map(|line| line.strip_prefix("0::/"));
    let free = cgroups.flat_map(|path| {
        let within = Path::new(path).ancestors();
        within.filter_map(|path| {
            let file = |name| read(&Path::new("/sys/fs/cgroup").join(path).join(name));
            let current = file("memory.current")?;
            left(&file("memory.max")?, &current, &file("memory.stat")?)
        })
    });
    free.chain(machine).min()
}

/// Returns the memory that is available without swapping according to `/proc/meminfo`, in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the memory that a cgroup has left below its limit, if it has one. Page cache that is not in use
/// counts as free, since it is reclaimed when others need the memory.
fn left(max: &str, current: &str, stat: &str) -> Option<u64> {
    let max: u64 = max.trim().parse().ok()?;
    let current: u64 = current.trim().parse().ok()?;
    let mut lines = stat.lines();
    let unused = lines.find_map(|line| line.strip_prefix("inactive_file "));
    let unused = unused.and_then(|bytes| bytes.trim().parse().ok());
    Some(max.saturating_sub(current.saturating_sub(unused.unwrap_or(0))))
}

/// Reads the processor time, busy and total, from `/proc/stat`.
fn cpu_times(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times = line.split_ascii_whitespace().map(str::parse);
    // The times of guests are included in the others.
    let times: Vec<u64> = times.take(8).collect::<Result<_, _>>().ok()?;
    let idle = times.get(3)? + times.get(4)?;
    let all: u64 = times.iter().sum();
    Some((all.saturating_sub(idle), all))
}

/// Returns the share of the time that was busy.
fn share(before: (u64, u64), now: (u64, u64)) -> Option<f64> {
    let (busy, all) = (now.0.checked_sub(before.0)?, now.1.checked_sub(before.1)?);
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    (all > 0).then(|| busy as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_the_kernel_writes_is_read() {
        let meminfo = "MemTotal:       16000 kB\nMemFree:   10 kB\nMemAvailable:    9000 kB\n";
        assert_eq!(available(meminfo), Some(9000 * 1024));
        assert_eq!(available("MemTotal: 5 kB\n"), None);
        assert_eq!(
            left("1000\n", "700\n", "anon 1\ninactive_file 200\n"),
            Some(500)
        );
        assert_eq!(left("1000\n", "1200\n", ""), Some(0));
        assert_eq!(left("max\n", "700\n", ""), None);
        let stat = "cpu  10 0 20 60 10 0 0 0 5 5\ncpu0 1 1 1 1\n";
        assert_eq!(cpu_times(stat), Some((30, 100)));
        assert_eq!(cpu_times("cpu  x\n"), None);
        assert_eq!(share((30, 100), (60, 160)), Some(0.5));
        assert_eq!(share((30, 100), (30, 100)), None);
    }

    /// Only values that a rule needs are read.
    #[test]
    fn this_machine_is_looked_at() {
        let rules = Autoscale {
            min: 1,
            max: 2,
            clear_within: Duration::from_secs(1),
            cooldown: Duration::from_secs(1),
            shrink_after: Duration::from_secs(1),
            memory_free_min: None,
            cpu_max: None,
        };
        let mut watch = MachineWatch::default();
        let own = || std::iter::once(std::process::id());
        assert_eq!(watch.look(&rules, own()), Machine::default());
        let asked = Autoscale {
            memory_free_min: Some(1 << 30),
            cpu_max: Some(0.9),
            ..rules
        };
        let machine = watch.look(&asked, own());
        assert!(machine.memory_free > Some(1 << 20), "{machine:?}");
        assert!(machine.worker_bytes > Some(1 << 20), "{machine:?}");
        assert_eq!(machine.cpu, None, "it takes two looks");
    }
}
