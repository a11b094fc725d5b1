//! Status of the daemon for every reader: the report in the log, the commands, the API, the metrics. All read
//! the same; no reader changes the status for another, and none waits for a busy pool.

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
use crate::status::{BacklogStatus, PoolState, PoolStatus, unix_seconds};
use crate::worker::process::resident_bytes;
use crate::worker::usage;
use ganger_config::changed::ChangedKeys;
use ganger_config::model::Config;
use ganger_core::budget::Budget;
use ganger_core::heartbeat;
use ganger_queue::delivery::Follower;
use ganger_queue::unread::{UnreadQueue, UnreadQueues};
use ganger_telemetry as telemetry;
use ganger_telemetry::metrics::spread::Spread;

/// Time that pools have to answer a status request; a busy one is shown as last published.
const ANSWERS_WITHIN: Duration = Duration::from_millis(100);

/// Maximum number of reasons kept of one refused reload.
const PROBLEMS_MAX: usize = 20;

/// State of the daemon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DaemonState {
    /// The daemon opens its sources for the first time.
    #[default]
    Starting,
    /// Everything that the daemon was asked to run is running.
    Running,
    /// Messages in hand are being finished.
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

/// State of the alerts that the daemon sends.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct AlertsStatus {
    /// Host and port of the first webhook.
    pub webhook: String,
    /// Reason for which a webhook did not take its last message; null if all did.
    pub problem: Option<String>,
    /// Number of active alerts, by kind.
    pub firing: BTreeMap<String, u64>,
    /// The active alerts.
    pub active: Vec<ActiveAlert>,
    /// Number of messages that webhooks have taken.
    pub sent: u64,
    /// Number of failed tries to send a message.
    pub failed: u64,
    /// State of each webhook.
    pub webhooks: Vec<WebhookStatus>,
}

/// An active alert.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ActiveAlert {
    /// Kind of the alert: `pool_degraded`, `source_down` and so on.
    pub kind: String,
    /// `critical` or `warning`.
    pub severity: String,
    /// Subject of the alert: the name of a pool, a source, a schedule or a webhook, `ledger` or
    /// `configuration`.
    pub of: String,
    /// Name of the pool, if the alert concerns one.
    pub pool: Option<String>,
    /// Summary in one sentence.
    pub summary: String,
    /// Command that shows more about the problem or resolves it.
    pub command: String,
    /// Start of the alert, in seconds since 1970.
    #[serde(with = "unix_seconds")]
    #[schema(value_type = f64)]
    pub since: SystemTime,
    /// Its silence, if webhooks are not told of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silenced: Option<SilencedStatus>,
}

/// Silence of an alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SilencedStatus {
    /// Id of the silence.
    pub id: String,
    /// Time at which it ends.
    pub until: String,
    /// Operator who has made it.
    pub by: String,
    /// Reason given by the operator.
    pub reason: String,
}

/// A webhook that receives alerts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct WebhookStatus {
    /// Name of the webhook.
    pub name: String,
    /// Host and port of the webhook.
    pub place: String,
    /// Form of the messages: `json`, `slack` and so on.
    pub form: String,
    /// Reason for which the webhook did not take its last message; null if it did.
    pub problem: Option<String>,
    /// Number of messages that the webhook has taken.
    pub sent: u64,
    /// Number of failed tries to send it a message.
    pub failed: u64,
}

