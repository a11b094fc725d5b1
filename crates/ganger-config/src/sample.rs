//! The rules of a pool, and a ledger, for tests of other crates.

use std::collections::BTreeMap;
use std::time::Duration;

use ganger_core::backoff::Backoff;
use ganger_protocol::status::Answer;

use crate::model::{
    Database, Keep, LedgerConfig, Limits, LogLimits, Options, Pipeline, PoolConfig, Prefetch,
    Record, Recycle, Restart, Retry, TableSource, WorkerCommand, Workers,
};

/// Returns a ledger in that file, which records as told.
pub fn ledger(path: &str, record: Record) -> LedgerConfig {
    LedgerConfig {
        source: "main".to_owned(),
        table: TableSource {
            database: Database::Sqlite(path.into()),
            mode: 0o600,
            poll_interval: Duration::from_millis(500),
            lease: Duration::from_secs(30),
        },
        is_embedded: false,
        group: "main".to_owned(),
        keep: Keep::all(Duration::from_secs(86_400)),
        record,
        log: LogLimits::default(),
    }
}

/// Returns the rules of pool `p`, which reads queue `q` of source `s` with one worker.
pub fn policy() -> PoolConfig {
    let backoff = Backoff {
        initial: Duration::from_secs(1),
        factor: 2.0,
        max: Duration::from_secs(60),
        jitter: 0.0,
    };
    PoolConfig {
        name: "p".into(),
        source: "s".into(),
        queue: "q".into(),
        workers: Workers::Fixed(1),
        command: WorkerCommand {
            program: "true".into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
            user: None,
            limits: Limits::default(),
        },
        prefetch: Prefetch::Auto,
        pipeline: Pipeline::Auto,
        frame_bytes_max: 1024,
        timeout: None,
        timeout_grace: Duration::from_secs(5),
        stall_timeout: None,
        on_timeout: None,
        start_timeout: Duration::from_secs(30),
        stop_timeout: Duration::from_secs(5),
        crashes_max: 3,
        lapses_max: 10,
        steps_max: 100,
        retry: Retry {
            attempts: 5,
            backoff,
            in_place_max: Duration::from_secs(30),
        },
        breaker: None,
        recycle: Recycle::default(),
        restart: Restart {
            backoff,
            surge: 1,
            success: 3,
        },
        statuses: BTreeMap::from([(404, Answer::Reject), (299, Answer::Done)]),
        publish_to: None,
        idempotency: None,
        record: None,
        options: Options::Table,
    }
}
