//! How the daemon stands, for everyone who asks: the report in the log, the commands, the API, the
//! metrics. All read the same; none changes what another sees, and none waits for a pool that is busy.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::events::EventFeed;
use crate::pauses::Pauses;
use crate::registry::Registry;
use crate::request::ReloadStatus;
use crate::status::{BacklogStatus, PoolState, PoolStatus, WorkerStatus, unix_seconds};
use crate::worker::process::resident_bytes;
use crate::worker::usage;
use ganger_config::changed::ChangedKeys;
use ganger_config::model::Config;
use ganger_core::budget::Budget;
use ganger_core::heartbeat;
use ganger_queue::unread::{UnreadQueue, UnreadQueues};
use ganger_telemetry as telemetry;

/// How long pools that are asked how they stand may take; who is busy is shown as last seen.
const ANSWERS_WITHIN: Duration = Duration::from_millis(100);

/// Most reasons of one refused reload that are kept.
const PROBLEMS_MAX: usize = 20;

/// How far the daemon is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DaemonState {
    /// It opens its sources for the first time.
    #[default]
    Starting,
    /// All that it was asked to run, runs.
    Running,
    /// What is in hand finishes.
    Stopping,
}

impl fmt::Display for DaemonState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
        })
    }
}

/// What has become of the alerts that the daemon sends.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct AlertsStatus {
    /// Host and port of the first webhook.
    pub webhook: String,
    /// Reason for which a webhook did not take its last message, if one did not.
    pub problem: Option<String>,
    /// Number of alerts that there are now, by kind.
    pub firing: BTreeMap<String, u64>,
    /// The alerts that there are now.
    pub active: Vec<ActiveAlert>,
    /// Messages that webhooks have taken.
    pub sent: u64,
    /// Tries to send one that they have not.
    pub failed: u64,
    /// Each webhook.
    pub webhooks: Vec<WebhookStatus>,
}

/// An alert that there is now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ActiveAlert {
    /// Kind of the alert: `pool_degraded`, `source_down` and so on.
    pub kind: String,
    /// `critical` or `warning`.
    pub severity: String,
    /// The pool, the source, the webhook or `configuration`.
    pub of: String,
    /// The pool, where it is about one.
    pub pool: Option<String>,
    /// A sentence for people.
    pub summary: String,
    /// The command that tells more or mends it.
    pub command: String,
    /// Its beginning, in seconds since 1970.
    #[serde(with = "unix_seconds")]
    #[schema(value_type = f64)]
    pub since: SystemTime,
}

/// A webhook that alerts are sent to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct WebhookStatus {
    /// Its name.
    pub name: String,
    /// Host and port.
    pub place: String,
    /// Form of the messages: `json`, `slack` and so on.
    pub form: String,
    /// Reason for which it did not take the last message, if it did not.
    pub problem: Option<String>,
    /// Messages that it has taken.
    pub sent: u64,
    /// Tries to send one that it has not.
    pub failed: u64,
}

/// The daemon and its pools at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// How far it is.
    pub state: DaemonState,
    /// When it was started, in seconds since 1970.
    #[serde(with = "unix_seconds")]
    #[schema(value_type = f64)]
    pub started_at: SystemTime,
    /// How long ago, in seconds.
    pub uptime_seconds: f64,
    /// Log records dropped because stderr did not take them.
    pub log_records_dropped: u64,
    /// Log records left out because many that say the same were written in the same second.
    pub log_records_left_out: u64,
    /// What all pools hold of messages in memory, in bytes.
    pub buffered_bytes: usize,
    /// What they may hold.
    pub buffered_bytes_max: usize,
    /// The pools that wait for some of it to come free.
    pub wait_for_memory: Vec<String>,
    /// The last reload of the configuration.
    #[serde(default)]
    pub reload: ReloadStatus,
    /// The alerts, if any are sent.
    pub alerts: Option<AlertsStatus>,
    /// Queues of its table sources that hold messages and that none of its pools reads, 20 of each
    /// source at most.
    #[serde(default)]
    pub unread_queues: Vec<UnreadQueueStatus>,
    /// The pools, by name.
    pub pools: Vec<PoolStatus>,
}

/// A queue that holds messages and that no pool of the daemon reads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct UnreadQueueStatus {
    /// The source that it is in.
    pub source: String,
    /// Its name.
    pub queue: String,
    /// Messages that wait in it, counted up to 10 000.
    pub backlog: BacklogStatus,
}

impl Status {
    /// What keeps the daemon from being ready, a sentence each; none if it is.
    pub fn not_ready(&self) -> Vec<String> {
        let daemon =
            (self.state != DaemonState::Running).then(|| format!("the daemon is {}", self.state));
        let pools = self.pools.iter().filter_map(pool_not_ready);
        daemon.into_iter().chain(pools).collect()
    }

