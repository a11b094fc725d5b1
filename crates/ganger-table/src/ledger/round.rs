//! One transaction of a dispatch: which schedules are looked at, and what is written for them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::control::REPLACED;
use super::decide::{self, Versions};
use super::definitions::{Definitions, with_skips};
use super::row::{EndedRun, Expectation, NewOccurrence, NewVersion, ScheduleRow};
use super::store::LedgerTransaction;
use super::{expect, message};
use crate::table::Fault;
use ganger_config::model::ScheduleConfig;
use ganger_queue::ledger::Cancelled;
use ganger_schedule::auto_disable;
use ganger_schedule::clock::{Clock, Jump};
use ganger_schedule::due::{Decision, Reason};
use ganger_schedule::occurrence::{OccurrenceState, ScheduleState};

/// Number of occurrences, and bytes of bodies, from which on a transaction decides about no further schedule.
const OCCURRENCES_MAX: usize = 2000;
const BYTES_MAX: usize = 16 << 20;
/// Time after which it decides about no further schedule: a server ends a transaction whose client is silent
/// for two seconds.
const DECIDES_FOR: Duration = Duration::from_millis(500);
/// Number of ends of runs that one transaction looks at.
const ENDS_MAX: u32 = 1000;
/// Number of schedules that it looks at for what is expected of them, and of open runs of each.
const REVIEWS_MAX: u32 = 1000;
const OPEN_MAX: u32 = 100;
/// Number of open runs of a schedule that a new one replaces.
const REPLACED_MAX: u32 = 1000;

/// Result of a dispatch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dispatched {
    /// Number of messages that were sent.
    pub sent: u64,
    /// Some of them go to other sources.
    pub has_outgoing: bool,
    /// Time from the moment at which each slot was due until its message was sent, for those sent at once.
    pub late: Vec<Duration>,
    /// Number of missed slots that these messages stand for besides their own.
    pub missed: u64,
    /// Number of slots that were skipped, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Schedules that are broken since then, each with the reason.
    pub broken: Vec<(String, String)>,
    /// Schedules that were disabled or enabled by the ends of their runs.
    pub changed: Vec<(String, auto_disable::Change)>,
    /// Schedules of which something else is overdue since then, each with that; none if nothing is.
    pub overdue: Vec<(String, Option<String>)>,
    /// Reason for which ends of runs could not be counted for their schedules.
    pub unreviewed: Option<String>,
    /// A jump of the clock.
    pub jump: Option<Jump>,
    /// Time until the next schedule is due; none if none is.
    pub wait: Option<Duration>,
}

impl Dispatched {
    /// Adds the result of a later transaction.
    pub(super) fn then(mut self, later: Self) -> Self {
        self.sent += later.sent;
        self.late.extend(later.late);
        self.missed += later.missed;
        for (reason, slots) in later.skipped {
            *self.skipped.entry(reason).or_default() += slots;
        }
        self.broken.extend(later.broken);
        self.has_outgoing |= later.has_outgoing;
        self.changed.extend(later.changed);
        self.overdue.extend(later.overdue);
        Self {
            unreviewed: self.unreviewed.or(later.unreviewed),
            jump: self.jump.or(later.jump),
            wait: later.wait,
            ..self
        }
    }
}

/// Occurrences that one transaction enters, and its result.
#[derive(Debug, Default)]
pub(super) struct Round {
    occurrences: Vec<NewOccurrence>,
    /// Runs that have waited for others to end, and whose turn it is.
    admitted: Vec<NewOccurrence>,
    /// Versions of definitions that are seen for the first time.
    versions: Vec<NewVersion>,
    /// Size of the bodies of their messages.
    bytes: usize,
    pub(super) dispatched: Dispatched,
}

