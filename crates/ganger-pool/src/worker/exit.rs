//! End of a process: its wait status as an exit, and whether the kernel killed it for lack of memory. Pure
//! except for the one type that reads the kernel's counter. Nothing here waits.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;
use rustix::process::WaitIdStatus;
use tokio::time::Instant;

use ganger_queue::delivery::Exit;

/// Converts a wait status. `oom` returns whether a SIGKILL came from the kernel.
pub fn from_status(status: &WaitIdStatus, oom: impl FnOnce() -> bool) -> Exit {
    let signal = status.terminating_signal();
    Exit {
        code: status.exit_status(),
        signal,
        oom: signal == Some(Signal::SIGKILL as i32) && oom(),
    }
}

/// Minimum interval between two reads of the kernel's count at the start of a worker or a message.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The kernel's count of processes killed for lack of memory: in the daemon's cgroup if that can be read,
/// otherwise on the whole machine. Workers are in the daemon's cgroup. The count does not name the killed
/// process, so only its growth since shortly before is evidence.
#[derive(Debug)]
pub(super) struct OomKills {
    file: Option<PathBuf>,
    seen: Mutex<OomCount>,
}

#[derive(Debug)]
struct OomCount {
    count: u64,
    at: Instant,
}

impl OomKills {
    /// Returns the counter that all workers of this process share: a kill that explains one death
    /// does not explain another.
    pub(super) fn shared() -> &'static Self {
        static SHARED: LazyLock<OomKills> = LazyLock::new(|| {
            let ours = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
            let files = counter_files(&ours);
            OomKills::of(files.into_iter().find(|file| read_count(file).is_some()))
        });
        &SHARED
    }

    fn of(file: Option<PathBuf>) -> Self {
        let count = file.as_deref().and_then(read_count).unwrap_or_default();
        let at = Instant::now();
        Self {
            file,
            seen: Mutex::new(OomCount { count, at }),
        }
    }

    /// Updates the count at the start of a worker or a message, to which earlier kills are unrelated.
    pub(super) fn forget(&self, now: Instant) {
        if self.seen().at + LOOK_EVERY <= now {
            self.have_grown(now);
        }
    }

    /// Returns whether the count has grown since it was last read.
    pub(super) fn have_grown(&self, now: Instant) -> bool {
        let count = self.file.as_deref().and_then(read_count);
        let mut seen = self.seen();
        let before = seen.count;
        *seen = OomCount {
            count: count.unwrap_or(before),
            at: now,
        };
        before < seen.count
    }

    fn seen(&self) -> MutexGuard<'_, OomCount> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_count(file: &Path) -> Option<u64> {
    oom_kills(&fs::read_to_string(file).ok()?)
}

/// Returns the files that may hold the count, the closest to the daemon first, by the text of
/// `/proc/self/cgroup`. In a container that path may be the host's, while the mount shows the container's own
/// cgroup as its root; hence the second of each kind.
fn counter_files(proc_self_cgroup: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in proc_self_cgroup.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (mount, name) = if controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.events")
        } else if controllers.split(',').any(|c| c == "memory") {
            ("/sys/fs/cgroup/memory", "memory.oom_control")
        } else {
            continue;
        };
        let ours = Path::new(mount).join(path.trim_start_matches('/'));
        files.extend([ours.join(name), Path::new(mount).join(name)]);
    }
    files.push(PathBuf::from("/proc/vmstat"));
    files
}

/// Returns the value of `oom_kill`, which has the same form in `memory.events` (cgroup v2),
/// `memory.oom_control` (cgroup v1, Linux 4.13) and `/proc/vmstat`.
fn oom_kills(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill "))
        .and_then(|count| count.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_in_each_form() {
        let cases = [
            ("low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n", Some(2)),
            ("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n", Some(7)),
            ("pgmajfault 1\noom_kill 12\nnuma_hit 4\n", Some(12)),
            ("oom_kill_disable 0\nunder_oom 0\n", None),
            ("oom_kill many\n", None),
            ("", None),
        ];
        for (text, count) in cases {
            assert_eq!(oom_kills(text), count, "{text}");
        }
    }

    #[test]
    fn the_closest_counter_comes_first() {
        let v2 = "0::/system.slice/ganger.service\n";
        let v1 = "5:devices:/d\n4:memory:/docker/abc:1\n0::/\n";
        let cases: [(&str, &[&str]); 3] = [
            (
                v2,
                &[
                    "/sys/fs/cgroup/system.slice/ganger.service/memory.events",
                    "/sys/fs/cgroup/memory.events",
                    "/proc/vmstat",
                ],
            ),
            (
                v1,
                &[
                    "/sys/fs/cgroup/memory/docker/abc:1/memory.oom_control",
                    "/sys/fs/cgroup/memory/memory.oom_control",
                    "/sys/fs/cgroup/memory.events",
                    "/sys/fs/cgroup/memory.events",
                    "/proc/vmstat",
                ],
            ),
            ("nonsense", &["/proc/vmstat"]),
        ];
        for (text, files) in cases {
            let expected: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
            assert_eq!(counter_files(text), expected);
        }
    }

    #[test]
    fn this_machine_has_a_counter() {
        assert!(OomKills::shared().file.is_some());
    }

    #[test]
    fn only_a_kill_of_late_explains_a_death() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("memory.events");
        let stands_at = |count| fs::write(&file, format!("oom_kill {count}\n")).unwrap();
        stands_at(1);
        let start = Instant::now();
        let kills = OomKills::of(Some(file.clone()));
        assert!(!kills.have_grown(start), "one from before our time");
        stands_at(2);
        assert!(kills.have_grown(start));
        assert!(!kills.have_grown(start), "it explains one death");
        stands_at(3);
        kills.forget(start + 2 * LOOK_EVERY);
        assert!(!kills.have_grown(start), "it was before this message");
        fs::remove_file(&file).unwrap();
        assert!(!kills.have_grown(start));
        stands_at(3);
        assert!(!kills.have_grown(start), "a look that failed is none");
    }
}
