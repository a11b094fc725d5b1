//! Schedules and occurrences in JSON, on the command line and over HTTP: stable forms for scripts. Times are RFC 3339
//! in UTC. Fields may be added, and are never renamed.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use ganger_core::host;
use ganger_schedule::explain::ShownSlot;

/// A schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = Schedule)]
pub struct ScheduleJson {
    /// Name.
    pub name: String,
    /// State: `active`, `paused`, `disabled`, `broken` or `ended`.
    pub state: String,
    /// Reason of the state.
    pub state_reason: Option<String>,
    /// Description of what is expected of it and did not happen in time; none if nothing is overdue.
    #[serde(default)]
    pub overdue: Option<String>,
    /// Next slot; none if there is none, or none is known yet.
    pub next_slot: Option<String>,
    /// State of the newest occurrence.
    pub last_state: Option<String>,
    /// States of the newest occurrences, the newest first, as many as were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<String>,
    /// Words by which people find it.
    pub tags: Vec<String>,
    /// Its maker: `file`, `api` or `sql`.
    pub origin: String,
    /// Number of the version of the definition; 0 until a daemon has seen it.
    pub version: i64,
}

/// A schedule with its definition and its last occurrences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ScheduleDetails)]
pub struct ScheduleDetailsJson {
    /// The schedule.
    #[serde(flatten)]
    pub schedule: ScheduleJson,
    /// Number of its runs.
    pub runs: u64,
    /// Its keys but the name, as in `[[schedules]]`. A text if another program has stored what is no JSON.
    pub definition: Json,
    /// Tag of the definition, as in the header `ETag`.
    #[serde(default)]
    pub etag: String,
    /// Slots yet to come that an operator has skipped.
    #[serde(default)]
    pub skips: Vec<String>,
    /// Its last occurrences, the newest first.
    pub occurrences: Vec<OccurrenceJson>,
}

/// A version of a schedule's definition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ScheduleVersion)]
pub struct VersionJson {
    /// Number, from 1.
    pub version: i64,
    /// Time at which it was entered, or first seen by a daemon.
    pub at: String,
    /// Its maker: `file`, `api` or `sql`.
    pub origin: String,
    /// Who has made it, if that is known.
    pub actor: Option<String>,
    /// Its keys but the name, as in `[[schedules]]`. A text if another program has stored what is no JSON.
    pub definition: Json,
}

/// A change by an operator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = AuditEntry)]
pub struct AuditJson {
    /// Number; later changes have greater ones.
    pub id: i64,
    /// Time.
    pub at: String,
    /// Who has made it, if that is known: the user of a command, or the caller of the API.
    pub actor: Option<String>,
    /// The change: `create`, `replace`, `roll_back`, `remove`, `pause`, `resume`, `trigger`, `skip`, `unskip`, `backfill`,
    /// `pause_all`, `resume_all`; of an occurrence `cancel`, `retry`, `resolve`.
    pub action: String,
    /// The schedule or occurrence; `*` for all schedules.
    pub subject: String,
    /// More about it, such as the reason; none if there is no more.
    pub detail: Json,
}

/// A slot that is skipped on purpose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = SkippedSlot)]
pub struct SkippedJson {
    /// The slot.
    pub slot: String,
    /// The slots of the schedule yet to come that are skipped now.
    pub skips: Vec<String>,
}

/// Slots of the past that are run on purpose.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = Backfill)]
pub struct BackfillJson {
    /// The slots that run, or would run.
    pub slots: Vec<String>,
    /// Number of slots of the range that have run before, and are left alone.
    pub done: u64,
    /// Ids of the occurrences; none after a dry run.
    pub occurrences: Vec<String>,
}

