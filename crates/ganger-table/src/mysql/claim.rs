//! Claims: the search for the next rows, the update that claims them, and the check whether there are
//! any. `rules` decides how a row is treated.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::client::{Answer, Client};
use super::error::CallError;
use super::row::{self, Row};
use super::value::{Script, Value, now_ms};
use crate::rules::{BYTES_OUT_MAX, ROWS_PER_TURN_MAX};
use crate::table::{Buried, Claim, ClaimRequest, Claimed, PeekResult, Stop};
use ganger_core::names::PAUSED_QUEUE;
use ganger_queue::attempts::Limits;

/// The rows of a queue that are not claimed, by the index for claims.
macro_rules! waits {
    ($column:expr) => {
        concat!(
            "SELECT ",
            $column,
            " FROM consumer_messages FORCE INDEX (consumer_messages_ready)
   WHERE queue = ? AND owner IS NULL"
        )
    };
}

pub(super) use waits;

/// State of a queue: milliseconds until the next delayed row falls due, highest `lapses` of a ready
/// suspect, and whether any other row is ready. Searched by the index, without a lock.
const PEEK: &str = concat!(
    "
SELECT
  (",
    waits!("available_after"),
    " AND available_after > 0 AND id NOT IN ?
   ORDER BY available_after LIMIT 1) - ",
    now_ms!(),
    ",
  (",
    waits!("lapses"),
    " AND available_after = 0 AND suspicion > 0 AND id NOT IN ?
   ORDER BY suspicion DESC LIMIT 1),
  EXISTS (",
    waits!("1"),
    " AND available_after = 0 AND suspicion = 0 AND id NOT IN ?)"
);

/// Due rows, to be moved to the ready ones, which are ordered by priority. So delayed rows, however
/// many, cost a claim nothing until they are due.
const DUE: &str = concat!(
    waits!("id"),
    " AND available_after > 0 AND available_after <= ",
    now_ms!(),
    " AND id NOT IN ?
ORDER BY available_after LIMIT ? FOR UPDATE SKIP LOCKED"
);

const MAKE_READY: &str = "
UPDATE consumer_messages FORCE INDEX (PRIMARY) SET available_after = 0 WHERE id IN ?";

/// The row of this source among the owners. Claims without one are released by others.
const OWNER_ROW: &str = "SELECT id FROM owners WHERE id = ?";

/// The next rows, with all columns but the body. Rows that others are claiming are skipped, and so are
/// rows whose unique key is locked, perhaps by a sender who was refused because of it: the claim would
/// have to release the key, and wait until that transaction ends.
///
/// The range with two equal bounds keeps the order of the index. With `=` MariaDB would sort all waiting
/// rows, and lock them.
const NEXT: &str = "
SELECT m.id, LENGTH(m.body) + LENGTH(m.headers) AS bytes, m.attempts, m.crashes, m.lapses, m.requeues,
  m.suspect, m.priority, m.created_at, m.correlation_id, m.reply_to, m.message_id, m.content_type, m.`key`,
  m.headers, m.span
FROM consumer_messages m FORCE INDEX (consumer_messages_ready)
  LEFT JOIN consumer_messages k FORCE INDEX (consumer_messages_unique)
  ON k.queue = m.queue AND k.unique_hold = m.unique_hold
WHERE m.queue = ? AND m.owner IS NULL AND m.available_after = 0
  AND m.suspicion >= ? AND m.suspicion <= ? AND m.id NOT IN ?
  AND (m.unique_hold IS NULL OR k.id IS NOT NULL)
ORDER BY m.suspicion, m.turn, m.id LIMIT ? FOR UPDATE SKIP LOCKED";

/// Claims rows and charges the attempt. A key that is held only while its row waits is released for
/// good.
const MARK: &str = "
UPDATE consumer_messages FORCE INDEX (PRIMARY) SET
  owner = ?, claim = (id ^ ?) & 9223372036854775807,
  attempts = LEAST(GREATEST(attempts, 0), 4294967294) + 1,
  unique_released = CASE WHEN unique_key IS NOT NULL AND COALESCE(unique_scope, 'waiting') = 'waiting'
    THEN 1 ELSE unique_released END
WHERE id IN ?";

const BODIES: &str = "
SELECT id, body FROM consumer_messages FORCE INDEX (PRIMARY) WHERE id IN ?";

/// The owner and queue of a claim, and the rows that it skips.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claimer<'a> {
    pub(super) owner: i64,
    pub(super) queue: &'a Arc<str>,
    /// Rows that the database refuses to have changed.
    pub(super) rejected: &'a [i64],
}