    /// Pools in whose queues a message has waited longer than that, a sentence each.
    pub fn waits_long(&self, limit: Duration) -> Vec<String> {
        let sentence = |pool: &PoolStatus| {
            let backlog = pool
                .backlog
                .filter(|backlog| backlog.is_older_than(limit))?;
            Some(format!("pool `{}` is behind: {backlog}", pool.name))
        };
        self.pools.iter().filter_map(sentence).collect()
    }

    /// Returns why it is not ready without a name, for those who may not know any.
    pub fn not_ready_unnamed(&self) -> Vec<String> {
        let daemon =
            (self.state != DaemonState::Running).then(|| format!("the daemon is {}", self.state));
        let kinds = [
            (PoolState::Starting, "pools that have no worker yet"),
            (
                PoolState::Degraded,
                "pools whose workers fail one after the other",
            ),
            (PoolState::SourceDown, "pools whose source can't be used"),
        ];
        let pools = kinds.into_iter().filter_map(|(state, what)| {
            let count = self.pools.iter().filter(|pool| pool.state == state).count();
            (count > 0).then(|| format!("{what}: {count}"))
        });
        daemon.into_iter().chain(pools).collect()
    }

    /// Writes it to the log.
    pub fn log(&self) {
        let wait_for_memory = &self.wait_for_memory;
        tracing::info!(
            pools = self.pools.len(),
            log_records_dropped = self.log_records_dropped,
            log_records_left_out = self.log_records_left_out,
            buffered_bytes = self.buffered_bytes,
            buffered_bytes_max = self.buffered_bytes_max,
            wait_for_memory = (!wait_for_memory.is_empty()).then(|| wait_for_memory.join(", ")),
            "status of the daemon"
        );
        for unread in &self.unread_queues {
            let UnreadQueueStatus {
                source,
                queue,
                backlog,
            } = unread;
            tracing::info!(
                source,
                queue,
                waiting = backlog.depth,
                oldest_age = backlog.oldest_age(),
                "status of a queue that no pool reads"
            );
        }
        self.pools.iter().for_each(PoolStatus::log);
    }
}

/// Clocks may be set, so that it is told how old it is, not only when it was.
fn with_age(pool: &PoolStatus) -> PoolStatus {
    let age = pool.shown.map(|shown| shown.elapsed());
    PoolStatus {
        age_seconds: age.unwrap_or_default().as_secs_f64(),
        ..pool.clone()
    }
}

/// Why a pool does not work. What an operator has asked for is no reason, nor is a dead downstream:
/// another daemon in its place would do no better.
pub fn pool_not_ready(pool: &PoolStatus) -> Option<String> {
    let name = &pool.name;
    match pool.state {
        PoolState::Starting => Some(format!("pool `{name}` has no worker yet")),
        PoolState::Degraded => Some(format!(
            "the workers of pool `{name}` fail one after the other"
        )),
        PoolState::SourceDown => {
            let problem = pool.source_problem.as_deref();
            let problem = problem.unwrap_or("it is not connected");
            Some(format!(
                "the source of pool `{name}` can't be used: {problem}"
            ))
        }
        PoolState::Running
        | PoolState::Open
        | PoolState::Paused
        | PoolState::Draining
        | PoolState::Drained => None,
    }
}

/// What can be seen of the daemon from any thread. Clones are of the same.
#[derive(Debug, Clone)]
pub struct Overview {
    registry: Registry,
    feed: EventFeed,
    budget: Budget,
    started_at: SystemTime,
    started: Instant,
    state: Arc<AtomicU8>,
    stall_timeout_ms: Arc<AtomicU64>,
    config: watch::Sender<Arc<Config>>,
    reload: Arc<Mutex<ReloadStatus>>,
    alerts: Arc<Mutex<Option<AlertsStatus>>>,
    pauses: Pauses,
    unread: UnreadQueues,
}

impl Overview {
    /// Of a daemon that starts now, to become what this says.
    pub fn new(budget: Budget, config: &Config) -> Self {
        let started_at = SystemTime::now();
        let overview = Self {
            registry: Registry::default(),
            feed: EventFeed::new(started_at),
            budget,
            started_at,
            started: Instant::now(),
            state: Arc::default(),
            stall_timeout_ms: Arc::default(),
            config: watch::channel(Arc::new(config.clone())).0,
            reload: Arc::new(Mutex::new(ReloadStatus::start(started_at))),
            alerts: Arc::default(),
            pauses: Pauses::default(),
            unread: UnreadQueues::default(),
        };
        overview.set_config(config);
        overview
    }

    /// This is what it runs.
    pub fn set_config(&self, config: &Config) {
        let stall_timeout = config.daemon.stall_timeout;
        let ms = u64::try_from(stall_timeout.as_millis()).unwrap_or(u64::MAX);
        self.stall_timeout_ms.store(ms, Ordering::Relaxed);
        let pools = config.pools.iter().map(|pool| pool.name.as_str());
        self.pauses.keep_only(&pools.collect());
        self.config.send_replace(Arc::new(config.clone()));
    }

