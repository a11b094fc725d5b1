//! What every route may use: the daemon, as far as it can be looked at and asked.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::spawn_blocking;

use super::answer::Problem;
use super::session::Sessions;
use crate::config::Problems;
use crate::config::model::{Config, TelemetryConfig};
use crate::request::Request;
use crate::status::Overview;

/// Reads the configuration anew, for a reload.
pub type Load = Arc<dyn Fn() -> Result<Config, Problems> + Send + Sync>;

/// What the API shows and asks.
#[derive(Clone)]
pub struct Daemon {
    /// How everything stands.
    pub overview: Overview,
    /// Where requests to the daemon go.
    pub requests: mpsc::Sender<Request>,
    /// Reads the configuration anew.
    pub load: Load,
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Daemon").finish_non_exhaustive()
    }
}

/// What every route may use.
#[derive(Clone)]
pub(super) struct Context {
    pub(super) daemon: Daemon,
    pub(super) telemetry: Arc<TelemetryConfig>,
    pub(super) sessions: Sessions,
    /// Where the API listens on the network, once it does.
    pub(super) address: Arc<OnceLock<SocketAddr>>,
    /// Requests that ask a broker, each on a thread that may wait: fewer than there are, so that a
    /// reload always finds one.
    pub(super) at_brokers: Arc<Semaphore>,
}

/// How many requests may ask brokers at once.
pub(super) const AT_BROKERS_MAX: usize = 12;

impl Context {
    /// Does what may wait for a broker, on a thread of its own, as long as there are not too many.
    pub(super) async fn at_broker<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        at_broker_in(self.broker_place()?, work).await
    }

    /// Takes one of the places at the brokers.
    pub(super) fn broker_place(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.at_brokers.clone().try_acquire_owned().map_err(|_| {
            let why = format!("{AT_BROKERS_MAX} requests wait for brokers already: try again");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, why)
        })
    }
}

/// Does what may wait for a broker, in a place that was taken before.
pub(super) async fn at_broker_in<T: Send + 'static>(
    place: OwnedSemaphorePermit,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let work = move || {
        // It goes with the work, which a caller that has gone does not end.
        let _place = place;
        work()
    };
    let lost =
        |error: tokio::task::JoinError| Problem::new(StatusCode::BAD_GATEWAY, error.to_string());
    spawn_blocking(work).await.map_err(lost)?
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use ganger_core::budget::Budget;
    use crate::config;

    /// One that runs nothing.
    pub(in crate::admin) fn daemon() -> Daemon {
        let text = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:a.db\"\n\
                    [[pools]]\nname = \"p\"\nqueue = \"q\"\ncommand = \"true\"";
        let config = config::parse(text, "test.toml", &config::Environment::new()).unwrap();
        let overview = Overview::new(Budget::new(Some(1 << 20)), &config);
        Daemon {
            overview,
            requests: mpsc::channel(1).0,
            load: Arc::new(move || Ok(config.clone())),
        }
    }

    fn context() -> Context {
        Context {
            daemon: daemon(),
            telemetry: Arc::default(),
            sessions: Sessions::default(),
            address: Arc::default(),
            at_brokers: Arc::new(Semaphore::new(AT_BROKERS_MAX)),
        }
    }

    #[tokio::test]
    async fn no_more_ask_brokers_than_leave_a_thread_for_a_reload() {
        let context = context();
        let waiting: Vec<_> = (0..AT_BROKERS_MAX)
            .map(|_| {
                let (go_on, told) = sync_channel::<()>(1);
                let context = context.clone();
                let work = move || Ok(told.recv().is_ok());
                (
                    go_on,
                    tokio::spawn(async move { context.at_broker(work).await }),
                )
            })
            .collect();
        while context.at_brokers.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(context.at_broker(|| Ok(())).await.is_err(), "one too many");
        for (go_on, asked) in waiting {
            go_on.send(()).unwrap();
            assert!(asked.await.unwrap().is_ok_and(|told| told));
        }
        assert!(context.at_broker(|| Ok(())).await.is_ok());
    }
}
