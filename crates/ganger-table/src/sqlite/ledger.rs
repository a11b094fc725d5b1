//! The ledger in SQLite.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, named_params, params};

use uuid::Uuid;

use super::clock::WallClock;
use super::error::SqliteError;
use super::occurrences::{number, state};
use super::{journal, row, schema, settle};
use crate::ledger::row::{
    EndedRun, NewOccurrence, Occurrence, OccurrenceEvent, OccurrenceFilter, ScheduleRow,
};
use crate::ledger::store::{Expired, LedgerStore, LedgerTransaction, LedgerWork};
use crate::table::Fault;
use ganger_queue::delivery::Outgoing;
use ganger_schedule::auto_disable::AutoDisable;
use ganger_schedule::clock::Clock;
use ganger_schedule::due::Cursor;
use ganger_schedule::occurrence::{OccurrenceState, ScheduleState};

/// A connection to the ledger.
#[derive(Debug)]
pub(crate) struct SqliteLedger {
    conn: Connection,
    clock: WallClock,
}

impl SqliteLedger {
    /// Opens the database file, and creates it if it is missing.
    pub(crate) fn open(path: &Path, mode: u32, clock: WallClock) -> Result<Self, SqliteError> {
        let conn = schema::open(path, mode)?;
        Ok(Self { conn, clock })
    }

    /// Waits much longer for the write lock, as an operator's command may.
    pub(crate) fn extend_busy_timeout(&mut self) -> Result<(), SqliteError> {
        let extended = schema::extend_busy_timeout(&mut self.conn);
        extended.map_err(|error| SqliteError::Command {
            doing: "opening",
            error,
        })
    }

    fn try_write(&mut self, work: &mut LedgerWork<'_>) -> Result<(), WriteError> {
        let behavior = TransactionBehavior::Immediate;
        let tx = self.conn.transaction_with_behavior(behavior)?;
        let clock = &self.clock;
        work(&mut InTransaction { conn: &tx, clock })?;
        Ok(tx.commit()?)
    }
}

/// Reason that a transaction was not committed.
enum WriteError {
    Sqlite(rusqlite::Error),
    Work(Fault),
}

impl WriteError {
    /// Returns whether the disk may have been full. Once the transaction has begun, little else passes.
    fn may_lack_space(&self) -> bool {
        match self {
            Self::Sqlite(error) => journal::is_out_of_space(error),
            Self::Work(fault) => !fault.is_permanent,
        }
    }
}

impl From<rusqlite::Error> for WriteError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Fault> for WriteError {
    fn from(fault: Fault) -> Self {
        Self::Work(fault)
    }
}

impl From<WriteError> for Fault {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Sqlite(error) => error.into(),
            WriteError::Work(fault) => fault,
        }
    }
}

impl LedgerStore for SqliteLedger {
    fn write(&mut self, work: &mut LedgerWork<'_>) -> Result<(), Fault> {
        match self.try_write(work) {
            Err(error) if error.may_lack_space() && journal::empty(&self.conn) => {
                Ok(self.try_write(work)?)
            }
            done => Ok(done?),
        }
    }

    fn read(&mut self, work: &mut LedgerWork<'_>) -> Result<(), Fault> {
        let tx = self.conn.transaction()?;
        let clock = &self.clock;
        work(&mut InTransaction { conn: &tx, clock })?;
        Ok(tx.commit()?)
    }
}

/// Operations within a transaction.
struct InTransaction<'a> {
    conn: &'a Connection,
    clock: &'a WallClock,
}

const SCHEDULE: &str = "
SELECT name, definition, configuration, origin, state, state_reason, version, applied, cursor, runs, missed, next_slot,
  wake_at, failures, disabled_at, trial_slot, created_at,
  (SELECT count(*) FROM occurrences WHERE schedule = name AND ended_at IS NULL),
  (SELECT o.state FROM occurrences o WHERE o.schedule = name ORDER BY id DESC LIMIT 1)