/// Positions of a claim's answers.
#[derive(Debug)]
pub(super) struct ClaimQueries {
    owner_row: usize,
    /// Suspects to be dead-lettered.
    spent: Option<usize>,
    suspects: Option<usize>,
    next: usize,
}

/// Rows that are locked for a claim.
#[derive(Debug)]
pub(super) struct Picked {
    rows: Vec<Row>,
    pub(super) stop: Stop,
}

/// Claimed rows in a transaction that is still open.
#[derive(Debug, Default)]
pub(super) struct Marked {
    pub(super) claimed: Vec<Claimed>,
    /// Rows that are claimed, too, but dead-lettered instead of handed out.
    pub(super) buried: Vec<(Claim, Buried)>,
}

/// Adds a check whether the queue has ready or due rows. Returns the position of its answer.
pub(super) fn peek(script: &mut Script, queue: &str, rejected: &[i64]) -> usize {
    let (queue, over) = (Value::from(queue), Value::from(rejected));
    let values = [queue, over, queue, over, queue, over];
    script.add(PEEK, &values)
}

/// Returns the result of that check.
pub(super) fn outlook(answer: &Answer, limits: Limits) -> Result<PeekResult, CallError> {
    let row = one(answer)?;
    let due_in: Option<i64> = row.get(0)?;
    let worst: Option<i64> = row.get(1)?;
    let due_in = due_in.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
    let spent = worst.is_some_and(|lapses| row::count(lapses) >= limits.lapses_max);
    Ok(PeekResult {
        ready: spent || due_in == Some(Duration::ZERO) || row.get::<i64>(2)? != 0,
        suspects_wait: worst.is_some(),
        due_in,
    })
}

fn one(answer: &Answer) -> Result<&Row, CallError> {
    let row = answer.rows.first();
    row.ok_or_else(|| CallError::Unexpected("no row".to_owned()))
}

/// Returns whether the queue is paused for all daemons.
pub(crate) async fn is_paused(client: &mut Client, queue: &str) -> Result<bool, CallError> {
    let values = [PAUSED_QUEUE.into(), queue.into()];
    let count: u64 = client.query_one(PAUSED, &values).await?.get(0)?;
    Ok(count > 0)
}

const PAUSED: &str = "
SELECT COUNT(*) FROM consumer_messages
WHERE queue = ? AND owner IS NULL AND available_after = 0 AND `key` = ?";

/// Adds a search for due rows. Returns the position of its answer.
pub(super) fn due(script: &mut Script, who: Claimer<'_>) -> usize {
    let values = [
        Value::from(who.queue.as_ref()),
        who.rejected.into(),
        ROWS_PER_TURN_MAX.into(),
    ];
    script.add(DUE, &values)
}

/// Moves due rows to the ready ones.
pub(super) fn make_ready(script: &mut Script, due: &[i64]) {
    if !due.is_empty() {
        script.add(MAKE_READY, &[due.into()]);
    }
}

/// Adds a search for the next rows, as many as are asked for, and for suspects if there may be any.
pub(super) fn ask(
    script: &mut Script,
    who: Claimer<'_>,
    ask: &ClaimRequest<'_>,
    suspects_wait: bool,
) -> ClaimQueries {
    let spent = i64::from(ask.limits.lapses_max.saturating_sub(1).max(1));
    let owner_row = script.add(OWNER_ROW, &[who.owner.into()]);
    let mut search = |from: i64, to: i64, rows: i64| {
        let values = [
            Value::from(who.queue.as_ref()),
            from.into(),
            to.into(),
            who.rejected.into(),
            rows.into(),
        ];
        script.add(NEXT, &values)
    };
    let turn = i64::from(ROWS_PER_TURN_MAX);
    ClaimQueries {
        owner_row,
        spent: suspects_wait.then(|| search(spent, i64::MAX, turn)),
        suspects: (suspects_wait && ask.suspect && spent > 1).then(|| search(1, spent - 1, 1)),
        next: search(0, 0, rows(ask)),
    }
}

fn rows(ask: &ClaimRequest<'_>) -> i64 {
    let turn = i64::from(ROWS_PER_TURN_MAX);
    i64::try_from(ask.rows).unwrap_or(turn).min(turn)
}

