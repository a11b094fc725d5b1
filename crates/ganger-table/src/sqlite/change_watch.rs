//! Wake-ups by other processes: the kernel reports writes to the journal and closed lock files. Where it
//! can't, only the poll finds changes.
//!
//! A write to the journal is seen *before* the commit becomes visible: SQLite syncs in between, and then
//! publishes the commit in shared memory, which is not reported. So a write only starts a period in which
//! `PRAGMA data_version` is checked, often at first, then rarely.

use std::future::pending;
use std::io;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use tokio::time::{Instant, sleep_until};

use super::identity::{WAL, beside};
use super::inotify::{EventKind, FileWatch, only_polled};
use super::timerfd::FineTimer;
use crate::table::WakeReason;

/// Maximum time of a commit, from the write to the journal on, within which it is seen without the poll.
const RECHECK_FOR: Duration = Duration::from_secs(10);

/// Maximum time of a usual commit. Of one that takes longer a larger share passes before it is seen: else each
/// heartbeat of a daemon would keep all its idle sources checking.
const USUAL_COMMIT: Duration = Duration::from_millis(100);

/// Minimum time between two checks of the version.
const RECHECK_GAP: Duration = Duration::from_micros(200);

/// Maximum time between two commits that count as steady writes to other queues, if none of them led to a
/// row of this one. Each doubles the minimum time between checks, up to `DOUBLINGS_MAX` times. An idle
/// queue beside busy ones then wakes up a few hundred times a second, and still sees its own rows within
/// 5 ms.
const STEADY_WITHIN: Duration = Duration::from_millis(20);
const DOUBLINGS_MAX: u32 = 4;

/// Returns the time until the next check, if the last write to the journal was `age` ago; none if checks
/// end.
fn recheck_gap(age: Duration) -> Option<Duration> {
    let part = if age < USUAL_COMMIT { 16 } else { 4 };
    (age < RECHECK_FOR).then(|| (age / part).max(RECHECK_GAP))
}

/// Waits for changes by other connections and processes.
#[derive(Debug)]
pub(crate) struct ChangeWatch {
    kernel: Option<FileWatches>,
    /// None if the kernel has no such timer: then a check may be late by a tick of the runtime.
    timer: Option<FineTimer>,
    activity: Option<Activity>,
    checked: Instant,
    last_change: Instant,
    /// Number of commits in a row that were not for this queue.
    unrelated: u32,
    version: Option<i64>,
}

#[derive(Debug, Clone, Copy)]
struct Activity {
    since: Instant,
    next_check: Instant,
}

impl ChangeWatch {
    /// Begins to listen. Must be called within a runtime that drives I/O and time.
    pub(crate) fn listen(database: &Path, owners: &Path, conn: &Connection) -> Self {
        let kernel = FileWatches::of(database, owners);
        if let Err(error) = &kernel {
            only_polled(database, error);
        }
        let now = Instant::now();
        // A commit may be in progress whose write to the journal came before the watch.
        let activity = Activity {
            since: now,
            next_check: now + RECHECK_GAP,
        };
        let mut watch = Self {
            kernel: kernel.ok(),
            timer: FineTimer::new().ok(),
            activity: Some(activity),
            checked: now,
            last_change: now,
            unrelated: 0,
            version: None,
        };
        watch.others_wrote(conn);
        watch
    }

    /// Returns whether another connection has committed since the last call.
    pub(crate) fn others_wrote(&mut self, conn: &Connection) -> bool {
        let version = conn
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
            .ok();
        // An unknown version counts as a change: a needless look does no harm.
        let changed = version.is_none() || version != self.version;
        self.version = version;
        changed
    }

