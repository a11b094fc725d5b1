//! The problems of a daemon, as its first page lists them: alerts, and what no active alert says, each with its remedy.

use std::collections::VecDeque;
use std::mem::discriminant;
use std::time::SystemTime;

use ganger_pool::overview::{ActiveAlert, Status, UnreadQueueStatus};
use ganger_pool::problems::{DaemonProblem, PoolProblem, daemon_problems, pool_problems};
use ganger_pool::status::PoolStatus;
use maud::{Markup, html};

use super::alerts::path_of;
use super::commands::command;
use super::paths::{ALERTS, CONFIG, SCHEDULES, pool_path, queue_path, schedule_path};
use super::shown::{age, count, since, text};
use super::silences::silence;
use crate::trends::TrendsOfPools;

/// Number of samples that a line shows as one point: a minute.
pub(super) const TOGETHER: usize = 6;

/// Maximum number of rows of a kind, and of names in a row; those beyond are counted.
const NAMES_MAX: usize = 5;

const CRITICAL: &str = "critical";
const WARNING: &str = "warning";

/// A problem, and what helps.
pub(super) struct ProblemRow {
    severity: &'static str,
    what: String,
    since: Option<SystemTime>,
    error: Option<String>,
    remedy: String,
    /// Page of its subject.
    path: Option<String>,
    /// The alert that it is.
    alert: Option<ActiveAlert>,
    /// Number of problems that it stands for.
    number: u64,
}

impl ProblemRow {
    fn new(severity: &'static str, what: String, remedy: String) -> Self {
        Self {
            severity,
            what,
            since: None,
            error: None,
            remedy,
            path: None,
            alert: None,
            number: 1,
        }
    }

    fn because(self, error: Option<String>) -> Self {
        Self { error, ..self }
    }

    fn at(self, path: String) -> Self {
        Self {
            path: Some(path),
            ..self
        }
    }
}

/// Returns the number of problems.
pub(super) fn problem_count(rows: &[ProblemRow]) -> u64 {
    rows.iter().map(|row| row.number).sum()
}

/// Returns the problems: active alerts, and what none of them says.
pub(super) fn problem_rows(status: &Status, trends: &TrendsOfPools) -> Vec<ProblemRow> {
    let mut rows: Vec<ProblemRow> = active(status).map(of_alert).collect();
    for pool in &status.pools {
        rows.extend(of_pool(status, pool, trends));
    }
    let problems = daemon_problems(status);
    let kinds = problems.chunk_by(|one, other| discriminant(one) == discriminant(other));
    for kind in kinds {
        let new = kind.iter().filter(|problem| match alert_of(problem) {
            Some((alert, of)) => !is_told(status, &[alert], of),
            None => true,
        });
        rows.extend(shortened(status, &kind[0], new.map(of_daemon).collect()));
    }
    rows
}

fn active(status: &Status) -> impl Iterator<Item = &ActiveAlert> {
    status.alerts.iter().flat_map(|alerts| &alerts.active)
}

/// Returns whether an active alert of one of these kinds says it of this subject.
fn is_told(status: &Status, kinds: &[&str], of: &str) -> bool {
    active(status).any(|alert| alert.of == of && kinds.contains(&alert.kind.as_str()))
}

/// Keeps the first rows of a kind of which there may be many. One more stands for the others, of which the status may
/// have the number only.
fn shortened(
    status: &Status,
    kind: &DaemonProblem<'_>,
    mut rows: Vec<ProblemRow>,
) -> Vec<ProblemRow> {
    let Some((others, severity, remedy, path)) = others(kind) else {
        return rows;
    };
    let cut = rows.len().saturating_sub(NAMES_MAX);
    rows.truncate(NAMES_MAX);
    let number = unlisted(status, kind) + cut as u64;
    if number > 0 {
        let what = format!("And {} more: {others}", count(number));
        rows.push(ProblemRow {
            number,
            path: path.map(str::to_owned),
            ..ProblemRow::new(severity, what, remedy)
        });
    }
    rows
}

