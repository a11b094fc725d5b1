//! What there may be an alert of, and what is said of it.

use std::time::SystemTime;

use serde_json::{Map, Value};

/// What an alert is about. A closed set: it labels metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AlertKind {
    /// The workers of a pool fail one after the other, so that it does nothing but try.
    PoolDegraded,
    /// A source can't be used by a pool that reads from it.
    SourceDown,
    /// Many messages of a pool are dead-lettered.
    DeadLetters,
    /// Workers of a pool crash again and again, whatever others of them do.
    CrashLoop,
    /// A message waits for long in the queue of a pool.
    Waiting,
    /// The last rolling restart of a pool has stopped: not all its workers are as they should be.
    RollStopped,
    /// Nothing: somebody tries whether messages arrive.
    Test,
}

impl AlertKind {
    /// All that there may really be.
    pub(super) const ALL: [Self; 6] = [
        Self::PoolDegraded,
        Self::SourceDown,
        Self::DeadLetters,
        Self::CrashLoop,
        Self::Waiting,
        Self::RollStopped,
    ];

    /// The name in messages and metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::PoolDegraded => "pool_degraded",
            Self::SourceDown => "source_down",
            Self::DeadLetters => "dead_letters",
            Self::CrashLoop => "crash_loop",
            Self::Waiting => "waiting",
            Self::RollStopped => "roll_stopped",
            Self::Test => "test",
        }
    }

    /// Whether it may come and go by itself, so that it has to last before it is told. A decision, as
    /// that of stopping a rolling restart, stays until it is mended.
    pub(super) fn flaps(self) -> bool {
        self != Self::RollStopped
    }
}

/// What tells one alert from another: its kind, and the pool or the source that it is about.
pub(super) type AlertKey = (AlertKind, String);

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finding {
    /// What.
    pub(super) kind: AlertKind,
    /// The pool; none where it is about a source that several have.
    pub(super) pool: Option<String>,
    /// The source.
    pub(super) source: String,
    /// The queue, where there is one pool.
    pub(super) queue: Option<String>,
    /// A sentence for people.
    pub(super) summary: String,
    /// Numbers, reasons and errors, by name.
    pub(super) details: Map<String, Value>,
}

impl Finding {
    /// The pool or the source that it is about.
    pub(super) fn subject(&self) -> &str {
        let of_pool = self
            .pool
            .as_deref()
            .filter(|_| self.kind != AlertKind::SourceDown);
        of_pool.unwrap_or(&self.source)
    }

    /// What tells it from others.
    pub(super) fn key(&self) -> AlertKey {
        (self.kind, self.subject().to_owned())
    }
}

/// Something that is wrong, and has been for as long as it takes to be told.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Alert {
    /// What.
    pub(super) finding: Finding,
    /// Since when.
    pub(super) since: SystemTime,
}

/// Why something is told to be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// It is right again.
    Over,
    /// The pool, or the last one on the source, is gone.
    PoolGone,
    /// The configuration has it told elsewhere from now on, or nowhere.
    Unwatched,
    /// The daemon stops, and nobody looks any more.
    DaemonStops,
}

impl Ended {
    /// The name in messages.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Over => "over",
            Self::PoolGone => "pool_gone",
            Self::Unwatched => "unwatched",
            Self::DaemonStops => "daemon_stops",
        }
    }
}

/// A sentence on the end of it.
pub(super) fn farewell(finding: &Finding, ended: Ended) -> String {
    let subject = finding.subject();
    let what = match finding.kind {
        AlertKind::PoolDegraded => format!("pool `{subject}` was degraded"),
        AlertKind::SourceDown => format!("source `{subject}` could not be used"),
        AlertKind::DeadLetters => format!("many messages of pool `{subject}` were dead-lettered"),
        AlertKind::CrashLoop => format!("workers of pool `{subject}` crashed again and again"),
        AlertKind::Waiting => format!("messages of pool `{subject}` waited for long"),
        AlertKind::RollStopped => format!("a rolling restart of pool `{subject}` had stopped"),
        AlertKind::Test => "this was a test of ganger's alerts".to_owned(),
    };
    let end = match (ended, finding.kind) {
        (Ended::Over, AlertKind::PoolDegraded) => "it works again",
        (Ended::Over, AlertKind::SourceDown) => "it can be used again",
        (
            Ended::Over,
            AlertKind::DeadLetters | AlertKind::CrashLoop | AlertKind::Waiting | AlertKind::Test,
        ) => "that is over",
        (Ended::Over, AlertKind::RollStopped) => "a later one is done",
        (Ended::PoolGone, AlertKind::SourceDown) => "no pool reads from it any more",
        (Ended::PoolGone, _) => "the pool is gone",
        (Ended::Unwatched, _) => "alerts are not sent here any more",
        (Ended::DaemonStops, _) => "the daemon stops and looks no more",
    };
    format!("{what}: {end}")
}
