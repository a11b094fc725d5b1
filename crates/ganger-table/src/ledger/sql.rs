//! The SQL of the ledger, which all databases share: their few differences are data.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::change::{CHANGE, Change, EVENT};
use super::listed::{OCCURRENCE, occurrence, queries};
use super::row::{
    CountedRun, EndedRun, Expectation, NewOccurrence, NewestVersion, Occurrence, OccurrenceEvent,
    OccurrenceFilter, OpenRun, ScheduleRow, WaitingRun,
};
use super::several_rows::{LIST_MAX, list_of, parts};
use super::store::{HistoryTransaction, LedgerTransaction};
use super::values::{SqlRow, SqlValue, time};
use crate::table::Fault;
use ganger_queue::delivery::Outgoing;
use ganger_schedule::auto_disable::AutoDisable;
use ganger_schedule::clock::Clock;
use ganger_schedule::due::Cursor;
use ganger_schedule::occurrence::{OccurrenceState, ScheduleState};

/// Words in which the databases differ.
#[derive(Debug)]
pub(crate) struct LedgerDialect {
    /// Begin of an insert that leaves a row alone that is there, and its end.
    pub(crate) insert_new: (&'static str, &'static str),
    /// End of an insert that replaces the row of that name; a column is set to the new value between the
    /// two parts.
    pub(crate) replace: &'static str,
    pub(crate) new_value: (&'static str, &'static str),
    /// Number of rows that one statement inserts, where there are as many. In a file a row more costs what a statement
    /// costs; on a server a statement costs more.
    pub(crate) rows_together: usize,
    /// Column by which events are in the order of their inserts.
    pub(crate) event_order: &'static str,
    /// Words that have a table read by an index, before and after its name.
    pub(crate) by_index: Option<(&'static str, &'static str)>,
    /// Words that lock the rows read, for which others are waited for, or that are passed over if others
    /// have locked them. A file is locked as a whole.
    pub(crate) lock: Option<(&'static str, &'static str)>,
}

/// Statements in the open transaction of a ledger.
pub(crate) trait LedgerSql {
    /// Returns the words of the database.
    fn dialect(&self) -> &'static LedgerDialect;

    /// Returns whether the transaction may write.
    fn writes(&self) -> bool;

    /// Returns the time of the wall clock, in milliseconds.
    fn now_ms(&mut self) -> Result<i64, Fault>;

