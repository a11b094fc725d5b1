//! Operations on a ledger from outside: schedules are shown, changed and triggered, occurrences are shown. Commands
//! and the admin API use them; which database it is, or whether a daemon is asked for it, is not known here.

pub mod difference;
pub mod explain;
pub mod shown;

use std::fmt::Debug;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value as Json;
use tokio::time::Instant;

use ganger_config::model::{LedgerConfig, ScheduleConfig};
use ganger_config::{Problem, stored_schedule};
use ganger_core::foreign;
use ganger_schedule::occurrence::{OccurrenceState, ScheduleState};
use ganger_schedule::spec::Spec;
use ganger_schedule::zone::{Zone, Zones};

use crate::client::Client;
use crate::fault::SourceFault;
use shown::{
    AuditJson, BackfillJson, OccurrenceDetailsJson, OccurrenceJson, OccurrenceLogJson, ReportJson,
    ReportOrder, ScheduleDetailsJson, ScheduleJson, SkippedJson, UpcomingJson, VersionJson,
};

/// Opens a ledger.
pub type OpenLedger = fn(&LedgerConfig) -> Result<Box<dyn LedgerClient>, SourceFault>;

/// Maximum number of schedules in one answer.
pub const SCHEDULES_MAX: u32 = 10_000;

/// Maximum number of the newest occurrences of a schedule whose states a list has.
pub const RESULTS_MAX: u32 = 100;

/// Maximum number of changes in one answer.
pub const AUDIT_MAX: u32 = 1000;

/// Maximum number of lines of a log in one answer.
pub const LOG_LINES_MAX: u32 = 1000;

/// Reason that an operation on a schedule was not done.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// There is no schedule of that name.
    #[error("there is no schedule `{0}`")]
    NoSchedule(String),
    /// It can't be worked out.
    #[error("schedule `{0}` is broken: {1}")]
    Broken(String, String),
    /// It is not one that may be changed so: whose it is, with the remedy.
    #[error("schedule `{0}` is {1}")]
    Owned(String, String),
    /// There is no occurrence of that id.
    #[error("there is no occurrence `{0}` (any more)")]
    NoOccurrence(String),
    /// It is not in a state for that: its id, and the reason with the remedy.
    #[error("occurrence {0} {1}")]
    Unsuitable(String, String),
    /// A text is wrong.
    #[error("{0}")]
    Invalid(String),
    /// It would never run.
    #[error("schedule `{0}`: {1}")]
    NeverRuns(String, String),
    /// It has another definition than expected, or none: another change came before.
    #[error("schedule `{0}` {1}")]
    Changed(String, String),
    /// The request does not suit it: what is wrong, with the remedy.
    #[error("schedule `{0}`: {1}")]
    Unsuited(String, String),
    /// The daemon that was asked finds the request wrong: it says why.
    #[error("{0}")]
    Refused(String),
    /// The database did not do as asked.
    #[error(transparent)]
    Source(#[from] SourceFault),
}

/// Answer to a trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Triggered {
    /// The message was sent, for the occurrence of this id.
    Sent(String),
    /// An occurrence of the schedule is open, and it allows one at a time.
    Overlaps,
}

/// Returns the reason for which a schedule is not triggered while an occurrence of it is open, with the remedy.
pub fn overlap(name: &str) -> String {
    format!(
        "an occurrence of schedule `{name}` is open, and it allows one at a time: wait for its end, or force it \
         (`--force`; over HTTP `\"force\": true`)"
    )
}

/// Result of cancelling a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It has ended.
    Ended,
    /// The daemon that has its message is asked to cancel it.
    Requested,
}

/// Connects to a source of that name.
pub type OpenSource<'a> = dyn FnMut(&str) -> Result<Client, SourceFault> + 'a;

/// Longest reason of an operator, in characters.
pub const REASON_MAX: usize = 500;
/// Number of characters of a wrong place in a list that are shown.
const PLACE_SHOWN: usize = 40;
/// Longest note on a failure, in characters.
pub const NOTE_MAX: usize = 10_000;

