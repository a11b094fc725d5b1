//! Notes on runs besides their states, in the transactions of the ledger: the lines of their logs within limits, their
//! progress, and that they are alive.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use super::change::before;
use super::row::LoggedLine;
use super::several_rows::list_of;
use super::sql::{InTransaction, LedgerSql};
use super::store::{LedgerStore, NotesTransaction};
use super::values::SqlValue;
use crate::rules::storable;
use crate::table::Fault;
use ganger_config::model::LogLimits;
use ganger_queue::delivery::RunNote;

/// Number of runs, and of lines unless one run alone has more, that one transaction writes.
const RUNS_MAX: usize = 100;
const LINES_MAX: usize = 2000;

const ENTER_LINE: &str = "
INSERT INTO occurrence_logs (occurrence, line, at, attempt, stream, level, text)
VALUES (?, ?, ?, ?, ?, ?, ?)";

const SIZES: &str = "
SELECT line, octet_length(text) FROM occurrence_logs WHERE occurrence = ? ORDER BY line";

const DROP_LINES: &str = "
DELETE FROM occurrence_logs WHERE occurrence = ? AND line >= ? AND line < ?";

const NOTE: &str = "
UPDATE occurrences SET log_lines = ?, log_bytes = ?, log_dropped = ?, progress = coalesce(?, progress),
  heard_at = ?
WHERE id = ?";

const LOG: &str = "
SELECT line, at, attempt, stream, level, text FROM occurrence_logs
WHERE occurrence = ? AND line > ? ORDER BY line LIMIT ?";

/// Writes notes, in as many transactions as needed. What the database rejects is logged, and not written. Returns the
/// notes that are to be written later, because others have locked their occurrences or the database can't be used.
pub(super) fn write_notes(
    store: &mut dyn LedgerStore,
    mut notes: Vec<RunNote>,
    limits: LogLimits,
) -> (Vec<RunNote>, Result<(), Fault>) {
    let mut left = Vec::new();
    while !notes.is_empty() {
        let some = some_of(&notes);
        let written = match write(store, &notes[..some], limits) {
            Err(fault) if fault.is_permanent => write_each(store, &notes[..some], limits),
            written => written,
        };
        match written {
            Ok(locked) => {
                let some = notes.drain(..some);
                left.extend(some.filter(|note| locked.contains(&note.occurrence)));
            }
            Err(fault) => {
                left.append(&mut notes);
                return (left, Err(fault));
            }
        }
    }
    (left, Ok(()))
}

/// Returns the number of notes, from the first one, that one transaction writes.
fn some_of(notes: &[RunNote]) -> usize {
    let mut lines = 0;
    let fits = |note: &&RunNote| {
        lines += note.lines.len();
        lines <= LINES_MAX
    };
    notes.iter().take(RUNS_MAX).take_while(fits).count().max(1)
}

/// Ids of occurrences that others have locked.
type Locked = HashSet<Arc<str>>;

fn write(
    store: &mut dyn LedgerStore,
    notes: &[RunNote],
    limits: LogLimits,
) -> Result<Locked, Fault> {
    let mut locked = Locked::new();
    store.write_beside(&mut |tx| {
        locked = tx.note(notes, limits)?;
        Ok(())
    })?;
    Ok(locked)
}

fn write_each(
    store: &mut dyn LedgerStore,
    notes: &[RunNote],
    limits: LogLimits,
) -> Result<Locked, Fault> {
    let mut locked = Locked::new();
    for note in notes {
        match write(store, std::slice::from_ref(note), limits) {
            Err(fault) if fault.is_permanent => tracing::error!(
                occurrence = &*note.occurrence,
                problem = fault.problem,
                "the database rejects lines of the log of an occurrence: the ledger does not show them"
            ),
            written => locked.extend(written?),
        }
    }
    Ok(locked)
}

/// Log of an occurrence, as its row has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct LogCounts {
    lines: u64,
    bytes: u64,
    dropped: u64,
}

/// Number and size of a line.
type LineSize = (u64, u64);

