//! Coming slots of all schedules.

use std::time::Duration;

use jiff::Timestamp;

use super::definitions::{Definitions, with_skips};
use super::row::ScheduleRow;
use super::store::LedgerStore;
use crate::table::Fault;
use ganger_queue::ledger::UpcomingRange;
use ganger_queue::ledger::shown::{SlotJson, UpcomingJson};
use ganger_schedule::explain::slots_until;
use ganger_schedule::occurrence::ScheduleState;

/// Number of schedules that are read at once.
const READ_MAX: u32 = 1000;
/// Length of a range without an end.
const DAY: Duration = Duration::from_secs(86_400);

/// Returns coming slots of all active schedules, the earliest first.
pub(super) fn upcoming(
    store: &mut dyn LedgerStore,
    definitions: &mut Definitions,
    range: &UpcomingRange,
) -> Result<Vec<UpcomingJson>, Fault> {
    let most = usize::try_from(range.limit).unwrap_or(usize::MAX);
    let mut found = Vec::new();
    let mut after = String::new();
    // Later slots than those found so far are not looked for.
    let mut latest = Timestamp::MAX;
    loop {
        let mut rows = Vec::new();
        let mut now = Timestamp::UNIX_EPOCH;
        store.read(&mut |tx| {
            now = tx.clock()?.wall;
            rows = tx.schedules_after(&after, READ_MAX)?;
            Ok(())
        })?;
        let from = range.from.unwrap_or(now);
        let to = range.to.or_else(|| from.checked_add(DAY).ok());
        let to = to.unwrap_or(Timestamp::MAX).min(latest);
        for row in &rows {
            found.extend(of_schedule(definitions, row, (from, to), range.limit));
        }
        found.sort_by_key(|(at, _)| *at);
        found.truncate(most);
        if let Some((at, _)) = found.last().filter(|_| found.len() == most) {
            latest = *at;
        }
        let is_last = rows.len() < READ_MAX as usize;
        match rows.pop().filter(|_| !is_last) {
            Some(last) => after = last.name,
            None => return Ok(found.into_iter().map(|(_, slot)| slot).collect()),
        }
    }
}

/// Returns the slots of a schedule within a range, with their instants.
fn of_schedule(
    definitions: &mut Definitions,
    row: &ScheduleRow,
    (from, to): (Timestamp, Timestamp),
    most: u32,
) -> Vec<(Timestamp, UpcomingJson)> {
    // Of most schedules the next slot is known, and beyond the range.
    let is_later = row.next_slot.is_some_and(|next| next > to);
    if row.state != ScheduleState::Active || is_later {
        return Vec::new();
    }
    let config = definitions.of(&row.name, &row.definition);
    let config = config.map(|config| with_skips(config, &row.skips));
    let slots = config.map(|config| slots_until(&config.spec, from, to, most));
    let slots = slots.into_iter().flatten().flatten();
    let shown = slots.map(|slot| {
        let at = slot.at;
        let schedule = row.name.clone();
        let slot = SlotJson::from(slot);
        (at, UpcomingJson { schedule, slot })
    });
    shown.collect()
}