impl Round {
    /// Takes the ends of runs into account that count for their schedules, and looks whether what is expected
    /// has happened.
    pub(super) fn review(
        &mut self,
        tx: &mut dyn LedgerTransaction,
        definitions: &mut Definitions,
        now: Timestamp,
    ) -> Result<(), Fault> {
        let due = tx.reviews(now, REVIEWS_MAX)?.into_iter();
        let mut rows: BTreeMap<String, ScheduleRow> =
            due.map(|row| (row.name.clone(), row)).collect();
        let ends = free_ends(tx, &mut rows)?;
        for end in &ends {
            let Some(row) = rows.get_mut(&end.schedule) else {
                continue;
            };
            if end.state == OccurrenceState::Completed {
                let since = &mut row.expected.since;
                *since = since.map(|since| since.max(end.ended_at));
            }
            let config = definitions.of(&end.schedule, &row.definition).ok();
            let Some(rules) = config.and_then(|config| config.spec.auto_disable) else {
                continue;
            };
            // One that is paused or broken stays so; its failures are forgotten when it goes on.
            if row.state == ScheduleState::Paused || row.state == ScheduleState::Broken {
                continue;
            }
            let change = decide::ended(row, &rules, end.slot, end.state, end.ended_at);
            let named = change.map(|change| (row.name.clone(), change));
            self.dispatched.changed.extend(named);
        }
        let mut rows: Vec<ScheduleRow> = rows.into_values().collect();
        let has_ended = |schedule: &str| ends.iter().any(|end| end.schedule == schedule);
        for row in &mut rows {
            match definitions.of(&row.name, &row.definition) {
                Ok(config) => {
                    // The dispatch that follows sends one that has waited, also if no other will wait: a message that
                    // is refused is the fault of one schedule.
                    if row.open > 0 && row.goes_on() && has_ended(&row.name) {
                        row.wake = Some(Timestamp::UNIX_EPOCH);
                    }
                    self.expect(tx, row, &config, now)?;
                }
                // It is broken, or will be at its next slot.
                Err(_) => row.expected = Expectation::default(),
            }
        }
        self.write(tx, &mut rows)?;
        let ids: Vec<String> = ends.into_iter().map(|end| end.id).collect();
        tx.looked_at(&ids)
    }

    /// Decides about the schedules that are due, as far as one transaction goes. One that can't be worked out
    /// is set aside. Returns their number.
    pub(super) fn decide(
        &mut self,
        tx: &mut dyn LedgerTransaction,
        definitions: &mut Definitions,
        rows: &mut [ScheduleRow],
        clock: Clock,
    ) -> Result<usize, Fault> {
        let begun = Instant::now();
        let mut decided = 0;
        for row in rows {
            if decided > 0 && (self.is_full() || begun.elapsed() > DECIDES_FOR) {
                break;
            }
            decided += 1;
            let config = match definitions.of(&row.name, &row.definition) {
                Ok(config) => config,
                Err(why) => {
                    set_aside(row, &why, &mut self.dispatched);
                    continue;
                }
            };
            if !self.admit(tx, row, &config)? {
                continue;
            }
            let old = definitions.before(row);
            let config = with_skips(config, &row.skips);
            let before = row.clone();
            let version = row.number();
            let versions = Versions {
                config: &config,
                old: old.as_ref().map(|old| &old.spec),
            };
            match decide::decide(row, versions, clock) {
                Ok(decisions) => {
                    self.versions.extend(version);
                    self.take(tx, row, &config, decisions, clock.wall)?;
                    expect::ask(row, &config.spec.expect, clock.wall);
                }
                Err(broken) => {
                    *row = before;
                    set_aside(row, &broken.to_string(), &mut self.dispatched);
                }
            }
        }
        Ok(decided)
    }

