//! The database of a ledger, whichever it is. Its calls block, on a thread of their own.

use std::fmt::Debug;

use jiff::Timestamp;

use super::row::{
    EndedRun, NewOccurrence, Occurrence, OccurrenceEvent, OccurrenceFilter, ScheduleRow,
};
use crate::table::Fault;
use ganger_queue::delivery::Outgoing;
use ganger_schedule::clock::Clock;
use ganger_schedule::occurrence::ScheduleState;

/// Names of what is old.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Expired {
    /// Ids of occurrences.
    pub(crate) occurrences: Vec<String>,
    /// Names of schedules.
    pub(crate) schedules: Vec<String>,
}

/// Work of one transaction. May run again if the first try came to nothing.
pub(crate) type LedgerWork<'a> = dyn FnMut(&mut dyn LedgerTransaction) -> Result<(), Fault> + 'a;

/// A connection to the database.
pub(crate) trait LedgerStore: Debug + Send {
    /// Does all of the work in one transaction that no other can change the schedules beside, or none of
    /// it.
    fn write(&mut self, work: &mut LedgerWork<'_>) -> Result<(), Fault>;

    /// Reads what was committed, without a lock.
    fn read(&mut self, work: &mut LedgerWork<'_>) -> Result<(), Fault>;
}

/// Operations within a transaction.
pub(crate) trait LedgerTransaction {
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

    /// Returns all schedules, by name.
    fn schedules(&mut self) -> Result<Vec<ScheduleRow>, Fault>;

    /// Counts the schedules in each state that there is.
    fn states(&mut self) -> Result<Vec<(ScheduleState, u64)>, Fault>;

    /// Returns schedules that are broken or disabled, each with the state and the reason.
    fn stopped(&mut self, most: u32) -> Result<Vec<(String, ScheduleState, String)>, Fault>;

    /// Enters schedules, or replaces those of the same names.
    fn save(&mut self, schedules: &[ScheduleRow]) -> Result<(), Fault>;

    /// Removes a schedule. Its occurrences stay.
    fn remove(&mut self, name: &str) -> Result<(), Fault>;

    /// Enters occurrences, but those whose slots have one. Returns which were entered.
    fn enter(&mut self, occurrences: &[NewOccurrence]) -> Result<Vec<bool>, Fault>;

    /// Inserts messages into their queues.
    fn publish(&mut self, messages: &[Outgoing]) -> Result<(), Fault>;

    /// Returns the slot of a schedule's last run that has completed.
    fn last_success(&mut self, schedule: &str) -> Result<Option<Timestamp>, Fault>;

    /// Returns ends of runs that were not looked at yet.
    fn ended(&mut self, most: u32) -> Result<Vec<EndedRun>, Fault>;

    /// Notes that the ends of these occurrences were looked at.
    fn looked_at(&mut self, ids: &[String]) -> Result<(), Fault>;

    /// Returns occurrences that were entered and have ended before a time, but the newest of each schedule
    /// that goes on, and schedules that SQL has inserted and that ended then.
    fn expired(&mut self, until: Timestamp, most: u32) -> Result<Expired, Fault>;

    /// Removes them, but those that have not ended any more.
    fn expire(&mut self, expired: &Expired) -> Result<(), Fault>;

    /// Returns occurrences, the newest first.
    fn occurrences(&mut self, filter: &OccurrenceFilter) -> Result<Vec<Occurrence>, Fault>;

    /// Returns an occurrence with its events.
    fn occurrence(&mut self, id: &str)
    -> Result<Option<(Occurrence, Vec<OccurrenceEvent>)>, Fault>;
}
