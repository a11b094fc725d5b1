//! Retention: which occurrences need not be kept any longer. A pass through the ledger takes small steps, so that it
//! holds up nobody, and reads by indexes alone.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use super::row::OldOccurrence;
use super::sql::{InTransaction, LedgerSql, first_id, named};
use super::store::{Expired, HistoryTransaction, LedgerTransaction, RetentionTransaction};
use super::values::SqlRow;
use crate::table::Fault;
use ganger_config::model::Keep;
use ganger_schedule::occurrence::OccurrenceState;

/// Number of occurrences that a step looks at, and of other rows that it removes. Half of it after a failure: the server
/// may have had too much to do.
const STEP_MAX: u32 = 500;
/// Number of new occurrences whose schedules a step notes, and age of the first that is new to the first pass.
const ENTERED_MAX: u32 = 5000;
const ENTERED_BEFORE: Duration = Duration::from_secs(3600);
/// Number of lines of logs from which on a step removes no further occurrence.
const LINES_MAX: u64 = 5000;
/// Number of occurrences that a step counts to find those that a schedule has too many.
const COUNTED_MAX: u32 = 20_000;

/// A pass through the ledger: first what is too old, state by state, then what schedules have too many.
#[derive(Debug)]
pub(super) struct Pass {
    step_max: u32,
    /// Time at which it began; none before that.
    begun: Option<Timestamp>,
    /// Number of states that are done.
    states: usize,
    /// Last occurrence of the next state that was looked at.
    after: Option<OldOccurrence>,
    /// Id up to which occurrences are not new.
    entered: Option<String>,
    /// Schedules with new occurrences.
    schedules: BTreeSet<String>,
}

impl Default for Pass {
    fn default() -> Self {
        Self {
            step_max: STEP_MAX,
            begun: None,
            states: 0,
            after: None,
            entered: None,
            schedules: BTreeSet::new(),
        }
    }
}

impl Pass {
    /// Begins anew after a failure, in smaller steps.
    pub(super) fn fail(&mut self) {
        *self = Self {
            step_max: (self.step_max / 2).max(1),
            ..Self::default()
        };
    }

    /// Returns whether the pass has not ended.
    pub(super) fn goes_on(&self) -> bool {
        self.begun.is_some()
    }

    /// Takes the next step: returns what one transaction removes.
    pub(super) fn next(
        &mut self,
        tx: &mut dyn LedgerTransaction,
        keep: &Keep,
    ) -> Result<Expired, Fault> {
        let now = match self.begun {
            Some(begun) => begun,
            None => tx.clock()?.wall,
        };
        self.begun = Some(now);
        let until = before(now, keep.longest());
        let mut step = Step {
            expired: Expired {
                schedules: tx.ended_schedules(until, self.step_max)?,
                changes: tx.expired_changes(until, self.step_max)?,
                ..Expired::default()
            },
            room: self.step_max,
            lines: 0,
        };
        let step_max = self.step_max as usize;
        let is_full = |rows: usize| rows >= step_max;
        let is_last = self.take_old(tx, keep, now, &mut step)?
            && self.take_surplus(tx, keep, now, &mut step)?
            && !is_full(step.expired.schedules.len())
            && !is_full(step.expired.changes.len());
        if is_last {
            (self.begun, self.states, self.step_max) = (None, 0, STEP_MAX);
        }
        Ok(step.expired)
    }

