//! The ledger for requests: it is opened for each of them, on a thread that may block. One that is away or locked
//! takes up the few places of such requests, and no others.

use std::fmt;
use std::sync::Arc;

use axum::http::StatusCode;
use tokio::sync::{AcquireError, Semaphore, TryAcquireError};
use tokio::task::spawn_blocking;

use super::answer::Problem;
use super::caller::Caller;
use ganger_config::model::LedgerConfig;
use ganger_pool::overview::Overview;
use ganger_queue::fault::SourceFault;
use ganger_queue::ledger::{LedgerClient, LedgerError, OpenLedger};

/// Maximum number of requests that use the ledger at once, each on a thread; and of these with those that wait for
/// their turn. Other requests have more places than that.
pub(super) const AT_LEDGER_MAX: usize = 8;
const REQUESTS_MAX: usize = 24;

/// The ledger of the daemon, for requests. Clones share its places.
#[derive(Clone)]
pub(super) struct AtLedger {
    overview: Overview,
    pub(super) open: OpenLedger,
    requests: Arc<Semaphore>,
    threads: Arc<Semaphore>,
}

impl fmt::Debug for AtLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtLedger").finish_non_exhaustive()
    }
}

impl AtLedger {
    pub(super) fn new(overview: Overview, open: OpenLedger) -> Self {
        Self {
            overview,
            open,
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            threads: Arc::new(Semaphore::new(AT_LEDGER_MAX)),
        }
    }

    /// Returns the ledger that the daemon has now.
    pub(super) fn config(&self) -> Result<LedgerConfig, Problem> {
        let ledger = self.overview.config().ledger.clone();
        ledger.ok_or_else(|| {
            let why = "the daemon has neither schedules nor a ledger: write [[schedules]], or [ledger] with a \
                       source, and reload";
            Problem::new(StatusCode::CONFLICT, why)
        })
    }

    /// Does work on the ledger.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn LedgerClient) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, Problem> {
        let (config, open) = (self.config()?, self.open);
        let work = move || work(&mut *open(&config)?);
        self.in_place(work).await?.map_err(Problem::from)
    }

    /// Does work on the ledger for a caller, whom the record of changes names.
    pub(super) async fn by<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl FnOnce(&mut dyn LedgerClient) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, Problem> {
        let actor = caller.to_string();
        self.with(move |ledger| {
            ledger.set_actor(&actor);
            work(ledger)
        })
        .await
    }

    /// Does work that may block, on a thread of its own, unless too much is waiting.
    pub(super) async fn in_place<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let _request = self.requests.try_acquire().map_err(|_: TryAcquireError| {
            let why =
                format!("{REQUESTS_MAX} requests are already waiting for the ledger: try again");
            away(why)
        })?;
        let thread = self.threads.clone().acquire_owned().await;
        let thread = thread.map_err(|error: AcquireError| away(error))?;
        let work = move || {
            // It goes with the work, which a caller that has gone does not end.
            let _thread = thread;
            work()
        };
        spawn_blocking(work).await.map_err(away)
    }
}

/// A ledger that is kept open between looks.
#[derive(Debug)]
pub(super) struct OpenedLedger {
    config: LedgerConfig,
    pub(super) client: Box<dyn LedgerClient>,
}

impl OpenedLedger {
    /// Returns the ledger that was kept; opens one if there is none, or if a reload has brought another one. Blocks.
    pub(super) fn keep_or_open(
        kept: Option<Self>,
        config: LedgerConfig,
        open: OpenLedger,
    ) -> Result<Self, SourceFault> {
        match kept.filter(|kept| kept.config == config) {
            Some(kept) => Ok(kept),
            None => open(&config).map(|client| Self { config, client }),
        }
    }
}

/// Returns the problem of a ledger that can't be used now.
pub(super) fn away(error: impl fmt::Display) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

/// Returns the problem of an unknown occurrence.
pub(super) fn no_occurrence(id: &str) -> Problem {
    let why = format!("there is no occurrence `{id}` (any more)");
    Problem::new(StatusCode::NOT_FOUND, why)
}

impl From<SourceFault> for Problem {
    fn from(fault: SourceFault) -> Self {
        away(fault)
    }
}

impl From<LedgerError> for Problem {
    fn from(error: LedgerError) -> Self {
        let status = match &error {
            LedgerError::NoSchedule(_) => {
                let why = format!("{error}; GET /v1/schedules lists all");
                return Self::new(StatusCode::NOT_FOUND, why);
            }
            LedgerError::NoOccurrence(id) => return no_occurrence(id),
            LedgerError::Invalid(_) => StatusCode::BAD_REQUEST,
            LedgerError::Broken(..) | LedgerError::Owned(..) | LedgerError::Unsuitable(..) => {
                StatusCode::CONFLICT
            }
            LedgerError::Changed(..) => StatusCode::PRECONDITION_FAILED,
            LedgerError::NeverRuns(..) | LedgerError::Unsuited(..) | LedgerError::Refused(_) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            LedgerError::Source(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::super::context::tests::daemon;
    use super::*;

    fn places() -> AtLedger {
        let daemon = daemon();
        AtLedger::new(daemon.overview, daemon.open_ledger)
    }

    #[tokio::test]
    async fn requests_take_turns_and_too_many_are_refused() {
        let places = places();
        let (go_on, told) = sync_channel::<()>(0);
        let told = Arc::new(std::sync::Mutex::new(told));
        let asked: Vec<_> = (0..REQUESTS_MAX)
            .map(|number| {
                let (places, told) = (places.clone(), told.clone());
                tokio::spawn(async move {
                    let work = move || told.lock().unwrap().recv().map(|()| number);
                    places.in_place(work).await
                })
            })
            .collect();
        while places.requests.available_permits() > 0 || places.threads.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(places.in_place(|| ()).await.is_err(), "one too many");
        let release = std::thread::spawn(move || {
            for _ in 0..REQUESTS_MAX {
                go_on.send(()).unwrap();
            }
        });
        for (number, asked) in asked.into_iter().enumerate() {
            assert_eq!(asked.await.unwrap().unwrap(), Ok(number));
        }
        release.join().unwrap();
        assert!(places.in_place(|| ()).await.is_ok());
    }

    #[tokio::test]
    async fn a_daemon_without_a_ledger_says_what_is_missing() {
        let refused = places().with(|ledger| ledger.hold()).await.unwrap_err();
        let refused = serde_json::to_value(refused).unwrap();
        assert_eq!(refused["status"], 409);
        let why = refused["detail"].as_str().unwrap();
        assert!(why.contains("write [[schedules]]"), "{why}");
    }
}