/// The daemon and its pools at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Status {
    /// Version of the daemon.
    pub version: String,
    /// Process ID of the daemon.
    pub pid: u32,
    /// State of the daemon.
    pub state: DaemonState,
    /// Start of the daemon, in seconds since 1970.
    #[serde(with = "unix_seconds")]
    #[schema(value_type = f64)]
    pub started_at: SystemTime,
    /// Time since the start, in seconds.
    pub uptime_seconds: f64,
    /// Number of log records dropped because stderr did not take them.
    pub log_records_dropped: u64,
    /// Number of log records left out because many similar ones were written in the same second.
    pub log_records_left_out: u64,
    /// Memory that the messages of all pools take, in bytes.
    pub buffered_bytes: usize,
    /// Maximum of `buffered_bytes`.
    pub buffered_bytes_max: usize,
    /// Names of the pools that wait for some of this memory to come free.
    pub wait_for_memory: Vec<String>,
    /// The last reload of the configuration.
    #[serde(default)]
    pub reload: ReloadStatus,
    /// State of the alerts; null if none are sent.
    pub alerts: Option<AlertsStatus>,
    /// Queues of the daemon's table sources that hold messages and that none of its pools reads, at
    /// most 20 for each source.
    #[serde(default)]
    pub unread_queues: Vec<UnreadQueueStatus>,
    /// The ledger of the daemon's schedules; null if it has none.
    #[serde(default)]
    pub ledger: Option<LedgerStatus>,
    /// The pools, by name.
    pub pools: Vec<PoolStatus>,
}

/// The ledger of a daemon's schedules.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct LedgerStatus {
    /// Name of the source that holds the ledger.
    pub source: String,
    /// Reason for which no schedule is dispatched; null if the ledger can be used.
    pub problem: Option<String>,
    /// Reason for which an operator has paused all schedules; null if they are not paused.
    pub hold: Option<String>,
    /// Number of schedules, by state: `active`, `paused` and so on.
    pub schedules: BTreeMap<String, u64>,
    /// Schedules that are broken or disabled, at most 20.
    pub stopped: Vec<StoppedScheduleStatus>,
    /// Number of schedules of which something expected did not happen in time.
    pub overdue_count: u64,
    /// These, at most 20.
    pub overdue: Vec<OverdueScheduleStatus>,
    /// Number of messages that this daemon has sent for slots.
    pub dispatched: u64,
    /// Time from the moment at which a slot was due until its message was sent, of messages that this daemon has sent
    /// for slots.
    #[schema(value_type = Object)]
    pub lateness: Spread,
    /// Number of missed slots that these messages stand for besides their own.
    pub missed: u64,
    /// Number of slots that this daemon has skipped, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Messages of the ledger that other sources have not taken yet, by source.
    pub outgoing: Vec<OutgoingStatus>,
    /// Number of runs of schedules that have ended at pools of this daemon, by state: `completed`, `failed` and so on.
    pub ended: BTreeMap<String, u64>,
    /// Time, in seconds, by which the ledger is behind what has become of messages of other sources at this daemon.
    pub behind_seconds: f64,
    /// Number of lines of the logs of runs that this daemon has dropped, since too many waited for the ledger or a
    /// worker wrote too many.
    pub log_lines_dropped: u64,
}

/// Messages of schedules on their way from the ledger to a source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct OutgoingStatus {
    /// Name of the source.
    pub source: String,
    /// Number of messages.
    pub messages: u64,
    /// Reason for which they can't be published; null if there is none.
    pub problem: Option<String>,
}

/// A schedule that dispatches nothing although no operator has paused it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct StoppedScheduleStatus {
    /// Name of the schedule.
    pub name: String,
    /// `broken` or `disabled`.
    pub state: String,
    /// Reason, in a sentence.
    pub reason: String,
}

/// A schedule of which something expected (`expect`) did not happen in time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct OverdueScheduleStatus {
    /// Name of the schedule.
    pub name: String,
    /// Description of what did not happen, in a sentence.
    pub overdue: String,
}

/// A queue that holds messages and that no pool of the daemon reads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct UnreadQueueStatus {
    /// Name of the source that holds the queue.
    pub source: String,
    /// Name of the queue.
    pub queue: String,
    /// Messages that wait in the queue, counted up to 10 000.
    pub backlog: BacklogStatus,
}

impl Status {
    /// Returns the reasons for which the daemon is not ready, a sentence each; none if it is.
    pub fn not_ready(&self) -> Vec<String> {
        let daemon =
            (self.state != DaemonState::Running).then(|| format!("the daemon is {}", self.state));
        let pools = self.pools.iter().filter_map(pool_not_ready);
        daemon.into_iter().chain(pools).collect()
    }