    /// Takes what is too old. Returns whether that is all.
    fn take_old(
        &mut self,
        tx: &mut dyn LedgerTransaction,
        keep: &Keep,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<bool, Fault> {
        while let Some((state, time)) = keep.times.get(self.states) {
            let (until, room) = (before(now, *time), step.room);
            let found = tx.ended_before(*state, until, self.after.as_ref(), room)?;
            let is_last = found.len() < room as usize;
            for one in found {
                self.after = Some(one.clone());
                if !step.take(one) {
                    return Ok(false);
                }
            }
            if !is_last {
                return Ok(false);
            }
            (self.states, self.after) = (self.states + 1, None);
        }
        Ok(true)
    }

    /// Takes what schedules have too many that have new ones. Returns whether that is all.
    fn take_surplus(
        &mut self,
        tx: &mut dyn LedgerTransaction,
        keep: &Keep,
        now: Timestamp,
        step: &mut Step,
    ) -> Result<bool, Fault> {
        let Some(newest) = keep.per_schedule else {
            return Ok(true);
        };
        let until = first_id(now);
        let entered = &mut self.entered;
        let entered = entered.get_or_insert_with(|| first_id(before(now, ENTERED_BEFORE)));
        let mut is_last = false;
        if self.schedules.len() < ENTERED_MAX as usize {
            let new = tx.entered(entered, &until, ENTERED_MAX)?;
            is_last = new.len() < ENTERED_MAX as usize;
            for (id, schedule) in new {
                *entered = id;
                // Records are of none.
                if !schedule.is_empty() {
                    self.schedules.insert(schedule);
                }
            }
        }
        for _ in 0..(COUNTED_MAX / newest).max(1) {
            let Some(schedule) = self.schedules.first().cloned() else {
                break;
            };
            let room = step.room;
            let surplus = tx.beyond(&schedule, newest, room)?;
            let is_full = surplus.len() >= room as usize;
            if !surplus.into_iter().all(|one| step.take(one)) || is_full {
                return Ok(false);
            }
            self.schedules.remove(&schedule);
        }
        Ok(is_last && self.schedules.is_empty())
    }
}

/// A step of a pass.
#[derive(Debug)]
struct Step {
    expired: Expired,
    /// Number of occurrences that it may still look at.
    room: u32,
    lines: u64,
}

impl Step {
    /// Takes an occurrence, unless it must stay. Returns whether there is room for more.
    fn take(&mut self, one: OldOccurrence) -> bool {
        self.room = self.room.saturating_sub(1);
        if !one.must_stay {
            self.lines += one.log_lines;
            self.expired.occurrences.push(one.id);
            self.expired.of.insert(one.schedule);
        }
        self.lines < LINES_MAX
    }
}

/// Returns the time so long before.
fn before(now: Timestamp, time: Duration) -> Timestamp {
    now.checked_sub(time).unwrap_or(Timestamp::MIN)
}

/// Returns the query for occurrences that may be old, without an index and a condition. Records are of no schedule.
fn old_query<S: LedgerSql>(tx: &InTransaction<S>) -> String {
    let newest = tx.by("occurrences_of_schedule");
    let completed = tx.by("occurrences_completed");
    format!(
        "SELECT id, schedule, ended_at, log_lines,
           CASE WHEN EXISTS (SELECT 1 FROM schedules WHERE name = one.schedule AND state <> 'ended')
             AND (id = (SELECT other.id FROM occurrences other{newest}
                        WHERE other.schedule = one.schedule ORDER BY other.id DESC LIMIT 1)
               OR state = 2
                 AND slot = (SELECT other.slot FROM occurrences other{completed}
                             WHERE other.schedule = one.schedule AND other.state = 2 AND other.slot IS NOT NULL
                             ORDER BY other.slot DESC LIMIT 1))
           THEN 1 ELSE 0 END
         FROM occurrences one"
    )
}

impl<S: LedgerSql> RetentionTransaction for InTransaction<S> {
    fn ended_before(
        &mut self,
        state: OccurrenceState,
        until: Timestamp,
        after: Option<&OldOccurrence>,
        most: u32,
    ) -> Result<Vec<OldOccurrence>, Fault> {
        let (old, by) = (old_query(self), self.by("occurrences_ended"));
        // In an order that no other index has. The state is in the text, since PostgreSQL knows how many are in one
        // only if it sees which.
        let old = format!(
            "{old}{by}
             WHERE state = {} AND ended_at >= ? AND ended_at < ? AND (ended_at > ? OR id > ?)
             ORDER BY ended_at, id LIMIT ?",
            state.code()
        );
        let (after_ms, id) = match after {
            Some(after) => (after.ended_at.as_millisecond(), after.id.as_str()),
            None => (i64::MIN, ""),
        };
        let values = [
            after_ms.into(),
            until.as_millisecond().into(),
            after_ms.into(),
            id.into(),
            most.into(),
        ];
        let rows = self.0.query(&old, &values)?;
        Ok(rows.iter().map(old_occurrence).collect())
    }