/// Returns others of a kind in words, their severity, the remedy and the page.
fn others(
    kind: &DaemonProblem<'_>,
) -> Option<(&'static str, &'static str, String, Option<&'static str>)> {
    let list = || command(&["schedule", "list"]);
    Some(match kind {
        DaemonProblem::Unsent(..) => (
            "sources to which messages of schedules can't be published",
            CRITICAL,
            command(&["check", "--online"]),
            Some(CONFIG),
        ),
        DaemonProblem::Stopped(_) => (
            "broken or disabled schedules",
            WARNING,
            list(),
            Some(SCHEDULES),
        ),
        DaemonProblem::Overdue(_) => ("overdue schedules", CRITICAL, list(), Some(SCHEDULES)),
        DaemonProblem::Unread(_) => (
            "queues that no pool here reads",
            WARNING,
            command(&["status"]),
            None,
        ),
        DaemonProblem::WebhookFailing(..)
        | DaemonProblem::ReloadRefused(..)
        | DaemonProblem::LedgerDown(_)
        | DaemonProblem::SchedulesHeld(_)
        | DaemonProblem::RestartNeeded(_) => return None,
    })
}

/// Returns the number of problems of a kind that a status counts and does not list.
fn unlisted(status: &Status, kind: &DaemonProblem<'_>) -> u64 {
    let Some(ledger) = &status.ledger else {
        return 0;
    };
    let (all, listed) = match kind {
        DaemonProblem::Overdue(_) => (ledger.overdue_count, ledger.overdue.len()),
        DaemonProblem::Stopped(_) => {
            let states = ["broken", "disabled"].iter();
            let counts = states.filter_map(|state| ledger.schedules.get(*state));
            (counts.sum(), ledger.stopped.len())
        }
        _ => return 0,
    };
    all.saturating_sub(listed as u64)
}

/// Returns the kind of alert that says the same, and its subject.
fn alert_of<'a>(problem: &DaemonProblem<'a>) -> Option<(&'static str, &'a str)> {
    match problem {
        DaemonProblem::WebhookFailing(name, _) => Some(("webhook_failing", name)),
        DaemonProblem::ReloadRefused(..) => Some(("reload_refused", "configuration")),
        DaemonProblem::LedgerDown(_) => Some(("ledger_down", "ledger")),
        DaemonProblem::Unsent(outgoing, _) => Some(("schedule_unsent", &outgoing.source)),
        DaemonProblem::Stopped(schedule) => Some(("schedule_stopped", &schedule.name)),
        DaemonProblem::Overdue(schedule) => Some(("schedule_overdue", &schedule.name)),
        DaemonProblem::SchedulesHeld(_)
        | DaemonProblem::Unread(_)
        | DaemonProblem::RestartNeeded(_) => None,
    }
}

fn of_alert(alert: &ActiveAlert) -> ProblemRow {
    let severity = match alert.severity.as_str() {
        CRITICAL => CRITICAL,
        _ => WARNING,
    };
    ProblemRow {
        since: Some(alert.since),
        path: path_of(alert),
        alert: Some(alert.clone()),
        ..ProblemRow::new(severity, alert.summary.clone(), alert.command.clone())
    }
}

fn of_pool(status: &Status, pool: &PoolStatus, trends: &TrendsOfPools) -> Vec<ProblemRow> {
    let is_new = |problem: &PoolProblem<'_>| {
        let (kinds, of): (&[&str], _) = match problem {
            PoolProblem::SourceDown(_) => (&["source_down"], &pool.source),
            PoolProblem::BreakerOpen(_) => (&["breaker_open"], &pool.name),
            PoolProblem::WorkersFailing(_) => (
                &["pool_degraded", "workers_not_starting", "crash_loop"],
                &pool.name,
            ),
            PoolProblem::RollStopped(_) => (&["roll_stopped"], &pool.name),
            PoolProblem::Unaccounted(_) | PoolProblem::Stale(_) => return true,
        };
        !is_told(status, kinds, of)
    };
    let problems = pool_problems(pool).into_iter().filter(is_new);
    let mut rows: Vec<ProblemRow> = problems.map(|problem| of_one(pool, problem)).collect();
    let is_alerted = active(status).any(|alert| alert.pool.as_ref() == Some(&pool.name));
    if rows.is_empty() && !is_alerted {
        rows.extend(failing(pool, trends));
    }
    rows
}