    /// Returns the pools in whose queues a message has waited longer than that, a sentence each.
    pub fn waits_long(&self, limit: Duration) -> Vec<String> {
        let sentence = |pool: &PoolStatus| {
            let backlog = pool
                .backlog
                .filter(|backlog| backlog.is_older_than(limit))?;
            Some(format!("pool `{}` is behind: {backlog}", pool.name))
        };
        self.pools.iter().filter_map(sentence).collect()
    }

    /// Returns the reasons for which the daemon is not ready without names, for readers who may not
    /// know any.
    pub fn not_ready_unnamed(&self) -> Vec<String> {
        let daemon =
            (self.state != DaemonState::Running).then(|| format!("the daemon is {}", self.state));
        let kinds = [
            (PoolState::Starting, "pools that have no worker yet"),
            (PoolState::Degraded, "pools whose workers keep failing"),
            (PoolState::SourceDown, "pools whose source is unavailable"),
        ];
        let pools = kinds.into_iter().filter_map(|(state, what)| {
            let count = self.pools.iter().filter(|pool| pool.state == state).count();
            (count > 0).then(|| format!("{what}: {count}"))
        });
        daemon.into_iter().chain(pools).collect()
    }

    /// Writes the status to the log.
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

/// The clock may be changed, so the age is logged beside the time.
fn with_age(pool: &PoolStatus) -> PoolStatus {
    let age = pool.shown.map(|shown| shown.elapsed());
    PoolStatus {
        age_seconds: age.unwrap_or_default().as_secs_f64(),
        ..pool.clone()
    }
}

/// Returns the reason for which a pool does not work. An operator's request is no reason, nor is a dependency
/// that is down: another daemon in its place would have the same problem.
pub fn pool_not_ready(pool: &PoolStatus) -> Option<String> {
    let name = &pool.name;
    match pool.state {
        PoolState::Starting => Some(format!("pool `{name}` has no worker yet")),
        PoolState::Degraded => Some(format!("the workers of pool `{name}` keep failing")),
        PoolState::SourceDown => {
            let problem = pool.source_problem.as_deref();
            let problem = problem.unwrap_or("it is not connected");
            Some(format!(
                "the source of pool `{name}` is unavailable: {problem}"
            ))
        }
        PoolState::Running
        | PoolState::Open
        | PoolState::Paused
        | PoolState::Draining
        | PoolState::Drained => None,
    }
}

/// State of the daemon for readers on any thread. Clones share it.
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
    ledger: Arc<Mutex<Option<LedgerStatus>>>,
    outgoing: Arc<Mutex<Vec<OutgoingStatus>>>,
    pauses: Pauses,
    unread: UnreadQueues,
    follower: Follower,
}

