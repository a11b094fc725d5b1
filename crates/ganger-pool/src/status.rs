//! Status of a pool: for the status report, the admin side and the demo. Plain data.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use ganger_config::model::PoolConfig;
use ganger_queue::delivery::{Backlog, Figures};
use ganger_telemetry::for_each_counter;
use ganger_telemetry::metrics::{Counts, Details};

/// A pool at one moment. Counts are totals since the pool's start and never reset by reading.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct PoolStatus {
    /// Name of the pool.
    pub name: String,
    /// Name of the connection that the pool reads from.
    pub source: String,
    /// Kind of the source: table, rabbitmq or kafka.
    pub kind: String,
    /// Queue or topic that the pool reads.
    pub queue: String,
    /// State of the pool.
    pub state: PoolState,
    /// Target number of workers now.
    pub workers_wanted: usize,
    /// Number of workers by the configuration; for a range, the number that the load requires now.
    pub workers_configured: usize,
    /// Number of workers that an operator has requested instead; null if none.
    pub scaled: Option<usize>,
    /// True if the queue is paused for all daemons that share the table.
    pub paused_for_all: bool,
    /// State of the autoscaling; null if the number of workers is fixed.
    pub autoscale: Option<ScalingStatus>,
    /// True if the source is connected and the last settlement took effect.
    pub source_connected: bool,
    /// Problem of the source; null if there is none.
    pub source_problem: Option<String>,
    /// Event that a waiting message of the source waits for.
    pub waits_for: Option<String>,
    /// Most common error of the attempts when the breaker opened; null while it is closed.
    pub breaker_error: Option<String>,
    /// Cause of the end of the new worker that stopped the last rolling restart; null once a later
    /// one is done.
    pub roll_stopped: Option<String>,
    /// Cause of the end of the last worker that ended unasked.
    pub last_worker_lost: Option<String>,
    /// The last worker that ended unasked.
    pub last_loss: Option<WorkerLoss>,
    /// Error of the last attempt that failed.
    pub last_error: Option<String>,
    /// Number of consecutive workers that did not get as far as connecting, without those on trial
    /// in a rolling restart.
    pub failed_starts: u64,
    /// Time since which the pool takes nothing in at an operator's request, in seconds since 1970.
    #[serde(with = "crate::status::unix_seconds::maybe")]
    #[schema(value_type = Option<f64>)]
    pub closed_since: Option<SystemTime>,
    /// Number of rolling restarts begun so far.
    pub rolls: u64,
    /// True while the last rolling restart is under way. If false while `roll_stopped` is null, it
    /// is done.
    pub rolling: bool,
    /// Number of the daemon's last reload that the pool has applied.
    pub reload: u64,
    /// Number of messages taken in and not settled.
    pub out: usize,
    /// Number of messages that were taken in and are neither settled nor in hand; anything but zero
    /// is a bug.
    pub unaccounted: i64,
    /// Maximum number of messages that the source may have out.
    pub credit: usize,
    /// Totals since the pool's start.
    pub counts: Counts,
    /// The totals by kind, and the distribution of durations.
    pub details: Details,
    /// Messages done per second, over the last ten seconds.
    pub done_per_second: f64,
    /// Number of messages that were settled too late, so that they may run twice.
    pub likely_duplicates: u64,
    /// Number of messages that are not done, by part of the queue, where the source knows: Kafka's
    /// partitions.
    pub lag: BTreeMap<String, u64>,
    /// Messages that wait in the queue, without those taken in; null while the source does not
    /// know.
    pub backlog: Option<BacklogStatus>,
    /// Further figures of the source.
    pub source_figures: Figures,
    /// Workers, by slot.
    pub workers: Vec<WorkerStatus>,
    /// Age of this status in seconds, independent of changes of the clock. More than two means that
    /// the pool's thread is busy or stuck.
    pub age_seconds: f64,
    /// Time of this status.
    #[serde(skip)]
    pub shown: Option<Instant>,
    /// Time of this status by the daemon's clock.
    #[serde(with = "crate::status::unix_seconds")]
    #[schema(value_type = f64, default = 0.0)]
    pub as_of: SystemTime,
}

impl PoolStatus {
    /// Returns the status of a pool that is about to start.
    pub fn starting(policy: &PoolConfig) -> Self {
        Self {
            name: policy.name.clone(),
            source: policy.source.clone(),
            kind: policy.options.kind().to_owned(),
            queue: policy.queue.to_string(),
            workers_wanted: policy.workers.min(),
            workers_configured: policy.workers.min(),
            shown: Some(Instant::now()),
            as_of: SystemTime::now(),
            ..Self::default()
        }
    }
}