/// Checks a text that an operator gives; blanks at its ends are left out.
///
/// # Errors
/// If it is empty or too long, or has a NUL, which not every database takes.
pub fn given_text<'a>(what: &str, text: &'a str, most: usize) -> Result<&'a str, LedgerError> {
    let text = text.trim();
    match text.chars().count() {
        0 => Err(LedgerError::Invalid(format!("{what} must not be empty"))),
        count if count > most => Err(LedgerError::Invalid(format!(
            "{what} must have at most {most} characters: it has {count}"
        ))),
        _ if text.contains('\0') => Err(LedgerError::Invalid(format!(
            "{what} must not have a NUL character"
        ))),
        _ => Ok(text),
    }
}

/// Checks the place after which a list of occurrences goes on.
///
/// # Errors
/// If it is not the id of an occurrence, a UUID.
pub fn place_in_list(text: &str) -> Result<&str, LedgerError> {
    let parts: Vec<usize> = text.split('-').map(str::len).collect();
    let is_hex = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    match parts == [8, 4, 4, 4, 12] && text.bytes().all(is_hex) {
        true => Ok(text),
        false => {
            let text: String = text.chars().take(PLACE_SHOWN).collect();
            Err(LedgerError::Invalid(format!(
                "`{}` is not the id of an occurrence: a list goes on after the last one of the list before",
                foreign::line(&text)
            )))
        }
    }
}

/// Result of entering a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entered {
    /// The schedule is new.
    Created,
    /// It had another definition.
    Replaced,
    /// It had the same.
    Unchanged,
}

impl Entered {
    /// Returns its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Replaced => "replaced",
            Self::Unchanged => "unchanged",
        }
    }
}

/// Definition that a schedule must have for a change to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// None: there is no schedule of that name.
    Absent,
    /// Any.
    Present,
    /// One with one of these tags.
    OneOf(Vec<String>),
}

/// Choice of slots that are skipped on purpose.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkipRequest {
    /// The slot, as in `--from`; none for the next one.
    pub slot: Option<String>,
    /// It runs after all.
    pub is_undone: bool,
    /// Reason, for people.
    pub reason: Option<String>,
}

/// Choice of past slots that are run on purpose.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackfillRequest {
    /// The first instant of the range.
    pub from: String,
    /// The last instant of the range.
    pub to: String,
    /// Nothing is sent: the slots are only shown.
    pub is_dry_run: bool,
    /// Reason, for people.
    pub reason: Option<String>,
}

/// Choice of changes by operators, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only those of this schedule or occurrence.
    pub subject: Option<String>,
    /// Only those older than this one.
    pub before: Option<i64>,
    /// Number of changes at most.
    pub limit: u32,
}

/// Choice of schedules, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScheduleFilter {
    /// Only those with this tag.
    pub tag: Option<String>,
    /// Only those in this state.
    pub state: Option<ScheduleState>,
    /// Only those with this text in their name or in one of their tags, in whatever case.
    pub text: Option<String>,
    /// Only those after this name.
    pub after: Option<String>,
    /// Number of schedules at most.
    pub limit: u32,
    /// Number of the newest occurrences of each whose states are returned.
    pub results: u32,
}

impl ScheduleFilter {
    /// Returns whether a schedule has the tag and the text.
    pub fn fits(&self, schedule: &ScheduleJson) -> bool {
        let has_tag = |tag: &String| schedule.tags.contains(tag);
        let has_text = |text: &String| {
            let text = text.to_lowercase();
            let mut words = std::iter::once(&schedule.name).chain(&schedule.tags);
            words.any(|word| word.to_lowercase().contains(&text))
        };
        self.tag.as_ref().is_none_or(has_tag) && self.text.as_ref().is_none_or(has_text)
    }
}

/// Choice of occurrences, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OccurrenceFilter {
    /// Only those of this schedule.
    pub schedule: Option<String>,
    /// Only those in this state.
    pub state: Option<OccurrenceState>,
    /// Only failures on which no operator has noted anything.
    pub is_unresolved: bool,
    /// Only those whose last error has this fingerprint.
    pub fingerprint: Option<String>,
    /// Only those whose messages have this correlation id.
    pub correlation_id: Option<String>,
    /// Only those older than this one.
    pub before: Option<String>,
    /// Number of occurrences at most.
    pub limit: u32,
}

/// Time after the end of an occurrence in which the last lines of its log may still be written.
const LAST_LINES_WITHIN: Duration = Duration::from_secs(1);

/// Place of a reader in the log of an occurrence that goes on.
#[derive(Debug, Default)]
pub struct LogPlace {
    after: Option<i64>,
    /// Time since which the occurrence is known to have ended.
    ended: Option<Instant>,
}

