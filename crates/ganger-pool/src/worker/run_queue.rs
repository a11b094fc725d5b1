//! Time that a process or a thread has waited for a core, as the kernel reports it.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Scheduler statistics of a thread: `/proc/<pid>/schedstat`, whose fields the kernel's
/// `Documentation/scheduler/sched-stats.rst` describes. It is opened for each read, since it is read seldom
/// and a daemon has many workers.
#[derive(Debug)]
pub struct RunQueue(PathBuf);

impl RunQueue {
    /// Returns the statistics of that process's main thread.
    pub fn of(pid: i32) -> Self {
        Self(format!("/proc/{pid}/schedstat").into())
    }

    /// Returns the statistics of the calling thread.
    pub fn of_the_thread_that_asks() -> Self {
        Self("/proc/thread-self/schedstat".into())
    }

    /// Returns the time since its start for which the thread was runnable and had no core; `None` after its
    /// end, or if the kernel was built without `CONFIG_SCHED_INFO`.
    pub fn waited(&self) -> Option<Duration> {
        waited(&fs::read_to_string(&self.0).ok()?)
    }
}

/// Parses the second field: nanoseconds on a run queue.
fn waited(line: &str) -> Option<Duration> {
    let nanos = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_field_is_the_wait() {
        let nanos = |nanos| Some(Duration::from_nanos(nanos));
        assert_eq!(waited("81500 1200034 7\n"), nanos(1_200_034));
        assert_eq!(waited("0 0 0\n"), nanos(0));
        assert_eq!(waited("81500"), None);
        assert_eq!(waited("81500 x 7"), None);
        assert_eq!(waited(""), None);
    }

    #[test]
    fn a_thread_is_told_of_itself() {
        assert!(RunQueue::of_the_thread_that_asks().waited().is_some());
    }

    #[test]
    fn a_process_is_told_of_as_long_as_it_lives() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let queue = RunQueue::of(i32::try_from(child.id()).unwrap());
        assert!(queue.waited().is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(queue.waited(), None);
    }
}