/// Returns those of all lines of a log that are dropped so that it keeps its limits: neither the first fifth, which has
/// no gap, nor the newest ones.
fn excess(lines: &[LineSize], limits: LogLimits) -> Range<usize> {
    let (lines_max, bytes_max) = (u64::from(limits.lines), limits.bytes);
    let (mut first, mut kept, mut bytes) = (0, 0, 0);
    for (number, size) in lines {
        if *number != kept || kept >= lines_max / 5 || bytes + size > bytes_max / 5 {
            break;
        }
        first += 1;
        kept += 1;
        bytes += size;
    }
    let mut newest = lines.len();
    while newest > first && kept < lines_max && bytes + lines[newest - 1].1 <= bytes_max {
        newest -= 1;
        kept += 1;
        bytes += lines[newest].1;
    }
    first..newest
}

/// Returns the counts of these occurrences, which are locked, and the ids of those that others have locked.
fn lock<'a, S: LedgerSql>(
    tx: &mut InTransaction<S>,
    notes: &'a [RunNote],
) -> Result<(HashMap<&'a str, LogCounts>, Locked), Fault> {
    let by_id: HashMap<&str, &RunNote> =
        notes.iter().map(|note| (&*note.occurrence, note)).collect();
    let mut ids: Vec<_> = by_id.keys().map(|id| SqlValue::from(*id)).collect();
    let (list, lock) = (list_of(&mut ids), tx.lock_free());
    let counts = format!(
        "SELECT id, log_lines, log_bytes, log_dropped FROM occurrences WHERE id IN {list}{lock}"
    );
    let rows = tx.0.query(&counts, &ids)?;
    let counts = rows.iter().filter_map(|row| {
        let (id, _) = by_id.get_key_value(row.name(0).as_str())?;
        let counts = LogCounts {
            lines: row.count(1),
            bytes: row.count(2),
            dropped: row.count(3),
        };
        Some((*id, counts))
    });
    let counts: HashMap<&str, LogCounts> = counts.collect();
    let mut others: Vec<_> = by_id
        .keys()
        .filter(|id| !counts.contains_key(*id))
        .collect();
    let mut locked = Locked::new();
    // What a file does not have is gone.
    if !others.is_empty() && tx.0.dialect().lock.is_some() {
        let mut ids: Vec<_> = others.drain(..).map(|id| SqlValue::from(*id)).collect();
        let there = format!(
            "SELECT id FROM occurrences WHERE id IN {}",
            list_of(&mut ids)
        );
        let rows = tx.0.query(&there, &ids)?;
        let ids = rows.iter().filter_map(|row| {
            let note = by_id.get(row.name(0).as_str())?;
            Some(Arc::clone(&note.occurrence))
        });
        locked.extend(ids);
    }
    Ok((counts, locked))
}

/// Returns the counts of a log with these lines of the sizes given, and which of those are entered. Lines of it that are
/// to be dropped for that are removed.
fn make_room<S: LedgerSql>(
    tx: &mut InTransaction<S>,
    note: &RunNote,
    (counts, sizes): (LogCounts, &[u64]),
    limits: LogLimits,
) -> Result<(LogCounts, Vec<u64>), Fault> {
    let next = counts.lines + counts.dropped;
    let new = (next..).zip(sizes.iter().copied());
    let new: Vec<LineSize> = new.collect();
    let added = LogCounts {
        lines: counts.lines + sizes.len() as u64,
        bytes: counts.bytes + sizes.iter().sum::<u64>(),
        dropped: counts.dropped + note.dropped,
    };
    if added.lines <= u64::from(limits.lines) && added.bytes <= limits.bytes || new.is_empty() {
        return Ok((added, new.iter().map(|(number, _)| *number).collect()));
    }
    let rows = tx.0.query(SIZES, &[SqlValue::from(&*note.occurrence)])?;
    let mut all: Vec<LineSize> = rows
        .iter()
        .map(|row| (row.count(0), row.count(1)))
        .collect();
    all.extend(&new);
    let excess = excess(&all, limits);
    let from = all.get(excess.start).map_or(next, |(number, _)| *number);
    let to = all.get(excess.end).map_or(u64::MAX, |(number, _)| *number);
    let is_stored = from < next;
    if !excess.is_empty() && is_stored {
        let (from, to) = (number(from), number(to.min(next)));
        tx.run(
            DROP_LINES,
            &[SqlValue::from(&*note.occurrence), from.into(), to.into()],
        )?;
    }
    let dropped = excess.len() as u64;
    all.drain(excess);
    let entered = all.iter().map(|(number, _)| *number);
    let counts = LogCounts {
        lines: all.len() as u64,
        bytes: all.iter().map(|(_, bytes)| *bytes).sum(),
        dropped: added.dropped + dropped,
    };
    Ok((counts, entered.filter(|number| *number >= next).collect()))
}