impl LogPlace {
    /// Returns the place after a line; the beginning without one.
    pub fn after_line(after: Option<i64>) -> Self {
        Self { after, ended: None }
    }

    /// Returns the number of the last line that was read.
    pub fn after(&self) -> Option<i64> {
        self.after
    }

    /// Moves on behind these lines. Returns whether no more will come.
    pub fn read(&mut self, log: &OccurrenceLogJson) -> bool {
        if let Some(last) = log.lines.last() {
            self.after = Some(last.line);
        }
        if log.ended_at.is_none() {
            self.ended = None;
            return false;
        }
        let ended = self.ended.get_or_insert_with(Instant::now);
        log.lines.is_empty() && ended.elapsed() >= LAST_LINES_WITHIN
    }
}

/// Maximum number of coming slots in one answer.
pub const UPCOMING_MAX: u32 = 10_000;

/// Range of coming slots of all schedules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpcomingRange {
    /// Only slots after this time; none for now.
    pub from: Option<Timestamp>,
    /// Only slots until this time; none for a day later.
    pub to: Option<Timestamp>,
    /// Zone of the local times; none for that of each schedule.
    pub zone: Option<Zone>,
    /// Number of slots of each schedule at most; none for no limit of its own.
    pub each: Option<u32>,
    /// Number of slots at most.
    pub limit: u32,
}

/// Maximum number of rows of a report.
pub const REPORT_MAX: u32 = 10_000;

/// Maximum number of runs that a report counts.
pub const REPORT_RUNS_MAX: u32 = 1_000_000;

/// Range of a report, and the runs that it counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportRange {
    /// Only runs that were entered at this time or later; none for a day before the end.
    pub from: Option<Timestamp>,
    /// Only runs that were entered before this time; none for now.
    pub to: Option<Timestamp>,
    /// Only those of this schedule.
    pub schedule: Option<String>,
    /// Only those of this queue.
    pub queue: Option<String>,
    /// Only those of schedules that have this tag.
    pub tag: Option<String>,
    /// Order of the rows.
    pub order: ReportOrder,
    /// Zone by whose days the runs are counted, each in a row of its own; none for all days together.
    pub by_day: Option<Zone>,
    /// Number of runs that are counted at most, the newest; none for [`REPORT_RUNS_MAX`].
    pub runs: Option<u32>,
    /// Number of rows at most.
    pub limit: u32,
    /// Time after which no more runs are read; none for ten seconds.
    pub within: Option<Duration>,
}

/// A ledger as commands and the admin API use it. Its calls block.
pub trait LedgerClient: Debug + Send {
    /// Names who makes the changes that follow: the record of changes has it.
    fn set_actor(&mut self, actor: &str);

    /// Returns the reason for which all schedules are stopped, if they are.
    ///
    /// # Errors
    /// If the database can't be read.
    fn hold(&mut self) -> Result<Option<String>, LedgerError>;

    /// Stops the dispatch of all schedules, for every daemon and over restarts, or lets it go on.
    ///
    /// # Errors
    /// If the database did not do as asked.
    fn set_hold(&mut self, reason: Option<&str>) -> Result<(), LedgerError>;

    /// Returns schedules, by name.
    ///
    /// # Errors
    /// If the database can't be read.
    fn schedules(&mut self, filter: &ScheduleFilter) -> Result<Vec<ScheduleJson>, LedgerError>;

    /// Returns a schedule with its definition and its last occurrences.
    ///
    /// # Errors
    /// If there is none of that name, or the database can't be read.
    fn schedule(&mut self, name: &str) -> Result<ScheduleDetailsJson, LedgerError>;

    /// Returns coming slots of all active schedules, the earliest first. Schedules that can't be worked out have none.
    ///
    /// # Errors
    /// If the database can't be read.
    fn upcoming(&mut self, range: &UpcomingRange) -> Result<Vec<UpcomingJson>, LedgerError>;

    /// Counts the runs of a time, by schedule and queue.
    ///
    /// # Errors
    /// If the database can't be read.
    fn report(&mut self, range: &ReportRange) -> Result<ReportJson, LedgerError>;

    /// Enters a schedule of the API, or replaces its definition, if it has the one that is expected. As with one of a
    /// configuration, slots of the past are not dispatched, and one that is paused stays so.
    ///
    /// # Errors
    /// If a configuration or SQL has one of that name, it has another definition than expected, it would never run, or
    /// the database did not do as asked.
    fn enter(
        &mut self,
        schedule: &ScheduleConfig,
        expected: Option<&Expected>,
    ) -> Result<Entered, LedgerError>;