    /// Resolves when an owner has closed its lock file or, if `wants_data` is set, when another connection
    /// has committed. Cancel-safe.
    ///
    /// A busy source does not listen: sources on one file do not wake each other with each commit.
    pub(crate) async fn woken(&mut self, conn: &Connection, wants_data: bool) -> WakeReason {
        loop {
            let next_check = self.activity.map(|activity| activity.next_check);
            let listen_from = self.checked + self.least_gap();
            let kernel = self.kernel.as_ref();
            tokio::select! {
                biased;
                () = owner_left(kernel) => return WakeReason::Owners,
                () = journal_written(kernel, listen_from), if wants_data => self.note_activity(),
                () = at(self.timer.as_ref(), next_check), if wants_data => {
                    if self.check(conn) {
                        return WakeReason::Data;
                    }
                }
            }
        }
    }

    /// Records that the last wake-up led to a row of this queue.
    pub(crate) fn found_rows(&mut self) {
        self.unrelated = 0;
    }

    fn least_gap(&self) -> Duration {
        RECHECK_GAP * (1 << self.unrelated)
    }

    fn note_activity(&mut self) {
        let now = Instant::now();
        self.activity = Some(Activity {
            since: now,
            next_check: now.max(self.checked + self.least_gap()),
        });
    }

    /// Checks for a commit. A change does not end the checks: it may be an earlier commit than the one
    /// that is being written.
    fn check(&mut self, conn: &Connection) -> bool {
        let now = Instant::now();
        self.checked = now;
        let least = self.least_gap();
        self.activity = self.activity.and_then(|Activity { since, .. }| {
            recheck_gap(now - since).map(|gap| Activity {
                since,
                next_check: now + gap.max(least),
            })
        });
        let changed = self.others_wrote(conn);
        if changed {
            let steady = now - self.last_change < STEADY_WITHIN;
            self.unrelated = if steady {
                DOUBLINGS_MAX.min(self.unrelated + 1)
            } else {
                0
            };
            self.last_change = now;
        }
        changed
    }
}

/// Watches of the kernel.
#[derive(Debug)]
struct FileWatches {
    /// Lock files that were open for writing: owners open theirs so, observers do not.
    owners: FileWatch,
    /// The journal. It exists as long as any connection is open, and this one is.
    journal: FileWatch,
}

impl FileWatches {
    fn of(database: &Path, owners: &Path) -> io::Result<Self> {
        Ok(Self {
            owners: FileWatch::new(owners, EventKind::Closing)?,
            journal: FileWatch::new(&beside(database, WAL), EventKind::Writes)?,
        })
    }
}

/// Resolves when an owner has closed its lock file; never, if the kernel can't report that.
async fn owner_left(watches: Option<&FileWatches>) {
    match watches {
        Some(watches) => watches.owners.changed().await,
        None => pending().await,
    }
}

/// Resolves when the journal was written to, but not before `listen_from`; never, if the kernel can't
/// report that.
async fn journal_written(watches: Option<&FileWatches>, listen_from: Instant) {
    if Instant::now() < listen_from {
        sleep_until(listen_from).await;
    }
    match watches {
        Some(watches) => watches.journal.changed().await,
        None => pending().await,
    }
}

/// Resolves at that time; never, if there is none.
async fn at(timer: Option<&FineTimer>, when: Option<Instant>) {
    let Some(when) = when else {
        return pending().await;
    };
    let waited = match timer {
        Some(timer) => timer.at(when).await.is_ok(),
        None => false,
    };
    if !waited {
        sleep_until(when).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_often_at_first_and_not_for_ever() {
        let looks = |from: u64| {
            let mut age = Duration::from_millis(from);
            std::iter::from_fn(|| {
                let gap = recheck_gap(age)?;
                age += gap;
                Some(gap)
            })
            .collect::<Vec<_>>()
        };
        let all = looks(0);
        assert!(all.len() < 100, "{} looks", all.len());
        assert!(all[..16].iter().all(|gap| *gap == RECHECK_GAP));
        // A commit that took long is seen after a small share of its duration.
        assert!(recheck_gap(Duration::from_millis(80)).unwrap() <= Duration::from_millis(5));
        assert!(recheck_gap(Duration::from_millis(800)).unwrap() <= Duration::from_millis(200));
        assert_eq!(recheck_gap(RECHECK_FOR), None);
    }
}
