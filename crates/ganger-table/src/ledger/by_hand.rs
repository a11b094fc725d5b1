//! Slots that operators take out before they are due, or run after they have passed.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::change::Change;
use super::message;
use super::row::{NewOccurrence, ScheduleRow};
use super::sql::{InTransaction, LedgerSql};
use super::store::{LedgerTransaction, SlotTransaction};
use super::values::SqlValue;
use crate::table::Fault;
use ganger_config::model::ScheduleConfig;
use ganger_queue::delivery::Outgoing;
use ganger_queue::ledger::LedgerError;
use ganger_schedule::clock::Clock;
use ganger_schedule::definition::instant;
use ganger_schedule::occurrence::OccurrenceState;
use ganger_schedule::spec::Spec;
use ganger_schedule::zone::Zones;

/// Number of slots of a schedule that may be taken out.
const SKIPS_MAX: usize = 100;
/// Number of slots that are run by hand at once.
const BACKFILL_MAX: usize = 1000;
/// Number of slots that are shown as those that there are.
const SHOWN: usize = 3;

/// Reason of a run of a slot that has passed.
pub(super) const BACKFILL: &str = "backfill";

/// Makes an occurrence whose slot was skipped one that runs. If the range that it stood for runs as a whole, it stands
/// for its own slot alone.
const REVIVE: &str = "
UPDATE occurrences SET version = ?, queue = ?, source = ?, watched = ?,
  missed = CASE WHEN last_slot <= ? THEN 0 ELSE missed END,
  last_slot = CASE WHEN last_slot <= ? THEN NULL ELSE last_slot END
WHERE id = ? AND state = 7";

impl<S: LedgerSql> SlotTransaction for InTransaction<S> {
    fn of_slot(
        &mut self,
        schedule: &str,
        slot: Timestamp,
    ) -> Result<Option<(String, OccurrenceState)>, Fault> {
        let by = self.by("occurrences_slot");
        let of_slot =
            format!("SELECT id, state FROM occurrences{by} WHERE schedule = ? AND slot = ?");
        let slot = slot.as_millisecond();
        let row = self.first(&of_slot, &[schedule.into(), slot.into()])?;
        Ok(row.map(|row| (row.name(0), row.state(1))))
    }

    fn revive(&mut self, occurrences: &[NewOccurrence]) -> Result<Vec<bool>, Fault> {
        let values = occurrences.iter().map(|occurrence| {
            let last_slot = occurrence.last_slot.map(Timestamp::as_millisecond);
            vec![
                occurrence.version.into(),
                SqlValue::from(&occurrence.queue),
                occurrence.source.as_deref().into(),
                occurrence.is_watched.into(),
                last_slot.into(),
                last_slot.into(),
                SqlValue::from(&occurrence.id),
            ]
        });
        let values: Vec<_> = values.collect();
        let revived = self.0.each(REVIVE, &values)?;
        let revived: Vec<bool> = revived.into_iter().map(|rows| rows > 0).collect();
        let changes = occurrences
            .iter()
            .zip(&revived)
            .filter(|(_, revived)| **revived);
        let changes: Vec<_> = changes
            .map(|(occurrence, _)| Change::revived(&occurrence.id, BACKFILL))
            .collect();
        self.change(&changes)?;
        Ok(revived)
    }
}

/// Reads a slot, or the first or last instant of a range, by the zone of the schedule.
pub(super) fn read(
    key: &str,
    text: &str,
    spec: &Spec,
    zones: &Zones,
) -> Result<Timestamp, LedgerError> {
    let read = instant(text, &spec.timing.zone, zones, false);
    read.map_err(|problem| unsuited(&spec.name, problem.under(key)))
}

fn unsuited(name: &str, why: impl std::fmt::Display) -> LedgerError {
    LedgerError::Unsuited(name.to_owned(), why.to_string())
}

fn broken(name: &str, why: impl std::fmt::Display) -> LedgerError {
    LedgerError::Broken(name.to_owned(), why.to_string())
}