    /// Removes a schedule, if it has the definition that is expected; its occurrences stay. One of a configuration,
    /// which would enter it again, is removed only if that is forced.
    ///
    /// # Errors
    /// If there is none of that name, it is of a configuration, it has another definition than expected, or the
    /// database did not do as asked.
    fn remove(
        &mut self,
        name: &str,
        is_forced: bool,
        expected: Option<&Expected>,
    ) -> Result<(), LedgerError>;

    /// Returns the versions of a schedule that are kept, the newest first, also of one that is gone.
    ///
    /// # Errors
    /// If there is none of that name, or the database can't be read.
    fn versions(&mut self, name: &str) -> Result<Vec<VersionJson>, LedgerError>;

    /// Enters the definition of an earlier version again, as a new one.
    ///
    /// # Errors
    /// As [`LedgerClient::enter`], or if there is no such version.
    fn roll_back(&mut self, name: &str, version: i64) -> Result<Entered, LedgerError>;

    /// Has a slot that is yet to come not run, or run after all.
    ///
    /// # Errors
    /// If there is no such schedule or slot, it is decided already, or the database did not do as asked.
    fn skip(&mut self, name: &str, request: &SkipRequest) -> Result<SkippedJson, LedgerError>;

    /// Runs slots of the past that have not run.
    ///
    /// # Errors
    /// If there is no such schedule, there are too many slots, or the database did not do as asked.
    fn backfill(
        &mut self,
        name: &str,
        request: &BackfillRequest,
    ) -> Result<BackfillJson, LedgerError>;

    /// Returns changes by operators, the newest first.
    ///
    /// # Errors
    /// If the database can't be read.
    fn audit(&mut self, filter: &AuditFilter) -> Result<Vec<AuditJson>, LedgerError>;

    /// Records a change by the actor of something that is not in the ledger.
    ///
    /// # Errors
    /// If the database did not do as asked.
    fn note(&mut self, action: &str, subject: &str, detail: &Json) -> Result<(), LedgerError>;

    /// Pauses a schedule: none of its slots is dispatched.
    ///
    /// # Errors
    /// If there is none of that name, or the database did not do as asked.
    fn pause(&mut self, name: &str, reason: Option<&str>) -> Result<(), LedgerError>;

    /// Lets a schedule that is paused, disabled or broken go on. Slots since then are skipped, unless they are to be
    /// made up for.
    ///
    /// # Errors
    /// If there is none of that name, it is broken, or the database did not do as asked.
    fn resume(&mut self, name: &str, make_up: bool) -> Result<(), LedgerError>;

    /// Sends the message of a schedule now, whatever its state, unless one of its occurrences is open, it allows one
    /// at a time, and that is not forced.
    ///
    /// # Errors
    /// If there is none of that name, it is broken, or the database did not do as asked.
    fn trigger(
        &mut self,
        name: &str,
        body: Option<&str>,
        reason: Option<&str>,
        is_forced: bool,
    ) -> Result<Triggered, LedgerError>;

    /// Returns occurrences, the newest first.
    ///
    /// # Errors
    /// If the database can't be read.
    fn occurrences(
        &mut self,
        filter: &OccurrenceFilter,
    ) -> Result<Vec<OccurrenceJson>, LedgerError>;

    /// Returns an occurrence with its events, by its id or that of its message; none if there is none. Of several
    /// records of messages of that id it is the last.
    ///
    /// # Errors
    /// If the database can't be read.
    fn occurrence(&mut self, id: &str) -> Result<Option<OccurrenceDetailsJson>, LedgerError>;

    /// Cancels a run: at once if no worker has its message, else the daemon that has it is asked to.
    ///
    /// # Errors
    /// If there is none of that id, it has ended, the reason is too long, or the database did not do as asked.
    fn cancel(&mut self, id: &str, reason: Option<&str>) -> Result<Cancelled, LedgerError>;

    /// Sends the dead letter of a run back that has failed or was cancelled, with another body if one is given.
    ///
    /// # Errors
    /// If there is none of that id, it has not failed, its dead letter is gone, or a database or broker did not do
    /// as asked.
    fn retry(
        &mut self,
        id: &str,
        body: Option<&str>,
        sources: &mut OpenSource<'_>,
    ) -> Result<(), LedgerError>;