/// Returns a problem of a pool.
fn about(pool: &PoolStatus, severity: &'static str, what: &str, remedy: String) -> ProblemRow {
    let what = format!("Pool {}: {what}", pool.name);
    ProblemRow::new(severity, what, remedy).at(pool_path(&pool.name))
}

fn of_one(pool: &PoolStatus, problem: PoolProblem<'_>) -> ProblemRow {
    let row = |severity, what: &str, remedy: &str| about(pool, severity, what, remedy.to_owned());
    let (row, why) = match problem {
        PoolProblem::SourceDown(why) => {
            let remedy = "It is tried again by itself; see the source's server.";
            (row(CRITICAL, "its source can't be used", remedy), why)
        }
        PoolProblem::BreakerOpen(why) => {
            let what = "nearly all attempts fail; one message at a time is tried";
            let remedy = "Repair what the workers depend on: the pool goes on by itself.";
            (row(CRITICAL, what, remedy), why)
        }
        PoolProblem::WorkersFailing(why) => {
            let remedy = workers_of(pool);
            (row(CRITICAL, "its workers keep failing", &remedy), why)
        }
        PoolProblem::RollStopped(why) => {
            let what =
                "its rolling restart has stopped, the old workers stay: a new one failed its trial";
            let remedy = "Repair the workers' program, then restart the pool on its page.";
            (row(WARNING, what, remedy), Some(why))
        }
        PoolProblem::Unaccounted(number) => {
            let what = format!("{number} message(s) unaccounted for");
            let remedy = "This is a bug of ganger: report it with the daemon's log.";
            (row(WARNING, &what, remedy), None)
        }
        PoolProblem::Stale(seen) => {
            let seen = age(seen);
            let what = format!("its status is {seen} old: its thread is busy or stuck");
            let remedy = "If it lasts, see the daemon's log, and restart the daemon.";
            (row(WARNING, &what, remedy), None)
        }
    };
    row.because(why.map(str::to_owned))
}

/// Returns the command that shows the last lines of the worker that was lost last; of all workers if none was.
fn workers_of(pool: &PoolStatus) -> String {
    match &pool.last_loss {
        Some(loss) => command(&["output", &pool.name, &loss.slot.to_string()]),
        None => command(&["status", "--workers", "--pool", &pool.name]),
    }
}

/// Returns that a pool has failed more often than not in the last minute.
fn failing(pool: &PoolStatus, trends: &TrendsOfPools) -> Option<ProblemRow> {
    let trend = trends.pools.get(&pool.name)?;
    let last = |figures: &VecDeque<u64>| figures.iter().rev().take(TOGETHER).sum::<u64>();
    let (done, failed) = (last(&trend.done), last(&trend.failed));
    let what = format!(
        "{} attempts have failed in the last minute, {} messages were done",
        count(failed),
        count(done)
    );
    let row = || about(pool, WARNING, &what, workers_of(pool));
    (failed > done).then(|| row().because(pool.last_error.clone()))
}