/// Returns the time up to which all slots are decided.
pub(super) fn decided(row: &ScheduleRow, spec: &Spec, clock: Clock) -> Timestamp {
    row.cursor
        .map_or_else(|| clock.now(&spec.timing), |cursor| cursor.at)
}

/// Takes a slot out, or lets it run after all. Returns the slot.
pub(super) fn skip(
    row: &mut ScheduleRow,
    spec: &Spec,
    clock: Clock,
    (slot, is_undone): (Option<Timestamp>, bool),
) -> Result<Timestamp, LedgerError> {
    let name = &row.name;
    let decided = decided(row, spec, clock);
    let slot = match (slot, is_undone) {
        (Some(slot), false) => coming(spec, slot, decided)?,
        (Some(slot), true) => slot,
        (None, true) => {
            let first = row.skips.first().copied();
            first.ok_or_else(|| unsuited(name, "no slot is skipped"))?
        }
        (None, false) => {
            let mut next = decided;
            loop {
                let slot = spec.next(next).map_err(|why| broken(name, why))?;
                let slot = slot.ok_or_else(|| unsuited(name, "there is no further slot"))?;
                if !row.skips.contains(&slot.at) {
                    break slot.at;
                }
                next = slot.at;
            }
        }
    };
    if is_undone {
        if !row.skips.remove(&slot) {
            let skips = listed(&row.skips);
            let why = match skips.is_empty() {
                true => format!("slot {slot} is not skipped, and no other is"),
                false => format!("slot {slot} is not skipped; these are: {skips}"),
            };
            return Err(unsuited(name, why));
        }
    } else if row.skips.len() >= SKIPS_MAX && !row.skips.contains(&slot) {
        let why = format!("{SKIPS_MAX} slots are skipped already: pause the schedule instead");
        return Err(unsuited(name, why));
    } else {
        row.skips.insert(slot);
    }
    Ok(slot)
}

fn listed(slots: &BTreeSet<Timestamp>) -> String {
    let slots: Vec<String> = slots.iter().map(ToString::to_string).collect();
    slots.join(", ")
}

/// Checks that a slot is one of the schedule and yet to come.
fn coming(spec: &Spec, slot: Timestamp, decided: Timestamp) -> Result<Timestamp, LedgerError> {
    let name = &spec.name;
    if slot <= decided {
        let why = format!(
            "slot {slot} is decided already: `ganger occurrence list --schedule {name}` shows what became of it"
        );
        return Err(unsuited(name, why));
    }
    let after = just_before(slot);
    let mut slots = spec_slots(spec, after, Timestamp::MAX, SHOWN)?;
    if slots.first() == Some(&slot) {
        return Ok(slot);
    }
    if slots.is_empty() {
        slots = spec_slots(spec, decided, Timestamp::MAX, SHOWN)?;
    }
    let slots = listed(&slots.into_iter().collect());
    let why = match slots.is_empty() {
        true => format!("it has no slot {slot}, and no other that is yet to come"),
        false => format!("it has no slot {slot}; these are: {slots}"),
    };
    Err(unsuited(name, why))
}

fn just_before(at: Timestamp) -> Timestamp {
    at.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(at)
}

/// Returns the slots after an instant and up to another, at most so many.
fn spec_slots(
    spec: &Spec,
    after: Timestamp,
    until: Timestamp,
    most: usize,
) -> Result<Vec<Timestamp>, LedgerError> {
    let mut slots = Vec::new();
    let mut after = after;
    while slots.len() < most {
        let next = spec.next(after).map_err(|why| broken(&spec.name, why))?;
        let Some(slot) = next.filter(|slot| slot.at <= until) else {
            break;
        };
        slots.push(slot.at);
        after = slot.at;
    }
    Ok(slots)
}

