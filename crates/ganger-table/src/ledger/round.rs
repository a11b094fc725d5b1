//! One transaction of a dispatch: which schedules are looked at, and what is written for them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::decide::{self, Versions};
use super::definitions::Definitions;
use super::message;
use super::row::{NewOccurrence, ScheduleRow};
use super::store::LedgerTransaction;
use crate::table::Fault;
use ganger_config::model::ScheduleConfig;
use ganger_schedule::auto_disable::Change;
use ganger_schedule::clock::{Clock, Jump, Reading, step};
use ganger_schedule::due::{Decision, Reason};
use ganger_schedule::occurrence::{OccurrenceState, ScheduleState};

/// Number of occurrences, and bytes of bodies, from which on a transaction decides about no further schedule.
const OCCURRENCES_MAX: usize = 2000;
const BYTES_MAX: usize = 16 << 20;
/// Number of ends of runs that one transaction looks at.
const ENDS_MAX: u32 = 1000;

/// Result of a dispatch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dispatched {
    /// Number of messages that were sent.
    pub sent: u64,
    /// Number of slots that were skipped, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Schedules that are broken since then, each with the reason.
    pub broken: Vec<(String, String)>,
    /// Schedules that were disabled or enabled by the ends of their runs.
    pub changed: Vec<(String, Change)>,
    /// Reason for which ends of runs could not be counted for their schedules.
    pub unreviewed: Option<String>,
    /// A jump of the clock.
    pub jump: Option<Jump>,
    /// Time until the next schedule is due; none if none is.
    pub wait: Option<Duration>,
}

/// Occurrences that one transaction enters, and its result.
#[derive(Debug, Default)]
pub(super) struct Round {
    occurrences: Vec<NewOccurrence>,
    /// Size of the bodies of their messages.
    bytes: usize,
    pub(super) dispatched: Dispatched,
}

impl Round {
    /// Takes the ends of runs into account that count for their schedules.
    pub(super) fn review(
        &mut self,
        tx: &mut dyn LedgerTransaction,
        definitions: &mut Definitions,
    ) -> Result<(), Fault> {
        let ends = tx.ended(ENDS_MAX)?;
        if ends.is_empty() {
            return Ok(());
        }
        let mut rows: BTreeMap<String, ScheduleRow> = BTreeMap::new();
        for end in &ends {
            if !rows.contains_key(&end.schedule)
                && let Some(row) = tx.schedule(&end.schedule)?
            {
                rows.insert(end.schedule.clone(), row);
            }
            let Some(row) = rows.get_mut(&end.schedule) else {
                continue;
            };
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
        let rows: Vec<ScheduleRow> = rows.into_values().collect();
        tx.save(&rows)?;
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
        let mut decided = 0;
        for row in rows {
            if self.is_full() {
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
            let old = definitions.before(row);
            let before = row.clone();
            let versions = Versions {
                config: &config,
                old: old.as_ref().map(|old| &old.spec),
            };
            match decide::decide(row, versions, clock) {
                Ok(decisions) => self.take(tx, row, &config, decisions)?,
                Err(broken) => {
                    *row = before;
                    set_aside(row, &broken.to_string(), &mut self.dispatched);
                }
            }
        }
        Ok(decided)
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
    ) -> Result<(), Fault> {
        for decision in decisions {
            let mut occurrence = match decision {
                Decision::Dispatch(dispatch) => {
                    let mut occurrence = message::occurrence(row, config, Some(dispatch.slot.at));
                    occurrence.missed = dispatch.missed;
                    occurrence
                }
                Decision::Skip(skip) => {
                    let mut occurrence = message::occurrence(row, config, Some(skip.first));
                    occurrence.state = OccurrenceState::Skipped;
                    occurrence.reason = Some(skip.reason.as_str());
                    occurrence.last_slot = (skip.last != skip.first).then_some(skip.last);
                    occurrence.missed = skip.slots.saturating_sub(1);
                    occurrence.is_watched = false;
                    occurrence
                }
            };
            if let Decision::Dispatch(dispatch) = decision {
                match message::message(tx, config, &occurrence, dispatch.slot.at)? {
                    Ok(message) => {
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

    /// Enters the occurrences, sends the messages of those whose slots had none, and saves the schedules.
    pub(super) fn write(
        &mut self,
        tx: &mut dyn LedgerTransaction,
        rows: &mut [ScheduleRow],
    ) -> Result<(), Fault> {
        let is_new = tx.enter(&self.occurrences)?;
        let mut messages = Vec::new();
        for (occurrence, is_new) in self.occurrences.drain(..).zip(is_new) {
            match (occurrence.message, is_new) {
                (Some(message), true) => messages.push(message),
                (None, true) => {
                    let reason = occurrence.reason.unwrap_or_default();
                    let skipped = self.dispatched.skipped.entry(reason).or_default();
                    *skipped += 1 + occurrence.missed;
                }
                // A slot of the past, after a correction of the clock.
                (Some(_), false) => {
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
                (None, false) => {}
            }
        }
        self.dispatched.sent += u64::try_from(messages.len()).unwrap_or(u64::MAX);
        tx.publish(&messages)?;
        tx.save(rows)
    }
}

/// Compares the clocks with those of the last dispatch. Returns them as they are now.
pub(super) fn compare(
    tx: &mut dyn LedgerTransaction,
    before: Option<Reading>,
    now: Reading,
    round: &mut Round,
) -> Result<Clock, Fault> {
    let ahead = now.clock.ahead;
    let (ahead, is_set) = match before {
        Some(before) => {
            let step = step(before, now);
            round.dispatched.jump = step.jump;
            (step.ahead, step.jump.is_some() || step.ahead != ahead)
        }
        // It may have been set while no daemon ran.
        None => (ahead, now.clock.wall < tx.seen()?),
    };
    if is_set {
        // Schedules are due at other times of this clock.
        tx.wake_all()?;
    }
    let clock = Clock { ahead, ..now.clock };
    tx.set_clock(clock)?;
    Ok(clock)
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
