//! Rate limit for repeated log records: the first of a second are written, the others counted, and when
//! the second is over one record reports their number. Only records at the levels for operators are
//! limited: a more verbose log stays complete.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

use super::context;
use super::context::NamedContext;

/// Maximum number of records with the same text written per second.
const WRITTEN_MAX: u32 = 100;

/// Period over which repeated records are counted.
pub(super) const WINDOW: Duration = Duration::from_secs(1);

/// Maximum number of different records counted at once; any beyond are written.
const KINDS_MAX: usize = 1024;

/// Maximum bytes of a message in the record with its count.
const MESSAGE_BYTES_MAX: usize = 200;

/// Target of records of workers, which have limits of their own.
const OF_WORKERS: &str = "worker::";

/// Targets of the status report, which is written on request and has a record for each worker.
const OF_REPORTS: [&str; 2] = ["ganger_pool::overview", "ganger_pool::status"];

/// The log's rate limit.
pub(super) static REPEATS: LazyLock<Repeats> = LazyLock::new(Repeats::default);

/// Counts of repeated records.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    kinds: Mutex<HashMap<u64, Kind>>,
    /// Records left out since the start.
    left_out: AtomicU64,
}

/// Records with the same text: begin of the period, and their number.
#[derive(Debug)]
struct Kind {
    since: Instant,
    count: u32,
    /// Their text: kept once some are left out.
    what: Option<RecordKey>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct RecordKey {
    message: String,
    pool: Option<String>,
}

/// Number of records of a kind that were left out.
#[derive(Debug, PartialEq, Eq)]
struct LeftOut {
    what: RecordKey,
    count: u32,
}

impl Repeats {
    /// Returns whether a record is written. Also notes here which context it names itself.
    pub(super) fn takes(&self, event: &Event<'_>) -> bool {
        let metadata = event.metadata();
        let is_looked_at = *metadata.level() <= Level::INFO && !is_exempt(metadata.target());
        let mut saying = RepeatEntry::default();
        saying.hasher.write(metadata.target().as_bytes());
        event.record(&mut saying);
        context::says(saying.said);
        if !is_looked_at {
            return true;
        }
        if !saying.said.pool {
            context::pool(|pool| pool.map(|pool| saying.hasher.write(pool.as_bytes())));
        }
        let what = || RecordKey::of(event);
        self.counts(saying.hasher.finish(), what, Instant::now())
    }

    /// Counts one more record of that kind; returns whether it is written.
    fn counts(&self, kind: u64, what: impl FnOnce() -> RecordKey, now: Instant) -> bool {
        let mut kinds = self.kinds();
        if let Some(known) = kinds.get_mut(&kind)
            && now - known.since < WINDOW
        {
            known.count += 1;
            if known.count <= WRITTEN_MAX {
                return true;
            }
            known.what.get_or_insert_with(what);
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        if kinds.get(&kind).is_some_and(|known| known.what.is_some()) {
            // Its last period is about to be reported.
            return true;
        }
        if kinds.len() >= KINDS_MAX {
            kinds.retain(|_, kind| now - kind.since < WINDOW || kind.what.is_some());
        }
        if kinds.len() < KINDS_MAX {
            let first = Kind {
                since: now,
                count: 1,
                what: None,
            };
            kinds.insert(kind, first);
        }
        true
    }

    /// Writes the number of left-out records for each period that is over.
    pub(super) fn tell(&self, now: Instant) {
        for LeftOut { what, count } in self.over(now) {
            let RecordKey { message, pool } = what;
            tracing::warn!(
                pool,
                left_out = count,
                "identical records suppressed: {message}"
            );
        }
    }

    /// Returns whether some were left out and not reported yet.
    pub(super) fn are_pending(&self) -> bool {
        self.left_out() > 0 && self.kinds().values().any(|kind| kind.what.is_some())
    }

    fn over(&self, now: Instant) -> Vec<LeftOut> {
        let mut kinds = self.kinds();
        let over = |_: &u64, kind: &mut Kind| now - kind.since >= WINDOW;
        let over = kinds.extract_if(over);
        let left_out = |(_, kind): (u64, Kind)| {
            let count = kind.count - WRITTEN_MAX.min(kind.count);
            kind.what.map(|what| LeftOut { what, count })
        };
        over.filter_map(left_out).collect()
    }

    /// Returns the number of records left out since the start.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Locks the counts. The guarded value is never left half changed.
    fn kinds(&self) -> MutexGuard<'_, HashMap<u64, Kind>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_exempt(target: &str) -> bool {
    target.starts_with(OF_WORKERS) || target == module_path!() || OF_REPORTS.contains(&target)
}

/// Content by which a record is the same as another: its message, its pool and its worker, since an event
/// of one worker or pool is no repetition of another's.
#[derive(Default)]
struct RepeatEntry {
    hasher: DefaultHasher,
    said: NamedContext,
}

impl Visit for RepeatEntry {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" | "worker" => {}
            "pool" => self.said.pool = true,
            "trace_id" => return self.said.span = true,
            _ => return,
        }
        // Writing into the hash never fails.
        write!(Hashing(&mut self.hasher), "{value:?}").unwrap_or_default();
    }
}

struct Hashing<'a>(&'a mut DefaultHasher);

impl Write for Hashing<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl RecordKey {
    fn of(event: &Event<'_>) -> Self {
        let mut told = RecordFields::default();
        event.record(&mut told);
        told.message
            .truncate(told.message.floor_char_boundary(MESSAGE_BYTES_MAX));
        Self {
            pool: told
                .pool
                .or_else(|| context::pool(|pool| Some(pool?.to_owned()))),
            message: told.message,
        }
    }
}

#[derive(Default)]
struct RecordFields {
    message: String,
    pool: Option<String>,
}

impl Visit for RecordFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "pool" {
            self.pool = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(message: &str) -> RecordKey {
        RecordKey {
            message: message.to_owned(),
            pool: Some("p".to_owned()),
        }
    }

    #[test]
    fn the_first_of_a_second_are_written_and_the_others_told_of() {
        let repeats = Repeats::default();
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let written = |kind: u64, count: u64| {
            let taken = (0..count).filter(|n| repeats.counts(kind, || what("m"), after(*n)));
            taken.count()
        };
        assert_eq!(written(1, 500), 100);
        assert_eq!(written(2, 99), 99);
        assert!(repeats.are_pending());
        assert_eq!(repeats.over(after(999)), []);
        assert!(
            repeats.counts(1, || what("m"), after(1_000)),
            "until it is told"
        );
        let told = LeftOut {
            what: what("m"),
            count: 400,
        };
        assert_eq!(repeats.over(after(1_000)), [told]);
        assert!(!repeats.are_pending());
        assert_eq!(repeats.left_out(), 400);
        assert!(
            repeats.counts(1, || what("m"), after(1_001)),
            "a new second"
        );
    }

    /// A pool may have a thousand workers, and the report may be requested often.
    #[test]
    fn a_report_is_written_whole() {
        for report in OF_REPORTS {
            assert!(is_exempt(report));
        }
        assert!(!is_exempt("crate::metrics"));
    }

    #[test]
    fn there_is_a_bound_to_what_is_counted() {
        let repeats = Repeats::default();
        let now = Instant::now();
        for kind in 0..5_000 {
            assert!(repeats.counts(kind, || what("m"), now));
        }
        assert_eq!(repeats.kinds().len(), KINDS_MAX);
        assert!(repeats.counts(9_000, || what("m"), now + WINDOW));
        assert_eq!(repeats.kinds().len(), 1);
    }
}