    /// Sends the message of the run that has waited longest for others of its schedule to end, if they have.
    /// Counts those that wait on. Returns false if the message can't be made: the schedule is set aside.
    fn admit(
        &mut self,
        tx: &mut dyn LedgerTransaction,
        row: &mut ScheduleRow,
        config: &ScheduleConfig,
    ) -> Result<bool, Fault> {
        if row.open == 0 {
            return Ok(true);
        }
        let waiting = tx.waiting(&row.name)?;
        row.waiting = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
        let is_turn = row.goes_on() && row.open <= row.waiting;
        let Some(first) = waiting.first().filter(|_| is_turn) else {
            return Ok(true);
        };
        let mut run = message::occurrence(row, config, Some(first.slot), first.id.clone());
        match message::message(tx, config, &run, first.slot)? {
            Ok(message) => {
                self.bytes += message.body.len();
                run.message = Some(message);
                self.admitted.push(run);
                row.waiting -= 1;
                Ok(true)
            }
            Err(broken) => {
                set_aside(row, &broken.to_string(), &mut self.dispatched);
                Ok(false)
            }
        }
    }

    /// Looks which expectations of a schedule are overdue.
    fn expect(
        &mut self,
        tx: &mut dyn LedgerTransaction,
        row: &mut ScheduleRow,
        config: &ScheduleConfig,
        now: Timestamp,
    ) -> Result<(), Fault> {
        let before = row.expected.overdue.clone();
        let open = match row.expected.since {
            Some(_) => tx.open(&row.name, OPEN_MAX)?,
            None => Vec::new(),
        };
        expect::look(row, &config.spec, &open, now);
        let overdue = &row.expected.overdue;
        if *overdue != before {
            let changed = (row.name.clone(), overdue.clone());
            self.dispatched.overdue.push(changed);
        }
        Ok(())
    }

    /// Returns whether the transaction has enough to write.
    fn is_full(&self) -> bool {
        self.occurrences.len() >= OCCURRENCES_MAX || self.bytes >= BYTES_MAX
    }

    /// Takes the decisions about the slots of one schedule. If the message of one can't be made, the
    /// schedule is set aside, with the slots so far.
    pub(super) fn take(
        &mut self,
        tx: &mut dyn LedgerTransaction,
        row: &mut ScheduleRow,
        config: &ScheduleConfig,
        decisions: Vec<Decision>,
        now: Timestamp,
    ) -> Result<(), Fault> {
        for decision in decisions {
            let mut occurrence = match decision {
                Decision::Dispatch(dispatch) => {
                    let slot = Some(dispatch.slot.at);
                    let mut occurrence = message::occurrence(row, config, slot, message::id(now));
                    occurrence.missed = dispatch.missed;
                    let waits = match dispatch.replaces {
                        true => self.replace(tx, &row.name)?,
                        false => dispatch.waits,
                    };
                    if waits {
                        // Also for runs from before it was to wait for them.
                        tx.watch(&row.name)?;
                        occurrence.state = OccurrenceState::Waiting;
                        occurrence.reason = Some(Reason::Overlap.as_str());
                    }
                    occurrence
                }
                Decision::Skip(skip) => {
                    let slot = Some(skip.first);
                    let mut occurrence = message::occurrence(row, config, slot, message::id(now));
                    occurrence.state = OccurrenceState::Skipped;
                    occurrence.reason = Some(skip.reason.as_str());
                    occurrence.last_slot = (skip.last != skip.first).then_some(skip.last);
                    occurrence.missed = skip.slots.saturating_sub(1);
                    occurrence.is_watched = false;
                    occurrence
                }
            };
            if let Decision::Dispatch(dispatch) = decision
                && occurrence.state == OccurrenceState::Queued
            {
                match message::message(tx, config, &occurrence, dispatch.slot.at)? {
                    Ok(message) => {
                        let late = now.duration_since(dispatch.slot.due);
                        let late = Duration::try_from(late).unwrap_or_default();
                        self.dispatched.late.push(late);
                        self.dispatched.missed += dispatch.missed;
                        self.bytes += message.body.len();
                        occurrence.message = Some(message);
                    }
                    Err(broken) => {
                        set_aside(row, &broken.to_string(), &mut self.dispatched);
                        occurrence.state = OccurrenceState::Skipped;
                        occurrence.reason = Some(Reason::Paused.as_str());
                        occurrence.is_watched = false;
                        uncount(row);
                    }
                }
            }
            self.occurrences.push(occurrence);
        }
        Ok(())
    }