fn of_daemon(problem: &DaemonProblem<'_>) -> ProblemRow {
    let row =
        |severity, what: &str, remedy: String| ProblemRow::new(severity, what.to_owned(), remedy);
    let (row, why, path) = match problem {
        DaemonProblem::WebhookFailing(name, why) => {
            let what = format!("Webhook {name} did not accept the last message");
            let remedy = command(&["check", "--send-alert"]);
            (row(WARNING, &what, remedy), *why, ALERTS.to_owned())
        }
        DaemonProblem::ReloadRefused(at, why) => {
            let what = "The last reload was refused, nothing has changed";
            let row = ProblemRow {
                since: Some(*at),
                ..row(WARNING, what, command(&["check", "--online"]))
            };
            (row, &**why, CONFIG.to_owned())
        }
        DaemonProblem::LedgerDown(why) => {
            let what = "The ledger can't be used: no schedule is dispatched";
            let remedy = "It is tried again by itself; see the source's server.".to_owned();
            (row(CRITICAL, what, remedy), *why, CONFIG.to_owned())
        }
        DaemonProblem::SchedulesHeld(why) => {
            let remedy = "Resume them on the page of schedules.".to_owned();
            let row = row(WARNING, "All schedules are paused", remedy);
            (row, *why, SCHEDULES.to_owned())
        }
        DaemonProblem::Unsent(outgoing, why) => {
            let number = messages(outgoing.messages, false);
            let source = &outgoing.source;
            let what = format!("{number} of schedules can't be published to source {source}");
            let remedy = command(&["check", "--online"]);
            (row(CRITICAL, &what, remedy), *why, CONFIG.to_owned())
        }
        DaemonProblem::Stopped(schedule) => {
            let what = format!("Schedule {} is {}", schedule.name, schedule.state);
            let remedy = "Repair what the reason says, then resume it on its page.".to_owned();
            let path = schedule_path(&schedule.name);
            (row(WARNING, &what, remedy), &*schedule.reason, path)
        }
        DaemonProblem::Overdue(schedule) => {
            let what = format!("Schedule {} is overdue", schedule.name);
            let remedy = command(&["schedule", "show", &schedule.name]);
            let path = schedule_path(&schedule.name);
            (row(CRITICAL, &what, remedy), &*schedule.overdue, path)
        }
        DaemonProblem::Unread(unread) => return of_unread(unread),
        DaemonProblem::RestartNeeded(keys) => return restart_needed(keys),
    };
    row.because(Some(why.to_owned())).at(path)
}

fn of_unread(unread: &UnreadQueueStatus) -> ProblemRow {
    let UnreadQueueStatus {
        source,
        queue,
        backlog,
    } = unread;
    let wait = match (backlog.depth, backlog.at_least) {
        (1, false) => "waits",
        _ => "wait",
    };
    let oldest = backlog
        .oldest_age()
        .map(|age| format!(", the oldest for {age}"));
    let what = format!(
        "Queue {queue} of {source}: no pool here reads it; {} {wait}{}",
        messages(backlog.depth, backlog.at_least),
        oldest.unwrap_or_default()
    );
    let remedy = "Configure a pool that reads it; its page shows the messages.";
    ProblemRow::new(WARNING, what, remedy.to_owned()).at(queue_path(source, queue))
}

fn restart_needed(keys: &[String]) -> ProblemRow {
    let mut named = keys[..keys.len().min(NAMES_MAX)].join(", ");
    match keys.len().saturating_sub(NAMES_MAX) {
        0 => {}
        more => named.push_str(&format!(" and {more} more")),
    }
    let what = format!("A restart of the daemon is needed for {named}");
    let remedy = "Restart the daemon: until then the former values are in force.".to_owned();
    ProblemRow::new(WARNING, what, remedy).at(CONFIG.to_owned())
}

/// Returns a number of messages in words.
fn messages(number: u64, at_least: bool) -> String {
    match (number, at_least) {
        (1, false) => "1 message".to_owned(),
        (number, false) => format!("{} messages", count(number)),
        (number, true) => format!("{} or more messages", count(number)),
    }
}

/// Lists the problems, if there are any.
pub(super) fn problems(rows: &[ProblemRow]) -> Markup {
    html! {
        @if !rows.is_empty() {
            h2 { "Problems" }
            ul.problems {
                @for row in rows {
                    li.(row.severity) {
                        strong {
                            @match &row.path {
                                Some(path) => a href=(path) { (text(&row.what)) },
                                None => (text(&row.what)),
                            }
                        }
                        @if let Some(at) = row.since { " " (since(at)) }
                        @if let Some(error) = &row.error { p.error { (text(error)) } }
                        p.remedy { code { (text(&row.remedy)) } }
                        @if let Some(alert) = &row.alert { (silence(alert)) }
                    }
                }
            }
        }
    }
}