impl Default for PoolStatus {
    /// Returns the status of a pool of which nothing is known yet.
    fn default() -> Self {
        Self {
            name: String::new(),
            source: String::new(),
            kind: String::new(),
            queue: String::new(),
            state: PoolState::Starting,
            workers_wanted: 0,
            workers_configured: 0,
            scaled: None,
            paused_for_all: false,
            autoscale: None,
            source_connected: false,
            source_problem: None,
            waits_for: None,
            breaker_error: None,
            roll_stopped: None,
            last_worker_lost: None,
            last_loss: None,
            last_error: None,
            failed_starts: 0,
            closed_since: None,
            rolls: 0,
            rolling: false,
            reload: 0,
            out: 0,
            unaccounted: 0,
            credit: 0,
            counts: Counts::default(),
            details: Details::default(),
            done_per_second: 0.0,
            likely_duplicates: 0,
            lag: BTreeMap::new(),
            backlog: None,
            source_figures: Figures::default(),
            workers: Vec::new(),
            age_seconds: 0.0,
            shown: None,
            as_of: SystemTime::UNIX_EPOCH,
        }
    }
}

/// Returns the number of messages that came in and are neither settled nor in hand. Anything but
/// zero is a bug.
pub(super) fn unaccounted(counts: &Counts, in_hand: usize) -> i64 {
    let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let Counts {
        taken,
        done,
        dead,
        returned,
        requeued,
        retried,
        ..
    } = *counts;
    whole(taken) - whole(done + dead + returned + requeued + retried) - whole(in_hand as u64)
}

/// Messages that wait in a queue and are due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct BacklogStatus {
    /// Number of messages; on a table counted up to 100 000.
    pub depth: u64,
    /// True if the count stopped at its limit: there may be more.
    pub at_least: bool,
    /// Longest time that one of them has waited, in seconds; null if unknown.
    pub oldest_age_seconds: Option<f64>,
}

impl BacklogStatus {
    /// Returns the backlog as of `now`.
    pub fn at(backlog: Backlog, now: SystemTime) -> Self {
        let age = |since| now.duration_since(since).unwrap_or_default().as_secs_f64();
        let oldest = match backlog.depth {
            // The time series continues in this way, and an alert on it ends.
            0 => Some(now),
            _ => backlog.oldest,
        };
        Self {
            depth: backlog.depth,
            at_least: backlog.is_limit,
            oldest_age_seconds: oldest.map(age),
        }
    }

    /// Returns whether one of the messages has waited longer than that.
    pub fn is_older_than(&self, limit: Duration) -> bool {
        let age = self.oldest_age_seconds;
        self.depth > 0 && age.is_some_and(|age| age > limit.as_secs_f64())
    }

    /// Returns the longest time that one of them has waited, in words.
    pub fn oldest_age(&self) -> Option<String> {
        let seconds = self.oldest_age_seconds?;
        (self.depth > 0).then(|| age(seconds))
    }
}

impl fmt::Display for BacklogStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.at_least { " or more" } else { "" };
        write!(f, "{}{more} message(s) wait", self.depth)?;
        self.oldest_age()
            .map_or(Ok(()), |age| write!(f, ", the oldest for {age}"))
    }
}

/// Formats a time in its two largest units.
pub fn age(seconds: f64) -> String {
    let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let whole = time.as_secs();
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    match () {
        () if days > 0 => format!("{days}d {hours}h"),
        () if hours > 0 => format!("{hours}h {minutes}m"),
        () if minutes > 0 => format!("{minutes}m {}s", whole % 60),
        () if whole >= 10 => format!("{whole}s"),
        () => format!("{:.1}s", time.as_secs_f64()),
    }
}

/// A worker that ended unasked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WorkerLoss {
    /// Slot of the worker.
    pub slot: usize,
    /// Cause of its end.
    pub cause: String,
    /// Last lines that it wrote to stderr.
    pub stderr: Vec<String>,
    /// Time of its end, in seconds since 1970.
    #[serde(with = "crate::status::unix_seconds")]
    #[schema(value_type = f64)]
    pub at: SystemTime,
}

/// State of the autoscaling, where the number of workers follows the load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct ScalingStatus {
    /// Minimum number of workers.
    pub min: usize,
    /// Maximum number of workers.
    pub max: usize,
    /// Reason for the current number: a word out of a fixed set.
    pub reason: String,
    /// Reason for the current number, as a sentence.
    pub why: String,
    /// Time since the number last changed, in seconds; null if it never has.
    pub changed_seconds_ago: Option<f64>,
    /// Reason for the last change.
    pub changed_for: Option<String>,
    /// Number of messages in the queue without those taken in; null if the source does not know.
    pub queued: Option<u64>,
    /// Number of changes, by reason.
    pub changes: BTreeMap<String, u64>,
}

/// A time as seconds since 1970, to the millisecond.
pub(crate) mod unix_seconds {
    use std::time::{Duration, SystemTime};

    use serde::{Deserialize, Deserializer, Serializer};

    /// A time that may be missing.
    pub(crate) mod maybe {
        use std::time::SystemTime;

        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        #[derive(Serialize, Deserialize)]
        struct Moment(#[serde(with = "super")] SystemTime);

        pub(crate) fn serialize<S: Serializer>(
            at: &Option<SystemTime>,
            s: S,
        ) -> Result<S::Ok, S::Error> {
            at.map(Moment).serialize(s)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            d: D,
        ) -> Result<Option<SystemTime>, D::Error> {
            let moment: Option<Moment> = Option::deserialize(d)?;
            Ok(moment.map(|Moment(at)| at))
        }
    }

