//! Claims of rows: the choice of the next ones, and the marks of the claim. Thresholds for crashes and
//! lapses are applied by `attempts`.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::clock::WallClock;
use super::rejected::{RowError, with};
use super::row::RowHeaders;
use super::{row, settle, unique};
use crate::rejected_rows::RejectedRows;
use crate::rules::ROWS_PER_TURN_MAX;
use crate::table::{Buried, Claim, ClaimRequest, Claimed, PeekResult, Stop, WriteResult};
use ganger_core::budget::Hold;
use ganger_core::names::PAUSED_QUEUE;
use ganger_queue::attempts;
use ganger_queue::attempts::LAPSES_SUSPECT;
use ganger_queue::attempts::Limits;
use ganger_queue::dead_letter::Counters;
use ganger_queue::delivery::{Failure, History, Message, Property, Reason};

/// Owner and pool for which rows are claimed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claimer<'a> {
    pub(crate) owner: i64,
    pub(crate) pool: &'a str,
    pub(crate) queue: &'a Arc<str>,
    pub(crate) clock: &'a WallClock,
    /// Rows that the database refuses to change.
    pub(crate) rejected: &'a RejectedRows,
}

/// Looks for a row that is ready or due, without a lock that others would notice.
pub(crate) fn peek(
    conn: &Connection,
    queue: &str,
    limits: Limits,
    clock: &WallClock,
    rejected: &RejectedRows,
) -> rusqlite::Result<PeekResult> {
    let due_in = due_in(conn, queue, 0, clock)?;
    let worst = worst_suspect(conn, queue, rejected)?;
    let spent = worst.is_some_and(|lapses| lapses >= limits.lapses_max);
    Ok(PeekResult {
        ready: spent || due_in == Some(Duration::ZERO) || any_ready(conn, queue)?,
        suspects_wait: worst.is_some(),
        due_in,
    })
}

fn any_ready(conn: &Connection, queue: &str) -> rusqlite::Result<bool> {
    let ready = "SELECT 1 FROM consumer_messages INDEXED BY consumer_messages_ready \
                 WHERE queue = ?1 AND suspicion = 0 \
                   AND owner IS NULL AND available_after = 0 LIMIT 1";
    conn.prepare_cached(ready)?.exists([queue])
}

/// Returns whether the queue is paused for all daemons.
pub(crate) fn is_paused(conn: &Connection, queue: &str) -> rusqlite::Result<bool> {
    let paused = "SELECT 1 FROM consumer_messages INDEXED BY consumer_messages_ready \
                  WHERE queue = ?1 AND owner IS NULL AND available_after = 0 AND key = ?2";
    conn.prepare_cached(paused)?
        .exists(params![PAUSED_QUEUE, queue])
}

/// Returns the highest number of lapses of the queue's suspects that are ready, if there are any. One
/// that is passed over does not count: it would keep the turn, and could not use it.
fn worst_suspect(
    conn: &Connection,
    queue: &str,
    rejected: &RejectedRows,
) -> rusqlite::Result<Option<u32>> {
    let worst = "SELECT id, lapses FROM consumer_messages INDEXED BY consumer_messages_ready \
                 WHERE queue = ?1 AND suspicion > 0 AND owner IS NULL AND available_after = 0 \
                 ORDER BY suspicion DESC";
    let mut statement = conn.prepare_cached(worst)?;
    let mut rows = statement.query([queue])?;
    while let Some(row) = rows.next()? {
        if !rejected.has(row.get(0)?) {
            return Ok(Some(row::count(row.get(1)?)));
        }
    }
    Ok(None)
}

/// Returns the time until the next row falls due, of those that are delayed until later than `after_ms`.
fn due_in(
    conn: &Connection,
    queue: &str,
    after_ms: i64,
    clock: &WallClock,
) -> rusqlite::Result<Option<Duration>> {
    let next = "SELECT available_after FROM consumer_messages INDEXED BY consumer_messages_delayed \
                WHERE queue = ?1 AND owner IS NULL AND available_after > 0 \
                  AND available_after > ?2 ORDER BY available_after LIMIT 1";
    let mut statement = conn.prepare_cached(next)?;
    let next = statement.query_row(params![queue, after_ms], |row| row.get(0));
    let at_ms: Option<i64> = next.optional()?;
    Ok(at_ms.map(|at_ms| clock.until(at_ms)))
}

