//! Schedules and occurrences as the database holds them.

use std::collections::BTreeSet;
use std::time::SystemTime;

use jiff::Timestamp;

use ganger_queue::delivery::Outgoing;
pub use ganger_queue::ledger::OccurrenceFilter;
use ganger_schedule::auto_disable::AutoDisable;
use ganger_schedule::due::Cursor;
use ganger_schedule::occurrence::{OccurrenceState, ScheduleState};

/// Origin of the schedules of a configuration.
pub(super) const OF_FILE: &str = "file";
/// Origin of those that the API has entered.
pub(super) const OF_API: &str = "api";

/// An occurrence that has ended, as retention sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OldOccurrence {
    pub(crate) id: String,
    pub(crate) schedule: String,
    pub(crate) ended_at: Timestamp,
    /// Number of lines of its log.
    pub(crate) log_lines: u64,
    /// It is the newest of a schedule that goes on, or its last one that completed.
    pub(crate) must_stay: bool,
}

/// A schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleRow {
    /// Name.
    pub name: String,
    /// Its keys but the name, as JSON.
    pub definition: String,
    /// Name of the configuration that it is from; none if it is from none.
    pub configuration: Option<String>,
    /// Who has made it: `file`, `api` or `sql`.
    pub origin: String,
    /// State.
    pub state: ScheduleState,
    /// Reason of the state, for people.
    pub state_reason: Option<String>,
    /// Number of the version of the definition; 0 until a daemon has seen it.
    pub version: i64,
    /// Definition to which the cursor belongs; none until a daemon has seen it.
    pub applied: Option<String>,
    /// Progress; none until a daemon has seen it.
    pub cursor: Option<Cursor>,
    /// Next slot; none if there is none, or none is known.
    pub next_slot: Option<Timestamp>,
    /// Time at which it is to be looked at; none for never.
    pub wake: Option<Timestamp>,
    /// Failures in a row, and whether it is disabled because of them.
    pub failing: AutoDisable,
    /// State of what is expected of it.
    pub expected: Expectation,
    /// Slots yet to come that an operator has taken out.
    pub skips: BTreeSet<Timestamp>,
    /// Time at which it was made; none for one that is being made.
    pub created: Option<Timestamp>,
    /// The newest version that is kept. Not a column: looked up if the definition is another than the applied one.
    pub newest: NewestVersion,
    /// Number of its occurrences that have not ended. Not a column: counted.
    pub open: u32,
    /// Number of those among them that wait for others to end. Not a column: counted where it matters.
    pub waiting: u32,
    /// State of its newest occurrence. Not a column: looked up.
    pub last_state: Option<OccurrenceState>,
}

impl ScheduleRow {
    /// Makes a schedule of a configuration that no daemon has seen yet.
    pub(crate) fn of_file(name: &str, definition: &str, configuration: &str) -> Self {
        Self {
            name: name.to_owned(),
            definition: definition.to_owned(),
            configuration: Some(configuration.to_owned()),
            origin: OF_FILE.to_owned(),
            state: ScheduleState::Active,
            state_reason: None,
            version: 0,
            applied: None,
            cursor: None,
            next_slot: None,
            wake: Some(Timestamp::UNIX_EPOCH),
            failing: AutoDisable::default(),
            expected: Expectation::default(),
            skips: BTreeSet::new(),
            created: None,
            newest: NewestVersion::default(),
            open: 0,
            waiting: 0,
            last_state: None,
        }
    }

    /// Makes a schedule of the API that no daemon has seen yet.
    pub(super) fn of_api(name: &str, definition: &str) -> Self {
        Self {
            configuration: None,
            origin: OF_API.to_owned(),
            ..Self::of_file(name, definition, "")
        }
    }

    /// Gives the definition its number. Returns the version if it is not kept yet.
    pub(super) fn number(&mut self) -> Option<NewVersion> {
        if self.applied.as_ref() == Some(&self.definition) {
            return None;
        }
        let NewestVersion { number, is_this } = self.newest;
        let is_kept = is_this && number >= self.version;
        self.version = match is_kept {
            true => number,
            false => self.version.max(number).saturating_add(1),
        };
        (!is_kept).then(|| NewVersion {
            schedule: self.name.clone(),
            version: self.version,
            origin: self.origin.clone(),
            actor: None,
            definition: self.definition.clone(),
        })
    }