/// Returns the slots of a range that has passed.
pub(super) fn passed(
    row: &ScheduleRow,
    spec: &Spec,
    clock: Clock,
    (from, to): (Timestamp, Timestamp),
) -> Result<Vec<Timestamp>, LedgerError> {
    let name = &row.name;
    let decided = decided(row, spec, clock);
    if from > to {
        return Err(unsuited(
            name,
            format!("from must not be after to: {from} is after {to}"),
        ));
    }
    if to > decided {
        let why = format!(
            "to must be in the past: slots after {decided} are not decided yet, and run by themselves"
        );
        return Err(unsuited(name, why));
    }
    let slots = spec_slots(spec, just_before(from), to, BACKFILL_MAX + 1)?;
    if slots.len() > BACKFILL_MAX {
        let last = slots.get(BACKFILL_MAX - 1).copied().unwrap_or(to);
        let why = format!(
            "there are more than {BACKFILL_MAX} slots: run a part of them, as up to {last}"
        );
        return Err(unsuited(name, why));
    }
    Ok(slots)
}

/// Chooses, of slots that have passed, those that have not run, each with the id of its occurrence if it has one.
pub(super) fn not_run(
    tx: &mut dyn LedgerTransaction,
    name: &str,
    slots: &[Timestamp],
) -> Result<Vec<(Timestamp, Option<String>)>, Fault> {
    let mut not_run = Vec::new();
    for slot in slots {
        match tx.of_slot(name, *slot)? {
            None => not_run.push((*slot, None)),
            Some((id, OccurrenceState::Skipped)) => not_run.push((*slot, Some(id))),
            Some(_) => {}
        }
    }
    Ok(not_run)
}

/// Sends the messages of slots that have passed, of which all up to the last are run. Returns the occurrences of those
/// that no other has run meanwhile. If a message can't be made, none is sent.
pub(super) fn run(
    tx: &mut dyn LedgerTransaction,
    (row, config): (&ScheduleRow, &ScheduleConfig),
    slots: &[(Timestamp, Option<String>)],
    (last, now): (Timestamp, Timestamp),
) -> Result<Result<Vec<String>, LedgerError>, Fault> {
    let (mut new, mut skipped) = (Vec::new(), Vec::new());
    for (slot, id) in slots {
        let is_new = id.is_none();
        let id = id.clone().unwrap_or_else(|| message::id(now));
        let mut occurrence = message::occurrence(row, config, Some(*slot), id);
        occurrence.reason = Some(BACKFILL);
        occurrence.note = Some(BACKFILL.to_owned());
        // Runs of the past count neither for `auto_disable` nor for `expect`. Others may wait for their ends.
        occurrence.is_watched = config.spec.overlap.queues();
        let message = match message::message(tx, config, &occurrence, *slot)? {
            Ok(message) => message,
            Err(why) => return Ok(Err(broken(&row.name, why))),
        };
        match is_new {
            true => new.push((occurrence, message)),
            false => {
                occurrence.last_slot = Some(last);
                skipped.push((occurrence, message));
            }
        }
    }
    let mut sent = Vec::new();
    send(tx, new, &mut sent, |tx, occurrences| tx.enter(occurrences))?;
    send(tx, skipped, &mut sent, |tx, occurrences| {
        tx.revive(occurrences)
    })?;
    Ok(Ok(sent))
}

/// Enters occurrences, and sends the messages of those that were.
fn send(
    tx: &mut dyn LedgerTransaction,
    runs: Vec<(NewOccurrence, Outgoing)>,
    sent: &mut Vec<String>,
    enter: impl Fn(&mut dyn LedgerTransaction, &[NewOccurrence]) -> Result<Vec<bool>, Fault>,
) -> Result<(), Fault> {
    let (occurrences, messages): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
    let entered = enter(tx, &occurrences)?;
    let (mut own, mut outgoing) = (Vec::new(), Vec::new());
    for ((occurrence, message), is_entered) in occurrences.into_iter().zip(messages).zip(entered) {
        if is_entered {
            sent.push(occurrence.id);
            match occurrence.source {
                None => own.push(message),
                Some(source) => outgoing.push((source, message)),
            }
        }
    }
    tx.publish(&own)?;
    tx.send_out(&outgoing)
}