/// Returns the status of a daemon without problems.
#[cfg(test)]
pub(super) fn calm() -> Status {
    Status {
        version: String::new(),
        pid: 1,
        state: ganger_pool::overview::DaemonState::Running,
        started_at: SystemTime::UNIX_EPOCH,
        uptime_seconds: 0.0,
        log_records_dropped: 0,
        log_records_left_out: 0,
        buffered_bytes: 0,
        buffered_bytes_max: 0,
        wait_for_memory: Vec::new(),
        reload: ganger_pool::request::ReloadStatus::default(),
        alerts: None,
        unread_queues: Vec::new(),
        ledger: None,
        pools: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_pool::overview::{
        AlertsStatus, LedgerStatus, OutgoingStatus, OverdueScheduleStatus, StoppedScheduleStatus,
        WebhookStatus,
    };
    use ganger_pool::status::{BacklogStatus, PoolState};

    fn rows(status: &Status) -> Vec<ProblemRow> {
        problem_rows(status, &TrendsOfPools::default())
    }

    /// Returns the one problem of a status, and checks that an alert of that kind on this subject replaces it.
    fn one(status: Status, told: Option<(&str, &str)>) -> ProblemRow {
        let mut found = rows(&status);
        assert_eq!(problem_count(&found), 1);
        if let Some((kind, of)) = told {
            let alerted = rows(&with_alert(status, kind, of));
            assert_eq!(problem_count(&alerted), 1, "{kind}");
            assert!(alerted[0].alert.is_some(), "{kind}");
        }
        let row = found.pop().unwrap();
        assert!(!row.remedy.is_empty());
        row
    }

    fn with_alert(mut status: Status, kind: &str, of: &str) -> Status {
        let alert = ActiveAlert {
            kind: kind.to_owned(),
            severity: CRITICAL.to_owned(),
            of: of.to_owned(),
            pool: None,
            summary: "alert".to_owned(),
            command: "ganger status".to_owned(),
            since: SystemTime::UNIX_EPOCH,
            silenced: None,
        };
        let alerts = status.alerts.get_or_insert_with(AlertsStatus::default);
        alerts.active.push(alert);
        status
    }

    fn of_ledger(ledger: LedgerStatus) -> Status {
        Status {
            ledger: Some(ledger),
            ..calm()
        }
    }

    fn with_pool(pool: PoolStatus) -> Status {
        Status {
            pools: vec![PoolStatus {
                name: "p".to_owned(),
                source: "main".to_owned(),
                ..pool
            }],
            ..calm()
        }
    }

    fn overdue_ones(number: usize) -> Vec<OverdueScheduleStatus> {
        let one = |at: usize| OverdueScheduleStatus {
            name: format!("s{at}"),
            overdue: "no run".to_owned(),
        };
        (0..number).map(one).collect()
    }

    #[test]
    fn nothing_is_wrong_with_a_calm_daemon() {
        assert_eq!(problem_count(&rows(&calm())), 0);
        assert_eq!(problem_count(&rows(&with_pool(PoolStatus::default()))), 0);
        assert_eq!(problem_count(&rows(&of_ledger(LedgerStatus::default()))), 0);
    }

    #[test]
    fn schedules_that_do_not_run_are_problems() {
        let overdue = of_ledger(LedgerStatus {
            overdue: overdue_ones(1),
            overdue_count: 1,
            ..LedgerStatus::default()
        });
        let row = one(overdue, Some(("schedule_overdue", "s0")));
        assert_eq!(row.path.as_deref(), Some("/ui/schedules/s0"));
        assert_eq!(row.error.as_deref(), Some("no run"));
        let stopped = of_ledger(LedgerStatus {
            stopped: vec![StoppedScheduleStatus {
                name: "n".to_owned(),
                state: "broken".to_owned(),
                reason: "no zone".to_owned(),
            }],
            ..LedgerStatus::default()
        });
        let row = one(stopped, Some(("schedule_stopped", "n")));
        assert_eq!(row.what, "Schedule n is broken");
        assert_eq!(row.path.as_deref(), Some("/ui/schedules/n"));
        let down = of_ledger(LedgerStatus {
            problem: Some("why".to_owned()),
            ..LedgerStatus::default()
        });
        one(down, Some(("ledger_down", "ledger")));
    }

    #[test]
    fn messages_that_go_nowhere_are_problems() {
        let outgoing = of_ledger(LedgerStatus {
            outgoing: vec![OutgoingStatus {
                source: "mq".to_owned(),
                messages: 2,
                problem: Some("refused".to_owned()),
            }],
            ..LedgerStatus::default()
        });
        let row = one(outgoing.clone(), Some(("schedule_unsent", "mq")));
        assert!(row.what.starts_with("2 messages of schedules"));
        // It is the name of a source, not of a schedule.
        let alerted = rows(&with_alert(outgoing, "schedule_unsent", "mq"));
        assert_eq!(alerted[0].path, None);
        let unread = Status {
            unread_queues: vec![UnreadQueueStatus {
                source: "main".to_owned(),
                queue: "typo".to_owned(),
                backlog: BacklogStatus {
                    depth: 3,
                    at_least: false,
                    oldest_age_seconds: Some(7200.0),
                },
            }],
            ..calm()
        };
        let row = one(unread, None);
        assert_eq!(row.path.as_deref(), Some("/ui/queues/typo?source=main"));
        assert_eq!(
            row.what,
            "Queue typo of main: no pool here reads it; 3 messages wait, the oldest for 2h 0m"
        );
    }

    #[test]
    fn problems_of_a_pool_are_told_once_each() {
        let roll = with_pool(PoolStatus {
            roll_stopped: Some("exit 3".to_owned()),
            ..PoolStatus::default()
        });
        let row = one(roll, Some(("roll_stopped", "p")));
        assert_eq!(row.error.as_deref(), Some("exit 3"));
        let source = with_pool(PoolStatus {
            source_problem: Some("refused".to_owned()),
            ..PoolStatus::default()
        });
        one(source, Some(("source_down", "main")));
        for pool in [
            PoolStatus {
                unaccounted: -1,
                ..PoolStatus::default()
            },
            PoolStatus {
                age_seconds: 9.0,
                ..PoolStatus::default()
            },
        ] {
            let row = one(with_pool(pool), None);
            assert_eq!(row.path.as_deref(), Some("/ui/pools/p"));
        }
        let ended = with_pool(PoolStatus {
            state: PoolState::Draining,
            age_seconds: 9.0,
            ..PoolStatus::default()
        });
        assert_eq!(problem_count(&rows(&ended)), 0);
    }

    #[test]
    fn problems_of_the_daemon_are_told_once_each() {
        let mut refused = calm();
        refused.reload.successful = false;
        refused.reload.problems = vec!["a".to_owned(), "b".to_owned()];
        let row = one(refused, Some(("reload_refused", "configuration")));
        assert_eq!(row.error.as_deref(), Some("a; b"));
        assert_eq!(row.path.as_deref(), Some(CONFIG));
        let mut restart = calm();
        restart.reload.keys.restart_needed = (0..7).map(|at| format!("k{at}")).collect();
        let row = one(restart, None);
        assert!(row.what.ends_with(" k0, k1, k2, k3, k4 and 2 more"));
        let mut hook = calm();
        hook.alerts = Some(AlertsStatus {
            webhooks: vec![WebhookStatus {
                name: "w".to_owned(),
                problem: Some("404".to_owned()),
                ..WebhookStatus::default()
            }],
            ..AlertsStatus::default()
        });
        one(hook, Some(("webhook_failing", "w")));
    }

    #[test]
    fn many_of_a_kind_are_counted_and_some_are_named() {
        let ledger = LedgerStatus {
            overdue: overdue_ones(20),
            overdue_count: 1500,
            ..LedgerStatus::default()
        };
        let status = of_ledger(ledger);
        let found = rows(&status);
        assert_eq!(found.len(), NAMES_MAX + 1);
        assert_eq!(problem_count(&found), 1500);
        assert_eq!(
            found[NAMES_MAX].what,
            "And 1\u{2009}495 more: overdue schedules"
        );
        let shown = problems(&found).into_string();
        assert!(shown.contains("s4") && !shown.contains("s5"));
    }
}