    /// Sets the definition. One that is paused or disabled stays so; one that was broken is tried again, also by
    /// the same definition, which this release may understand. Returns whether the row is another now.
    pub(super) fn redefine(&mut self, definition: &str) -> bool {
        if self.definition == definition {
            let is_broken = self.state == ScheduleState::Broken;
            if is_broken {
                self.wake = Some(Timestamp::UNIX_EPOCH);
            }
            return is_broken;
        }
        definition.clone_into(&mut self.definition);
        if self.cursor.is_none() {
            self.created = None;
        }
        if !matches!(self.state, ScheduleState::Paused | ScheduleState::Disabled) {
            self.is_now(ScheduleState::Active, None);
            self.wake = Some(Timestamp::UNIX_EPOCH);
        }
        true
    }

    /// Returns whether its runs go on, also those that are left of one that has ended.
    pub(crate) fn goes_on(&self) -> bool {
        matches!(self.state, ScheduleState::Active | ScheduleState::Ended)
    }

    /// Sets the state, with its reason. Nothing is expected of a schedule that is stopped.
    pub(crate) fn is_now(&mut self, state: ScheduleState, reason: Option<&str>) {
        self.state = state;
        if !self.goes_on() {
            self.expected = Expectation::default();
        }
        self.state_reason = reason.map(str::to_owned);
    }
}

/// Number of the newest version of a schedule that is kept; 0 if none is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NewestVersion {
    pub(super) number: i64,
    /// Its definition is that of the schedule.
    pub(super) is_this: bool,
}

/// A version of a definition that is entered or seen for the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewVersion {
    pub(crate) schedule: String,
    pub(crate) version: i64,
    pub(crate) origin: String,
    /// Who has made it, if that is known.
    pub(crate) actor: Option<String>,
    pub(crate) definition: String,
}

/// A version of a definition that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) version: i64,
    pub(crate) at: Timestamp,
    pub(crate) origin: String,
    pub(crate) actor: Option<String>,
    pub(crate) definition: String,
}

/// A change by an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuditRow {
    pub(crate) id: i64,
    pub(crate) at: Timestamp,
    pub(crate) actor: Option<String>,
    pub(crate) action: String,
    pub(crate) subject: String,
    pub(crate) detail: Option<String>,
}

/// State of what is expected of a schedule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expectation {
    /// Time of the last success, or since which one is expected.
    pub since: Option<Timestamp>,
    /// Time at which something becomes overdue if nothing happens; none if nothing is expected.
    pub review: Option<Timestamp>,
    /// Description of what did not happen in time, for people.
    pub overdue: Option<String>,
}

/// An occurrence that is entered, and its message if it has one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NewOccurrence {
    pub(crate) id: String,
    pub(crate) schedule: String,
    pub(crate) version: i64,
    /// None for a run that an operator has triggered.
    pub(crate) slot: Option<Timestamp>,
    /// The last of the slots that are skipped together.
    pub(crate) last_slot: Option<Timestamp>,
    pub(crate) queue: String,
    /// Source of its queue; none for the database of the ledger.
    pub(crate) source: Option<String>,
    pub(crate) state: OccurrenceState,
    pub(crate) reason: Option<&'static str>,
    /// Number of missed slots that it stands for besides its own, or of skipped slots but one.
    pub(crate) missed: u64,
    /// A note on who or what has triggered it.
    pub(crate) note: Option<String>,
    /// Its end is looked at by the daemon.
    pub(crate) is_watched: bool,
    pub(crate) message: Option<Outgoing>,
}