/// Claims the rows asked for, in the caller's transaction.
pub(crate) fn claim(
    tx: &Connection,
    who: Claimer<'_>,
    ask: &ClaimRequest<'_>,
) -> Result<WriteResult, RowError> {
    let now_ms = who.clock.now_ms();
    let all_due = make_due_ready(tx, who, now_ms)?;
    let mut picked = Picked::default();
    pick_the_spent(tx, who, ask, &mut picked)?;
    if ask.suspect {
        pick_suspect(tx, who, ask, &mut picked)?;
    }
    let stop = match pick(tx, who, ask, &mut picked)? {
        Stop::Empty if !all_due => Stop::Long,
        stop => stop,
    };
    mark(tx, who.owner, &picked.claimed)?;
    unique::release(tx, &picked.released)?;
    for Buried { row, failure, .. } in &picked.buried {
        settle::bury_unclaimed(tx, who.pool, *row, failure, now_ms).map_err(with(*row))?;
    }
    Ok(WriteResult {
        claimed: picked.claimed,
        buried: picked.buried,
        stop: Some(stop),
        suspects_wait: worst_suspect(tx, who.queue, who.rejected)?.is_some(),
        due_in: due_in(tx, who.queue, now_ms, who.clock)?,
        ..WriteResult::default()
    })
}

/// Makes due rows ready, where priority counts. So delayed rows cost a claim nothing until they are due,
/// even a hundred thousand of them. Returns whether these were all that are due.
fn make_due_ready(tx: &Connection, who: Claimer<'_>, now_ms: i64) -> Result<bool, RowError> {
    let due = "SELECT id FROM consumer_messages INDEXED BY consumer_messages_delayed \
               WHERE queue = ?1 AND owner IS NULL \
                 AND available_after > 0 AND available_after <= ?2 \
               ORDER BY available_after LIMIT ?3";
    let mut due = tx.prepare_cached(due)?;
    let due = due.query_map(params![who.queue, now_ms, ROWS_PER_TURN_MAX], |row| {
        row.get(0)
    })?;
    let due: Vec<i64> = due.collect::<rusqlite::Result<_>>()?;
    let ready = "UPDATE consumer_messages SET available_after = 0 WHERE id = ?1";
    let mut ready = tx.prepare_cached(ready)?;
    for id in due.iter().filter(|id| !who.rejected.has(**id)) {
        ready.execute([id]).map_err(with(*id))?;
    }
    Ok(due.len() < ROWS_PER_TURN_MAX as usize)
}

#[derive(Debug, Default)]
struct Picked {
    claimed: Vec<Claimed>,
    buried: Vec<Buried>,
    /// Claimed rows that held a unique key only until their first claim.
    released: Vec<i64>,
    tokens: Tokens,
}

impl Picked {
    /// Adds a row, to be handed out or to be dead-lettered.
    fn take(
        &mut self,
        row: &Row<'_>,
        hold: Hold,
        who: Claimer<'_>,
        ask: &ClaimRequest<'_>,
    ) -> rusqlite::Result<()> {
        if who.rejected.has(row.get(0)?) {
            return Ok(());
        }
        let (counters, lapses) = counts(row)?;
        let readable = match attempts::dead(counters.crashes, lapses, ask.limits) {
            Some(failure) => Err(failure),
            None => read(row, hold, who, (counters, lapses), &mut self.tokens)?,
        };
        match readable {
            Ok(claimed) => {
                if row.get(15)? {
                    self.released.push(claimed.claim.row);
                }
                self.claimed.push(claimed);
            }
            Err(failure) => self.buried.push(Buried {
                row: row.get(0)?,
                correlation_id: row::text(row.get_ref(8)?).unwrap_or_default(),
                failure,
            }),
        }
        Ok(())
    }
}