    /// Runs a statement with a value for each `?`, and returns its rows.
    fn query(&mut self, text: &str, values: &[SqlValue<'_>]) -> Result<Vec<SqlRow>, Fault>;

    /// Runs a statement for each of these values. Returns the number of rows that each has changed.
    fn each(&mut self, text: &str, values: &[Vec<SqlValue<'_>>]) -> Result<Vec<u64>, Fault>;

    /// Inserts messages into their queues.
    fn publish(&mut self, messages: &[Outgoing]) -> Result<(), Fault>;

    /// Makes the messages of that id dead letters that wait in a queue, since they are cancelled, and notes that
    /// with their occurrences. Returns their number.
    fn bury(&mut self, queue: &str, id: &str) -> Result<usize, Fault>;
}

/// Number of parts of a query. SQLite takes 500 of them.
const PARTS_MAX: usize = 100;

/// Columns of a schedule that change, and those that stay.
const SAVED: [&str; 19] = [
    "definition",
    "configuration",
    "origin",
    "state",
    "state_reason",
    "version",
    "applied",
    "\"cursor\"",
    "runs",
    "missed",
    "next_slot",
    "wake_at",
    "failures",
    "disabled_at",
    "trial_slot",
    "expected_since",
    "review_at",
    "overdue",
    "skips",
];

/// Number of the newest version that is kept, if the definition is another than the applied one; negative if its
/// own is another still.
const NEWEST: &str = "CASE WHEN applied IS NULL OR applied <> schedules.definition THEN
  (SELECT CASE WHEN kept.definition = schedules.definition THEN kept.version ELSE -kept.version END
   FROM schedule_versions kept WHERE kept.schedule = name ORDER BY kept.version DESC LIMIT 1) END";

const ENTER: &str = "
INTO occurrences (id, schedule, version, slot, last_slot, queue, source, state, reason, queued_at, ended_at,
  missed, watched)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

const ENTER_EVENT: &str = "
INSERT INTO occurrence_events (occurrence, at, to_state, attempt, note) VALUES (?, ?, ?, 0, ?)";

/// Operations of the ledger within a transaction.
#[derive(Debug)]
pub(crate) struct InTransaction<S>(pub(crate) S);

impl<S: LedgerSql> InTransaction<S> {
    pub(super) fn first(
        &mut self,
        text: &str,
        values: &[SqlValue<'_>],
    ) -> Result<Option<SqlRow>, Fault> {
        Ok(self.0.query(text, values)?.into_iter().next())
    }

    pub(super) fn run(&mut self, text: &str, values: &[SqlValue<'_>]) -> Result<(), Fault> {
        self.0.each(text, &[values.to_vec()]).map(drop)
    }

    /// Inserts rows with a statement for one of them. Returns the number of rows that changed.
    fn insert(&mut self, one: &str, rows: &[Vec<SqlValue<'_>>]) -> Result<u64, Fault> {
        let most = self.0.dialect().rows_together;
        let counts = parts(one, rows, most).into_iter().map(|(text, values)| {
            let counts = self.0.each(&text, &values)?;
            Ok(counts.iter().sum::<u64>())
        });
        counts.sum()
    }

    /// Returns which of these occurrences are there.
    fn are_there(&mut self, ids: &[NewOccurrence]) -> Result<Vec<bool>, Fault> {
        let there = ids.iter().map(|occurrence| {
            let of_id = "SELECT 1 FROM occurrences WHERE id = ?";
            let found = self.first(of_id, &[SqlValue::from(&occurrence.id)])?;
            Ok(found.is_some())
        });
        there.collect()
    }

    /// Enters changes of occurrences.
    pub(super) fn change(&mut self, changes: &[Change<'_>]) -> Result<(), Fault> {
        if changes.is_empty() {
            return Ok(());
        }
        let now_ms = self.0.now_ms()?;
        let events: Vec<_> = changes.iter().map(|change| change.event(now_ms)).collect();
        let changes: Vec<_> = changes.iter().map(|change| change.change(now_ms)).collect();
        self.change_where("", &events, &changes)
    }

    /// Enters changes of occurrences for which that further condition holds, by the values of [`EVENT`], those of
    /// [`CHANGE`] and those of the condition. The rows are locked from their events on, so that these are in the order
    /// of the changes.
    pub(super) fn change_where(
        &mut self,
        condition: &str,
        events: &[Vec<SqlValue<'_>>],
        changes: &[Vec<SqlValue<'_>>],
    ) -> Result<(), Fault> {
        let event = [EVENT, condition, self.lock()].concat();
        self.0.each(&event, events)?;
        let change = [CHANGE, condition].concat();
        self.0.each(&change, changes).map(drop)
    }

    /// Returns the words that have a table read by this index.
    pub(super) fn by(&self, index: &str) -> String {
        match self.0.dialect().by_index {
            Some((before, after)) => format!(" {before}{index}{after}"),
            None => String::new(),
        }
    }

    /// Returns the words that lock the rows, if the transaction may change them.
    pub(super) fn lock(&self) -> &'static str {
        let lock = self.0.dialect().lock.filter(|_| self.0.writes());
        lock.map_or("", |(waits, _)| waits)
    }

    /// Returns the words that lock the rows that nobody else has locked, if the transaction may change them.
    pub(super) fn lock_free(&self) -> &'static str {
        let lock = self.0.dialect().lock.filter(|_| self.0.writes());
        lock.map_or("", |(_, passes)| passes)
    }

    /// Returns the query for schedules, without a condition.
    fn schedule_query(&self) -> String {
        let (open, newest) = (
            self.by("occurrences_open"),
            self.by("occurrences_of_schedule"),
        );
        format!(
            "SELECT name, definition, configuration, origin, state, state_reason, version, applied, \"cursor\",
               runs, missed, next_slot, wake_at, failures, disabled_at, trial_slot, created_at,
               expected_since, review_at, overdue, skips,
               (SELECT count(*) FROM occurrences{open} WHERE schedule = name AND ended_at IS NULL),
               (SELECT o.state FROM occurrences o{newest} WHERE o.schedule = name ORDER BY id DESC LIMIT 1),
               {NEWEST}
             FROM schedules"
        )
    }

    fn schedule_of(&mut self, name: &str, lock: &str) -> Result<Option<ScheduleRow>, Fault> {
        let all = self.schedule_query();
        let of_name = format!("{all} WHERE name = ?{lock}");
        let row = self.first(&of_name, &[name.into()])?;
        Ok(row.as_ref().map(schedule_row))
    }

    fn save_statement(&self) -> String {
        let LedgerDialect {
            replace,
            new_value: (before, after),
            ..
        } = self.0.dialect();
        let columns = SAVED.join(", ");
        let set = SAVED.map(|column| format!("{column} = {before}{column}{after}"));
        let set = set.join(", ");
        format!(
            "INSERT INTO schedules (name, created_at, {columns})
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) {replace} {set}"
        )
    }
}

impl<S: LedgerSql> LedgerTransaction for InTransaction<S> {
    fn clock(&mut self) -> Result<Clock, Fault> {
        let ahead = self.first("SELECT ahead FROM ledger WHERE id = 1", &[])?;
        let ahead = ahead.and_then(|row| row.number(0)).unwrap_or(0).max(0);
        Ok(Clock {
            wall: time(self.0.now_ms()?),
            ahead: SignedDuration::from_millis(ahead),
        })
    }

    fn seen(&mut self) -> Result<Timestamp, Fault> {
        let seen = self.first("SELECT seen_at FROM ledger WHERE id = 1", &[])?;
        Ok(seen.map_or(Timestamp::UNIX_EPOCH, |row| row.time(0)))
    }

    fn set_clock(&mut self, clock: Clock) -> Result<(), Fault> {
        let ahead = i64::try_from(clock.ahead.as_millis()).unwrap_or(0);
        let set = "UPDATE ledger SET ahead = ?, seen_at = ? WHERE id = 1";
        self.run(set, &[ahead.into(), clock.wall.as_millisecond().into()])
    }

    fn hold(&mut self) -> Result<Option<String>, Fault> {
        let hold = self.first("SELECT hold FROM ledger WHERE id = 1", &[])?;
        let hold = hold.filter(|row| !row.is_null(0));
        Ok(hold.map(|row| row.name(0)))
    }

    fn set_hold(&mut self, reason: Option<&str>) -> Result<(), Fault> {
        let set = "UPDATE ledger SET hold = ? WHERE id = 1";
        self.run(set, &[reason.into()])
    }

    fn next_wake(&mut self) -> Result<Option<Timestamp>, Fault> {
        let by = self.by("schedules_wake");
        let next = format!(
            "SELECT wake_at FROM schedules{by} WHERE wake_at IS NOT NULL ORDER BY wake_at LIMIT 1"
        );
        let next = self.first(&next, &[])?;
        Ok(next.and_then(|row| row.maybe_time(0)))
    }

    fn wake_all(&mut self) -> Result<(), Fault> {
        let wake = "UPDATE schedules SET wake_at = 0
                    WHERE wake_at IS NOT NULL OR state = 'ended'";
        self.run(wake, &[])
    }

    fn due(&mut self, now: Timestamp, most: u32) -> Result<Vec<ScheduleRow>, Fault> {
        let (lock, by) = (self.lock_free(), self.by("schedules_wake"));
        let due = format!(
            "SELECT name FROM schedules{by} WHERE wake_at <= ? ORDER BY wake_at LIMIT ?{lock}"
        );
        let due = self
            .0
            .query(&due, &[now.as_millisecond().into(), most.into()])?;
        // Read once they are locked: what belongs to them may have changed since the statement that has locked them
        // began.
        let names: Vec<String> = due.iter().map(|row| row.name(0)).collect();
        let mut rows = Vec::with_capacity(names.len());
        for names in names.chunks(LIST_MAX) {
            let mut names: Vec<_> = names.iter().map(SqlValue::from).collect();
            let (all, list) = (self.schedule_query(), list_of(&mut names));
            let of_names = format!("{all} WHERE name IN {list}");
            rows.extend(self.0.query(&of_names, &names)?.iter().map(schedule_row));
        }
        rows.sort_by_key(|row: &ScheduleRow| row.wake);
        Ok(rows)
    }

    fn schedule(&mut self, name: &str) -> Result<Option<ScheduleRow>, Fault> {
        let lock = self.lock();
        self.schedule_of(name, lock)
    }

    fn schedule_if_free(&mut self, name: &str) -> Result<Option<ScheduleRow>, Fault> {
        let lock = self.lock_free();
        self.schedule_of(name, lock)
    }

    fn has_schedule(&mut self, name: &str) -> Result<bool, Fault> {
        let there = self.first("SELECT 1 FROM schedules WHERE name = ?", &[name.into()])?;
        Ok(there.is_some())
    }

    fn schedules_of(&mut self, configuration: &str) -> Result<Vec<ScheduleRow>, Fault> {
        let (all, by) = (self.schedule_query(), self.by("schedules_configuration"));
        let lock = self.lock();
        let of_one = format!("{all}{by} WHERE configuration = ?{lock}");
        let rows = self.0.query(&of_one, &[configuration.into()])?;
        let mut rows: Vec<ScheduleRow> = rows.iter().map(schedule_row).collect();
        // A server asked for this order reads all schedules by their names.
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(rows)
    }

    fn next_review(&mut self) -> Result<Option<Timestamp>, Fault> {
        let by = self.by("schedules_review");
        let next = format!(
            "SELECT review_at FROM schedules{by} WHERE review_at IS NOT NULL ORDER BY review_at LIMIT 1"
        );
        let next = self.first(&next, &[])?;
        Ok(next.and_then(|row| row.maybe_time(0)))
    }

    fn reviews(&mut self, now: Timestamp, most: u32) -> Result<Vec<ScheduleRow>, Fault> {
        let lock = self.lock_free();
        let (all, by) = (self.schedule_query(), self.by("schedules_review"));
        let reviews = format!("{all}{by} WHERE review_at <= ? ORDER BY review_at LIMIT ?{lock}");
        let rows = self
            .0
            .query(&reviews, &[now.as_millisecond().into(), most.into()])?;
        Ok(rows.iter().map(schedule_row).collect())
    }

    fn states(&mut self) -> Result<Vec<(ScheduleState, u64)>, Fault> {
        let by = self.by("schedules_state");
        let count = format!("SELECT state, count(*) FROM schedules{by} GROUP BY state");
        let rows = self.0.query(&count, &[])?;
        let states = rows.iter().map(|row| (row.schedule_state(0), row.count(1)));
        Ok(states.collect())
    }

    fn stopped(&mut self, most: u32) -> Result<Vec<(String, ScheduleState, String)>, Fault> {
        let by = self.by("schedules_state");
        let stopped = format!(
            "SELECT name, state, state_reason FROM schedules{by}
             WHERE state IN ('broken', 'disabled') LIMIT ?"
        );
        let rows = self.0.query(&stopped, &[most.into()])?;
        let stopped = rows.iter();
        let stopped = stopped.map(|row| (row.name(0), row.schedule_state(1), row.name(2)));
        Ok(stopped.collect())
    }

    fn overdue(&mut self, most: u32) -> Result<(u64, Vec<(String, String)>), Fault> {
        let by = self.by("schedules_overdue");
        let count = format!("SELECT count(*) FROM schedules{by} WHERE overdue IS NOT NULL");
        let count = self.first(&count, &[])?.map_or(0, |row| row.count(0));
        let overdue =
            format!("SELECT name, overdue FROM schedules{by} WHERE overdue IS NOT NULL LIMIT ?");
        let rows = self.0.query(&overdue, &[most.into()])?;
        let some = rows.iter().map(|row| (row.name(0), row.name(1)));
        Ok((count, some.collect()))
    }

    fn save(&mut self, schedules: &[ScheduleRow]) -> Result<(), Fault> {
        if schedules.is_empty() {
            return Ok(());
        }
        let now_ms = self.0.now_ms()?;
        let failures = schedules.iter().map(|row| {
            let failures = row.failing.failures.iter();
            let failures: Vec<i64> = failures.map(|at| at.as_millisecond()).collect();
            serde_json::json!(failures).to_string()
        });
        let failures: Vec<String> = failures.collect();
        let skips: Vec<Option<String>> = schedules.iter().map(|row| numbers(&row.skips)).collect();
        let values = schedules.iter().zip(failures.iter().zip(&skips));
        let values = values.map(|(row, (failures, skips))| {
            let cursor = row.cursor;
            let created_at = row.created.map_or(now_ms, Timestamp::as_millisecond);
            vec![
                SqlValue::from(&row.name),
                created_at.into(),
                SqlValue::from(&row.definition),
                row.configuration.as_deref().into(),
                SqlValue::from(&row.origin),
                row.state.as_str().into(),
                row.state_reason.as_deref().into(),
                row.version.into(),
                row.applied.as_deref().into(),
                cursor.map(|cursor| cursor.at.as_millisecond()).into(),
                cursor.map_or(0, |cursor| count(cursor.runs)).into(),
                cursor.map_or(0, |cursor| count(cursor.missed)).into(),
                millis(row.next_slot).into(),
                millis(row.wake).into(),
                SqlValue::from(failures),
                millis(row.failing.disabled).into(),
                millis(row.failing.trial).into(),
                millis(row.expected.since).into(),
                millis(row.expected.review).into(),
                row.expected.overdue.as_deref().into(),
                skips.as_deref().into(),
            ]
        });
        let values: Vec<_> = values.collect();
        let save = self.save_statement();
        self.insert(&save, &values).map(drop)
    }

    fn remove(&mut self, name: &str) -> Result<(), Fault> {
        let waiting = self.waiting(name)?;
        let removed: Vec<_> = waiting.iter().map(|run| Change::removed(&run.id)).collect();
        self.change(&removed)?;
        self.run("DELETE FROM schedules WHERE name = ?", &[name.into()])?;
        self.forget_versions(&BTreeSet::from([name.to_owned()]))
    }

    fn enter(&mut self, occurrences: &[NewOccurrence]) -> Result<Vec<bool>, Fault> {
        if occurrences.is_empty() {
            return Ok(Vec::new());
        }
        let now_ms = self.0.now_ms()?;
        let (insert, unless_there) = self.0.dialect().insert_new;
        let values = occurrences.iter().map(|occurrence| {
            let state = occurrence.state;
            vec![
                SqlValue::from(&occurrence.id),
                SqlValue::from(&occurrence.schedule),
                occurrence.version.into(),
                millis(occurrence.slot).into(),
                millis(occurrence.last_slot).into(),
                SqlValue::from(&occurrence.queue),
                occurrence.source.as_deref().into(),
                state.code().into(),
                occurrence.reason.into(),
                now_ms.into(),
                state.is_end().then_some(now_ms).into(),
                count(occurrence.missed).into(),
                occurrence.is_watched.into(),
            ]
        });
        let values: Vec<_> = values.collect();
        let enter = format!("{insert} {ENTER} {unless_there}");
        let inserted = self.insert(&enter, &values)?;
        let entered = match usize::try_from(inserted) == Ok(occurrences.len()) {
            true => vec![true; occurrences.len()],
            false => self.are_there(occurrences)?,
        };
        let new = occurrences.iter().zip(&entered).filter(|(_, new)| **new);
        let events = new.map(|(occurrence, _)| {
            vec![
                SqlValue::from(&occurrence.id),
                now_ms.into(),
                occurrence.state.code().into(),
                occurrence.note.as_deref().into(),
            ]
        });
        let events: Vec<_> = events.collect();
        self.insert(ENTER_EVENT, &events)?;
        Ok(entered)
    }

    fn waiting(&mut self, schedule: &str) -> Result<Vec<WaitingRun>, Fault> {
        let by = self.by("occurrences_open");
        let waiting = format!(
            "SELECT id, coalesce(slot, queued_at) FROM occurrences{by}
             WHERE schedule = ? AND ended_at IS NULL AND state = 8 AND reason = 'overlap' ORDER BY id"
        );
        let rows = self.0.query(&waiting, &[schedule.into()])?;
        let waiting = rows.iter().map(|row| WaitingRun {
            id: row.name(0),
            slot: row.time(1),
        });
        Ok(waiting.collect())
    }

    fn open(&mut self, schedule: &str, most: u32) -> Result<Vec<OpenRun>, Fault> {
        let by = self.by("occurrences_open");
        let open = format!(
            "SELECT id, coalesce(slot, queued_at), started_at FROM occurrences{by}
             WHERE schedule = ? AND ended_at IS NULL ORDER BY id LIMIT ?"
        );
        let rows = self.0.query(&open, &[schedule.into(), most.into()])?;
        let open = rows.iter().map(|row| OpenRun {
            id: row.name(0),
            slot: row.time(1),
            started_at: row.maybe_time(2),
        });
        Ok(open.collect())
    }

    fn admit(&mut self, ids: &[String]) -> Result<(), Fault> {
        let admitted: Vec<_> = ids.iter().map(|id| Change::admitted(id)).collect();
        self.change(&admitted)
    }

    fn publish(&mut self, messages: &[Outgoing]) -> Result<(), Fault> {
        self.0.publish(messages)
    }

    fn last_success(&mut self, schedule: &str) -> Result<Option<Timestamp>, Fault> {
        let by = self.by("occurrences_completed");
        let last = format!(
            "SELECT slot FROM occurrences{by}
             WHERE schedule = ? AND slot IS NOT NULL AND state = 2 ORDER BY slot DESC LIMIT 1"
        );
        let last = self.first(&last, &[schedule.into()])?;
        Ok(last.and_then(|row| row.maybe_time(0)))
    }

    fn ended(&mut self, most: u32) -> Result<Vec<EndedRun>, Fault> {
        let by = self.by("occurrences_watched");
        let ended = format!(
            "SELECT id, schedule, coalesce(slot, queued_at), state, ended_at FROM occurrences{by}
             WHERE watched = 1 AND ended_at IS NOT NULL ORDER BY ended_at LIMIT ?"
        );
        let rows = self.0.query(&ended, &[most.into()])?;
        let ended = rows.iter().map(|row| EndedRun {
            id: row.name(0),
            schedule: row.name(1),
            slot: row.time(2),
            state: row.state(3),
            ended_at: row.time(4),
        });
        Ok(ended.collect())
    }

    fn looked_at(&mut self, ids: &[String]) -> Result<(), Fault> {
        let note = "UPDATE occurrences SET watched = 2 WHERE id = ?";
        self.0.each(note, &named(ids)).map(drop)
    }

    fn watch(&mut self, schedule: &str) -> Result<(), Fault> {
        let by = self.by("occurrences_open");
        let watch = format!(
            "UPDATE occurrences{by} SET watched = 1 WHERE schedule = ? AND ended_at IS NULL"
        );
        self.run(&watch, &[schedule.into()])
    }

    fn occurrences(&mut self, filter: &OccurrenceFilter) -> Result<Vec<Occurrence>, Fault> {
        let mut found = Vec::new();
        for (query, values) in queries(filter, &|index| self.by(index)) {
            found.extend(self.0.query(&query, &values)?.iter().map(occurrence));
        }
        found.sort_unstable_by(|one, other| other.id.cmp(&one.id));
        found.truncate(usize::try_from(filter.limit).unwrap_or(usize::MAX));
        Ok(found)
    }

    fn occurrence(
        &mut self,
        id: &str,
    ) -> Result<Option<(Occurrence, Vec<OccurrenceEvent>)>, Fault> {
        let of_id = format!("{OCCURRENCE} WHERE id = ?");
        // In an order that no other index has.
        let by = self.by("occurrences_message_id");
        let of_message = format!(
            "{OCCURRENCE}{by} WHERE message_id = ? ORDER BY queued_at DESC, id DESC LIMIT 1"
        );
        let found = match self.first(&of_id, &[id.into()])? {
            Some(found) => found,
            None => match self.first(&of_message, &[id.into()])? {
                Some(found) => found,
                None => return Ok(None),
            },
        };
        let found = occurrence(&found);
        let order = self.0.dialect().event_order;
        let by = self.by("occurrence_events_of");
        let events = format!(
            "SELECT at, from_state, to_state, attempt, note FROM occurrence_events{by}
             WHERE occurrence = ? ORDER BY {order}"
        );
        let events = self.0.query(&events, &[SqlValue::from(&found.id)])?;
        let events = events.iter().map(|row| OccurrenceEvent {
            at: row.time(0),
            from: row.number(1).map(|_| row.state(1)),
            to: row.state(2),
            attempt: row.small(3),
            note: row.text(4),
        });
        Ok(Some((found, events.collect())))
    }

    fn counted(
        &mut self,
        schedule: Option<&str>,
        (first, before): (&str, &str),
        most: u32,
    ) -> Result<Vec<CountedRun>, Fault> {
        let (of, mut values) = match schedule {
            Some(schedule) => ("schedule = ? AND ", vec![SqlValue::from(schedule)]),
            None => ("", Vec::new()),
        };
        values.extend([SqlValue::from(first), before.into(), most.into()]);
        let by = self.by("occurrence_events_of");
        // Only its history tells that a run is of a backfill. It is looked up for those that are late.
        let counted = format!(
            "SELECT id, schedule, source, queue, state, reason, attempt, coalesce(slot, queued_at), queued_at,
               started_at, ended_at, missed,
               CASE WHEN slot < started_at - 60000 THEN
                 (SELECT max(at) FROM occurrence_events{by}
                  WHERE occurrence = occurrences.id AND to_state = 0 AND note = 'backfill') END
             FROM occurrences WHERE {of}id >= ? AND id < ? ORDER BY id DESC LIMIT ?"
        );
        let rows = self.0.query(&counted, &values)?;
        let counted = rows.iter().map(|row| CountedRun {
            id: row.name(0),
            schedule: row.name(1),
            source: row.text(2),
            queue: row.name(3),
            state: row.state(4),
            reason: row.text(5),
            attempt: row.small(6),
            slot: row.time(7),
            queued_at: row.time(8),
            started_at: row.maybe_time(9),
            ended_at: row.maybe_time(10),
            missed: row.count(11),
            backfilled_at: row.maybe_time(12),
        });
        Ok(counted.collect())
    }

    fn last_states(
        &mut self,
        schedules: &[String],
        most: u32,
    ) -> Result<BTreeMap<String, Vec<OccurrenceState>>, Fault> {
        let mut states: BTreeMap<String, Vec<OccurrenceState>> = BTreeMap::new();
        let by = self.by("occurrences_of_schedule");
        // Each part is a search of the index: no database has one for the newest of several schedules.
        let part = format!(
            "SELECT schedule, id, state FROM
               (SELECT schedule, id, state FROM occurrences{by} WHERE schedule = ? ORDER BY id DESC LIMIT ?) newest"
        );
        for schedules in schedules.chunks(PARTS_MAX) {
            let all = vec![&*part; schedules.len()].join(" UNION ALL ");
            let values = schedules.iter();
            let values = values.flat_map(|name| [SqlValue::from(name), most.into()]);
            let mut rows = self.0.query(&all, &values.collect::<Vec<_>>())?;
            rows.sort_by_key(|row| Reverse(row.name(1)));
            for row in rows {
                states.entry(row.name(0)).or_default().push(row.state(2));
            }
        }
        Ok(states)
    }

    fn schedules_after(&mut self, name: &str, most: u32) -> Result<Vec<ScheduleRow>, Fault> {
        let all = self.schedule_query();
        let after = format!("{all} WHERE name > ? ORDER BY name LIMIT ?");
        let rows = self.0.query(&after, &[name.into(), most.into()])?;
        Ok(rows.iter().map(schedule_row).collect())
    }
}

pub(super) fn named(ids: &[String]) -> Vec<Vec<SqlValue<'_>>> {
    ids.iter().map(|id| vec![SqlValue::from(id)]).collect()
}

fn schedule_row(row: &SqlRow) -> ScheduleRow {
    ScheduleRow {
        name: row.name(0),
        definition: row.name(1),
        configuration: row.text(2),
        origin: row.name(3),
        state: row.schedule_state(4),
        state_reason: row.text(5),
        version: row.number(6).unwrap_or(0),
        applied: row.text(7),
        cursor: row.maybe_time(8).map(|at| Cursor {
            at,
            runs: row.count(9),
            missed: row.count(10),
        }),
        next_slot: row.maybe_time(11),
        wake: row.maybe_time(12),
        failing: AutoDisable {
            failures: instants(&row.name(13)).into(),
            disabled: row.maybe_time(14),
            trial: row.maybe_time(15),
        },
        created: row.maybe_time(16),
        expected: Expectation {
            since: row.maybe_time(17),
            review: row.maybe_time(18),
            overdue: row.text(19),
        },
        skips: instants(&row.name(20)).into_iter().collect(),
        open: row.small(21),
        waiting: 0,
        last_state: row.number(22).map(|_| row.state(22)),
        newest: NewestVersion {
            number: row.number(23).map_or(0, i64::saturating_abs),
            is_this: row.number(23).is_some_and(|number| number > 0),
        },
    }
}

/// Reads a JSON array of times.
fn instants(text: &str) -> Vec<Timestamp> {
    let times: Vec<i64> = serde_json::from_str(text).unwrap_or_default();
    times.into_iter().map(time).collect()
}

/// Writes times as a JSON array; none if there are none.
fn numbers(times: &BTreeSet<Timestamp>) -> Option<String> {
    let numbers: Vec<i64> = times.iter().map(|at| at.as_millisecond()).collect();
    (!numbers.is_empty()).then(|| serde_json::json!(numbers).to_string())
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
pub(super) fn first_id(at: Timestamp) -> String {
    let millis = u64::try_from(at.as_millisecond()).unwrap_or(0);
    Uuid::from_u128(u128::from(millis) << 80).to_string()
}
