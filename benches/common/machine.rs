//! Information from the kernel: clocks, processor time and memory of processes, and a description of the
//! machine.

use std::fs;
use std::path::Path;
use std::time::Duration;

use miette::{IntoDiagnostic, miette};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Returns CLOCK_MONOTONIC, which all processes of a machine share, in nanoseconds.
pub(crate) fn monotonic_nanos() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Returns the processor time of a process so far, in seconds, with that of threads that have ended; `self` is this
/// process.
pub(crate) fn cpu_seconds(process: &str) -> miette::Result<f64> {
    let process = match process {
        "self" => Pid::from_raw(0),
        other => Pid::from_raw(other.parse().into_diagnostic()?),
    };
    let clock = clock_getcpuclockid(process).into_diagnostic()?;
    let time = nix::time::clock_gettime(clock).into_diagnostic()?;
    Ok(Duration::from(time).as_secs_f64())
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
