//! Context of every route: the daemon's state and its request channel.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::spawn_blocking;

use super::answer::Problem;
use super::answer::bad_gateway;
use super::at_ledger::AtLedger;
use super::credentials::Credentials;
use super::daemons::Peers;
use super::jobs::Jobs;
use super::session::Sessions;
use super::silences::Silences;
use super::trends::Trends;
use super::waits::Waits;
use ganger_config::Problems;
use ganger_config::model::{Config, TelemetryConfig};
use ganger_pool::overview::Overview;
use ganger_pool::request::Request;
use ganger_pool::state_file::StateFile;
use ganger_queue::client::shown::SubscriptionJson;
use ganger_queue::client::{self, Client, Connect};
use ganger_queue::fault::SourceFault;
use ganger_queue::ledger::OpenLedger;

/// Reads the configuration from its file.
pub type Load = Arc<dyn Fn() -> Result<Config, Problems> + Send + Sync>;

/// Interfaces of the daemon that the API uses.
#[derive(Clone)]
pub struct Daemon {
    /// State of the daemon.
    pub overview: Overview,
    /// Channel for requests to the daemon.
    pub requests: mpsc::Sender<Request>,
    /// Reads the configuration to show it. Nobody is told.
    pub read: Load,
    /// Reads the configuration for a reload, which begins with that.
    pub load: Load,
    /// Connects to a source.
    pub connect: Connect,
    /// Opens a ledger, for a request: it waits for the locks of others no longer than a daemon does.
    pub open_ledger: OpenLedger,
    /// File of the jobs.
    pub jobs: StateFile,
    /// Silences of alerts.
    pub silences: Silences,
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Daemon").finish_non_exhaustive()
    }
}

/// Context of every route.
#[derive(Clone)]
pub(super) struct Context {
    pub(super) daemon: Daemon,
    pub(super) telemetry: Arc<TelemetryConfig>,
    pub(super) sessions: Sessions,
    pub(super) credentials: Credentials,
    /// Network address of the API, once it listens.
    pub(super) address: Arc<OnceLock<SocketAddr>>,
    /// Places for requests that ask a broker, each on a thread that may block: fewer than the
    /// threads, so that a reload always finds one.
    pub(super) at_brokers: Arc<Semaphore>,
    /// The ledger, for requests.
    pub(super) ledger: AtLedger,
    /// Requests that wait for ends of occurrences.
    pub(super) waits: Waits,
    /// Figures of the last hour.
    pub(super) trends: Trends,
    /// The other daemons.
    pub(super) peers: Peers,
    /// Changes of many dead letters.
    pub(super) jobs: Jobs,
}

/// Maximum number of requests that ask brokers at once.
pub(super) const AT_BROKERS_MAX: usize = 12;

/// Sources of a configuration, for connecting.
pub(super) struct Sources {
    pub(super) config: Arc<Config>,
    connect: Connect,
}

impl Sources {
    /// Connects to a source. Blocks.
    pub(super) fn open(&self, name: &str) -> Result<Client, Problem> {
        let Some(settings) = self.config.sources.get(name) else {
            let known: Vec<&str> = self.config.sources.keys().map(String::as_str).collect();
            let why = format!("there is no source `{name}`; there is {}", known.join(", "));
            return Err(Problem::new(StatusCode::NOT_FOUND, why));
        };
        (self.connect)(name, settings, &self.config.pools).map_err(bad_gateway)
    }

    /// Connects to the source of a run. Blocks.
    pub(super) fn connect(&self, name: &str) -> Result<Client, SourceFault> {
        let settings =
            self.config.sources.get(name).ok_or_else(|| {
                SourceFault::unusable(format!("the daemon has no source `{name}`"))
            })?;
        (self.connect)(name, settings, &self.config.pools)
    }

    /// Reads the subscriptions of all tables.
    pub(super) fn subscriptions(&self) -> Result<Vec<SubscriptionJson>, Problem> {
        client::subscriptions(self.connect, &self.config, None).map_err(bad_gateway)
    }
}

impl Context {
    /// Returns the sources that the daemon has now.
    pub(super) fn sources(&self) -> Sources {
        Sources {
            config: self.daemon.overview.config(),
            connect: self.daemon.connect,
        }
    }

    /// Runs work that may block on a broker, on a thread of its own, unless too many are running.
    pub(super) async fn at_broker<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        at_broker_in(self.broker_place()?, work).await
    }

    /// Takes one of the places for requests to brokers.
    pub(super) fn broker_place(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.at_brokers.clone().try_acquire_owned().map_err(|_| {
            let why =
                format!("{AT_BROKERS_MAX} requests are already waiting for brokers: try again");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, why)
        })
    }
}

/// Runs work that may block on a file, on a thread of its own: no other request waits for a disk.
pub(super) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let lost = |error: tokio::task::JoinError| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    };
    spawn_blocking(work).await.map_err(lost)
}

/// Runs work that may block on a broker, in a place that was taken before.
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

    use ganger_queue::fault::SourceFault;

    use super::super::credentials::Token;
    use super::*;
    use ganger_config as config;
    use ganger_core::budget::Budget;

    /// A daemon that runs nothing.
    pub(crate) fn daemon() -> Daemon {
        daemon_with("")
    }

    /// A daemon that runs nothing, with more settings.
    pub(crate) fn daemon_with(settings: &str) -> Daemon {
        let text = format!(
            "[sources.main]\nkind = \"table\"\nurl = \"sqlite:a.db\"\n\
             [[pools]]\nname = \"p\"\nqueue = \"q\"\ncommand = \"true\"\n{settings}"
        );
        let config = config::parse(&text, "test.toml", &config::Environment::new()).unwrap();
        let overview = Overview::new(Budget::new(Some(1 << 20)), &config);
        let load: Load = Arc::new(move || Ok(config.clone()));
        Daemon {
            overview,
            requests: mpsc::channel(1).0,
            read: Arc::clone(&load),
            load,
            connect: |name, _, _| Err(SourceFault::unusable("nothing is connected").of(name)),
            open_ledger: |config| Err(SourceFault::unusable("no ledger").of(&config.source)),
            jobs: StateFile::default(),
            silences: Silences::default(),
        }
    }

    fn context() -> Context {
        let daemon = daemon();
        Context {
            daemon: daemon.clone(),
            telemetry: Arc::default(),
            sessions: Sessions::default(),
            credentials: Credentials::new(&Token::Made(None), daemon.overview.clone()),
            address: Arc::default(),
            at_brokers: Arc::new(Semaphore::new(AT_BROKERS_MAX)),
            jobs: Jobs::read(daemon.overview.clone(), daemon.connect, daemon.jobs),
            ledger: AtLedger::new(daemon.overview, daemon.open_ledger),
            waits: Waits::default(),
            trends: Trends::default(),
            peers: Peers::default(),
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
