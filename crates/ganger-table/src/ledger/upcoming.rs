//! Coming slots of all schedules.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::definitions::{Definitions, with_skips};
use super::row::ScheduleRow;
use super::store::LedgerStore;
use crate::table::Fault;
use ganger_config::model::ScheduleConfig;
use ganger_queue::ledger::UpcomingRange;
use ganger_queue::ledger::shown::{SlotJson, UpcomingJson};
use ganger_schedule::explain::{ShownSlot, slots_until};
use ganger_schedule::occurrence::ScheduleState;
use ganger_schedule::zone::Zone;

/// Number of schedules that are read at once.
const READ_MAX: u32 = 1000;
/// Length of a range without an end.
const DAY: Duration = Duration::from_secs(86_400);

/// The earliest slots of those found so far, with their instants.
#[derive(Debug)]
struct Earliest {
    most: usize,
    found: Vec<(Timestamp, UpcomingJson)>,
    /// Later slots are not looked for.
    latest: Timestamp,
}

impl Earliest {
    fn new(most: usize) -> Self {
        Self {
            most,
            found: Vec::new(),
            latest: Timestamp::MAX,
        }
    }

    /// Adds the slots of a schedule. There are never more than three times as many as wanted.
    fn add(&mut self, slots: Vec<(Timestamp, UpcomingJson)>) {
        self.found.extend(slots);
        if self.found.len() >= self.most.saturating_mul(2) {
            self.cut();
        }
    }

    /// Drops all that are later than wanted.
    fn cut(&mut self) {
        self.found.sort_by_key(|(at, _)| *at);
        self.found.truncate(self.most);
        if let Some((at, _)) = self.found.last().filter(|_| self.found.len() == self.most) {
            self.latest = *at;
        }
    }
}

/// Returns coming slots of all active schedules, the earliest first.
pub(super) fn upcoming(
    store: &mut dyn LedgerStore,
    definitions: &mut Definitions,
    range: &UpcomingRange,
) -> Result<Vec<UpcomingJson>, Fault> {
    let most = usize::try_from(range.limit).unwrap_or(usize::MAX);
    let each = range.each.map_or(range.limit, |each| each.min(range.limit));
    let mut earliest = Earliest::new(most);
    let mut after = String::new();
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
        let to = to.unwrap_or(Timestamp::MAX);
        for row in &rows {
            let until = to.min(earliest.latest);
            let slots = of_schedule(definitions, row, (from, until), each);
            let slots = slots.map(|slot| in_zone(&row.name, slot, range.zone.as_ref()));
            earliest.add(slots.collect());
        }
        let is_last = rows.len() < READ_MAX as usize;
        match rows.pop().filter(|_| !is_last) {
            Some(last) => after = last.name,
            None => {
                earliest.cut();
                return Ok(earliest.found.into_iter().map(|(_, slot)| slot).collect());
            }
        }
    }
}

/// Returns the slots of a schedule within a range.
fn of_schedule(
    definitions: &mut Definitions,
    row: &ScheduleRow,
    (from, to): (Timestamp, Timestamp),
    most: u32,
) -> impl Iterator<Item = ShownSlot> {
    // Of most schedules the next slot is known, and beyond the range.
    let is_later = row.next_slot.is_some_and(|next| next > to);
    let goes_on = row.state == ScheduleState::Active && !is_later;
    let config = goes_on.then(|| definitions.of(&row.name, &row.definition).ok());
    let config = config.flatten();
    let config = config.map(|config| with_rest(with_skips(config, &row.skips), row));
    let slots = config.map(|config| slots_until(&config.spec, from, to, most));
    slots.into_iter().flatten().flatten()
}

/// Returns the schedule with the limit that its runs have left.
fn with_rest(config: Arc<ScheduleConfig>, row: &ScheduleRow) -> Arc<ScheduleConfig> {
    let Some(limit) = config.spec.limit else {
        return config;
    };
    let runs = row.cursor.as_ref().map_or(0, |cursor| cursor.runs);
    let mut config = Arc::unwrap_or_clone(config);
    config.spec.limit = Some(limit.saturating_sub(runs));
    Arc::new(config)
}

/// Returns a slot with its instant, and with its local time in that zone if there is one.
fn in_zone(schedule: &str, mut slot: ShownSlot, zone: Option<&Zone>) -> (Timestamp, UpcomingJson) {
    let at = slot.at;
    if let Some(zone) = zone {
        slot.local = zone.local(at);
    }
    let (schedule, slot) = (schedule.to_owned(), SlotJson::from(slot));
    (at, UpcomingJson { schedule, slot })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(schedule: &str, seconds: std::ops::Range<i64>) -> Vec<(Timestamp, UpcomingJson)> {
        let slot = |second| {
            let at = Timestamp::from_second(second).unwrap();
            let slot = SlotJson {
                slot: at.to_string(),
                local: String::new(),
                note: String::new(),
            };
            let schedule = schedule.to_owned();
            (at, UpcomingJson { schedule, slot })
        };
        seconds.map(slot).collect()
    }

    #[test]
    fn memory_is_bounded_by_the_number_of_slots_that_are_wanted() {
        let mut earliest = Earliest::new(10);
        for schedule in 0..100_i64 {
            let first = 1000 - schedule;
            earliest.add(slots(&schedule.to_string(), first..first + 10));
            assert!(earliest.found.len() < 20, "{}", earliest.found.len());
        }
        earliest.cut();
        let first: Vec<i64> = earliest
            .found
            .iter()
            .map(|(at, _)| at.as_second())
            .collect();
        assert_eq!(first, [901, 902, 902, 903, 903, 903, 904, 904, 904, 904]);
        assert_eq!(earliest.latest.as_second(), 904);
    }
}