    /// Notes what an operator says of a failure.
    ///
    /// # Errors
    /// If there is none of that id, it has not failed, the note is empty or too long, or the database did not do as
    /// asked.
    fn resolve(&mut self, id: &str, note: &str) -> Result<(), LedgerError>;

    /// Deletes an occurrence that has ended, with its events and its log, before its time. Its slot runs again only in
    /// a backfill.
    ///
    /// # Errors
    /// If there is none of that id, it has not ended, or the database did not do as asked.
    fn delete(&mut self, id: &str) -> Result<(), LedgerError>;

    /// Returns lines of the log of an occurrence after that number, from the first one without it; none if there is no
    /// occurrence of that id.
    ///
    /// # Errors
    /// If the database can't be read.
    fn log(
        &mut self,
        id: &str,
        after: Option<i64>,
        most: u32,
    ) -> Result<Option<OccurrenceLogJson>, LedgerError>;
}

/// Returns all schedules, by name.
///
/// # Errors
/// If the ledger can't be read.
pub fn all_schedules(
    ledger: &mut dyn LedgerClient,
    results: u32,
) -> Result<Vec<ScheduleJson>, LedgerError> {
    let mut all: Vec<ScheduleJson> = Vec::new();
    loop {
        let filter = ScheduleFilter {
            after: all.last().map(|last| last.name.clone()),
            limit: SCHEDULES_MAX,
            results,
            ..ScheduleFilter::default()
        };
        let some = ledger.schedules(&filter)?;
        let is_last = some.len() < SCHEDULES_MAX as usize;
        all.extend(some);
        if is_last {
            return Ok(all);
        }
    }
}

/// Reads the definition of a schedule that is shown.
///
/// # Errors
/// If it is broken.
pub fn definition_of(
    shown: &ScheduleDetailsJson,
    zones: &Zones,
) -> Result<ScheduleConfig, LedgerError> {
    let name = &shown.schedule.name;
    let read = stored_schedule(name, &shown.definition.to_string(), zones);
    let mut read = read.map_err(|problems| {
        let lines = problems.messages().iter().map(Problem::one_line);
        LedgerError::Broken(name.clone(), lines.collect::<Vec<_>>().join("; "))
    })?;
    let skips = shown.skips.iter();
    read.spec.skips = skips.filter_map(|slot| slot.parse().ok()).collect();
    Ok(read)
}

/// Returns the spec of a schedule with the limit that its runs so far have left: 0 if it has ended.
pub fn left_of(shown: &ScheduleDetailsJson, spec: &Spec) -> Spec {
    let limit = match shown.schedule.state == ScheduleState::Ended.as_str() {
        true => Some(0),
        false => spec.limit.map(|limit| limit.saturating_sub(shown.runs)),
    };
    Spec {
        limit,
        ..spec.clone()
    }
}

/// Returns occurrences, and whether there are more. A mistyped name is no schedule without occurrences.
///
/// # Errors
/// If there are none, and no schedule of that name either; if its place is no id, or the ledger can't be read.
pub fn some_occurrences(
    ledger: &mut dyn LedgerClient,
    filter: &OccurrenceFilter,
) -> Result<(Vec<OccurrenceJson>, bool), LedgerError> {
    filter.before.as_deref().map(place_in_list).transpose()?;
    let limit = filter.limit;
    let one_more = OccurrenceFilter {
        limit: limit.saturating_add(1),
        ..filter.clone()
    };
    let mut found = ledger.occurrences(&one_more)?;
    if let (true, Some(name)) = (found.is_empty(), &filter.schedule) {
        ledger.schedule(name)?;
    }
    let has_more = found.len() > limit as usize;
    found.truncate(limit as usize);
    Ok((found, has_more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_a_list_is_an_id() {
        assert!(place_in_list("0193d5a2-7c1e-7abc-8def-0123456789ab").is_ok());
        for wrong in [
            "",
            "nonsense",
            "0193d5a2-7c1e-7abc-8def-0123456789a",
            "0193d5a2-7c1e-7abc-8def-0123456789ag",
            "' OR 1 = 1 -- -------------------------",
        ] {
            let why = place_in_list(wrong).unwrap_err().to_string();
            assert!(why.contains("is not the id of an occurrence"), "{why}");
        }
    }
}
