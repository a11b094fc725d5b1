//! The database of a ledger, whichever it is. Its calls block, on a thread of their own.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value as Json;

use super::reports::ReportedState;
use super::row::{
    AuditRow, CancelRequest, CountedRun, EndedRun, LoggedLine, NewOccurrence, NewVersion,
    Occurrence, OccurrenceEvent, OccurrenceFilter, OldOccurrence, OpenRun, OutboxCount, OutboxRow,
    ScheduleRow, Version, WaitingRun,
};
use crate::table::Fault;
use ganger_config::model::LogLimits;
use ganger_queue::delivery::{Outgoing, RecordedEnd, RunNote};
use ganger_queue::ledger::{AuditFilter, Cancelled};
use ganger_schedule::clock::Clock;
use ganger_schedule::occurrence::{OccurrenceState, ScheduleState};

/// Rows that one transaction removes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Expired {
    /// Ids of occurrences.
    pub(crate) occurrences: Vec<String>,
    /// Names of the schedules of these.
    pub(crate) of: BTreeSet<String>,
    /// Names of schedules.
    pub(crate) schedules: Vec<String>,
    /// Numbers of changes by operators.
    pub(crate) changes: Vec<i64>,
}

/// Work of one transaction. May run again if the first try came to nothing.
pub(crate) type LedgerWork<'a> = dyn FnMut(&mut dyn LedgerTransaction) -> Result<(), Fault> + 'a;