/// Columns of a row to claim, and the condition for the queue's rows that are ready.
const READY: &str = "
SELECT id, attempts, crashes, lapses, requeues, suspect, priority, created_at,
       correlation_id, reply_to, message_id, content_type, key, headers, body,
       unique_hold IS NOT NULL AND coalesce(unique_scope, 'waiting') = 'waiting'
FROM consumer_messages INDEXED BY consumer_messages_ready
WHERE queue = ?1 AND owner IS NULL AND available_after = 0";

fn spent() -> String {
    format!("{READY} AND suspicion >= ?2 LIMIT ?3")
}

fn suspects() -> String {
    format!(
        "{READY} AND suspicion > 0 AND suspicion < ?2 \
         ORDER BY suspicion, priority DESC, id LIMIT ?3"
    )
}

fn next() -> String {
    format!("{READY} AND suspicion = 0 ORDER BY priority DESC, id LIMIT ?2")
}

/// Picks rows that have reached the maximum number of lapses, which need not wait for the turn: they are
/// dead-lettered.
fn pick_the_spent(
    tx: &Connection,
    who: Claimer<'_>,
    ask: &ClaimRequest<'_>,
    picked: &mut Picked,
) -> rusqlite::Result<()> {
    let mut statement = tx.prepare_cached(&spent())?;
    let suspicion = ask.limits.lapses_max.saturating_sub(1).max(1);
    let mut rows = statement.query(params![who.queue, suspicion, ROWS_PER_TURN_MAX])?;
    while let Some(row) = rows.next()? {
        picked.take(row, ask.share.hold(size(row)?), who, ask)?;
    }
    Ok(())
}

/// Returns the bytes of a row that count against the memory budget.
fn size(row: &Row<'_>) -> rusqlite::Result<usize> {
    Ok(row::size(row.get_ref(13)?) + row::size(row.get_ref(14)?))
}

/// Picks the next suspect: one of those with the fewest lapses, so that harmless messages are done before
/// the cause of the crashes comes again.
fn pick_suspect(
    tx: &Connection,
    who: Claimer<'_>,
    ask: &ClaimRequest<'_>,
    picked: &mut Picked,
) -> rusqlite::Result<()> {
    let mut statement = tx.prepare_cached(&suspects())?;
    let suspicion = ask.limits.lapses_max.saturating_sub(1).max(1);
    let mut rows = statement.query(params![who.queue, suspicion, ROWS_PER_TURN_MAX])?;
    while picked.claimed.is_empty()
        && let Some(row) = rows.next()?
    {
        picked.take(row, ask.share.hold(size(row)?), who, ask)?;
    }
    Ok(())
}

/// Picks the next rows that are not suspects, up to the limits.
fn pick(
    tx: &Connection,
    who: Claimer<'_>,
    ask: &ClaimRequest<'_>,
    picked: &mut Picked,
) -> rusqlite::Result<Stop> {
    let mut statement = tx.prepare_cached(&next())?;
    let mut rows = statement.query(params![who.queue, ROWS_PER_TURN_MAX])?;
    let mut seen = 0_u32;
    while let Some(row) = rows.next()? {
        seen += 1;
        if picked.claimed.len() >= ask.rows {
            return Ok(Stop::Full);
        }
        let Some(hold) = ask.share.take(size(row)?) else {
            return Ok(Stop::Full);
        };
        picked.take(row, hold, who, ask)?;
    }
    Ok(if seen >= ROWS_PER_TURN_MAX {
        Stop::Long
    } else {
        Stop::Empty
    })
}

/// Returns a row's counters, and its lapses: the number of owners in a row that vanished over it.
fn counts(row: &Row<'_>) -> rusqlite::Result<(Counters, u32)> {
    let counters = Counters {
        attempts: row::count(row.get(1)?),
        crashes: row::count(row.get(2)?),
        requeues: row::count(row.get(4)?),
        first_failed_ms: None,
        span: None,
    };
    Ok((counters, row::count(row.get(3)?)))
}

