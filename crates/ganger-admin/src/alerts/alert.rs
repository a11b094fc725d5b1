//! Kinds of alerts, and their texts.

use std::time::SystemTime;

use serde_json::{Map, Value};

use crate::browser::HOME;
use crate::ui::{pool_path, schedule_path};

/// Kind of an alert. A closed set: it labels metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AlertKind {
    /// The workers of a pool fail one after the other, so that it only retries.
    PoolDegraded,
    /// Workers of a pool do not get as far as connecting.
    WorkersNotStarting,
    /// A source can't be used by a pool that reads from it.
    SourceDown,
    /// Nearly all attempts of a pool fail, so that it tries one message at a time.
    BreakerOpen,
    /// Many messages of a pool are dead-lettered.
    DeadLetters,
    /// Workers of a pool crash again and again, regardless of the others.
    CrashLoop,
    /// A message has waited for long in the queue of a pool.
    Waiting,
    /// The last rolling restart of a pool has stopped: not all its workers are as they should be.
    RollStopped,
    /// An operator has paused a pool's intake for long.
    PoolPaused,
    /// The last reload of the configuration was refused.
    ReloadRefused,
    /// The ledger can't be used: no schedule is dispatched.
    LedgerDown,
    /// The ledger is not told what becomes of messages.
    LedgerBehind,
    /// A schedule is broken, or disabled because its runs have failed.
    ScheduleStopped,
    /// Something that is expected of a schedule did not happen in time.
    ScheduleOverdue,
    /// Messages of schedules can't be published to their source.
    ScheduleUnsent,
    /// A webhook accepts no alerts.
    WebhookFailing,
    /// No problem: a test of the delivery of messages.
    Test,
}

/// Kind of subject of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// A pool.
    Pool,
    /// A source.
    Source,
    /// A schedule.
    Schedule,
    /// The daemon itself.
    Daemon,
}

/// Urgency of an alert, in the words of PagerDuty and of Prometheus' users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    /// Messages wait that should not.
    Critical,
    /// Something needs attention.
    Warning,
    /// Nothing is wrong.
    Info,
}

impl Severity {
    /// Returns the name in messages.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// Properties of a kind.
struct KindInfo {
    kind: AlertKind,
    name: &'static str,
    scope: Scope,
    severity: Severity,
    /// True if the problem may come and go by itself, so that it has to last before an alert is sent. A
    /// decision, as that of stopping a rolling restart, stays until it is fixed.
    flaps: bool,
    /// Sentence on the problem once it is resolved, where `{}` is its subject.
    was: &'static str,
    /// Sentence on its end.
    over: &'static str,
}

/// Properties of all kinds, in their order.
const FACTS: [KindInfo; 17] = [
    KindInfo {
        kind: AlertKind::PoolDegraded,
        name: "pool_degraded",
        scope: Scope::Pool,
        severity: Severity::Critical,
        flaps: true,
        was: "pool `{}` was degraded",
        over: "it works again",
    },
    KindInfo {
        kind: AlertKind::WorkersNotStarting,
        name: "workers_not_starting",
        scope: Scope::Pool,
        severity: Severity::Critical,
        flaps: true,
        was: "workers of pool `{}` could not start",
        over: "they start again",
    },
    KindInfo {
        kind: AlertKind::SourceDown,
        name: "source_down",
        scope: Scope::Source,
        severity: Severity::Critical,
        flaps: true,
        was: "source `{}` was unavailable",
        over: "it is available again",
    },
    KindInfo {
        kind: AlertKind::BreakerOpen,
        name: "breaker_open",
        scope: Scope::Pool,
        severity: Severity::Warning,
        flaps: true,
        was: "the breaker of pool `{}` was open",
        over: "it is closed again",
    },
    KindInfo {
        kind: AlertKind::DeadLetters,
        name: "dead_letters",
        scope: Scope::Pool,
        severity: Severity::Warning,
        flaps: true,
        was: "many messages of pool `{}` were dead-lettered",
        over: "back within the limit",
    },
    KindInfo {
        kind: AlertKind::CrashLoop,
        name: "crash_loop",
        scope: Scope::Pool,
        severity: Severity::Warning,
        flaps: true,
        was: "workers of pool `{}` crashed repeatedly",
        over: "back within the limit",
    },
    KindInfo {
        kind: AlertKind::Waiting,
        name: "waiting",
        scope: Scope::Pool,
        severity: Severity::Warning,
        flaps: true,
        was: "messages of pool `{}` waited for a long time",
        over: "back within the limit",
    },
    KindInfo {
        kind: AlertKind::RollStopped,
        name: "roll_stopped",
        scope: Scope::Pool,
        severity: Severity::Warning,
        flaps: false,
        was: "a rolling restart of pool `{}` stopped",
        over: "a later one is completed",
    },
    KindInfo {
        kind: AlertKind::PoolPaused,
        name: "pool_paused",
        scope: Scope::Pool,
        severity: Severity::Warning,
        flaps: false,
        was: "the intake of pool `{}` was stopped for a long time by an operator",
        over: "intake resumed",
    },
    KindInfo {
        kind: AlertKind::ReloadRefused,
        name: "reload_refused",
        scope: Scope::Daemon,
        severity: Severity::Warning,
        flaps: false,
        was: "a reload of the configuration was refused",
        over: "a later one was carried out",
    },
    KindInfo {
        kind: AlertKind::LedgerDown,
        name: "ledger_down",
        scope: Scope::Daemon,
        severity: Severity::Critical,
        flaps: true,
        was: "the ledger could not be used",
        over: "schedules are dispatched again",
    },
    KindInfo {
        kind: AlertKind::LedgerBehind,
        name: "ledger_behind",
        scope: Scope::Daemon,
        severity: Severity::Warning,
        flaps: true,
        was: "the ledger was behind what has become of messages",
        over: "it shows their states again",
    },
    KindInfo {
        kind: AlertKind::ScheduleStopped,
        name: "schedule_stopped",
        scope: Scope::Schedule,
        severity: Severity::Warning,
        flaps: false,
        was: "schedule `{}` dispatched nothing",
        over: "it is active again or removed",
    },
    KindInfo {
        kind: AlertKind::ScheduleOverdue,
        name: "schedule_overdue",
        scope: Scope::Schedule,
        severity: Severity::Critical,
        flaps: false,
        was: "schedule `{}` was overdue",
        over: "it is no longer overdue, or is stopped",
    },
    KindInfo {
        kind: AlertKind::ScheduleUnsent,
        name: "schedule_unsent",
        scope: Scope::Daemon,
        severity: Severity::Critical,
        flaps: true,
        was: "messages of schedules could not be published to source `{}`",
        over: "they are published again",
    },
    KindInfo {
        kind: AlertKind::WebhookFailing,
        name: "webhook_failing",
        scope: Scope::Daemon,
        severity: Severity::Warning,
        flaps: true,
        was: "the webhook `{}` did not accept alerts",
        over: "it accepts them again",
    },
    KindInfo {
        kind: AlertKind::Test,
        name: "test",
        scope: Scope::Daemon,
        severity: Severity::Info,
        flaps: true,
        was: "this was a test of ganger's alerts",
        over: "the test has ended",
    },
];

impl AlertKind {
    /// Returns all kinds but the test.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let real = FACTS.iter().filter(|facts| facts.kind != Self::Test);
        real.map(|facts| facts.kind)
    }