/// An occurrence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrence {
    /// Id, which is also that of its message if it is of a schedule.
    pub id: String,
    /// Its schedule; empty for the record of a message of none.
    pub schedule: String,
    /// Version of the schedule.
    pub version: i64,
    /// Source of its queue; none for the database of the ledger.
    pub source: Option<String>,
    /// Id of its message, if it is of no schedule and the message has one.
    pub message_id: Option<String>,
    /// Correlation id of its message, if it is of no schedule and the message has one.
    pub correlation_id: Option<String>,
    /// Its slot; none for a run that an operator has triggered.
    pub slot: Option<Timestamp>,
    /// The last of the slots that were skipped together.
    pub last_slot: Option<Timestamp>,
    /// Its queue.
    pub queue: String,
    /// State.
    pub state: OccurrenceState,
    /// Reason of the state, in a word.
    pub reason: Option<String>,
    /// Number of the last attempt; 0 before the first.
    pub attempt: u32,
    /// Time at which it was entered.
    pub queued_at: Timestamp,
    /// Start of the last attempt.
    pub started_at: Option<Timestamp>,
    /// Its end.
    pub ended_at: Option<Timestamp>,
    /// Error of the last attempt that failed.
    pub error: Option<String>,
    /// Fingerprint of that error.
    pub fingerprint: Option<String>,
    /// Exit code of the worker of that attempt, if it exited by itself.
    pub exit_code: Option<i64>,
    /// Signal that ended that worker, if one did.
    pub signal: Option<i64>,
    /// Answer of its worker, at most 64 KiB of it.
    pub result: Option<String>,
    /// Number of missed or skipped slots that it stands for besides its own.
    pub missed: u64,
    /// Reason for which it is to be cancelled, if it is.
    pub cancel_request: Option<String>,
    /// Note of an operator on its failure.
    pub resolved: Option<String>,
    /// The last progress that its worker told.
    pub progress: Option<String>,
    /// Last time at which it was known to be alive.
    pub heard_at: Option<Timestamp>,
    /// Number of lines in its log.
    pub log_lines: u64,
    /// Number of lines that its log has dropped.
    pub log_dropped: u64,
    /// The worker that had it last: an object of JSON.
    pub worker: Option<String>,
    /// Trace of the last attempt, in hexadecimal digits.
    pub trace_id: Option<String>,
}

/// A line of the log of an occurrence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoggedLine {
    /// Number of the line.
    pub line: i64,
    /// Time.
    pub at: Timestamp,
    /// Number of the attempt.
    pub attempt: u32,
    /// Its origin.
    pub stream: String,
    /// Its level, in a word.
    pub level: Option<String>,
    /// Its text.
    pub text: String,
}

/// A change of an occurrence's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OccurrenceEvent {
    /// Time.
    pub at: Timestamp,
    /// State before; none for the first.
    pub from: Option<OccurrenceState>,
    /// State after.
    pub to: OccurrenceState,
    /// Number of the attempt.
    pub attempt: u32,
    /// A note for people.
    pub note: Option<String>,
}

/// A run that waits until others of its schedule have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitingRun {
    pub(crate) id: String,
    pub(crate) slot: Timestamp,
}

/// A run that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenRun {
    pub(crate) id: String,
    /// Its slot, or the time at which it was triggered.
    pub(crate) slot: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
}

/// The end of a run whose schedule is looked at then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndedRun {
    pub(crate) id: String,
    pub(crate) schedule: String,
    /// Its slot, or the time at which it was triggered.
    pub(crate) slot: Timestamp,
    pub(crate) state: OccurrenceState,
    pub(crate) ended_at: Timestamp,
}

/// A message on its way to another source.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboxRow {
    /// Id of its occurrence, which is also its own.
    pub occurrence: String,
    /// The message, or the problem if it can't be read.
    pub message: Result<Outgoing, String>,
}

/// The messages that are on their way to a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxCount {
    /// The source.
    pub source: String,
    /// Number of messages.
    pub messages: u64,
    /// Time since which the oldest waits, if its id says it.
    pub oldest: Option<SystemTime>,
}

/// A run that is to be cancelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CancelRequest {
    pub(crate) id: String,
    /// The ledger's database may have its message, and no worker.
    pub(crate) may_wait: bool,
}

/// Runs that are to be cancelled by who has their messages.
#[derive(Debug, Default)]
pub struct CancelRequests {
    /// Ids of the runs.
    pub ids: Vec<String>,
    /// Reason for which those among them whose messages wait in the ledger's database have not ended.
    pub problem: Option<String>,
}

/// An occurrence, as far as it is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CountedRun {
    pub(crate) id: String,
    pub(crate) schedule: String,
    pub(crate) source: Option<String>,
    pub(crate) queue: String,
    pub(crate) state: OccurrenceState,
    pub(crate) reason: Option<String>,
    pub(crate) attempt: u32,
    /// Its slot, or the time at which it was entered.
    pub(crate) slot: Timestamp,
    pub(crate) queued_at: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) ended_at: Option<Timestamp>,
    /// Number of skipped slots that it stands for besides its own, if it is skipped.
    pub(crate) missed: u64,
    /// Time at which an operator had its slot run that had passed by more than a minute; none if it was due by itself.
    pub(crate) backfilled_at: Option<Timestamp>,
}
