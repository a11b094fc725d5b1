//! How long a process or a thread has waited for a core, as the kernel tells it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Three numbers of at most 20 digits.
const LINE_BYTES_MAX: usize = 64;

/// What the scheduler tells of a thread: `/proc/<pid>/schedstat`, whose fields the kernel's
/// `Documentation/scheduler/sched-stats.rst` describes.
#[derive(Debug)]
pub struct RunQueue(File);

impl RunQueue {
    /// Of that process's main thread.
    ///
    /// # Errors
    /// If there is no such process, or the kernel was built without `CONFIG_SCHED_INFO`.
    pub fn of(pid: i32) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/schedstat")).map(Self)
    }

    /// Of the thread that asks.
    ///
    /// # Errors
    /// As [`RunQueue::of`].
    pub fn of_this_thread() -> io::Result<Self> {
        File::open("/proc/thread-self/schedstat").map(Self)
    }

    /// How long the thread could have run since its start and had no core; `None` after its end.
    pub fn waited(&self) -> Option<Duration> {
        let mut line = [0; LINE_BYTES_MAX];
        let read = self.0.read_at(&mut line, 0).ok()?;
        waited(std::str::from_utf8(line.get(..read)?).ok()?)
    }
}

/// The second field: nanoseconds on a run queue.
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
    fn a_thread_is_told_of_by_others_too() {
        let queue = RunQueue::of_this_thread().unwrap();
        let asked = std::thread::spawn(move || queue.waited()).join().unwrap();
        assert!(asked.is_some());
    }

    #[test]
    fn a_process_is_told_of_as_long_as_it_lives() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let queue = RunQueue::of(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(queue.waited().is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(queue.waited(), None);
    }
}
