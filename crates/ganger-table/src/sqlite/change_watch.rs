//! Being woken by other processes: the kernel tells when the journal is written to and when a lock
//! file is closed. Where it can't, nothing wakes us and the poll has to do.
//!
//! A write to the journal is seen *before* the commit becomes visible, since SQLite syncs in
//! between and then publishes the commit in shared memory, of which no one is told. So a write
//! only begins a time in which we look at `PRAGMA data_version`, often at first, then rarely.

use std::future::pending;
use std::io;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use tokio::time::{Instant, sleep_until};

use super::inotify::{Bell, Of, only_polled};
use super::timerfd::FineTimer;
use crate::table::LookReason;

/// How long a commit may take from the journal's write on for us to see it without the poll.
const RECHECK_FOR: Duration = Duration::from_secs(10);

/// The least time between two looks at the version.
const RECHECK_GAP: Duration = Duration::from_micros(200);

/// News that come this soon one after the other, none of them for us, are someone else's steady
/// work: each doubles the least time, so often at the most. A queue that is idle beside busy ones
/// then wakes up a few hundred times a second, and is still told within 5 ms.
const STEADY_WITHIN: Duration = Duration::from_millis(20);
const DOUBLINGS_MAX: u32 = 4;

/// How long to wait for the next look when the journal was last written to so long ago.
fn recheck_gap(age: Duration) -> Option<Duration> {
    (age < RECHECK_FOR).then(|| (age / 16).max(RECHECK_GAP))
}

/// Waits for other connections and processes.
#[derive(Debug)]
pub(crate) struct Wake {
    kernel: Option<News>,
    /// None where the kernel has no such timer: then a look may be a tick of the runtime late.
    timer: Option<FineTimer>,
    activity: Option<Activity>,
    checked: Instant,
    last_news: Instant,
    /// News in a row that were not for us.
    fruitless: u32,
    version: Option<i64>,
}

#[derive(Debug, Clone, Copy)]
struct Activity {
    since: Instant,
    next_check: Instant,
}

impl Wake {
    /// Begins to listen. Must be called within a runtime that drives I/O and time.
    pub(crate) fn listen(database: &Path, owners: &Path, conn: &Connection) -> Self {
        let kernel = News::of(database, owners);
        if let Err(error) = &kernel {
            only_polled(database, error);
        }
        let now = Instant::now();
        // A commit may be under way whose write to the journal we were too late to hear of.
        let activity = Activity {
            since: now,
            next_check: now + RECHECK_GAP,
        };
        let mut wake = Self {
            kernel: kernel.ok(),
            timer: FineTimer::new().ok(),
            activity: Some(activity),
            checked: now,
            last_news: now,
            fruitless: 0,
            version: None,
        };
        wake.others_wrote(conn);
        wake
    }

    /// Whether another connection has committed since this was last asked.
    pub(crate) fn others_wrote(&mut self, conn: &Connection) -> bool {
        let version = conn
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
            .ok();
        // What can't be told counts as a change: a look too many does no harm.
        let changed = version.is_none() || version != self.version;
        self.version = version;
        changed
    }

    /// Resolves when an owner has closed its lock file, or, if there is use for `news`, when
    /// another connection has committed. Loses nothing when it is dropped.
    ///
    /// Who is busy has no use for news and does not listen: sources that work on one file do not wake
    /// each other with each commit.
    pub(crate) async fn woken(&mut self, conn: &Connection, news: bool) -> LookReason {
        loop {
            let next_check = self.activity.map(|activity| activity.next_check);
            let listen_from = self.checked + self.least_gap();
            let kernel = self.kernel.as_ref();
            tokio::select! {
                biased;
                () = owner_left(kernel) => return LookReason::Owners,
                () = journal_written(kernel, listen_from), if news => self.note_activity(),
                () = at(self.timer.as_ref(), next_check), if news => {
                    if self.check(conn) {
                        return LookReason::Data;
                    }
                }
            }
        }
    }

    /// The last news were for us.
    pub(crate) fn was_fruitful(&mut self) {
        self.fruitless = 0;
    }

    fn least_gap(&self) -> Duration {
        RECHECK_GAP * (1 << self.fruitless)
    }

    fn note_activity(&mut self) {
        let now = Instant::now();
        self.activity = Some(Activity {
            since: now,
            next_check: now.max(self.checked + self.least_gap()),
        });
    }

    /// A change does not end the looking: it may be an earlier commit than the one that is just
    /// being written.
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
        let news = self.others_wrote(conn);
        if news {
            let steady = now - self.last_news < STEADY_WITHIN;
            self.fruitless = if steady {
                DOUBLINGS_MAX.min(self.fruitless + 1)
            } else {
                0
            };
            self.last_news = now;
        }
        news
    }
}

/// What the kernel tells.
#[derive(Debug)]
struct News {
    /// Owners have theirs open for writing, those who only look do not.
    owners: Bell,
    /// The journal stays as long as anyone has the database open, and we have.
    journal: Bell,
}

impl News {
    fn of(database: &Path, owners: &Path) -> io::Result<Self> {
        let mut journal = database.as_os_str().to_owned();
        journal.push("-wal");
        Ok(Self {
            owners: Bell::hang(owners, Of::Closing)?,
            journal: Bell::hang(Path::new(&journal), Of::Writes)?,
        })
    }
}

/// Resolves when an owner has closed its lock file; never, if that can't be told.
async fn owner_left(news: Option<&News>) {
    match news {
        Some(news) => news.owners.rung().await,
        None => pending().await,
    }
}

/// Resolves when the journal was written to, but not before that time; never, if that can't be told.
async fn journal_written(news: Option<&News>, listen_from: Instant) {
    if Instant::now() < listen_from {
        sleep_until(listen_from).await;
    }
    match news {
        Some(news) => news.journal.rung().await,
        None => pending().await,
    }
}

/// Resolves then; never, if there is no such time.
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
        assert!(all.len() < 250, "{} looks", all.len());
        assert!(all[..16].iter().all(|gap| *gap == RECHECK_GAP));
        // A commit that took long is seen within a small share of that.
        assert!(recheck_gap(Duration::from_millis(80)).unwrap() <= Duration::from_millis(5));
        assert_eq!(recheck_gap(RECHECK_FOR), None);
    }
}