/// A connection to the database.
pub(crate) trait LedgerStore: Debug + Send {
    /// Does all of the work in one transaction that no other can change the schedules beside, or none of
    /// it.
    fn write(&mut self, work: &mut LedgerWork<'_>) -> Result<(), Fault>;

    /// Does all of the work in one transaction, or none of it. No [`LedgerStore::write`] changes the schedules beside
    /// it, but others of its kind may: it changes only those that it has locked before it has read them. A file is locked
    /// as a whole.
    fn write_together(&mut self, work: &mut LedgerWork<'_>) -> Result<(), Fault> {
        self.write(work)
    }

    /// Does all of the work in one transaction, or none of it. It changes only rows that it has locked itself, and
    /// holds up nobody who changes schedules.
    fn write_beside(&mut self, work: &mut LedgerWork<'_>) -> Result<(), Fault>;

    /// Reads what was committed, without a lock.
    fn read(&mut self, work: &mut LedgerWork<'_>) -> Result<(), Fault>;

    /// Returns whether the database is another than at the last call, as a file may be that was replaced.
    fn take_another(&mut self) -> bool {
        false
    }
}

/// Operations on messages that go to other sources, within a transaction.
pub(crate) trait OutboxTransaction {
    /// Enters messages that go to other sources, each with the name of its source.
    fn send_out(&mut self, messages: &[(String, Outgoing)]) -> Result<(), Fault>;

    /// Returns whether messages wait for that source that no daemon holds.
    fn has_outgoing(&mut self, source: &str) -> Result<bool, Fault>;

    /// Takes messages for that source that no daemon holds, those first that were held longest ago, and
    /// holds them for that time.
    fn take_out(
        &mut self,
        source: &str,
        most: u32,
        hold: Duration,
    ) -> Result<Vec<OutboxRow>, Fault>;

    /// Has nobody take these messages for that time.
    fn hold_back(&mut self, occurrences: &[String], hold: Duration) -> Result<(), Fault>;

    /// Removes messages that their source has taken, and notes that with their occurrences.
    fn sent_out(&mut self, occurrences: &[String], source: &str) -> Result<(), Fault>;

    /// Counts the messages for each source.
    fn outgoing(&mut self) -> Result<Vec<OutboxCount>, Fault>;

    /// Changes occurrences as reported, but those of which later changes are known.
    fn report(&mut self, states: &[ReportedState]) -> Result<(), Fault>;

    /// Records the ends of messages that are of no occurrence.
    fn record(&mut self, ends: &[RecordedEnd]) -> Result<(), Fault>;
}

/// Subject of a change of all schedules.
pub(crate) const ALL: &str = "*";

/// Operations on versions and on the record of changes, within a transaction.
pub(crate) trait HistoryTransaction {
    /// Keeps versions, and forgets the oldest of a schedule that has too many.
    fn keep_versions(&mut self, versions: &[NewVersion]) -> Result<(), Fault>;

    /// Returns the number of the newest version of a schedule that is kept; 0 if none is.
    fn newest_version(&mut self, schedule: &str) -> Result<i64, Fault>;

    /// Returns the versions of a schedule that are kept, the newest first.
    fn versions(&mut self, schedule: &str) -> Result<Vec<Version>, Fault>;

    /// Forgets the versions of those of these schedules that are gone, with all their occurrences.
    fn forget_versions(&mut self, schedules: &BTreeSet<String>) -> Result<(), Fault>;

    /// Records a change by an operator, of a schedule, an occurrence or [`ALL`] schedules. The detail is an object;
    /// what is null in it is left out.
    fn audit(
        &mut self,
        actor: Option<&str>,
        action: &str,
        subject: &str,
        detail: &Json,
    ) -> Result<(), Fault>;

    /// Returns changes by operators, the newest first.
    fn audited(&mut self, filter: &AuditFilter) -> Result<Vec<AuditRow>, Fault>;

    /// Returns the numbers of changes before a time.
    fn expired_changes(&mut self, until: Timestamp, most: u32) -> Result<Vec<i64>, Fault>;

    /// Forgets changes.
    fn forget_changes(&mut self, changes: &[i64]) -> Result<(), Fault>;
}

/// Operations of retention, within a transaction.
pub(crate) trait RetentionTransaction {
    /// Returns occurrences of a state that ended before a time, the oldest first, after that one of them.
    fn ended_before(
        &mut self,
        state: OccurrenceState,
        until: Timestamp,
        after: Option<&OldOccurrence>,
        most: u32,
    ) -> Result<Vec<OldOccurrence>, Fault>;

    /// Returns the ids and the schedules of occurrences with ids between these, the oldest first.
    fn entered(
        &mut self,
        after: &str,
        until: &str,
        most: u32,
    ) -> Result<Vec<(String, String)>, Fault>;

    /// Returns occurrences of a schedule that have ended, but its newest ones, the oldest first.
    fn beyond(
        &mut self,
        schedule: &str,
        newest: u32,
        most: u32,
    ) -> Result<Vec<OldOccurrence>, Fault>;

    /// Returns the names of schedules that SQL has inserted, that ended before a time, and of which nothing is open.
    fn ended_schedules(&mut self, until: Timestamp, most: u32) -> Result<Vec<String>, Fault>;

    /// Removes these, but what has not ended any more.
    fn expire(&mut self, expired: &Expired) -> Result<(), Fault>;
}

/// Operations on slots that have passed, within a transaction.
pub(crate) trait SlotTransaction {
    /// Returns the id and the state of the occurrence of a slot.
    fn of_slot(
        &mut self,
        schedule: &str,
        slot: Timestamp,
    ) -> Result<Option<(String, OccurrenceState)>, Fault>;

    /// Has occurrences whose slots were skipped run after all, each with all slots up to its last one. Returns which
    /// were still skipped.
    fn revive(&mut self, occurrences: &[NewOccurrence]) -> Result<Vec<bool>, Fault>;
}

/// Operations on single runs, within a transaction.
pub(crate) trait ControlTransaction {
    /// Cancels a run, for that reason. Returns the result, or the state in which it has ended before; none if
    /// there is none of that id.
    fn cancel(
        &mut self,
        id: &str,
        reason: &str,
    ) -> Result<Option<Result<Cancelled, OccurrenceState>>, Fault>;

    /// Returns open runs that are to be cancelled.
    fn cancel_requests(&mut self, most: u32) -> Result<Vec<CancelRequest>, Fault>;

    /// Ends a run that is to be cancelled, if nobody but the ledger has its message. Returns whether it has
    /// ended.
    fn end_cancelled(&mut self, id: &str) -> Result<bool, Fault>;

    /// Notes that the dead letter of a run was sent back, unless the run has gone on already.
    fn sent_back(&mut self, run: &Occurrence) -> Result<(), Fault>;

    /// Notes what an operator says of the failure of a run. Returns its state; none if there is none of that id.
    fn resolve(&mut self, id: &str, note: &str) -> Result<Option<OccurrenceState>, Fault>;
}

/// Operations on what is told of runs besides their states, within a transaction.
pub(crate) trait NotesTransaction {
    /// Enters notes on runs. Returns the ids of those occurrences of which nothing is entered because others have locked
    /// them.
    fn note(&mut self, notes: &[RunNote], limits: LogLimits) -> Result<HashSet<Arc<str>>, Fault>;

    /// Returns lines of the log of an occurrence after that number.
    fn log(&mut self, id: &str, after: i64, most: u32) -> Result<Vec<LoggedLine>, Fault>;
}

/// Operations within a transaction.
pub(crate) trait LedgerTransaction:
    OutboxTransaction
    + HistoryTransaction
    + RetentionTransaction
    + SlotTransaction
    + ControlTransaction
    + NotesTransaction
{
    /// Reads the clocks.
    fn clock(&mut self) -> Result<Clock, Fault>;

    /// Returns the time of the wall clock at the last dispatch of any daemon.
    fn seen(&mut self) -> Result<Timestamp, Fault>;

    /// Notes the clocks of a dispatch: by how much that of periods is ahead, and what the wall clock shows.
    fn set_clock(&mut self, clock: Clock) -> Result<(), Fault>;

    /// Returns the reason for which no schedule may be dispatched, if an operator has stopped all.
    fn hold(&mut self) -> Result<Option<String>, Fault>;

    /// Stops the dispatch of all schedules for that reason, or lets it go on.
    fn set_hold(&mut self, reason: Option<&str>) -> Result<(), Fault>;

    /// Returns the time at which the next schedule is to be looked at.
    fn next_wake(&mut self) -> Result<Option<Timestamp>, Fault>;

    /// Has all schedules looked at now that are to be looked at some time.
    fn wake_all(&mut self) -> Result<(), Fault>;

    /// Returns the schedules that are to be looked at now, the one that has waited longest first.
    fn due(&mut self, now: Timestamp, most: u32) -> Result<Vec<ScheduleRow>, Fault>;

    /// Returns the schedule of that name.
    fn schedule(&mut self, name: &str) -> Result<Option<ScheduleRow>, Fault>;

    /// Returns the schedule of that name, unless others have locked it.
    fn schedule_if_free(&mut self, name: &str) -> Result<Option<ScheduleRow>, Fault>;

    /// Returns whether there is a schedule of that name, locked or not.
    fn has_schedule(&mut self, name: &str) -> Result<bool, Fault>;

    /// Returns the schedules of a configuration, by name.
    fn schedules_of(&mut self, configuration: &str) -> Result<Vec<ScheduleRow>, Fault>;

    /// Returns the time at which the next schedule is to be reviewed: whether what is expected of it happens.
    fn next_review(&mut self) -> Result<Option<Timestamp>, Fault>;

    /// Returns the schedules that are to be reviewed now.
    fn reviews(&mut self, now: Timestamp, most: u32) -> Result<Vec<ScheduleRow>, Fault>;

    /// Counts the schedules in each state that there is.
    fn states(&mut self) -> Result<Vec<(ScheduleState, u64)>, Fault>;

    /// Returns schedules that are broken or disabled, each with the state and the reason.
    fn stopped(&mut self, most: u32) -> Result<Vec<(String, ScheduleState, String)>, Fault>;

    /// Counts the schedules of which something expected did not happen in time, and returns some, each with
    /// that.
    fn overdue(&mut self, most: u32) -> Result<(u64, Vec<(String, String)>), Fault>;

    /// Enters schedules, or replaces those of the same names.
    fn save(&mut self, schedules: &[ScheduleRow]) -> Result<(), Fault>;

    /// Removes a schedule. Its occurrences stay; those that wait for others to end are cancelled.
    fn remove(&mut self, name: &str) -> Result<(), Fault>;

    /// Enters occurrences, but those whose slots have one. Returns which were entered.
    fn enter(&mut self, occurrences: &[NewOccurrence]) -> Result<Vec<bool>, Fault>;

    /// Returns the runs of a schedule that wait for others to end, the oldest first.
    fn waiting(&mut self, schedule: &str) -> Result<Vec<WaitingRun>, Fault>;

    /// Returns the runs of a schedule that have not ended, the oldest first.
    fn open(&mut self, schedule: &str, most: u32) -> Result<Vec<OpenRun>, Fault>;

    /// Notes that the messages of these runs are sent, which have waited for others to end.
    fn admit(&mut self, ids: &[String]) -> Result<(), Fault>;

    /// Inserts messages into their queues.
    fn publish(&mut self, messages: &[Outgoing]) -> Result<(), Fault>;

    /// Returns the slot of a schedule's last run that has completed.
    fn last_success(&mut self, schedule: &str) -> Result<Option<Timestamp>, Fault>;

    /// Returns ends of runs that were not looked at yet.
    fn ended(&mut self, most: u32) -> Result<Vec<EndedRun>, Fault>;

    /// Notes that the ends of these occurrences were looked at.
    fn looked_at(&mut self, ids: &[String]) -> Result<(), Fault>;

    /// Has the ends of the open occurrences of a schedule looked at.
    fn watch(&mut self, schedule: &str) -> Result<(), Fault>;

    /// Returns occurrences, the newest first.
    fn occurrences(&mut self, filter: &OccurrenceFilter) -> Result<Vec<Occurrence>, Fault>;

    /// Returns an occurrence with its events.
    fn occurrence(&mut self, id: &str)
    -> Result<Option<(Occurrence, Vec<OccurrenceEvent>)>, Fault>;

    /// Returns occurrences of a schedule, or of all, whose ids are in that range without its end, the newest first.
    fn counted(
        &mut self,
        schedule: Option<&str>,
        range: (&str, &str),
        most: u32,
    ) -> Result<Vec<CountedRun>, Fault>;

    /// Returns the states of the newest occurrences of schedules, so many of each at most, the newest first.
    fn last_states(
        &mut self,
        schedules: &[String],
        most: u32,
    ) -> Result<BTreeMap<String, Vec<OccurrenceState>>, Fault>;

    /// Returns the schedules after a name, by name.
    fn schedules_after(&mut self, name: &str, most: u32) -> Result<Vec<ScheduleRow>, Fault>;
}
