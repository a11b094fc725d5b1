//! What a pool tells of itself: for the status report, the admin side and the demo. Plain data.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use ganger_config::model::PoolConfig;
use ganger_queue::delivery::{Backlog, Figures};
use ganger_telemetry::for_each_counter;
use ganger_telemetry::metrics::{Counts, Details};

/// A pool at one moment. Counts are totals since the pool's start, whoever has asked before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// The connection that it reads from.
    pub source: String,
    /// What is at the other end: table, rabbitmq or kafka.
    pub kind: String,
    /// The queue or topic that it reads.
    pub queue: String,
    /// How it is doing.
    pub state: PoolState,
    /// How many workers it should have now.
    pub workers_wanted: usize,
    /// How many the configuration asks for; of a range, as many as the load asks for now.
    pub workers_configured: usize,
    /// How many an operator has asked for instead.
    pub scaled: Option<usize>,
    /// Its queue is paused for all daemons that share the table.
    pub paused_for_all: bool,
    /// How their number follows the load, where it does.
    pub autoscale: Option<ScalingStatus>,
    /// Its source is connected, and the last settlement took effect.
    pub source_connected: bool,
    /// What is wrong with its source, if anything.
    pub source_problem: Option<String>,
    /// What a message of its source that must wait waits for.
    pub waits_for: Option<String>,
    /// The error that most attempts had when the breaker opened, while it is open.
    pub breaker_error: Option<String>,
    /// How the new worker ended that stopped the last rolling restart; none once a later one is done.
    pub roll_stopped: Option<String>,
    /// How the last worker ended that ended unasked.
    pub last_worker_lost: Option<String>,
    /// The last worker that ended unasked.
    pub last_loss: Option<WorkerLoss>,
    /// The error of the last attempt that has failed.
    pub last_error: Option<String>,
    /// Workers in a row that have not come as far as to connect, those on trial in a rolling restart
    /// left out.
    pub failed_starts: u64,
    /// Time since which it takes nothing in, as an operator has asked, in seconds since 1970.
    #[serde(with = "crate::status::unix_seconds::maybe")]
    #[schema(value_type = Option<f64>)]
    pub closed_since: Option<SystemTime>,
    /// Rolling restarts begun so far.
    pub rolls: u64,
    /// The last of them is under way. If it is not, and `roll_stopped` is null, it is done.
    pub rolling: bool,
    /// Number of the daemon's last reload that it runs by.
    pub reload: u64,
    /// Messages taken in and not settled.
    pub out: usize,
    /// Messages that were taken in and are neither settled nor in hand: zero, or there is a bug.
    pub unaccounted: i64,
    /// How many messages its source may have out.
    pub credit: usize,
    /// What it has done since it started.
    pub counts: Counts,
    /// The same by kind, and how durations are spread.
    pub details: Details,
    /// Messages done per second, over the last ten seconds.
    pub done_per_second: f64,
    /// Messages that were settled too late, so that they may run twice.
    pub likely_duplicates: u64,
    /// Messages that are not done, by part of the queue, where the source knows: Kafka's
    /// partitions.
    pub lag: BTreeMap<String, u64>,
    /// Messages that wait in its queue, beside those that it has taken in; none while its source does
    /// not know.
    pub backlog: Option<BacklogStatus>,
    /// What else its source knows.
    pub source_figures: Figures,
    /// Its workers, by slot.
    pub workers: Vec<WorkerStatus>,
    /// How old this is, in seconds, whatever the clock was set to meanwhile: more than two, and the pool's
    /// thread is busy or stuck.
    pub age_seconds: f64,
    /// The moment of which it tells.
    #[serde(skip)]
    pub shown: Option<Instant>,
    /// When that was, by the daemon's clock.
    #[serde(with = "crate::status::unix_seconds")]
    #[schema(value_type = f64, default = 0.0)]
    pub as_of: SystemTime,
}

impl PoolStatus {
    /// Of a pool that is about to start.
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
    /// Of a pool that nothing is known of yet.
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

/// Messages that wait in a queue and are due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct BacklogStatus {
    /// Number of messages; on a table counted up to 100 000.
    pub depth: u64,
    /// The count stopped at its limit: there may be more.
    pub at_least: bool,
    /// Longest time that one of them has waited, in seconds; none where nothing says since when.
    pub oldest_age_seconds: Option<f64>,
}