    fn facts(self) -> &'static KindInfo {
        &FACTS[self as usize]
    }

    /// Returns the name in messages and metrics.
    pub(super) fn as_str(self) -> &'static str {
        self.facts().name
    }

    /// Returns the kind of its subject.
    pub(super) fn scope(self) -> Scope {
        self.facts().scope
    }

    /// Returns its urgency.
    pub(super) fn severity(self) -> Severity {
        self.facts().severity
    }

    /// Returns whether it may come and go by itself, so that it has to last before an alert is sent.
    pub(super) fn flaps(self) -> bool {
        self.facts().flaps
    }
}

/// Identity of an alert: its kind and its subject, which is a pool, a source, a schedule, a webhook,
/// `ledger` or `configuration`.
pub(super) type AlertKey = (AlertKind, String);

/// A problem.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finding {
    /// Its kind.
    pub(super) kind: AlertKind,
    /// The pool, the source, the schedule, the webhook, `ledger` or `configuration`.
    pub(super) subject: String,
    /// The pool; none for a problem of a source that several share, or of no pool.
    pub(super) pool: Option<String>,
    /// The source, if the problem is about one or about its pool.
    pub(super) source: Option<String>,
    /// The queue, if there is one pool.
    pub(super) queue: Option<String>,
    /// A sentence for people.
    pub(super) summary: String,
    /// Numbers and reasons, by name.
    pub(super) details: Map<String, Value>,
    /// The last error, if there is one.
    pub(super) error: Option<String>,
    /// Last lines on stderr of the worker that it is about.
    pub(super) stderr: Vec<String>,
    /// Command that shows more or fixes it.
    pub(super) command: String,
}

impl Finding {
    /// Returns the path of the page about its subject.
    pub(super) fn page(&self) -> String {
        match (&self.pool, self.kind.scope()) {
            (Some(pool), _) => pool_path(pool),
            (None, Scope::Schedule) => schedule_path(&self.subject),
            (None, Scope::Pool | Scope::Source | Scope::Daemon) => HOME.to_owned(),
        }
    }

    /// Returns its identity.
    pub(super) fn key(&self) -> AlertKey {
        (self.kind, self.subject.clone())
    }
}

/// A problem that has lasted long enough for an alert.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Alert {
    /// The problem.
    pub(super) finding: Finding,
    /// Its beginning.
    pub(super) since: SystemTime,
}

/// Reason for the end of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The problem is resolved.
    Over,
    /// The pool, or the last one on the source, was removed.
    PoolGone,
    /// The configuration sends the alert elsewhere from now on, or nowhere.
    Unwatched,
    /// The daemon stops, and the problem is no longer observed.
    DaemonStops,
}

impl Ended {
    /// Returns the name in messages.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Over => "over",
            Self::PoolGone => "pool_gone",
            Self::Unwatched => "unwatched",
            Self::DaemonStops => "daemon_stops",
        }
    }
}

/// Returns a sentence on the end of the problem.
pub(super) fn resolution(finding: &Finding, ended: Ended) -> String {
    let &KindInfo {
        scope, was, over, ..
    } = finding.kind.facts();
    let what = was.replace("{}", &finding.subject);
    let end = match ended {
        Ended::Over => over,
        Ended::PoolGone if scope == Scope::Source => "no pool reads from it any more",
        Ended::PoolGone => "the pool has ended",
        Ended::Unwatched => "alerts are no longer sent here",
        Ended::DaemonStops => "the daemon is stopping and no longer watches it",
    };
    format!("{what}: {end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_properties_are_in_the_order_of_the_kinds() {
        for facts in &FACTS {
            assert_eq!(facts.kind.as_str(), facts.name);
        }
    }
}