/// An occurrence: a slot of a schedule, a run that was triggered, or the record of a message of no schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = Occurrence)]
pub struct OccurrenceJson {
    /// Id.
    pub id: String,
    /// Its schedule; none for the record of a message of no schedule.
    pub schedule: Option<String>,
    /// Version of the schedule.
    pub version: i64,
    /// Its slot; none for a run that was triggered.
    pub slot: Option<String>,
    /// The last of the slots that were skipped together.
    pub last_slot: Option<String>,
    /// Source of its queue; none for a queue in the database of the ledger.
    #[serde(default)]
    pub source: Option<String>,
    /// Its queue.
    pub queue: String,
    /// State: `queued`, `running`, `waiting`, `unknown`, or an end: `completed`, `failed`, `cancelled`, `timed_out`,
    /// `skipped`.
    pub state: String,
    /// Number by which the state is stored.
    pub state_code: i64,
    /// Reason of the state, in a word.
    pub reason: Option<String>,
    /// Number of the last attempt; 0 before the first.
    pub attempt: u32,
    /// Time at which it was entered; of a message of no schedule, at which a daemon took it.
    pub queued_at: String,
    /// Start of the last attempt.
    pub started_at: Option<String>,
    /// Its end; none while it is open.
    pub ended_at: Option<String>,
    /// From the start of the last attempt to its end, in milliseconds.
    pub duration_ms: Option<u64>,
    /// Error of the last attempt that failed.
    pub error: Option<String>,
    /// Fingerprint of that error, 16 hexadecimal digits: errors that differ only in numbers, ids and quoted parts have the
    /// same.
    #[serde(default)]
    pub fingerprint: Option<String>,
    /// Exit code of the worker that died in that attempt, if it exited by itself.
    #[serde(default)]
    pub exit_code: Option<i64>,
    /// Signal that ended the worker in that attempt, if one did.
    #[serde(default)]
    pub signal: Option<i64>,
    /// Its dead letter, which may have been sent back or dropped since; none unless its end left one.
    #[serde(default)]
    pub dead_letter: Option<DeadLetterNameJson>,
    /// Answer of its worker, at most 64 KiB of it; none if there is none.
    #[serde(default)]
    pub result: Option<String>,
    /// Id of its message; of a message of no schedule without one its correlation id, or none.
    pub message_id: Option<String>,
    /// Correlation id of its message; of a schedule's the id of the occurrence.
    #[serde(default)]
    pub correlation_id: Option<String>,
    /// Number of missed or skipped slots that it stands for besides its own.
    pub missed: u64,
    /// Reason for which it is being cancelled; none if it is not.
    #[serde(default)]
    pub cancel_request: Option<String>,
    /// Note of an operator on its failure.
    #[serde(default)]
    pub resolved: Option<String>,
    /// The last progress that its worker told; none if there was none.
    #[serde(default)]
    pub progress: Option<String>,
    /// Last time at which it was known to be alive; none unless it has told something, or was running for 10 s.
    #[serde(default)]
    pub heard_at: Option<String>,
    /// Number of lines in its log.
    #[serde(default)]
    pub log_lines: u64,
    /// Number of lines that its log has dropped.
    #[serde(default)]
    pub log_dropped: u64,
    /// The last worker that had its message; none before the first.
    #[serde(default)]
    pub worker: Option<RunWorkerJson>,
    /// Trace of the attempt of that worker, in 32 hexadecimal digits; none if that was not traced.
    #[serde(default)]
    pub trace_id: Option<String>,
}

/// A dead letter by its message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = DeadLetterName)]
pub struct DeadLetterNameJson {
    /// Source that holds it.
    pub source: String,
    /// Id of the message, or of one without an id its correlation id.
    pub message_id: String,
}

/// A worker that has had an occurrence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = RunWorker)]
pub struct RunWorkerJson {
    /// Its pool.
    pub pool: String,
    /// Its daemon: the name of the host and the process id.
    pub daemon: String,
    /// Its number in the pool.
    pub worker: usize,
    /// Its process id.
    pub pid: u32,
}

impl RunWorkerJson {
    /// Describes a worker of this daemon.
    pub fn of(pool: &str, worker: usize, pid: u32) -> Self {
        Self {
            pool: pool.to_owned(),
            daemon: format!("{}:{}", host::name(), std::process::id()),
            worker,
            pid,
        }
    }

    /// Reads the text that a ledger has of one; none if it is no such text.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the text that a ledger has of it.
    pub fn text(&self) -> String {
        serde_json::json!(self).to_string()
    }
}

