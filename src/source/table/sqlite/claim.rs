//! Claiming rows: which are next, and the mark by which they are ours. What becomes of a row is
//! decided in `rules.rs`.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::clock::WallClock;
use super::{row, settle};
use crate::delivery::{Failure, History, Message, Property, Reason};
use crate::source::table::model::{Ask, Claim, Claimed, Outlook, Stop};
use crate::source::table::rules::{Counts, Fate, ROWS_PER_TURN_MAX, fate};

/// For whom rows are claimed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claimer<'a> {
    pub(super) owner: i64,
    pub(super) pool: &'a str,
    pub(super) queue: &'a Arc<str>,
    pub(super) clock: &'a WallClock,
}

/// Whether the queue has a row that is ready or due, without any lock that others would notice.
pub(super) fn peek(conn: &Connection, queue: &str, clock: &WallClock) -> rusqlite::Result<Outlook> {
    let due_in = due_in(conn, queue, clock)?;
    let ready = due_in == Some(Duration::ZERO) || any_ready(conn, queue)?;
    Ok(Outlook { ready, due_in })
}

fn any_ready(conn: &Connection, queue: &str) -> rusqlite::Result<bool> {
    let ready = "SELECT 1 FROM consumer_messages INDEXED BY consumer_messages_ready \
                 WHERE queue = ?1 AND owner IS NULL AND available_after = 0 LIMIT 1";
    conn.prepare_cached(ready)?.exists([queue])
}

/// How long until the next delayed row falls due.
pub(super) fn due_in(
    conn: &Connection,
    queue: &str,
    clock: &WallClock,
) -> rusqlite::Result<Option<Duration>> {
    let next = "SELECT available_after FROM consumer_messages INDEXED BY consumer_messages_delayed \
                WHERE queue = ?1 AND owner IS NULL AND available_after > 0 \
                ORDER BY available_after LIMIT 1";
    let mut statement = conn.prepare_cached(next)?;
    let at_ms: Option<i64> = statement.query_row([queue], |row| row.get(0)).optional()?;
    Ok(at_ms.map(|at_ms| clock.until(at_ms)))
}

/// Claims what is asked for, in the caller's transaction.
pub(super) fn claim(
    tx: &Connection,
    who: Claimer<'_>,
    ask: &Ask,
) -> rusqlite::Result<(Vec<Claimed>, Stop)> {
    make_due_ready(tx, who)?;
    let picked = pick(tx, who, ask)?;
    mark(tx, who.owner, ask.alone, &picked.claimed)?;
    for (id, failure) in &picked.buried {
        tracing::warn!(queue = %who.queue, row = id, error = failure.error, "a message goes to the dead letters without being handed out");
        settle::bury_unclaimed(tx, who.pool, *id, failure, who.clock.now_ms())?;
    }
    Ok((picked.claimed, picked.stop))
}

/// Moves what has fallen due among the ready, where priority counts. Thereby a hundred thousand
/// delayed rows cost a claim nothing until they are due.
fn make_due_ready(tx: &Connection, who: Claimer<'_>) -> rusqlite::Result<()> {
    let due = "UPDATE consumer_messages SET available_after = 0 WHERE id IN (\
                 SELECT id FROM consumer_messages INDEXED BY consumer_messages_delayed \
                 WHERE queue = ?1 AND owner IS NULL \
                   AND available_after > 0 AND available_after <= ?2 \
                 ORDER BY available_after LIMIT ?3)";
    tx.prepare_cached(due)?
        .execute(params![who.queue, who.clock.now_ms(), ROWS_PER_TURN_MAX])?;
    Ok(())
}

#[derive(Debug)]
struct Picked {
    claimed: Vec<Claimed>,
    buried: Vec<(i64, Failure)>,
    stop: Stop,
}

const NEXT: &str = "
SELECT id, attempts, crashes, lapses, requeues, suspect, priority, created_at,
       correlation_id, reply_to, message_id, content_type, key, headers, body
FROM consumer_messages INDEXED BY consumer_messages_ready
WHERE queue = ?1 AND owner IS NULL AND available_after = 0
ORDER BY priority DESC, id LIMIT ?2";

