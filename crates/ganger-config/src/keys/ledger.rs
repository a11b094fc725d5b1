//! The keys of `[ledger]`, and the ledger without them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::shared::{DAY, HOUR, ReadContext};
use crate::model::{Database, Keep, LedgerConfig, LogLimits, Record, SourceConfig, TableSource};
use crate::reader::Reader;
use crate::reader::either::Either;
use crate::value_types::choice::{Choice, choice};
use crate::value_types::{Wrong, duration, integer, name, size, word};
use ganger_core::suggest::nearest;
use ganger_schedule::occurrence::OccurrenceState;

/// Longest time for which occurrences are kept.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
/// Name of a configuration, if it gives none.
const GROUP: &str = "main";
/// Time for which occurrences are kept, if there is no `[ledger]`.
const KEEP: Duration = Duration::from_secs(90 * DAY.as_secs());
/// Name of the embedded ledger where others have the name of their source: no source can have it.
const EMBEDDED: &str = "embedded ledger";
/// Its file.
const FILE: &str = "ledger.db";

/// The messages that the ledger has a record of.
const RECORD: Choice<Record> = choice(&[
    ("scheduled", Record::Scheduled),
    ("failed", Record::Failed),
    ("all", Record::All),
]);

/// Reads the key of a pool that says which of its messages the ledger has a record of.
pub(super) fn record_of_pool(t: &mut Reader<'_>) -> Option<Record> {
    t.maybe(
        "record",
        RECORD,
        "Messages of this pool whose ends the ledger records: `scheduled`, `failed` or `all`. If omitted, \
         as `ledger.record` says.",
    )
}

/// The keys of `[ledger]`.
#[derive(Debug)]
struct LedgerKeys {
    source: Option<String>,
    group: String,
    keep: Keep,
    record: Record,
    log: LogLimits,
}

impl Default for LedgerKeys {
    fn default() -> Self {
        Self {
            source: None,
            group: GROUP.to_owned(),
            keep: Keep::all(KEEP),
            record: Record::default(),
            log: LogLimits::default(),
        }
    }
}

/// Reads the ledger. Returns one if it is needed, or configured.
pub(super) fn read(
    t: &mut Reader<'_>,
    sources: &BTreeMap<String, SourceConfig>,
    is_needed: bool,
    around: ReadContext<'_>,
) -> Option<LedgerConfig> {
    let tables = sources.iter().filter_map(|(name, source)| match source {
        SourceConfig::Table(table) => Some((name.as_str(), table)),
        SourceConfig::RabbitMq(_) | SourceConfig::Kafka(_) => None,
    });
    let tables: BTreeMap<&str, &TableSource> = tables.collect();
    let meaning = "The database that holds the schedules and their occurrences.";
    let given = t.table_if_given("ledger", meaning, |t| keys(t, &tables));
    if !is_needed && given.is_none() {
        return None;
    }
    let keys = given.unwrap_or_default();
    let only = || match tables.keys().collect::<Vec<_>>()[..] {
        [only] => Some((*only).to_owned()),
        _ => None,
    };
    let (source, table, is_embedded) = match keys.source.or_else(only) {
        None => (EMBEDDED.to_owned(), embedded(around), true),
        Some(source) => {
            let table = (*tables.get(source.as_str())?).clone();
            (source, table, false)
        }
    };
    Some(LedgerConfig {
        source,
        table,
        is_embedded,
        group: keys.group,
        keep: keys.keep,
        record: keys.record,
        log: keys.log,
    })
}