    /// The same with these pauses.
    #[must_use]
    pub fn with_pauses(self, pauses: Pauses) -> Self {
        Self { pauses, ..self }
    }

    /// The pauses that outlast it.
    pub fn pauses(&self) -> &Pauses {
        &self.pauses
    }

    /// What it runs.
    pub fn config(&self) -> Arc<Config> {
        self.config.borrow().clone()
    }

    /// What it runs, for who has to know when that changes.
    pub fn watch_config(&self) -> watch::Receiver<Arc<Config>> {
        self.config.subscribe()
    }

    /// A reload was carried out, by which these keys are others.
    pub fn reloaded(&self, number: u64, keys: ChangedKeys) -> ReloadStatus {
        let mut reload = locked(&self.reload);
        *reload = ReloadStatus {
            number,
            refused: reload.refused,
            keys,
            ..ReloadStatus::start(SystemTime::now())
        };
        reload.clone()
    }

    /// A reload was refused for these reasons.
    pub fn reload_refused(&self, mut problems: Vec<String>) {
        problems.truncate(PROBLEMS_MAX);
        let mut reload = locked(&self.reload);
        reload.refused += 1;
        reload.successful = false;
        reload.at = SystemTime::now();
        reload.problems = problems;
    }

    /// The last reload.
    pub fn reload(&self) -> ReloadStatus {
        locked(&self.reload).clone()
    }

    /// So it stands with the alerts; none if there are none to be sent.
    pub fn set_alerts(&self, alerts: Option<AlertsStatus>) {
        *locked(&self.alerts) = alerts;
    }

    /// The threads that stand still, a sentence each; none if the daemon lives.
    pub fn stalled(&self) -> Vec<String> {
        let limit = Duration::from_millis(self.stall_timeout_ms.load(Ordering::Relaxed));
        let stalled = heartbeat::stalled(limit).into_iter();
        let sentence = |one: heartbeat::Stalled| {
            let seconds = one.silent.as_secs();
            format!(
                "the thread `{}` has stood still for {seconds} s",
                one.thread
            )
        };
        stalled.map(sentence).collect()
    }

    /// The bound on what it holds of messages.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Its pools.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Where its sources tell which queues no pool reads.
    pub fn unread_queues(&self) -> &UnreadQueues {
        &self.unread
    }

    /// What happens to them.
    pub fn feed(&self) -> &EventFeed {
        &self.feed
    }

    /// It is so far.
    pub fn set_state(&self, state: DaemonState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// How things stand, as each pool has shown itself last.
    pub fn status(&self) -> Status {
        self.of(self.registry.pools())
    }

    /// How things stand now. A pool that is busy is shown as it was last seen.
    pub async fn status_now(&self) -> Status {
        self.of(self.registry.pools_now(ANSWERS_WITHIN).await)
    }

    /// The same with what the process of each worker uses. The pools don't look: their threads serve
    /// messages.
    pub async fn status_measured(&self) -> Status {
        let mut status = self.status_now().await;
        let workers = status.pools.iter_mut().flat_map(|pool| &mut pool.workers);
        workers.for_each(measure);
        status
    }

    fn of(&self, pools: Vec<Arc<PoolStatus>>) -> Status {
        let buffered = self.budget.standing();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            state: self.state(),
            started_at: self.started_at,
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            log_records_dropped: telemetry::records_dropped(),
            log_records_left_out: telemetry::records_left_out(),
            buffered_bytes: buffered.drawn,
            buffered_bytes_max: buffered.bytes_max,
            wait_for_memory: buffered.waiting,
            reload: self.reload(),
            alerts: locked(&self.alerts).clone(),
            unread_queues: self.unread(),
            pools: pools.iter().map(|pool| with_age(pool)).collect(),
        }
    }

    fn unread(&self) -> Vec<UnreadQueueStatus> {
        let now = SystemTime::now();
        let found = self.unread.found().into_iter();
        let status = |(source, one): (String, UnreadQueue)| UnreadQueueStatus {
            source,
            queue: one.queue,
            backlog: BacklogStatus::at(one.backlog, now),
        };
        found.map(status).collect()
    }

    /// How far it is.
    pub fn state(&self) -> DaemonState {
        match self.state.load(Ordering::Relaxed) {
            running if running == DaemonState::Running as u8 => DaemonState::Running,
            stopping if stopping == DaemonState::Stopping as u8 => DaemonState::Stopping,
            _ => DaemonState::Starting,
        }
    }
}

/// Adds what its process uses.
fn measure(worker: &mut WorkerStatus) {
    let Some(pid) = worker.pid else { return };
    worker.memory_bytes = resident_bytes(pid);
    worker.cpu_seconds = usage::cpu_of(pid).map(|cpu| cpu.as_secs_f64());
}

/// Locks it; a panic elsewhere has left nothing half changed.
fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