/// Reads the rows that are next, up to what is asked for.
fn pick(tx: &Connection, who: Claimer<'_>, ask: &Ask) -> rusqlite::Result<Picked> {
    let mut statement = tx.prepare_cached(NEXT)?;
    let mut rows = statement.query(params![who.queue, ROWS_PER_TURN_MAX])?;
    let mut picked = Picked {
        claimed: Vec::new(),
        buried: Vec::new(),
        stop: Stop::Empty,
    };
    let mut tokens = Tokens::default();
    let (mut bytes, mut seen) = (0, 0_u32);
    while let Some(row) = rows.next()? {
        seen += 1;
        let size = row::size(row.get_ref(13)?) + row::size(row.get_ref(14)?);
        let first_anyhow = ask.one_anyhow && picked.claimed.is_empty();
        if picked.claimed.len() >= ask.rows || (bytes + size > ask.bytes && !first_anyhow) {
            picked.stop = Stop::Full;
            return Ok(picked);
        }
        match (fate(counts(row)?, ask.limits), ask.alone) {
            (Fate::Bury(failure), _) => picked.buried.push((row.get(0)?, failure)),
            (Fate::Alone, false) => {
                picked.stop = Stop::Alone;
                return Ok(picked);
            }
            (Fate::Share, true) => {
                picked.stop = Stop::Long;
                return Ok(picked);
            }
            (Fate::Share, false) | (Fate::Alone, true) => match read(row, who, ask, &mut tokens)? {
                Ok(claimed) => {
                    bytes += size;
                    picked.claimed.push(claimed);
                }
                Err(failure) => picked.buried.push((row.get(0)?, failure)),
            },
        }
    }
    if seen >= ROWS_PER_TURN_MAX {
        picked.stop = Stop::Long;
    }
    Ok(picked)
}

fn counts(row: &Row<'_>) -> rusqlite::Result<Counts> {
    Ok(Counts {
        attempts: row::count(row.get(1)?),
        crashes: row::count(row.get(2)?),
        lapses: row::count(row.get(3)?),
    })
}

/// A row as a delivery, or why it can't be one.
fn read(
    row: &Row<'_>,
    who: Claimer<'_>,
    ask: &Ask,
    tokens: &mut Tokens,
) -> rusqlite::Result<Result<Claimed, Failure>> {
    let headers = match row::headers(row.get_ref(13)?) {
        Ok(headers) => headers,
        Err(error) => return Ok(Err(undeliverable(error))),
    };
    let id = row.get(0)?;
    let counts = counts(row)?;
    let attempt = counts.attempts.saturating_add(1);
    let body = row::body_bytes(row.get_ref(14)?);
    let claimed = Claimed {
        claim: Claim {
            row: id,
            token: tokens.next(),
        },
        bytes: row::size(row.get_ref(13)?) + body.len(),
        message: Message {
            queue: Arc::clone(who.queue),
            body,
            headers,
            correlation_id: row::text(row.get_ref(8)?).unwrap_or_default(),
            reply_to: row::text(row.get_ref(9)?),
            properties: properties(row, id, attempt)?,
        },
        history: History {
            attempt,
            crashes: counts.crashes,
            requeues: row::count(row.get(4)?),
            alone: ask.alone || counts.crashes > 0 || row.get::<_, i64>(5)? != 0,
        },
    };
    Ok(Ok(claimed))
}

fn undeliverable(error: String) -> Failure {
    Failure::new(Reason::Undeliverable, error)
}

/// What version 2 workers are told beside the message.
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

/// Marks the rows as ours and charges the attempt.
fn mark(tx: &Connection, owner: i64, alone: bool, claimed: &[Claimed]) -> rusqlite::Result<()> {
    let mut statement = tx.prepare_cached(
        "UPDATE consumer_messages \
         SET owner = ?2, claim = ?3, claim_alone = ?4, attempts = max(attempts, 0) + 1 WHERE id = ?1",
    )?;
    for Claimed { claim, .. } in claimed {
        statement.execute(params![claim.row, owner, claim.token, alone])?;
    }
    Ok(())
}

/// Claim tokens: random, so that no two claims of a row have the same, whoever made them.
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