    /// Cancels the open runs of a schedule. Returns whether some go on until their workers give them up.
    fn replace(&mut self, tx: &mut dyn LedgerTransaction, schedule: &str) -> Result<bool, Fault> {
        self.admitted.retain(|run| run.schedule != schedule);
        let mut goes_on = false;
        for run in tx.open(schedule, REPLACED_MAX)? {
            goes_on |= tx.cancel(&run.id, REPLACED)? == Some(Ok(Cancelled::Requested));
        }
        Ok(goes_on)
    }

    /// Enters the occurrences, sends the messages of those whose slots had none, and saves the schedules.
    pub(super) fn write(
        &mut self,
        tx: &mut dyn LedgerTransaction,
        rows: &mut [ScheduleRow],
    ) -> Result<(), Fault> {
        let is_new = tx.enter(&self.occurrences)?;
        let admitted: Vec<String> = self.admitted.iter().map(|run| run.id.clone()).collect();
        tx.admit(&admitted)?;
        let entered = self.occurrences.drain(..).zip(is_new);
        let all = self
            .admitted
            .drain(..)
            .map(|run| (run, true))
            .chain(entered);
        let (mut messages, mut outgoing) = (Vec::new(), Vec::new());
        for (occurrence, is_new) in all {
            match (occurrence.message, is_new) {
                (Some(message), true) => match occurrence.source {
                    None => messages.push(message),
                    Some(source) => outgoing.push((source, message)),
                },
                (None, true) if occurrence.state == OccurrenceState::Waiting => {}
                (None, true) => {
                    let reason = occurrence.reason.unwrap_or_default();
                    let skipped = self.dispatched.skipped.entry(reason).or_default();
                    *skipped += 1 + occurrence.missed;
                }
                // A slot of the past, after a correction of the clock.
                (None, false) if occurrence.state != OccurrenceState::Waiting => {}
                (_, false) => {
                    let mut rows = rows.iter_mut();
                    let row = rows.find(|row| row.name == occurrence.schedule);
                    if let Some(row) = row {
                        uncount(row);
                        row.failing.trial = row
                            .failing
                            .trial
                            .filter(|trial| Some(*trial) != occurrence.slot);
                    }
                }
            }
        }
        let sent = messages.len() + outgoing.len();
        self.dispatched.sent += u64::try_from(sent).unwrap_or(u64::MAX);
        self.dispatched.has_outgoing |= !outgoing.is_empty();
        tx.publish(&messages)?;
        tx.send_out(&outgoing)?;
        tx.keep_versions(&std::mem::take(&mut self.versions))?;
        tx.save(rows)
    }
}

/// Returns the ends that were not looked at yet, with the schedules that these need besides. Ends of schedules that
/// others have locked are left for later.
fn free_ends(
    tx: &mut dyn LedgerTransaction,
    rows: &mut BTreeMap<String, ScheduleRow>,
) -> Result<Vec<EndedRun>, Fault> {
    let mut ends = tx.ended(ENDS_MAX)?;
    let names: BTreeSet<&String> = ends.iter().map(|end| &end.schedule).collect();
    let mut locked = BTreeSet::new();
    for name in names {
        if rows.contains_key(name) {
            continue;
        }
        match tx.schedule_if_free(name)? {
            Some(row) => drop(rows.insert(name.clone(), row)),
            None if tx.has_schedule(name)? => drop(locked.insert(name.clone())),
            None => {}
        }
    }
    ends.retain(|end| !locked.contains(&end.schedule));
    Ok(ends)
}

/// Marks a schedule that can't be dispatched: it alone.
pub(super) fn set_aside(row: &mut ScheduleRow, why: &str, dispatched: &mut Dispatched) {
    row.is_now(ScheduleState::Broken, Some(why));
    row.wake = None;
    dispatched.broken.push((row.name.clone(), why.to_owned()));
}

/// Takes a dispatch back that sent no message.
fn uncount(row: &mut ScheduleRow) {
    if let Some(cursor) = &mut row.cursor {
        cursor.runs = cursor.runs.saturating_sub(1);
    }
}
