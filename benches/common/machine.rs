//! Information from the kernel: clocks, processor time and memory of processes, and a description of the
//! machine.

use std::fs;
use std::path::Path;

use miette::{IntoDiagnostic, WrapErr, miette};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Returns CLOCK_MONOTONIC, which all processes of a machine share, in nanoseconds.
pub(crate) fn monotonic_nanos() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Returns the processor time of a process's threads so far, in seconds; `self` is this process. A thread
/// that is running now lacks the time since the kernel's last update, which is at most a tick.
///
/// `/proc/PID/stat` shows the same in hundredths of a second, which is too coarse for short intervals.
pub(crate) fn cpu_seconds(process: &str) -> miette::Result<f64> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    let mut nanos = 0;
    for task in tasks.into_diagnostic().wrap_err("no such process")? {
        let path = task.into_diagnostic()?.path().join("schedstat");
        let text = read(&path)?;
        let running = text.split(' ').next().unwrap_or_default();
        nanos += running.parse::<u64>().into_diagnostic()?;
    }
    #[expect(clippy::cast_precision_loss, reason = "exact for the first 100 days")]
    let nanos = nanos as f64;
    Ok(nanos / 1e9)
}

/// Returns the resident memory of a process, in KiB.
pub(crate) fn resident_kib(pid: u32) -> miette::Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = read(path.as_ref())?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    number
        .and_then(|number| number.trim().parse().ok())
        .ok_or_else(|| miette!("{path} tells no VmRSS"))
}

fn read(path: &Path) -> miette::Result<String> {
    let text = fs::read_to_string(path);
    text.map_err(|error| miette!("{}: {error}", path.display()))
}

/// The machine that the figures were measured on.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    processor: String,
    cores: usize,
    memory_mib: u64,
    kernel: String,
    optimised: bool,
}

impl Machine {
    /// Describes this machine.
    pub(crate) fn this() -> Self {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let memory = field("/proc/meminfo", "MemTotal");
        let memory = memory.trim_end_matches(" kB").parse().unwrap_or(0) / 1024;
        Self {
            processor: field("/proc/cpuinfo", "model name"),
            cores,
            memory_mib: memory,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .map_or_else(|_| String::new(), |text| text.trim().to_owned()),
            optimised: !cfg!(debug_assertions),
        }
    }

    /// Returns the description in a line.
    pub(crate) fn describe(&self) -> String {
        let Self {
            processor,
            cores,
            memory_mib,
            kernel,
            optimised,
        } = self;
        let build = if *optimised { "" } else { ", NOT OPTIMISED" };
        format!("{processor}, {cores} cores, {memory_mib} MiB, Linux {kernel}{build}")
    }
}

/// Returns the value of a `name: value` line in a file of `/proc`; empty if there is none.
fn field(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(key, _)| key.trim() == name);
    found.map_or_else(String::new, |(_, value)| value.trim().to_owned())
}