FROM schedules";

const SAVE: &str = "
INSERT INTO schedules (name, definition, configuration, origin, state, state_reason, version, applied, cursor, runs,
  missed, next_slot, wake_at, failures, disabled_at, trial_slot, created_at)
VALUES (:name, :definition, :configuration, :origin, :state, :state_reason, :version, :applied, :cursor, :runs, :missed,
  :next_slot, :wake_at, :failures, :disabled_at, :trial_slot, :created_at)
ON CONFLICT (name) DO UPDATE SET
  definition = :definition, configuration = :configuration, origin = :origin, state = :state, state_reason = :state_reason,
  version = :version, applied = :applied, cursor = :cursor, runs = :runs, missed = :missed,
  next_slot = :next_slot, wake_at = :wake_at, failures = :failures, disabled_at = :disabled_at,
  trial_slot = :trial_slot";

const ENTER: &str = "
INSERT INTO occurrences (id, schedule, version, slot, last_slot, queue, state, reason, queued_at, ended_at,
  missed, watched)
VALUES (:id, :schedule, :version, :slot, :last_slot, :queue, :state, :reason, :now, :ended_at, :missed,
  :watched)
ON CONFLICT (schedule, slot) WHERE slot IS NOT NULL DO NOTHING";

const ENTER_EVENT: &str = "
INSERT INTO occurrence_events (occurrence, at, to_state, attempt, note) VALUES (?1, ?2, ?3, 0, ?4)";

const OCCURRENCE: &str = "
SELECT id, schedule, version, slot, last_slot, queue, state, reason, attempt, queued_at, started_at,
  ended_at, error, missed
FROM occurrences";

/// Ids are ordered in time. Those that are not ended are few.
const EXPIRED: &str = "
SELECT id FROM occurrences AS one
WHERE id < ?1 AND ended_at < ?2
  AND (id < (SELECT max(id) FROM occurrences AS other WHERE other.schedule = one.schedule)
    OR NOT EXISTS (SELECT 1 FROM schedules WHERE name = one.schedule AND state <> 'ended'))
ORDER BY id LIMIT ?3";

const ENDED: &str = "
SELECT id, schedule, coalesce(slot, queued_at), state, ended_at
FROM occurrences INDEXED BY occurrences_watched
WHERE watched = 1 AND ended_at IS NOT NULL ORDER BY ended_at LIMIT ?1";

