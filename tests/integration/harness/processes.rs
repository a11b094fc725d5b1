//! The processes of a daemon's making, found by the mark that each has in its environment.

use std::fs;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The variable that holds the mark.
pub(crate) const MARK: &str = "TEST_MARK";

/// A process that lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// Its command line, for a person to read.
    pub(crate) command: String,
}

/// All processes with that mark, the youngest last. Those that have ended and are not reaped yet
/// have no environment any more, so they are not among them.
pub(crate) fn marked(mark: &str) -> Vec<Process> {
    let wanted = format!("{MARK}={mark}");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut pids: Vec<i32> = pids.filter(|pid| has(*pid, wanted.as_bytes())).collect();
    pids.sort_unstable();
    pids.into_iter()
        .map(|pid| Process {
            pid,
            command: command(pid),
        })
        .collect()
}

/// Kills all processes with that mark, until none is left.
pub(crate) fn kill_marked(mark: &str) {
    let gone = super::look(|| {
        let found = marked(mark);
        for process in &found {
            let killed = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
            assert!(
                matches!(killed, Ok(()) | Err(Errno::ESRCH)),
                "{process:?}: {killed:?}"
            );
        }
        found.is_empty().then_some(())
    });
    assert!(
        gone.is_some() || std::thread::panicking(),
        "processes that can't be killed: {:?}",
        marked(mark)
    );
}

fn has(pid: i32, wanted: &[u8]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment
        .split(|byte| *byte == 0)
        .any(|variable| variable == wanted)
}

fn command(pid: i32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line)
        .replace('\0', " ")
        .trim()
        .to_owned()
}