fn keys(t: &mut Reader<'_>, tables: &BTreeMap<&str, &TableSource>) -> LedgerKeys {
    let meaning = "Source of kind `table`. If omitted, the only one; if there are none or several, the \
         file `ledger.db` in the directory of `$STATE_DIRECTORY`, in `$XDG_STATE_HOME/ganger`, or \
         beside the configuration.";
    let source = t.maybe("source", word(), meaning);
    if let Some(source) = source.as_deref().filter(|name| !tables.contains_key(name)) {
        let help = match nearest(source, tables.keys().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "name a source of kind `table`, or leave it out".to_owned(),
        };
        t.wrong(
            "source",
            &Wrong::new("must be a source of kind `table`", help),
        );
    }
    let group = t.or(
        "group",
        name(),
        GROUP,
        "Name of this configuration. A daemon removes from the ledger what its configuration has \
         entered and no longer has: configurations with other schedules on the same ledger need \
         other names.",
    );
    let keep = keep(t);
    let record = t.or(
        "record",
        RECORD,
        "scheduled",
        "Messages whose ends are recorded: those of schedules alone, also those that end as dead letters \
         (`failed`), or all. A pool may have its own.",
    );
    let log = log(t);
    LedgerKeys {
        source,
        group,
        keep,
        record,
        log,
    }
}

/// Reads which occurrences are kept.
fn keep(t: &mut Reader<'_>) -> Keep {
    let meaning = "Time for which occurrences are kept after they have ended; the newest of each schedule stays, and its \
         last one that completed. The record of what operators have changed is kept as long. A table has a time for \
         each state.";
    let time = || duration(HOUR..=CENTURY);
    let either = t.or_table("keep", time(), "90d", meaning, |t| {
        let completed = t.or("completed", time(), "90d", "Time for those that completed.");
        let failed = t.or("failed", time(), "90d", "Time for those that failed.");
        let timed_out = t.maybe(
            "timed_out",
            time(),
            "Time for those that timed out. If omitted, that of `failed`.",
        );
        let cancelled = t.or("cancelled", time(), "90d", "Time for those that were cancelled.");
        let skipped = t.or("skipped", time(), "90d", "Time for slots that were skipped.");
        let per_schedule = t.maybe(
            "per_schedule",
            integer(1..=100_000),
            "Maximum number of occurrences of each schedule: the oldest that have ended are removed within minutes of \
             a new one.",
        );
        Keep {
            times: [
                (OccurrenceState::Completed, completed),
                (OccurrenceState::Failed, failed),
                (OccurrenceState::TimedOut, timed_out.unwrap_or(failed)),
                (OccurrenceState::Cancelled, cancelled),
                (OccurrenceState::Skipped, skipped),
            ],
            per_schedule,
        }
    });
    match either {
        Either::Value(time) => Keep::all(time),
        Either::Table(keep) => keep,
    }
}

/// Reads the limits of the log of an occurrence.
fn log(t: &mut Reader<'_>) -> LogLimits {
    let meaning = "Limits of the log that is kept of each occurrence: of what is more, the first fifth and the newest \
         lines are kept, and the others are counted.";
    let given = t.table_if_given("log", meaning, |t| LogLimits {
        lines: t.or(
            "lines",
            integer(0..=1_000_000),
            "1000",
            "Maximum number of lines; 0 keeps no log.",
        ),
        bytes: t.or(
            "bytes",
            size(1 << 10..=1 << 30),
            "256KiB",
            "Maximum size of the lines together.",
        ),
    });
    given.unwrap_or_default()
}

/// Returns the database of a ledger that is in no source.
fn embedded(around: ReadContext<'_>) -> TableSource {
    let set = |name: &str| {
        let value = around.environment.get(name);
        value.map(String::as_str).filter(|value| !value.is_empty())
    };
    // Of several, systemd's first is the one that is meant to be used.
    let service = set("STATE_DIRECTORY").and_then(|all| all.split(':').next());
    let user = set("XDG_STATE_HOME").map(Path::new);
    let user = user.filter(|directory| directory.is_absolute());
    let directory = match (service, user) {
        (Some(service), _) => PathBuf::from(service),
        (None, Some(user)) => user.join("ganger"),
        (None, None) => around.directory.to_owned(),
    };
    TableSource {
        database: Database::Sqlite(directory.join(FILE)),
        mode: 0o600,
        poll_interval: Duration::from_millis(500),
        lease: Duration::from_secs(30),
    }
}