/// Lines of the log of an occurrence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = OccurrenceLog)]
pub struct OccurrenceLogJson {
    /// State of the occurrence.
    pub state: String,
    /// Its end; none while it is open.
    pub ended_at: Option<String>,
    /// Number of lines that the log has dropped.
    pub dropped: u64,
    /// The lines, the oldest first.
    pub lines: Vec<LogLineJson>,
}

/// A line of the log of an occurrence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = LogLine)]
pub struct LogLineJson {
    /// Its number, from 0. Numbers are left out where lines were dropped.
    pub line: i64,
    /// Time.
    pub at: String,
    /// Number of the attempt.
    pub attempt: u32,
    /// Its origin: `log` for a LOG frame, `stdout` or `stderr`.
    pub stream: String,
    /// Its level: `trace`, `debug`, `info`, `warn` or `error`.
    pub level: Option<String>,
    /// Its text, as the worker wrote it.
    pub text: String,
}

/// An occurrence with the changes of its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = OccurrenceDetails)]
pub struct OccurrenceDetailsJson {
    /// The occurrence.
    #[serde(flatten)]
    pub occurrence: OccurrenceJson,
    /// Changes of its state, the oldest first; none for the record of a message of no schedule.
    pub events: Vec<OccurrenceEventJson>,
}

/// A change of an occurrence's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = OccurrenceEvent)]
pub struct OccurrenceEventJson {
    /// Time.
    pub at: String,
    /// State before; none for the first.
    pub from: Option<String>,
    /// State after.
    pub to: String,
    /// Number of the attempt.
    pub attempt: u32,
    /// A note for people.
    pub note: Option<String>,
}

/// A coming slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = Slot)]
pub struct SlotJson {
    /// RFC 3339, in UTC.
    pub slot: String,
    /// RFC 3339, with the offset of the zone.
    pub local: String,
    /// The effect of clock changes on it; empty if there is none.
    pub note: String,
}

/// A coming slot of one of all schedules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = UpcomingSlot)]
pub struct UpcomingJson {
    /// The schedule.
    pub schedule: String,
    /// The slot.
    #[serde(flatten)]
    pub slot: SlotJson,
}

/// A report on the runs of a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = Report)]
pub struct ReportJson {
    /// Beginning of the time whose runs are counted.
    pub from: String,
    /// Its end.
    pub to: String,
    /// False if there were too many runs since the beginning that was asked for: `from` is later than that.
    pub is_complete: bool,
    /// The schedules and queues.
    pub rows: Vec<ReportRowJson>,
}

/// Counts of the runs of one schedule, or of the recorded messages of one queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ReportRow)]
pub struct ReportRowJson {
    /// The schedule; none for recorded messages.
    pub schedule: Option<String>,
    /// Source of the queue; none for the database of the ledger.
    pub source: Option<String>,
    /// The queue.
    pub queue: String,
    /// Day of their slots, or of the time at which they were entered, in a report by days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<String>,
    /// Number of all of them.
    pub runs: u64,
    /// Number of those that have not ended.
    pub open: u64,
    /// Number of those that have completed.
    pub completed: u64,
    /// Number of those that have failed.
    pub failed: u64,
    /// Number of those that have timed out.
    pub timed_out: u64,
    /// Number of those that were cancelled.
    pub cancelled: u64,
    /// Number of slots that were skipped.
    pub skipped: u64,
    /// Number of those that have ended for a reason, by reason.
    pub reasons: BTreeMap<String, u64>,
    /// Time from the slot to the start of a run, of those with one attempt; of recorded messages, from their arrival at
    /// the daemon.
    pub late: Option<SpreadJson>,
    /// Duration of the last attempt of each.
    pub took: Option<SpreadJson>,
    /// Id of the one that took longest.
    pub slowest: Option<String>,
}

/// Distribution of durations, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = Spread)]
pub struct SpreadJson {
    /// Median.
    pub p50_ms: u64,
    /// 95th percentile.
    pub p95_ms: u64,
    /// Longest.
    pub max_ms: u64,
}

