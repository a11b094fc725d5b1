//! The daemon asked how it stands, again and again, and asked to do something. Neither waits for the
//! other, nor the screen for any of them.

use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::deed::Deed;
use ganger_admin::client::{Remote, segment};
use ganger_pool::overview::Status;
use ganger_queue::dead_letter::Group;

/// How long a look may take before it is given up and begun anew: the connection may have died
/// without a word.
const LOOK_WITHIN: Duration = Duration::from_secs(10);
/// How long a request may take; a pool that is busy does what it is asked all the same.
const DONE_WITHIN: Duration = Duration::from_secs(15);

/// How the daemon stands, or why that is not known.
pub(super) type Seen = Result<Box<Status>, String>;

/// A request to the daemon.
#[derive(Debug)]
pub(super) enum Request {
    /// Something is to be done.
    Do(Deed),
    /// The dead letters of a pool are to be counted by their errors.
    Errors { pool: String, source: String },
}

/// What came of a request.
#[derive(Debug)]
pub(super) enum Told {
    Done {
        text: String,
        is_error: bool,
    },
    Errors {
        pool: String,
        groups: Result<Vec<Group>, String>,
    },
}

/// Asks how the daemon stands, so often, for ever.
pub(super) async fn look_on(
    remote: &Remote,
    every: Duration,
    tell: mpsc::Sender<Seen>,
) -> Infallible {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let look = remote.get::<Box<Status>>("/v1/status");
        let seen = match timeout(LOOK_WITHIN, look).await {
            Ok(seen) => seen.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer came within {LOOK_WITHIN:?}")),
        };
        // Nobody listens any more only at the end, which comes to us as well.
        drop(tell.send(seen).await);
    }
}

/// Asks for it, and tells what came of it.
pub(super) async fn told(remote: &Remote, request: Request) -> Told {
    match request {
        Request::Do(deed) => done(remote, &deed).await,
        Request::Errors { pool, source } => {
            let groups = errors(remote, &pool, &source).await;
            Told::Errors { pool, groups }
        }
    }
}

async fn done(remote: &Remote, deed: &Deed) -> Told {
    let (path, body) = (deed.path(), deed.body());
    let done = remote.post(&path, body.as_ref());
    let (text, is_error) = match timeout(DONE_WITHIN, done).await {
        Ok(Ok(answer)) => (answer["done"].as_str().unwrap_or("done").to_owned(), false),
        Ok(Err(error)) => (format!("can't {deed}: {error}").replace("\n  ", "; "), true),
        Err(_) => {
            let text = format!("no answer within {DONE_WITHIN:?} to: {deed}");
            (text, true)
        }
    };
    Told::Done { text, is_error }
}

/// The errors that dead letters of the pool died of, the most frequent first. All of the source are read.
async fn errors(remote: &Remote, pool: &str, source: &str) -> Result<Vec<Group>, String> {
    let path = format!("/v1/dead/{}/groups", segment(source));
    let groups = timeout(DONE_WITHIN, remote.get::<Vec<Group>>(&path)).await;
    let groups = groups
        .map_err(|_| format!("no answer came within {DONE_WITHIN:?}"))?
        .map_err(|error| error.to_string())?;
    let groups = groups.into_iter().filter(|group| group.pool == pool);
    Ok(groups.collect())
}
