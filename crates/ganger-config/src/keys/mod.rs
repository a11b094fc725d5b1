//! Every key of the configuration: its name, kind, bounds, default and meaning, and its place in the
//! model. Reading, reference and schema all come from here.

mod admin;
mod alerts;
mod autopsy;
mod command;
mod idempotency;
mod ledger;
mod pool;
mod rabbitmq;
mod retry;
pub(super) mod schedules;
mod secret_file;
pub(super) mod shared;
mod source;
mod subscriptions;
mod topics;
mod webhook;
mod workers;
pub(super) mod written_schedule;

use std::path::Path;
use std::time::Duration;

use super::changed::Effective;
use super::description::Key;
use super::environment::Environment;
use super::model::{Config, DaemonConfig, LogFormat};
use super::reader::Reader;
use super::value_types::choice::choice;
use super::value_types::{check_name, duration, log_filter, size};
use shared::{DAY, HOUR, ReadContext};

/// Shortest stall timeout: threads show a sign of life each second, and a busy machine may delay some.
const STALL_TIMEOUT_MIN: Duration = Duration::from_secs(3);

/// Reads the whole configuration. If a problem is recorded, the result must not be used.
pub(super) fn config(t: &mut Reader<'_>, around: ReadContext<'_>) -> Config {
    let daemon = t.table("daemon", "Settings of the daemon itself.", daemon);
    let sources = t.tables(
        "sources",
        "Connections that pools read from, each under a name of your choice.",
        check_name,
        |t| source::read(t, around),
    );
    if sources.is_empty() && !t.has("sources") {
        t.missing(
            "sources",
            "write [sources.main] with kind = \"table\" and a url",
        );
    }
    let pools = pool::read_all(t, &sources, around);
    let subscriptions = subscriptions::read_all(t, &sources);
    let (ledger, schedules) = schedules::read_all(t, &sources, &pools, around);
    let admin = t.table(
        "admin",
        "The admin API, for inspecting and controlling a running daemon.",
        |t| admin::admin(t, around),
    );
    let telemetry = t.table(
        "telemetry",
        "Export of metrics, traces and log records.",
        admin::telemetry,
    );
    let alerts = alerts::alerts(t, around);
    Config {
        daemon,
        admin,
        telemetry,
        alerts,
        sources,
        pools,
        subscriptions,
        ledger,
        schedules,
        effective: Effective::new(),
    }
}

/// Returns the description of every key.
pub(super) fn describe() -> Vec<Key> {
    Reader::describe(|t| {
        let environment = Environment::new();
        let around = ReadContext {
            directory: Path::new(""),
            environment: &environment,
        };
        config(t, around)
    })
}

fn daemon(t: &mut Reader<'_>) -> DaemonConfig {
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    DaemonConfig {
        drain_timeout: t.or(
            "drain_timeout",
            duration(Duration::ZERO..=DAY),
            "30s",
            "Maximum time for work in flight to finish when the daemon is asked to stop.",
        ),
        log_level: t.or(
            "log_level",
            log_filter(),
            "info",
            "Log records to write: a level, or a filter such as `info,ganger_pool=debug`.",
        ),
        log_format: t.or(
            "log_format",
            choice(&[
                ("auto", LogFormat::Auto),
                ("text", LogFormat::Text),
                ("json", LogFormat::Json),
            ]),
            "auto",
            "Format of log records: text, JSON, or `auto` for text on a terminal and JSON \
             otherwise.",
        ),
        buffered_bytes_max: t
            .maybe(
                "buffered_bytes_max",
                size(1 << 24..=1 << 40),
                "Maximum total size of the messages that all pools hold in memory; each pool may \
                 hold one message in any case. If omitted, a quarter of the memory of the machine, \
                 or of the cgroup that the daemon runs in.",
            )
            .map(bytes),
        stall_timeout: t.or(
            "stall_timeout",
            duration(STALL_TIMEOUT_MIN..=HOUR),
            "60s",
            "Time after which an unresponsive thread of the daemon counts as stalled: that is \
             logged, and the service manager's watchdog is no longer fed.",
        ),
    }
}