impl Overview {
    /// Creates the overview of a daemon that starts now with this configuration.
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
            ledger: Arc::default(),
            outgoing: Arc::default(),
            pauses: Pauses::default(),
            unread: UnreadQueues::default(),
            follower: Follower::default(),
        };
        overview.set_config(config);
        overview
    }

    /// Sets the running configuration.
    pub fn set_config(&self, config: &Config) {
        let stall_timeout = config.daemon.stall_timeout;
        let ms = u64::try_from(stall_timeout.as_millis()).unwrap_or(u64::MAX);
        self.stall_timeout_ms.store(ms, Ordering::Relaxed);
        let pools = config.pools.iter().map(|pool| pool.name.as_str());
        self.pauses.keep_only(&pools.collect());
        self.config.send_replace(Arc::new(config.clone()));
    }

    /// Returns the overview with these pauses.
    #[must_use]
    pub fn with_pauses(self, pauses: Pauses) -> Self {
        Self { pauses, ..self }
    }

    /// Returns the pauses that outlast the daemon.
    pub fn pauses(&self) -> &Pauses {
        &self.pauses
    }

    /// Returns the running configuration.
    pub fn config(&self) -> Arc<Config> {
        self.config.borrow().clone()
    }

    /// Returns a receiver of the running configuration, for those who follow its changes.
    pub fn watch_config(&self) -> watch::Receiver<Arc<Config>> {
        self.config.subscribe()
    }

    /// Records a reload that was carried out and changed these keys.
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

    /// Records a reload that was refused for these reasons.
    pub fn reload_refused(&self, mut problems: Vec<String>) {
        problems.truncate(PROBLEMS_MAX);
        let mut reload = locked(&self.reload);
        reload.refused += 1;
        reload.successful = false;
        reload.at = SystemTime::now();
        reload.problems = problems;
    }

    /// Returns the last reload.
    pub fn reload(&self) -> ReloadStatus {
        locked(&self.reload).clone()
    }

    /// Sets the state of the alerts; `None` if none are to be sent.
    pub fn set_alerts(&self, alerts: Option<AlertsStatus>) {
        *locked(&self.alerts) = alerts;
    }

    /// Sets the state of the ledger; `None` if there is none.
    pub fn set_ledger(&self, ledger: Option<LedgerStatus>) {
        *locked(&self.ledger) = ledger;
    }

    /// Returns the state of the ledger.
    pub fn ledger(&self) -> Option<LedgerStatus> {
        let ledger = locked(&self.ledger).clone()?;
        let counts = self.follower.notes().counts();
        let ended = counts.ended.into_iter();
        let ended = ended.map(|(state, runs)| (state.as_str().to_owned(), runs));
        Some(LedgerStatus {
            outgoing: locked(&self.outgoing).clone(),
            ended: ended.collect(),
            behind_seconds: self.follower.behind().as_secs_f64(),
            log_lines_dropped: counts.lines_dropped,
            ..ledger
        })
    }

    /// Returns the way on which messages are reported to the ledger.
    pub fn follower(&self) -> &Follower {
        &self.follower
    }

    /// Sets the messages of the ledger that other sources have not taken yet.
    pub fn set_outgoing(&self, outgoing: Vec<OutgoingStatus>) {
        *locked(&self.outgoing) = outgoing;
    }

    /// Returns the stalled threads, a sentence each; none if all threads respond.
    pub fn stalled(&self) -> Vec<String> {
        let limit = Duration::from_millis(self.stall_timeout_ms.load(Ordering::Relaxed));
        let stalled = heartbeat::stalled(limit).into_iter();
        let sentence = |one: heartbeat::Stalled| {
            let seconds = one.silent.as_secs();
            format!(
                "the thread `{}` has been stalled for {seconds} s",
                one.thread
            )
        };
        stalled.map(sentence).collect()
    }

    /// Returns the budget for messages in memory.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns the registry of the pools.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the list in which sources report the queues that no pool reads.
    pub fn unread_queues(&self) -> &UnreadQueues {
        &self.unread
    }

    /// Returns the feed of the pools' events.
    pub fn feed(&self) -> &EventFeed {
        &self.feed
    }

    /// Sets the state of the daemon.
    pub fn set_state(&self, state: DaemonState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// Returns the status, with each pool as it last published itself.
    pub fn status(&self) -> Status {
        self.of(self.registry.pools())
    }

    /// Returns the current status. A busy pool is shown as last published.
    pub async fn status_now(&self) -> Status {
        self.of(self.registry.pools_now(ANSWERS_WITHIN).await)
    }

    /// Returns the current status with the resource usage of each worker's process. The pools do not measure
    /// it, since their threads serve messages.
    pub async fn status_measured(&self) -> Status {
        let mut status = self.status_now().await;
        status.pools.iter_mut().for_each(measure);
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
            ledger: self.ledger(),
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

    /// Returns the state of the daemon.
    pub fn state(&self) -> DaemonState {
        match self.state.load(Ordering::Relaxed) {
            running if running == DaemonState::Running as u8 => DaemonState::Running,
            stopping if stopping == DaemonState::Stopping as u8 => DaemonState::Stopping,
            _ => DaemonState::Starting,
        }
    }
}

/// Adds the resource usage of the worker's process.
/// Adds the resource usage of the processes of a pool's workers.
pub fn measure(pool: &mut PoolStatus) {
    for worker in &mut pool.workers {
        let Some(pid) = worker.pid else { continue };
        worker.memory_bytes = resident_bytes(pid);
        worker.cpu_seconds = usage::cpu_of(pid).map(|cpu| cpu.as_secs_f64());
    }
}

/// Locks a mutex; a panic elsewhere has left no value half changed.
fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