impl LedgerTransaction for InTransaction<'_> {
    fn clock(&mut self) -> Result<Clock, Fault> {
        let ahead = "SELECT ahead FROM ledger WHERE id = 1";
        let ahead = self.conn.prepare_cached(ahead)?;
        let ahead: Option<i64> = one(ahead, [])?;
        Ok(Clock {
            wall: time(self.clock.now_ms()),
            ahead: SignedDuration::from_millis(ahead.unwrap_or(0).max(0)),
        })
    }

    fn seen(&mut self) -> Result<Timestamp, Fault> {
        let seen = "SELECT seen_at FROM ledger WHERE id = 1";
        let seen: Option<i64> = one(self.conn.prepare_cached(seen)?, [])?;
        Ok(time(seen.unwrap_or(0)))
    }

    fn set_clock(&mut self, clock: Clock) -> Result<(), Fault> {
        let ahead = i64::try_from(clock.ahead.as_millis()).unwrap_or(0);
        let set = "UPDATE ledger SET ahead = ?1, seen_at = ?2 WHERE id = 1";
        let values = [ahead, clock.wall.as_millisecond()];
        self.conn.prepare_cached(set)?.execute(values)?;
        Ok(())
    }

    fn hold(&mut self) -> Result<Option<String>, Fault> {
        let hold = "SELECT hold FROM ledger WHERE id = 1";
        let mut hold = self.conn.prepare_cached(hold)?;
        let hold = hold.query_row([], |row| match row.get_ref(0)? {
            ValueRef::Null => Ok(None),
            _ => Ok(Some(text(row, 0)?.unwrap_or_default())),
        });
        let hold = hold.optional()?;
        Ok(hold.flatten())
    }

    fn set_hold(&mut self, reason: Option<&str>) -> Result<(), Fault> {
        let set = "UPDATE ledger SET hold = ?1 WHERE id = 1";
        self.conn.prepare_cached(set)?.execute([reason])?;
        Ok(())
    }

    fn next_wake(&mut self) -> Result<Option<Timestamp>, Fault> {
        let next = "SELECT min(wake_at) FROM schedules INDEXED BY schedules_wake
                    WHERE wake_at IS NOT NULL";
        let next: Option<Option<i64>> = one(self.conn.prepare_cached(next)?, [])?;
        Ok(next.flatten().map(time))
    }

    fn wake_all(&mut self) -> Result<(), Fault> {
        let wake = "UPDATE schedules SET wake_at = 0
                    WHERE wake_at IS NOT NULL OR state = 'ended'";
        self.conn.prepare_cached(wake)?.execute([])?;
        Ok(())
    }

    fn due(&mut self, now: Timestamp, most: u32) -> Result<Vec<ScheduleRow>, Fault> {
        let due = format!("{SCHEDULE} WHERE wake_at <= ?1 ORDER BY wake_at LIMIT ?2");
        let mut due = self.conn.prepare_cached(&due)?;
        let rows = due.query_map(params![now.as_millisecond(), most], schedule_row)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn schedule(&mut self, name: &str) -> Result<Option<ScheduleRow>, Fault> {
        let of_name = format!("{SCHEDULE} WHERE name = ?1");
        let mut of_name = self.conn.prepare_cached(&of_name)?;
        Ok(of_name.query_row([name], schedule_row).optional()?)
    }

    fn schedules(&mut self) -> Result<Vec<ScheduleRow>, Fault> {
        let all = format!("{SCHEDULE} ORDER BY name");
        let mut all = self.conn.prepare_cached(&all)?;
        let rows = all.query_map([], schedule_row)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn states(&mut self) -> Result<Vec<(ScheduleState, u64)>, Fault> {
        let count =
            "SELECT state, count(*) FROM schedules INDEXED BY schedules_state GROUP BY state";
        let mut count = self.conn.prepare_cached(count)?;
        let states = count.query_map([], |row| {
            let count: i64 = row.get(1)?;
            Ok((schedule_state(row, 0)?, count.unsigned_abs()))
        })?;
        Ok(states.collect::<rusqlite::Result<_>>()?)
    }

    fn stopped(&mut self, most: u32) -> Result<Vec<(String, ScheduleState, String)>, Fault> {
        let stopped = "SELECT name, state, coalesce(state_reason, '')
                       FROM schedules INDEXED BY schedules_state
                       WHERE state IN ('broken', 'disabled') LIMIT ?1";
        let mut stopped = self.conn.prepare_cached(stopped)?;
        let rows = stopped.query_map([most], |row| {
            let name = text(row, 0)?.unwrap_or_default();
            let reason = text(row, 2)?.unwrap_or_default();
            Ok((name, schedule_state(row, 1)?, reason))
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn save(&mut self, schedules: &[ScheduleRow]) -> Result<(), Fault> {
        let mut save = self.conn.prepare_cached(SAVE)?;
        for row in schedules {
            let cursor = row.cursor;
            let failures = row.failing.failures.iter();
            let failures: Vec<i64> = failures.map(|at| at.as_millisecond()).collect();
            save.execute(named_params! {
                ":name": row.name,
                ":definition": row.definition,
                ":configuration": row.configuration,
                ":origin": row.origin,
                ":state": row.state.as_str(),
                ":state_reason": row.state_reason,
                ":version": row.version,
                ":applied": row.applied,
                ":cursor": cursor.map(|cursor| cursor.at.as_millisecond()),
                ":runs": cursor.map_or(0, |cursor| count(cursor.runs)),
                ":missed": cursor.map_or(0, |cursor| count(cursor.missed)),
                ":next_slot": millis(row.next_slot),
                ":wake_at": millis(row.wake),
                ":failures": serde_json::json!(failures).to_string(),
                ":disabled_at": millis(row.failing.disabled),
                ":trial_slot": millis(row.failing.trial),
                ":created_at": row.created.map_or_else(|| self.clock.now_ms(), Timestamp::as_millisecond),
            })?;
        }
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<(), Fault> {
        let remove = "DELETE FROM schedules WHERE name = ?1";
        self.conn.prepare_cached(remove)?.execute([name])?;
        Ok(())
    }

    fn enter(&mut self, occurrences: &[NewOccurrence]) -> Result<Vec<bool>, Fault> {
        let mut enter = self.conn.prepare_cached(ENTER)?;
        let mut event = self.conn.prepare_cached(ENTER_EVENT)?;
        let now_ms = self.clock.now_ms();
        let mut entered = Vec::new();
        for occurrence in occurrences {
            let state = occurrence.state;
            let is_new = enter.execute(named_params! {
                ":id": occurrence.id,
                ":schedule": occurrence.schedule,
                ":version": occurrence.version,
                ":slot": millis(occurrence.slot),
                ":last_slot": millis(occurrence.last_slot),
                ":queue": occurrence.queue,
                ":state": state.code(),
                ":reason": occurrence.reason,
                ":now": now_ms,
                ":ended_at": state.is_end().then_some(now_ms),
                ":missed": count(occurrence.missed),
                ":watched": occurrence.is_watched,
            })?;
            if is_new > 0 {
                event.execute(params![
                    occurrence.id,
                    now_ms,
                    state.code(),
                    occurrence.note
                ])?;
            }
            entered.push(is_new > 0);
        }
        Ok(entered)
    }

    fn publish(&mut self, messages: &[Outgoing]) -> Result<(), Fault> {
        for message in messages {
            settle::publish(self.conn, message, self.clock)?;
        }
        Ok(())
    }

    fn last_success(&mut self, schedule: &str) -> Result<Option<Timestamp>, Fault> {
        let last = "SELECT slot FROM occurrences INDEXED BY occurrences_completed
                    WHERE schedule = ?1 AND slot IS NOT NULL AND state = 2
                    ORDER BY slot DESC LIMIT 1";
        let last: Option<i64> = one(self.conn.prepare_cached(last)?, [schedule])?;
        Ok(last.map(time))
    }

    fn ended(&mut self, most: u32) -> Result<Vec<EndedRun>, Fault> {
        let mut ended = self.conn.prepare_cached(ENDED)?;
        let rows = ended.query_map([most], |row| {
            Ok(EndedRun {
                id: row.get(0)?,
                schedule: row.get(1)?,
                slot: time(row.get(2)?),
                state: state(row.get(3)?),
                ended_at: time(row.get(4)?),
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn looked_at(&mut self, ids: &[String]) -> Result<(), Fault> {
        let note = "UPDATE occurrences SET watched = 0 WHERE id = ?1";
        let mut note = self.conn.prepare_cached(note)?;
        for id in ids {
            note.execute([id])?;
        }
        Ok(())
    }

    fn expired(&mut self, until: Timestamp, most: u32) -> Result<Expired, Fault> {
        let until_ms = until.as_millisecond();
        let mut old = self.conn.prepare_cached(EXPIRED)?;
        let ids = params![first_id(until), until_ms, most];
        let occurrences = old.query_map(ids, |row| row.get(0))?;
        let ended = "SELECT name FROM schedules INDEXED BY schedules_ended
                     WHERE state = 'ended' AND origin = 'sql' AND cursor < ?1 LIMIT ?2";
        let mut ended = self.conn.prepare_cached(ended)?;
        let schedules = ended.query_map(params![until_ms, most], |row| row.get(0))?;
        Ok(Expired {
            occurrences: occurrences.collect::<rusqlite::Result<_>>()?,
            schedules: schedules.collect::<rusqlite::Result<_>>()?,
        })
    }

    fn expire(&mut self, expired: &Expired) -> Result<(), Fault> {
        let ended = "DELETE FROM schedules WHERE name = ?1 AND state = 'ended'";
        let mut ended = self.conn.prepare_cached(ended)?;
        for name in &expired.schedules {
            ended.execute([name])?;
        }
        let events = "DELETE FROM occurrence_events WHERE occurrence = ?1";
        let mut events = self.conn.prepare_cached(events)?;
        let remove = "DELETE FROM occurrences WHERE id = ?1 AND ended_at IS NOT NULL";
        let mut remove = self.conn.prepare_cached(remove)?;
        for id in &expired.occurrences {
            if remove.execute([id])? > 0 {
                events.execute([id])?;
            }
        }
        Ok(())
    }

    fn occurrences(&mut self, filter: &OccurrenceFilter) -> Result<Vec<Occurrence>, Fault> {
        let of_schedule = match filter.schedule {
            Some(_) => "schedule = :schedule",
            None => ":schedule IS NULL",
        };
        // Most have completed; those in another state are found by indexes of theirs.
        let (index, in_state) = match filter.state {
            None | Some(OccurrenceState::Completed) => ("", "(:state IS NULL OR state = :state)"),
            Some(state) if state.is_end() => (
                "INDEXED BY occurrences_not_completed",
                "state = :state AND ended_at IS NOT NULL AND state <> 2",
            ),
            Some(_) => (
                "INDEXED BY occurrences_open",
                "state = :state AND ended_at IS NULL",
            ),
        };
        let chosen = format!(
            "{OCCURRENCE} {index} WHERE {of_schedule} AND {in_state} AND id < :before
             ORDER BY id DESC LIMIT :limit"
        );
        let mut chosen = self.conn.prepare_cached(&chosen)?;
        let values = named_params! {
            ":schedule": filter.schedule,
            ":state": filter.state.map(OccurrenceState::code),
            // Ids are of digits and letters.
            ":before": filter.before.as_deref().unwrap_or("~"),
            ":limit": filter.limit,
        };
        let rows = chosen.query_map(values, occurrence)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn occurrence(
        &mut self,
        id: &str,
    ) -> Result<Option<(Occurrence, Vec<OccurrenceEvent>)>, Fault> {
        let of_id = format!("{OCCURRENCE} WHERE id = ?1");
        let found: Option<Occurrence> = {
            let mut of_id = self.conn.prepare_cached(&of_id)?;
            of_id.query_row([id], occurrence).optional()?
        };
        let Some(found) = found else {
            return Ok(None);
        };
        let events = "SELECT at, from_state, to_state, attempt, note FROM occurrence_events
                      WHERE occurrence = ?1 ORDER BY rowid";
        let mut events = self.conn.prepare_cached(events)?;
        let events = events.query_map([id], |row| {
            let from: Option<i64> = row.get(1)?;
            Ok(OccurrenceEvent {
                at: time(row.get(0)?),
                from: from.map(state),
                to: state(row.get(2)?),
                attempt: number(row.get(3)?),
                note: row.get(4)?,
            })
        })?;
        let events = events.collect::<rusqlite::Result<_>>()?;
        Ok(Some((found, events)))
    }
}

fn one<T: rusqlite::types::FromSql>(
    mut statement: rusqlite::CachedStatement<'_>,
    params: impl rusqlite::Params,
) -> rusqlite::Result<Option<T>> {
    statement.query_row(params, |row| row.get(0)).optional()
}

/// Returns a text, which any program may have written.
fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    Ok(row::text(row.get_ref(column)?))
}

/// Reads a state, of which the column has a check.
fn schedule_state(row: &Row<'_>, column: usize) -> rusqlite::Result<ScheduleState> {
    let state = text(row, column)?.unwrap_or_default();
    Ok(state.parse().unwrap_or(ScheduleState::Broken))
}

fn schedule_row(row: &Row<'_>) -> rusqlite::Result<ScheduleRow> {
    let cursor: Option<i64> = row.get(8)?;
    let failures = text(row, 13)?.unwrap_or_default();
    let failures: Vec<i64> = serde_json::from_str(&failures).unwrap_or_default();
    let last_state: Option<i64> = row.get(18)?;
    Ok(ScheduleRow {
        name: text(row, 0)?.unwrap_or_default(),
        definition: text(row, 1)?.unwrap_or_default(),
        configuration: text(row, 2)?,
        origin: text(row, 3)?.unwrap_or_default(),
        state: schedule_state(row, 4)?,
        state_reason: text(row, 5)?,
        version: row.get(6)?,
        applied: text(row, 7)?,
        cursor: match cursor {
            Some(at) => Some(Cursor {
                at: time(at),
                runs: row.get(9).map(i64::unsigned_abs)?,
                missed: row.get(10).map(i64::unsigned_abs)?,
            }),
            None => None,
        },
        next_slot: maybe_time(row.get(11)?),
        wake: maybe_time(row.get(12)?),
        failing: AutoDisable {
            failures: failures.into_iter().map(time).collect(),
            disabled: maybe_time(row.get(14)?),
            trial: maybe_time(row.get(15)?),
        },
        created: maybe_time(row.get(16)?),
        open: number(row.get(17)?),
        last_state: last_state.map(state),
    })
}

fn occurrence(row: &Row<'_>) -> rusqlite::Result<Occurrence> {
    Ok(Occurrence {
        id: row.get(0)?,
        schedule: text(row, 1)?.unwrap_or_default(),
        version: row.get(2)?,
        slot: maybe_time(row.get(3)?),
        last_slot: maybe_time(row.get(4)?),
        queue: text(row, 5)?.unwrap_or_default(),
        state: state(row.get(6)?),
        reason: text(row, 7)?,
        attempt: number(row.get(8)?),
        queued_at: time(row.get(9)?),
        started_at: maybe_time(row.get(10)?),
        ended_at: maybe_time(row.get(11)?),
        error: text(row, 12)?,
        missed: row.get(13).map(i64::unsigned_abs)?,
    })
}

/// Returns the time of a column; the nearest that there is if another program has written nonsense.
fn time(millis: i64) -> Timestamp {
    let end = match millis < 0 {
        true => Timestamp::MIN,
        false => Timestamp::MAX,
    };
    Timestamp::from_millisecond(millis).unwrap_or(end)
}

fn maybe_time(millis: Option<i64>) -> Option<Timestamp> {
    millis.map(time)
}

fn millis(time: Option<Timestamp>) -> Option<i64> {
    time.map(|time| {
        let millis = time.as_millisecond();
        // Rounded up: nothing is looked at before it is due.
        millis + i64::from(time.subsec_nanosecond() % 1_000_000 > 0)
    })
}

fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the least id that an occurrence of that time can have.
fn first_id(at: Timestamp) -> String {
    let millis = u64::try_from(at.as_millisecond()).unwrap_or(0);
    Uuid::from_u128(u128::from(millis) << 80).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_that_found_no_space_is_tried_again_with_an_empty_journal() {
        let dir = tempfile::tempdir().unwrap();
        let clock = WallClock::system();
        let mut ledger = SqliteLedger::open(&dir.path().join("q.db"), 0o600, clock).unwrap();
        let mut tries = |fault: &dyn Fn() -> Fault| {
            let mut tries = 0;
            let done = ledger.write(&mut |_| {
                tries += 1;
                if tries == 1 { Err(fault()) } else { Ok(()) }
            });
            (tries, done.is_ok())
        };
        let full = || Fault::transient("database or disk is full");
        assert_eq!(tries(&full), (2, true));
        let refused = || Fault {
            is_permanent: true,
            ..full()
        };
        assert_eq!(tries(&refused), (1, false));
    }
}