/// Picks the found rows that fit into memory, or a single larger one if nothing else is held. None if
/// this source is not among the owners.
pub(super) fn pick(
    answers: &mut [Answer],
    asked: &ClaimQueries,
    ask: &ClaimRequest<'_>,
    due: usize,
) -> Result<Option<Picked>, CallError> {
    if answers[asked.owner_row].rows.is_empty() {
        return Ok(None);
    }
    let mut taken =
        |at: Option<usize>| at.map_or_else(Vec::new, |at| std::mem::take(&mut answers[at].rows));
    // Suspects are taken even if there is no room for them.
    let mut picked = fitting(taken(asked.spent), BYTES_OUT_MAX, true)?;
    picked.extend(fitting(taken(asked.suspects), BYTES_OUT_MAX, true)?);
    let next = taken(Some(asked.next));
    let seen = next.len();
    let next = fitting(next, ask.share.room(), ask.share.used() == 0)?;
    let wanted = usize::try_from(rows(ask)).unwrap_or(0);
    let stop = match seen {
        0 if due >= ROWS_PER_TURN_MAX as usize => Stop::Long,
        0 => Stop::Empty,
        _ if seen >= wanted || next.len() < seen => Stop::Full,
        _ if due >= ROWS_PER_TURN_MAX as usize => Stop::Long,
        _ => Stop::Empty,
    };
    picked.extend(next);
    Ok(Some(Picked { rows: picked, stop }))
}

/// Returns the first of the rows, up to `most` bytes together; with `one_in_any_case`, the first one
/// whatever its size.
fn fitting(rows: Vec<Row>, most: usize, one_in_any_case: bool) -> Result<Vec<Row>, CallError> {
    let mut upto = 0_usize;
    let mut fitting = Vec::with_capacity(rows.len());
    for row in rows {
        let bytes: u64 = row.get("bytes")?;
        upto = upto.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
        if upto > most && !(one_in_any_case && fitting.is_empty()) {
            break;
        }
        fitting.push(row);
    }
    Ok(fitting)
}

impl Picked {
    /// Claims the rows, and decides for each whether it is handed out, once its body is read, or
    /// dead-lettered.
    pub(super) fn mark(
        mut self,
        script: &mut Script,
        who: Claimer<'_>,
        ask: &ClaimRequest<'_>,
    ) -> Result<(Marked, Option<usize>), CallError> {
        let mut marked = Marked::default();
        // Random, so that no two claims of a row have the same token, whoever made them.
        let mark = fastrand::i64(1..);
        let mut rows = Vec::with_capacity(self.rows.len());
        for row in &mut self.rows {
            let claim = claim(row.get("id")?, mark);
            rows.push(claim.row);
            let bytes: u64 = row.get("bytes")?;
            let hold = ask.share.hold(usize::try_from(bytes).unwrap_or(usize::MAX));
            match row::read(row, claim, hold, who.queue, ask.limits)? {
                Ok(claimed) => marked.claimed.push(claimed),
                Err(failure) => {
                    let buried = Buried {
                        row: claim.row,
                        correlation_id: row.text("correlation_id")?.unwrap_or_default(),
                        failure,
                    };
                    marked.buried.push((claim, buried));
                }
            }
        }
        if rows.is_empty() {
            return Ok((marked, None));
        }
        script.add(MARK, &[who.owner.into(), mark.into(), Value::from(&rows)]);
        let handed: Vec<i64> = marked.claimed.iter().map(|one| one.claim.row).collect();
        let bodies = (!handed.is_empty()).then(|| script.add(BODIES, &[Value::from(&handed)]));
        Ok((marked, bodies))
    }
}

impl Marked {
    /// Adds the bodies.
    pub(super) fn fill(&mut self, answer: Option<Answer>) -> Result<(), CallError> {
        let mut bodies = HashMap::with_capacity(self.claimed.len());
        for mut row in answer.map_or_else(Vec::new, |answer| answer.rows) {
            bodies.insert(row.get::<i64>(0)?, row.take::<Vec<u8>>(1)?);
        }
        for claimed in &mut self.claimed {
            let body = bodies.remove(&claimed.claim.row);
            let body = body.ok_or_else(|| CallError::Unexpected("no body".to_owned()))?;
            claimed.message.body = body.into();
        }
        Ok(())
    }
}

/// Returns a row's claim, as [`MARK`] computes it.
fn claim(row: i64, mark: i64) -> Claim {
    Claim {
        row,
        token: (row ^ mark) & i64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_claim_have_tokens_of_their_own() {
        let mark = 0x5555_5555_5555_5555;
        let tokens = [1, 2, 3, i64::MAX, -1].map(|row| claim(row, mark).token);
        let distinct: std::collections::HashSet<_> = tokens[..4].iter().collect();
        assert_eq!(distinct.len(), 4);
        assert!(tokens.iter().all(|token| *token >= 0));
    }
}
