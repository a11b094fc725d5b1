//! Claims: the search for the next rows, the update that claims them, and the check whether there are
//! any. `rules` decides how a row is treated.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::client::{Client, Statement};
use super::front::Position;
use super::row;
use super::settle::{is_row, now_ms};
use crate::rules::{BYTES_OUT_MAX, ROWS_PER_TURN_MAX};
use crate::server::rare_rows::Searched;
use crate::table::{Buried, ClaimRequest, Claimed, PeekResult, Stop};
use ganger_core::names::PAUSED_QUEUE;
use ganger_queue::attempts::Limits;

/// State of a queue: milliseconds until the next delayed row falls due, highest `lapses` of a ready
/// suspect, and whether any other row is ready. Searched by the indexes, without a lock.
macro_rules! peek {
    ($others:expr) => {
        concat!(
            "
SELECT
  (SELECT available_after FROM consumer_messages
   WHERE queue = $1 AND owner IS NULL AND available_after > 0 AND id <> ALL($2::bigint[])
   ORDER BY available_after LIMIT 1) - ",
            now_ms!(),
            ",
  (SELECT lapses FROM consumer_messages
   WHERE queue = $1 AND suspicion > 0 AND owner IS NULL AND available_after = 0
     AND id <> ALL($2::bigint[])
   ORDER BY suspicion DESC LIMIT 1),
  ",
            $others
        )
    };
}

/// Selects columns of the first ready rows, in the order of claims, except for some. The order begins
/// with the queue, which only the index made for claims provides. Otherwise, for rows behind an id, the
/// server would use the index of ids if its statistics say that the table is nearly empty, and read the
/// rows of all queues.
macro_rules! in_order {
    ($columns:literal, $filter:literal, $but:literal, $most:literal) => {
        concat!(
            "SELECT ",
            $columns,
            "
   FROM consumer_messages
   WHERE queue = ANY(ARRAY[$1::text]) AND ",
            $filter,
            " AND owner IS NULL AND available_after = 0
     AND id <> ALL(",
            $but,
            "::bigint[])
   ORDER BY queue, suspicion, priority DESC, id LIMIT ",
            $most
        )
    };
}

/// Condition that such a row is ready and not a suspect.
macro_rules! exists {
    ($filter:literal) => {
        concat!(
            "EXISTS (SELECT FROM consumer_messages
   WHERE queue = $1 AND suspicion = 0",
            $filter,
            " AND owner IS NULL AND available_after = 0
     AND id <> ALL($2::bigint[]))"
        )
    };
}

const PEEK: &str = peek!(exists!(""));

/// The same beyond a position: before it, only for a higher priority.
const PEEK_BEYOND: &str = peek!(concat!(
    exists!(" AND priority > $3"),
    " OR (",
    in_order!(
        "1",
        "suspicion = 0 AND priority = $3 AND id > $4",
        "$2",
        "1"
    ),
    ") IS NOT NULL OR ",
    exists!(" AND priority < $3")
));

/// Moves due rows to the ready ones, which are ordered by priority. So delayed rows, however many, cost
/// a claim nothing until they are due.
const DUE: &str = concat!(
    "
UPDATE consumer_messages SET available_after = 0
WHERE id = ANY(ARRAY(
  SELECT id FROM consumer_messages
  WHERE queue = $1 AND owner IS NULL AND available_after > 0 AND available_after <= ",
    now_ms!(),
    "
    AND id <> ALL($2::bigint[])
  ORDER BY available_after LIMIT $3 FOR UPDATE SKIP LOCKED))"
);

/// Locks the row of this source among the owners. A session that removes the row waits until this transaction
/// has ended, unless it has removed the row before.
const OWNER_ROW: &str = "SELECT FROM owners WHERE id = $1 FOR KEY SHARE";