    pub(crate) fn serialize<S: Serializer>(at: &SystemTime, s: S) -> Result<S::Ok, S::Error> {
        let since = at.duration_since(SystemTime::UNIX_EPOCH);
        let ms = since.unwrap_or_default().as_millis();
        s.serialize_f64(Duration::from_millis(ms.try_into().unwrap_or(u64::MAX)).as_secs_f64())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<SystemTime, D::Error> {
        let since = Duration::try_from_secs_f64(f64::deserialize(d)?);
        // Rounded to the nearest millisecond: so large a number is no more precise, and may lie a
        // little below it.
        let since = since.map_err(serde::de::Error::custom)?;
        let since = since.saturating_add(Duration::from_micros(500));
        let ms = u64::try_from(since.as_millis()).map_err(serde::de::Error::custom)?;
        let since = Duration::from_millis(ms);
        let moment = SystemTime::UNIX_EPOCH.checked_add(since);
        moment.ok_or_else(|| serde::de::Error::custom("it is beyond the end of time"))
    }
}

/// State of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    /// No worker is up yet.
    Starting,
    /// The pool works.
    Running,
    /// The workers fail one after another; nothing is pulled but a probe.
    Degraded,
    /// Nearly all attempts fail: a dependency of the workers seems to be down. One message at a
    /// time is tried.
    Open,
    /// The source can't be used; work in hand goes on.
    SourceDown,
    /// An operator has paused the pool: it takes nothing in.
    Paused,
    /// The pool takes nothing in, and its workers leave.
    Draining,
    /// An operator has drained the pool: it has no workers.
    Drained,
}

/// A worker at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct WorkerStatus {
    /// Slot of the worker.
    pub slot: usize,
    /// Process ID, once started.
    pub pid: Option<u32>,
    /// State of the worker: waiting, starting, idle, busy, or the phase of its stop.
    pub state: String,
    /// Number of messages in flight.
    pub in_flight: usize,
    /// Maximum number of messages in flight.
    pub window: usize,
    /// Time since the worker began its current message, in seconds.
    pub message_age: Option<f64>,
    /// Correlation id of the current message, or, without one, the name that ganger gives it: the
    /// argument of `ganger cancel`. Of several messages the one begun first.
    pub message: Option<String>,
    /// Number of messages that the worker has answered.
    pub answered: u64,
    /// Last progress that the worker reported.
    pub progress: Option<String>,
    /// Resident memory of the process, in bytes.
    pub memory_bytes: Option<u64>,
    /// CPU time of the process and of its children that have ended, in seconds.
    pub cpu_seconds: Option<f64>,
}

impl PoolState {
    /// Returns the name for logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Degraded => "degraded",
            Self::Open => "open",
            Self::SourceDown => "source down",
            Self::Paused => "paused",
            Self::Draining => "draining",
            Self::Drained => "drained",
        }
    }
}

impl PoolStatus {
    /// Writes the status to the log: one record for the pool, one for each worker.
    pub fn log(&self) {
        let (status, counts) = (self, &self.counts);
        macro_rules! record {
            ($($(#[$doc:meta])* $counter:ident)*) => {
                tracing::info!(
                    pool = status.name,
                    state = status.state.as_str(),
                    workers = status.workers.len(),
                    workers_wanted = status.workers_wanted,
                    scaled = status.scaled,
                    workers_why = status.autoscale.as_ref().map(|range| range.why.as_str()),
                    out = status.out,
                    $($counter = counts.$counter,)*
                    done_per_second = format!("{:.1}", status.done_per_second),
                    likely_duplicates = status.likely_duplicates,
                    repetitions = status.source_figures.repetitions,
                    unkeyed = status.source_figures.unkeyed,
                    waiting = status.backlog.map(|backlog| backlog.depth),
                    oldest_age = status.backlog.and_then(|backlog| backlog.oldest_age()),
                    lag = (!status.lag.is_empty()).then(|| status.lag.values().sum::<u64>()),
                    p50_ms = counts.p50_ms,
                    p99_ms = counts.p99_ms,
                    source_problem = status.source_problem,
                    waits_for = status.waits_for,
                    breaker_error = status.breaker_error,
                    roll_stopped = status.roll_stopped,
                    last_worker_lost = status.last_worker_lost,
                    "status of the pool"
                )
            };
        }
        for_each_counter!(record);
        for (partition, lag) in &self.lag {
            tracing::info!(pool = self.name, partition, lag, "status of the partition");
        }
        for worker in &self.workers {
            tracing::info!(
                pool = self.name,
                worker = worker.slot,
                pid = worker.pid,
                state = worker.state,
                in_flight = worker.in_flight,
                window = worker.window,
                message_age = worker
                    .message_age
                    .map(|age| format!("{:?}", Duration::from_secs_f64(age))),
                works_on = worker.message,
                answered = worker.answered,
                progress = worker.progress,
                "status of the worker"
            );
        }
    }
}

#[cfg(test)]
mod tests;