impl BacklogStatus {
    /// The backlog as of `now`.
    pub fn at(backlog: Backlog, now: SystemTime) -> Self {
        let age = |since| now.duration_since(since).unwrap_or_default().as_secs_f64();
        let oldest = match backlog.depth {
            // So that a series of it goes on, and an alert on it ends.
            0 => Some(now),
            _ => backlog.oldest,
        };
        Self {
            depth: backlog.depth,
            at_least: backlog.is_limit,
            oldest_age_seconds: oldest.map(age),
        }
    }

    /// Whether one of the messages has waited longer than that.
    pub fn is_older_than(&self, limit: Duration) -> bool {
        let age = self.oldest_age_seconds;
        self.depth > 0 && age.is_some_and(|age| age > limit.as_secs_f64())
    }

    /// The longest time that one of them has waited, in words.
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

/// A time in its two largest units.
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
    /// Its place.
    pub slot: usize,
    /// Cause of its end.
    pub cause: String,
    /// Its last lines on stderr.
    pub stderr: Vec<String>,
    /// Time of its end, in seconds since 1970.
    #[serde(with = "crate::status::unix_seconds")]
    #[schema(value_type = f64)]
    pub at: SystemTime,
}

/// How the number of workers follows the load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct ScalingStatus {
    /// The fewest that there may be.
    pub min: usize,
    /// The most.
    pub max: usize,
    /// Why there are as many as there are: one of a few words.
    pub reason: String,
    /// The same in a sentence.
    pub why: String,
    /// How long ago the number changed last, in seconds; none if it never has.
    pub changed_seconds_ago: Option<f64>,
    /// Why it did.
    pub changed_for: Option<String>,
    /// Messages in the queue beside those that are here, where the source says.
    pub queued: Option<u64>,
    /// How often the number has changed, by reason.
    pub changes: BTreeMap<String, u64>,
}

/// A moment as seconds since 1970, to the millisecond.
pub(crate) mod unix_seconds {
    use std::time::{Duration, SystemTime};

    use serde::{Deserialize, Deserializer, Serializer};

    /// A moment that may be missing.
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
        // To the nearest millisecond: a number so large tells no more, and may lie a little below it.
        let since = since.map_err(serde::de::Error::custom)?;
        let since = since.saturating_add(Duration::from_micros(500));
        let ms = u64::try_from(since.as_millis()).map_err(serde::de::Error::custom)?;
        let since = Duration::from_millis(ms);
        let moment = SystemTime::UNIX_EPOCH.checked_add(since);
        moment.ok_or_else(|| serde::de::Error::custom("it is beyond the end of time"))
    }
}

/// How a pool is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    /// No worker is up yet.
    Starting,
    /// It works.
    Running,
    /// Its workers fail one after the other; nothing is pulled but a probe.
    Degraded,
    /// Nearly all attempts fail: what the workers depend on seems to be down. One message at a time
    /// is tried.
    Open,
    /// Its source can't be used; what is in hand goes on.
    SourceDown,
    /// An operator has paused it: it takes nothing in.
    Paused,
    /// It takes nothing in, and its workers leave.
    Draining,
    /// An operator has drained it: it has no workers.
    Drained,
}

/// A worker at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct WorkerStatus {
    /// Its place.
    pub slot: usize,
    /// Its process, once started.
    pub pid: Option<u32>,
    /// waiting, starting, idle, busy, or how far its stop has come.
    pub state: String,
    /// Messages in its hands.
    pub in_flight: usize,
    /// How many it may have.
    pub window: usize,
    /// For how long its current message has been worked on, in seconds.
    pub message_age: Option<f64>,
    /// That message's correlation id, or where it has none the name that ganger gives it: what
    /// `ganger cancel` takes. Of several messages the one that was begun first.
    pub message: Option<String>,
    /// Messages that it has answered.
    pub answered: u64,
    /// What it last said of its progress.
    pub progress: Option<String>,
    /// Resident memory of its process, in bytes.
    pub memory_bytes: Option<u64>,
    /// CPU time of its process and of children of that which have ended, in seconds.
    pub cpu_seconds: Option<f64>,
}

impl PoolState {
    /// What logs call it.
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
    /// Writes the report to the log: one record for the pool, one for each worker.
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