/// Orders of a report: what is first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReportOrder {
    /// The most failures and timeouts.
    #[default]
    Failures,
    /// The latest starts (p95).
    Lateness,
    /// The longest runs (p95).
    Durations,
    /// The slowest single run.
    Slow,
}

impl ReportOrder {
    /// Words of all orders.
    pub const WORDS: [&str; 4] = ["failures", "lateness", "durations", "slow"];

    /// Returns its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failures => "failures",
            Self::Lateness => "lateness",
            Self::Durations => "durations",
            Self::Slow => "slow",
        }
    }

    /// Returns the order of that word.
    pub fn of(word: &str) -> Option<Self> {
        let all = [Self::Failures, Self::Lateness, Self::Durations, Self::Slow];
        all.into_iter().find(|order| order.as_str() == word)
    }
}

impl ReportJson {
    /// Sorts the rows, those that matter most first.
    pub fn sort(&mut self, order: ReportOrder) {
        let of = |spread: Option<SpreadJson>, figure: fn(SpreadJson) -> u64| spread.map(figure);
        let weight = |row: &ReportRowJson| match order {
            ReportOrder::Failures => Some(row.failed + row.timed_out),
            ReportOrder::Lateness => of(row.late, |late| late.p95_ms),
            ReportOrder::Durations => of(row.took, |took| took.p95_ms),
            ReportOrder::Slow => of(row.took, |took| took.max_ms),
        };
        self.rows.sort_by_key(|row| Reverse(weight(row)));
    }
}

impl From<ShownSlot> for SlotJson {
    fn from(slot: ShownSlot) -> Self {
        Self {
            slot: slot.at.to_string(),
            local: slot.local,
            note: slot.note,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Names of the fields that scripts rely on.
    #[test]
    fn forms_keep_their_fields() {
        let occurrence = json!({
            "id": "i", "schedule": "s", "version": 1, "slot": null, "last_slot": null, "source": null, "queue": "q",
            "state": "completed", "state_code": 2, "reason": null, "attempt": 1,
            "queued_at": "2026-12-01T00:00:00Z", "started_at": "2026-12-01T00:00:01Z",
            "ended_at": "2026-12-01T00:00:02Z", "duration_ms": 1000, "error": null, "message_id": "i", "missed": 0,
            "fingerprint": "f", "exit_code": 3, "signal": null, "correlation_id": "i",
            "dead_letter": { "source": "main", "message_id": "i" },
            "result": "r", "cancel_request": null, "resolved": "n",
            "result": "r", "progress": "1 of 2", "heard_at": "2026-12-01T00:00:02Z", "log_lines": 1, "log_dropped": 0,
            "worker": { "pool": "p", "daemon": "h:1", "worker": 0, "pid": 2 }, "trace_id": "t",
        });
        let log = json!({
            "state": "completed", "ended_at": "2026-12-01T00:00:02Z", "dropped": 1, "lines": [
                { "line": 0, "at": "2026-12-01T00:00:01Z", "attempt": 1, "stream": "log", "level": "info", "text": "t" },
            ],
        });
        let read: OccurrenceLogJson = serde_json::from_value(log.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), log);
        let event = json!({ "at": "2026-12-01T00:00:00Z", "from": null, "to": "queued", "attempt": 0, "note": "n" });
        let mut details = occurrence.clone();
        details["events"] = json!([event]);
        let read: OccurrenceDetailsJson = serde_json::from_value(details.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), details);
        let schedule = json!({
            "name": "s", "state": "paused", "state_reason": "r", "overdue": null, "next_slot": null, "last_state": "failed",
            "tags": ["t"], "origin": "api", "version": 2,
        });
        let read: ScheduleJson = serde_json::from_value(schedule.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), schedule);
        let mut details = schedule;
        details["runs"] = json!(3);
        details["definition"] = json!({ "every": "1s" });
        details["etag"] = json!("e");
        details["skips"] = json!(["2026-12-01T00:00:00Z"]);
        details["occurrences"] = json!([occurrence]);
        let read: ScheduleDetailsJson = serde_json::from_value(details.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), details);
    }
}