/// Converts a row into a delivery, or into the failure that prevents it.
fn read(
    row: &Row<'_>,
    hold: Hold,
    who: Claimer<'_>,
    (counters, lapses): (Counters, u32),
    tokens: &mut Tokens,
) -> rusqlite::Result<Result<Claimed, Failure>> {
    let RowHeaders {
        headers,
        span,
        step,
        attempts_max,
        occurrence,
    } = match row::headers(row.get_ref(13)?) {
        Ok(headers) => headers,
        Err(error) => return Ok(Err(undeliverable(error))),
    };
    let id = row.get(0)?;
    let suspect = lapses >= LAPSES_SUSPECT;
    let counters = Counters { span, ..counters };
    let history = History {
        step,
        attempts_max,
        ..attempts::history(counters, suspect || row.get::<_, i64>(5)? != 0)
    };
    let claimed = Claimed {
        claim: Claim {
            row: id,
            token: tokens.next(),
        },
        suspect,
        hold,
        message: Message {
            queue: Arc::clone(who.queue),
            body: row::body_bytes(row.get_ref(14)?),
            headers,
            correlation_id: row::text(row.get_ref(8)?).unwrap_or_default(),
            reply_to: row::text(row.get_ref(9)?),
            properties: properties(row, id, history.attempt)?,
            occurrence: None,
        },
        history,
        occurrence,
    };
    Ok(Ok(claimed))
}

fn undeliverable(error: String) -> Failure {
    Failure::new(Reason::Undeliverable, error)
}

/// Returns the properties that workers of protocol version 2 get beside the message.
fn properties(
    row: &Row<'_>,
    id: i64,
    attempt: u32,
) -> rusqlite::Result<Vec<(&'static str, Property)>> {
    let mut properties = vec![
        ("row_id", Property::Integer(id)),
        ("priority", Property::Integer(row.get(6)?)),
        ("timestamp", Property::Integer(row.get(7)?)),
        ("redelivered", Property::Boolean(attempt > 1)),
    ];
    for (name, column) in [("message_id", 10), ("content_type", 11), ("key", 12)] {
        if let Some(text) = row::text(row.get_ref(column)?) {
            properties.push((name, Property::Text(text)));
        }
    }
    Ok(properties)
}

/// Marks the rows as claimed and charges the attempt. `claim_alone` would say that this daemon has
/// claimed nothing else, which is never so.
fn mark(tx: &Connection, owner: i64, claimed: &[Claimed]) -> Result<(), RowError> {
    let mut statement = tx.prepare_cached(
        "UPDATE consumer_messages SET owner = ?2, claim = ?3, claim_alone = 0, \
           attempts = min(max(attempts, 0), 4294967294) + 1 WHERE id = ?1",
    )?;
    for Claimed { claim, .. } in claimed {
        let marked = statement.execute(params![claim.row, owner, claim.token]);
        marked.map_err(with(claim.row))?;
    }
    Ok(())
}

/// Generator of claim tokens. They are random, so that no two claims of a row share one, whichever daemon
/// made them.
#[derive(Debug)]
struct Tokens(fastrand::Rng);

impl Default for Tokens {
    fn default() -> Self {
        Self(fastrand::Rng::new())
    }
}

impl Tokens {
    fn next(&mut self) -> i64 {
        self.0.i64(1..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each look is a single index search, whatever the number of rows, and nothing is sorted.
    #[test]
    fn the_rows_that_are_next_are_found_by_the_index_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let conn = crate::sqlite::open_for_tests(&dir.path().join("q.db"));
        for (sql, sought) in [
            (spent(), "queue=? AND suspicion>?"),
            (suspects(), "queue=? AND suspicion>? AND suspicion<?"),
            (next(), "queue=? AND suspicion=?"),
        ] {
            let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            plan.raw_bind_parameter(1, "q").unwrap();
            let mut rows = plan.raw_query();
            let mut details = Vec::new();
            while let Some(row) = rows.next().unwrap() {
                details.push(row.get::<_, String>(3).unwrap());
            }
            let by = "SEARCH consumer_messages USING INDEX consumer_messages_ready";
            assert_eq!(details, [format!("{by} ({sought})")], "{sql}");
        }
    }
}