    fn entered(
        &mut self,
        after: &str,
        until: &str,
        most: u32,
    ) -> Result<Vec<(String, String)>, Fault> {
        let entered =
            "SELECT id, schedule FROM occurrences WHERE id > ? AND id < ? ORDER BY id LIMIT ?";
        let rows = self
            .0
            .query(entered, &[after.into(), until.into(), most.into()])?;
        Ok(rows.iter().map(|row| (row.name(0), row.name(1))).collect())
    }

    fn beyond(
        &mut self,
        schedule: &str,
        newest: u32,
        most: u32,
    ) -> Result<Vec<OldOccurrence>, Fault> {
        let (old, by) = (old_query(self), self.by("occurrences_of_schedule"));
        let beyond = format!(
            "{old}{by}
             WHERE schedule = ? AND ended_at IS NOT NULL
               AND id <= (SELECT id FROM occurrences{by} WHERE schedule = ? ORDER BY id DESC LIMIT 1 OFFSET ?)
             ORDER BY id LIMIT ?"
        );
        let values = [schedule.into(), schedule.into(), newest.into(), most.into()];
        let rows = self.0.query(&beyond, &values)?;
        Ok(rows.iter().map(old_occurrence).collect())
    }

    fn ended_schedules(&mut self, until: Timestamp, most: u32) -> Result<Vec<String>, Fault> {
        // Runs of one that has ended may still wait for others.
        let by = self.by("schedules_ended");
        let ended = format!(
            "SELECT name FROM schedules{by}
             WHERE state = 'ended' AND origin = 'sql' AND \"cursor\" < ?
               AND NOT EXISTS (SELECT 1 FROM occurrences WHERE schedule = name AND ended_at IS NULL) LIMIT ?"
        );
        let values = [until.as_millisecond().into(), most.into()];
        let rows = self.0.query(&ended, &values)?;
        Ok(rows.iter().map(|row| row.name(0)).collect())
    }

    fn expire(&mut self, expired: &Expired) -> Result<(), Fault> {
        let ended = "DELETE FROM schedules WHERE name = ? AND state = 'ended'
          AND NOT EXISTS (SELECT 1 FROM occurrences WHERE schedule = name AND ended_at IS NULL)";
        self.0.each(ended, &named(&expired.schedules))?;
        let remove = "DELETE FROM occurrences WHERE id = ? AND ended_at IS NOT NULL";
        let ids = named(&expired.occurrences);
        let removed = self.0.each(remove, &ids)?;
        let removed = ids.into_iter().zip(removed).filter(|(_, rows)| *rows > 0);
        let removed: Vec<_> = removed.map(|(id, _)| id).collect();
        let events = "DELETE FROM occurrence_events WHERE occurrence = ?";
        self.0.each(events, &removed)?;
        let log = "DELETE FROM occurrence_logs WHERE occurrence = ?";
        self.0.each(log, &removed)?;
        let gone = expired.of.iter().chain(&expired.schedules).cloned();
        self.forget_versions(&gone.collect())?;
        self.forget_changes(&expired.changes)
    }
}

fn old_occurrence(row: &SqlRow) -> OldOccurrence {
    OldOccurrence {
        id: row.name(0),
        schedule: row.name(1),
        ended_at: row.time(2),
        log_lines: row.count(3),
        must_stay: row.number(4) == Some(1),
    }
}
