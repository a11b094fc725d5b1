//! Schedules and occurrences as the database holds them.

use jiff::Timestamp;

use ganger_queue::delivery::Outgoing;
use ganger_schedule::auto_disable::AutoDisable;
use ganger_schedule::due::Cursor;
use ganger_schedule::occurrence::{OccurrenceState, ScheduleState};

/// Origin of the schedules of a configuration.
pub(super) const OF_FILE: &str = "file";

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
    /// Time at which it was made; none for one that is being made.
    pub created: Option<Timestamp>,
    /// Number of its occurrences that have not ended. Not a column: counted.
    pub open: u32,
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
            created: None,
            open: 0,
            last_state: None,
        }
    }

    /// Sets the state, with its reason.
    pub(crate) fn is_now(&mut self, state: ScheduleState, reason: Option<&str>) {
        self.state = state;
        self.state_reason = reason.map(str::to_owned);
    }
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
    /// Id, which is also that of its message.
    pub id: String,
    /// Its schedule.
    pub schedule: String,
    /// Version of the schedule.
    pub version: i64,
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
    /// Number of missed or skipped slots that it stands for besides its own.
    pub missed: u64,
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

/// Choice of occurrences, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OccurrenceFilter {
    /// Only those of this schedule.
    pub schedule: Option<String>,
    /// Only those in this state.
    pub state: Option<OccurrenceState>,
    /// Only those older than this one.
    pub before: Option<String>,
    /// Number of occurrences at most.
    pub limit: u32,
}

/// The end of a run of a schedule that looks at its failures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndedRun {
    pub(crate) id: String,
    pub(crate) schedule: String,
    /// Its slot, or the time at which it was triggered.
    pub(crate) slot: Timestamp,
    pub(crate) state: OccurrenceState,
    pub(crate) ended_at: Timestamp,
}