/// Locks ready rows in the order of claims. Rows that others are claiming are skipped.
macro_rules! locked {
    ($filter:literal) => {
        concat!(
            in_order!(
                "id, suspicion, priority,
     coalesce(octet_length(body), octet_length(body_bytes)) + octet_length(headers::text) AS bytes",
                $filter,
                "$8",
                "$4"
            ),
            " FOR UPDATE SKIP LOCKED"
        )
    };
}

/// Claims the next rows, up to a number and a size, and if wanted the first one whatever its size.
/// Tokens are numbered in the order of the rows. A key that is held only while its row waits is released
/// for good.
macro_rules! claim {
    ($locked:expr) => {
        concat!(
            "
WITH locked AS MATERIALIZED (",
            $locked,
            "),
next AS (
  SELECT id, row_number() OVER places AS place, sum(bytes) OVER places AS upto, count(*) OVER () AS seen
  FROM locked WINDOW places AS (ORDER BY suspicion, priority DESC, id))
UPDATE consumer_messages m SET
  owner = $5, claim = $6::bigint + next.place,
  attempts = least(greatest(m.attempts, 0), 4294967294) + 1,
  unique_released = CASE WHEN m.unique_key IS NOT NULL AND coalesce(m.unique_scope, 'waiting') = 'waiting'
    THEN 1 ELSE m.unique_released END
FROM next WHERE m.id ",
            is_row!("next.id"),
            " AND (next.upto <= $7::bigint OR $9::boolean AND next.place = 1)
RETURNING m.id, m.claim, m.attempts, m.crashes, m.lapses, m.requeues, m.suspect, m.priority,
  m.created_at, m.correlation_id, m.reply_to, m.message_id, m.content_type, m.key, m.headers::text,
  m.body, m.body_bytes, m.span, next.seen"
        )
    };
}

const CLAIM: &str = claim!(locked!("suspicion BETWEEN $2 AND $3"));

/// The same beyond a position: before it, only rows of a higher priority.
const CLAIM_BEYOND: &str = claim!(concat!(
    "
  SELECT * FROM (
    SELECT * FROM (",
    locked!("suspicion = 0 AND priority > $2"),
    ") AS urgent
    UNION ALL SELECT * FROM (",
    locked!("suspicion = 0 AND priority = $2 AND id > $3"),
    ") AS others
    UNION ALL SELECT * FROM (",
    locked!("suspicion = 0 AND priority < $2"),
    ") AS patient) AS next LIMIT $4"
));

/// The statements, prepared on a connection.
#[derive(Debug)]
pub(crate) struct ClaimStatements {
    peek: Statement,
    peek_beyond: Statement,
    due: Statement,
    owner_row: Statement,
    claim: Statement,
    claim_beyond: Statement,
}

impl ClaimStatements {
    pub(crate) async fn prepare(client: &Client) -> Result<Self, Error> {
        let (peek, peek_beyond, due, owner_row, claim, claim_beyond) = tokio::try_join!(
            client.prepare(PEEK),
            client.prepare(PEEK_BEYOND),
            client.prepare(DUE),
            client.prepare(OWNER_ROW),
            client.prepare(CLAIM),
            client.prepare(CLAIM_BEYOND),
        )?;
        Ok(Self {
            peek,
            peek_beyond,
            due,
            owner_row,
            claim,
            claim_beyond,
        })
    }
}

/// The owner and queue of a claim, and the rows that it skips.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claimer<'a> {
    pub(crate) owner: i64,
    pub(crate) queue: &'a Arc<str>,
    /// Rows that the database refuses to have changed.
    pub(crate) rejected: &'a [i64],
    /// Position beyond which rows are claimed; none for all rows.
    pub(crate) beyond: Option<Position>,
}

/// Claimed rows in a transaction that is still open.
#[derive(Debug, Default)]
pub(crate) struct Picked {
    pub(crate) claimed: Vec<Claimed>,
    /// Rows that are claimed, too, but dead-lettered instead of handed out.
    pub(crate) buried: Vec<(crate::table::Claim, Buried)>,
    pub(crate) stop: Option<Stop>,
    /// Position of the last claimed row that is not a suspect.
    pub(crate) last: Option<Position>,
}

/// Checks whether the queue has ready or due rows. With `beyond`, ready rows before that position are
/// found only if they have a higher priority.
pub(crate) async fn peek(
    client: &Client,
    looks: &ClaimStatements,
    queue: &str,
    limits: Limits,
    rejected: &[i64],
    beyond: Option<Position>,
) -> Result<PeekResult, Error> {
    let row = match &beyond {
        None => {
            let values: [&(dyn ToSql + Sync); 2] = [&queue, &rejected];
            client.query_one(&looks.peek, &values).await?
        }
        Some(Position { priority, id }) => {
            let values: [&(dyn ToSql + Sync); 4] = [&queue, &rejected, priority, id];
            client.query_one(&looks.peek_beyond, &values).await?
        }
    };
    let due_in: Option<i64> = row.try_get(0)?;
    let worst: Option<i64> = row.try_get(1)?;
    let due_in = due_in.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
    let spent = worst.is_some_and(|lapses| row::count(lapses) >= limits.lapses_max);
    Ok(PeekResult {
        ready: spent || due_in == Some(Duration::ZERO) || row.try_get(2)?,
        suspects_wait: worst.is_some(),
        due_in,
    })
}

/// Returns whether the queue is paused for all daemons.
pub(crate) async fn is_paused(client: &Client, queue: &str) -> Result<bool, Error> {
    let paused = client.query_one(PAUSED, &[&PAUSED_QUEUE, &queue]).await?;
    paused.try_get(0)
}

const PAUSED: &str = "
SELECT EXISTS (SELECT FROM consumer_messages
  WHERE queue = $1 AND owner IS NULL AND available_after = 0 AND key = $2)";

/// Makes due rows ready and claims rows, in the open transaction. None if this source is not among the
/// owners.
pub(crate) async fn claim(
    client: &Client,
    looks: &ClaimStatements,
    who: Claimer<'_>,
    ask: &ClaimRequest<'_>,
    searched: Searched,
) -> Result<Option<Picked>, Error> {
    let (queue, rejected) = (&who.queue.as_ref(), &who.rejected);
    let turn = i64::from(ROWS_PER_TURN_MAX);
    let spent = i64::from(ask.limits.lapses_max.saturating_sub(1).max(1));
    let rows = i64::try_from(ask.rows).unwrap_or(turn).min(turn);
    // Suspects are taken even if there is no room for them.
    let suspicious = |from, to, rows| RowRequest {
        filter: RowFilter::Suspicion(from, to),
        rows,
        bytes: i64::try_from(BYTES_OUT_MAX).unwrap_or(i64::MAX),
        one_in_any_case: true,
    };
    let all_spent = i64::from(searched.suspects) * turn;
    let suspects = i64::from(searched.suspects && ask.suspect);
    let next = RowRequest {
        filter: who
            .beyond
            .map_or(RowFilter::Suspicion(0, 0), RowFilter::Beyond),
        rows,
        bytes: i64::try_from(ask.share.room()).unwrap_or(i64::MAX),
        one_in_any_case: ask.share.used() == 0,
    };
    let owner_row: [&(dyn ToSql + Sync); 1] = [&who.owner];
    let due: [&(dyn ToSql + Sync); 3] = [queue, rejected, &turn];
    let make_due_ready = async {
        match searched.due {
            true => client.execute(&looks.due, &due).await,
            false => Ok(0),
        }
    };
    let (owner_row, due, spent, suspects, next) = tokio::join!(
        biased;
        client.query(&looks.owner_row, &owner_row),
        make_due_ready,
        mark(client, looks, who, suspicious(spent, i64::MAX, all_spent)),
        mark(client, looks, who, suspicious(1, spent - 1, suspects)),
        mark(client, looks, who, next),
    );
    let (owner_row, due, next) = (owner_row?, due?, (spent?, suspects?, next?));
    if owner_row.is_empty() {
        return Ok(None);
    }
    let (spent, suspects, next) = next;
    let mut picked = Picked::default();
    for row in spent.iter().chain(&suspects).chain(&next) {
        picked.take(row, who, ask)?;
    }
    let stop = match full(&next, rows)? {
        Stop::Empty if due >= u64::from(ROWS_PER_TURN_MAX) => Stop::Long,
        stop => stop,
    };
    picked.stop = Some(stop);
    picked.last = next.last().map(Position::of).transpose()?;
    Ok(Some(picked))
}

/// Returns the reason that no more rows were claimed.
fn full(next: &[Row], wanted: i64) -> Result<Stop, Error> {
    let Some(first) = next.first() else {
        return Ok(Stop::Empty);
    };
    let seen: i64 = first.try_get("seen")?;
    let all = i64::try_from(next.len()).unwrap_or(i64::MAX);
    Ok(if seen >= wanted || all < seen {
        Stop::Full
    } else {
        Stop::Empty
    })
}

/// Selection of rows.
#[derive(Debug, Clone, Copy)]
enum RowFilter {
    /// Range of `suspicion`, with both bounds.
    Suspicion(i64, i64),
    /// Rows that are not suspects, beyond a position.
    Beyond(Position),
}

/// Selection of rows, with limits of their number and size.
#[derive(Debug, Clone, Copy)]
struct RowRequest {
    filter: RowFilter,
    rows: i64,
    bytes: i64,
    one_in_any_case: bool,
}

/// Claims rows and charges the attempt. Returns them in their order.
async fn mark(
    client: &Client,
    looks: &ClaimStatements,
    who: Claimer<'_>,
    wanted: RowRequest,
) -> Result<Vec<Row>, Error> {
    let RowRequest {
        filter,
        rows,
        bytes,
        one_in_any_case,
    } = wanted;
    let (statement, from, to): (_, &(dyn ToSql + Sync), &(dyn ToSql + Sync)) = match &filter {
        RowFilter::Suspicion(from, to) if from > to => return Ok(Vec::new()),
        RowFilter::Suspicion(from, to) => (&looks.claim, from, to),
        RowFilter::Beyond(Position { priority, id }) => (&looks.claim_beyond, priority, id),
    };
    if rows <= 0 {
        return Ok(Vec::new());
    }
    // Random, so that no two claims of a row have the same token, whoever made them.
    let tokens = fastrand::i64(1..i64::MAX - i64::from(ROWS_PER_TURN_MAX));
    let queue = who.queue.as_ref();
    let values: [&(dyn ToSql + Sync); 9] = [
        &queue,
        from,
        to,
        &rows,
        &who.owner,
        &tokens,
        &bytes,
        &who.rejected,
        &one_in_any_case,
    ];
    let mut marked = client.query(statement, &values).await?;
    let token = |row: &Row| row.try_get::<_, i64>("claim").unwrap_or(0);
    marked.sort_unstable_by_key(token);
    Ok(marked)
}

impl Picked {
    /// Adds a row, to be handed out or dead-lettered.
    fn take(&mut self, row: &Row, who: Claimer<'_>, ask: &ClaimRequest<'_>) -> Result<(), Error> {
        let hold = ask.share.hold(row::size(row)?);
        match row::read(row, hold, who.queue, ask.limits)? {
            Ok(claimed) => self.claimed.push(claimed),
            Err(failure) => {
                let buried = Buried {
                    row: row.try_get("id")?,
                    correlation_id: row::text(row, "correlation_id")?.unwrap_or_default(),
                    failure,
                };
                self.buried.push((row::claim(row)?, buried));
            }
        }
        Ok(())
    }
}
