//! Polling of the daemon's status, and requests to it. Neither waits for the other, nor the screen for any of
//! them.

use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::pool_action::PoolAction;
use ganger_admin::client::{Remote, segment};
use ganger_pool::overview::Status;
use ganger_queue::dead_letter::{DeadGroups, Group};

/// Timeout of a status request, which is then sent anew: the connection may have died silently.
const LOOK_WITHIN: Duration = Duration::from_secs(10);
/// Timeout of another request; a pool that is busy still carries it out.
const DONE_WITHIN: Duration = Duration::from_secs(15);

/// Status of the daemon, or why it is unknown.
pub(super) type StatusAnswer = Result<Box<Status>, String>;

/// A request to the daemon.
#[derive(Debug)]
pub(super) enum Request {
    /// Carry out an action.
    Do(PoolAction),
    /// Count the dead letters of a pool by their errors.
    Errors { pool: String, source: String },
}

/// Result of a request.
#[derive(Debug)]
pub(super) enum RequestResult {
    Done {
        text: String,
        is_error: bool,
    },
    Errors {
        pool: String,
        groups: Result<Vec<Group>, String>,
    },
}

/// Polls the daemon's status at this interval, for ever.
pub(super) async fn look_on(
    remote: &Remote,
    every: Duration,
    tell: mpsc::Sender<StatusAnswer>,
) -> Infallible {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let look = remote.get::<Box<Status>>("/v1/status");
        let seen = match timeout(LOOK_WITHIN, look).await {
            Ok(seen) => seen.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {LOOK_WITHIN:?}")),
        };
        // Nobody listens any more only at the end, which comes to us as well.
        drop(tell.send(seen).await);
    }
}

/// Sends a request and returns its result.
pub(super) async fn send(remote: &Remote, request: Request) -> RequestResult {
    match request {
        Request::Do(pool_action) => done(remote, &pool_action).await,
        Request::Errors { pool, source } => {
            let groups = errors(remote, &pool, &source).await;
            RequestResult::Errors { pool, groups }
        }
    }
}

async fn done(remote: &Remote, pool_action: &PoolAction) -> RequestResult {
    let (path, body) = (pool_action.path(), pool_action.body());
    let done = remote.post(&path, body.as_ref());
    let (text, is_error) = match timeout(DONE_WITHIN, done).await {
        Ok(Ok(answer)) => (answer["done"].as_str().unwrap_or("done").to_owned(), false),
        Ok(Err(error)) => (
            format!("can't {pool_action}: {error}").replace("\n  ", "; "),
            true,
        ),
        Err(_) => {
            let text = format!("no answer within {DONE_WITHIN:?} to: {pool_action}");
            (text, true)
        }
    };
    RequestResult::Done { text, is_error }
}

/// Returns the errors of the pool's dead letters, most frequent first. All dead letters of the source are
/// read.
async fn errors(remote: &Remote, pool: &str, source: &str) -> Result<Vec<Group>, String> {
    let path = format!("/v1/dead/{}/groups", segment(source));
    let found = timeout(DONE_WITHIN, remote.get::<DeadGroups>(&path)).await;
    let found = found
        .map_err(|_| format!("no answer within {DONE_WITHIN:?}"))?
        .map_err(|error| error.to_string())?;
    let groups = found.groups.into_iter().filter(|group| group.pool == pool);
    Ok(groups.collect())
}
