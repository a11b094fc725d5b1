//! Problems that a status shows. Each display of a status words all of them: what is listed here can't be forgotten by
//! one.

use std::time::{Duration, SystemTime};

use super::overview::{
    OutgoingStatus, OverdueScheduleStatus, Status, StoppedScheduleStatus, UnreadQueueStatus,
};
use super::status::{PoolState, PoolStatus};

/// Age of a pool's status from which it is a problem; a pool updates its status every second.
const STALE_AFTER: Duration = Duration::from_secs(5);

/// A problem of a pool, with the reason as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PoolProblem<'a> {
    /// Its source can't be used.
    SourceDown(Option<&'a str>),
    /// Nearly all attempts fail, so that it tries one message at a time.
    BreakerOpen(Option<&'a str>),
    /// Its workers keep failing.
    WorkersFailing(Option<&'a str>),
    /// Its rolling restart has stopped, since a new worker failed its trial.
    RollStopped(&'a str),
    /// Its counts don't agree, by that number of messages.
    Unaccounted(i64),
    /// It has not told its status for that time.
    Stale(Duration),
}

/// A problem of a daemon that is of none of its pools, and no alert.
#[derive(Debug, Clone, PartialEq)]
pub enum DaemonProblem<'a> {
    /// A webhook, by its name, did not accept the last message, for a reason.
    WebhookFailing(&'a str, &'a str),
    /// The last reload was refused at that time, for these reasons.
    ReloadRefused(SystemTime, String),
    /// The ledger can't be used.
    LedgerDown(&'a str),
    /// An operator has paused all schedules, for a reason.
    SchedulesHeld(&'a str),
    /// Messages of schedules can't be published to a source, for a reason.
    Unsent(&'a OutgoingStatus, &'a str),
    /// A schedule is broken or disabled.
    Stopped(&'a StoppedScheduleStatus),
    /// Something expected of a schedule did not happen in time.
    Overdue(&'a OverdueScheduleStatus),
    /// Messages wait in a queue that no pool reads.
    Unread(&'a UnreadQueueStatus),
    /// These keys of the configuration are in force only after a restart.
    RestartNeeded(&'a [String]),
}

/// Returns the problems of a pool.
pub fn pool_problems(pool: &PoolStatus) -> Vec<PoolProblem<'_>> {
    let is = |state| pool.state == state;
    let source = pool.source_problem.as_deref();
    let source_down = is(PoolState::SourceDown) || source.is_some();
    let source_down = source_down.then_some(PoolProblem::SourceDown(source));
    let breaker = pool.breaker_error.as_deref();
    let breaker_open = is(PoolState::Open) || breaker.is_some();
    let breaker_open = breaker_open.then_some(PoolProblem::BreakerOpen(breaker));
    let cause = pool.last_worker_lost.as_deref();
    let failing = is(PoolState::Degraded).then_some(PoolProblem::WorkersFailing(cause));
    let roll = pool.roll_stopped.as_deref().map(PoolProblem::RollStopped);
    let unaccounted = Some(pool.unaccounted).filter(|count| *count != 0);
    let unaccounted = unaccounted.map(PoolProblem::Unaccounted);
    let age = Duration::try_from_secs_f64(pool.age_seconds).unwrap_or_default();
    // At a stop one that has ended is shown as it was.
    let has_ended = is(PoolState::Draining) && pool.workers.is_empty();
    let stale = (age > STALE_AFTER && !has_ended).then_some(PoolProblem::Stale(age));
    [source_down, breaker_open, failing, roll, unaccounted, stale]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns the problems of a daemon that are of none of its pools.
pub fn daemon_problems(status: &Status) -> Vec<DaemonProblem<'_>> {
    let webhooks = status.alerts.iter().flat_map(|alerts| &alerts.webhooks);
    let webhooks = webhooks.filter_map(|webhook| {
        let why = webhook.problem.as_deref()?;
        Some(DaemonProblem::WebhookFailing(&webhook.name, why))
    });
    let reload = &status.reload;
    let refused = reload.refusal();
    let refused = refused.map(|why| DaemonProblem::ReloadRefused(reload.at, why));
    let restart = Some(&*reload.keys.restart_needed).filter(|keys| !keys.is_empty());
    webhooks
        .chain(refused)
        .chain(ledger_problems(status))
        .chain(status.unread_queues.iter().map(DaemonProblem::Unread))
        .chain(restart.map(DaemonProblem::RestartNeeded))
        .collect()
}

fn ledger_problems(status: &Status) -> impl Iterator<Item = DaemonProblem<'_>> {
    status.ledger.iter().flat_map(|ledger| {
        let down = ledger.problem.as_deref().map(DaemonProblem::LedgerDown);
        let held = ledger.hold.as_deref().map(DaemonProblem::SchedulesHeld);
        let unsent = ledger.outgoing.iter().filter_map(|outgoing| {
            let why = outgoing.problem.as_deref()?;
            Some(DaemonProblem::Unsent(outgoing, why))
        });
        let stopped = ledger.stopped.iter().map(DaemonProblem::Stopped);
        let overdue = ledger.overdue.iter().map(DaemonProblem::Overdue);
        let of_schedules = unsent.chain(stopped).chain(overdue);
        down.into_iter().chain(held).chain(of_schedules)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_may_have_several_problems() {
        let pool = PoolStatus {
            state: PoolState::Degraded,
            last_worker_lost: Some("exit 3".to_owned()),
            source_problem: Some("refused".to_owned()),
            unaccounted: -1,
            age_seconds: 9.0,
            ..PoolStatus::default()
        };
        assert_eq!(
            pool_problems(&pool),
            [
                PoolProblem::SourceDown(Some("refused")),
                PoolProblem::WorkersFailing(Some("exit 3")),
                PoolProblem::Unaccounted(-1),
                PoolProblem::Stale(Duration::from_secs(9)),
            ]
        );
        assert_eq!(pool_problems(&PoolStatus::default()), []);
        // The state says it before the reason is known.
        let open = PoolStatus {
            state: PoolState::Open,
            ..PoolStatus::default()
        };
        assert_eq!(pool_problems(&open), [PoolProblem::BreakerOpen(None)]);
        let ended = PoolStatus {
            state: PoolState::Draining,
            age_seconds: 9.0,
            ..PoolStatus::default()
        };
        assert_eq!(pool_problems(&ended), []);
    }
}