impl<S: LedgerSql> NotesTransaction for InTransaction<S> {
    fn note(&mut self, notes: &[RunNote], limits: LogLimits) -> Result<Locked, Fault> {
        let now_ms = self.0.now_ms()?;
        let (found, locked) = lock(self, notes)?;
        let of_found = notes.iter().filter_map(|note| {
            let counts = found.get(&*note.occurrence)?;
            Some((note, *counts))
        });
        let (mut lines, mut changes) = (Vec::new(), Vec::new());
        let texts: Vec<Vec<_>> = of_found
            .clone()
            .map(|(note, _)| note.lines.iter().map(|line| storable(&line.text)).collect())
            .collect();
        for ((note, counts), texts) in of_found.zip(&texts) {
            let sizes: Vec<u64> = texts.iter().map(|text| text.len() as u64).collect();
            let next = counts.lines + counts.dropped;
            let (counts, entered) = make_room(self, note, (counts, &sizes), limits)?;
            for line in entered {
                let at = usize::try_from(line - next).unwrap_or(usize::MAX);
                let (told, text) = (&note.lines[at], &texts[at]);
                lines.push(vec![
                    SqlValue::from(&*note.occurrence),
                    number(line).into(),
                    before(now_ms, told.at.elapsed()).into(),
                    told.attempt.into(),
                    told.stream.as_str().into(),
                    told.level.into(),
                    SqlValue::from(&**text),
                ]);
            }
            changes.push(vec![
                number(counts.lines).into(),
                number(counts.bytes).into(),
                number(counts.dropped).into(),
                note.progress.as_deref().into(),
                before(now_ms, note.heard.elapsed()).into(),
                SqlValue::from(&*note.occurrence),
            ]);
        }
        self.0.each(ENTER_LINE, &lines)?;
        self.0.each(NOTE, &changes)?;
        Ok(locked)
    }

    fn log(&mut self, id: &str, after: i64, most: u32) -> Result<Vec<LoggedLine>, Fault> {
        let rows = self.0.query(LOG, &[id.into(), after.into(), most.into()])?;
        let lines = rows.iter().map(|row| LoggedLine {
            line: row.number(0).unwrap_or(0),
            at: row.time(1),
            attempt: row.small(2),
            stream: row.name(3),
            level: row.text(4),
            text: row.name(5),
        });
        Ok(lines.collect())
    }
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fifth_and_the_newest_lines_stay() {
        let log = |lines: Range<u64>, bytes: u64| -> Vec<LineSize> {
            lines.map(|number| (number, bytes)).collect()
        };
        let limits = |lines, bytes| LogLimits { lines, bytes };
        let cases: [(Vec<LineSize>, LogLimits, Range<usize>); 6] = [
            (log(0..10, 1), limits(10, 100), 2..2),
            (log(0..14, 1), limits(10, 100), 2..6),
            // Twenty bytes are the first fifth: two of these lines.
            (log(0..14, 10), limits(100, 100), 2..6),
            (log(0..3, 50), limits(100, 100), 0..1),
            (log(0..3, 101), limits(100, 100), 0..3),
            (log(0..3, 1), limits(0, 100), 0..3),
        ];
        for (lines, limits, dropped) in cases {
            assert_eq!(excess(&lines, limits), dropped, "{lines:?} {limits:?}");
        }
        // What follows a gap is not part of the first fifth.
        let mut lines: Vec<LineSize> = log(0..1, 1);
        lines.extend(log(5..15, 1));
        assert_eq!(excess(&lines, limits(10, 100)), 1..2);
    }
}
