//! Counts and lists of waiting rows, by the indexes and up to a limit.

use std::collections::BTreeSet;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::client::{Client, Statement};
use super::row;
use super::settle::now_ms;
use crate::table::{PRIORITIES_MAX, WaitingRows, headers, row_name};
use ganger_queue::client::{WAITING_BODY_BYTES, WaitingMessage};
use ganger_queue::dead_letter::rfc_3339;

/// Number of ready and of due rows, and milliseconds since the first due row fell due. No more delayed
/// rows are read than are counted.
const WAITING: &str = concat!(
    "
SELECT
  (SELECT count(*) FROM (SELECT FROM consumer_messages
   WHERE queue = $1 AND owner IS NULL AND available_after = 0 LIMIT $2) AS ready),
  (SELECT count(*) FROM (SELECT FROM consumer_messages
   WHERE queue = $1 AND owner IS NULL AND available_after > 0 AND available_after <= ",
    now_ms!(),
    "
   LIMIT $2) AS due),
  ",
    now_ms!(),
    " - (SELECT available_after FROM consumer_messages
   WHERE queue = $1 AND owner IS NULL AND available_after > 0 ORDER BY available_after LIMIT 1)"
);

/// The first row in the order of claims with a lower priority than the given one, and its age. The
/// result is not named `priority`: `ORDER BY` would then sort by it instead of following the index.
const FIRST: &str = concat!(
    "
SELECT priority::bigint AS urgency, ",
    now_ms!(),
    " - created_at FROM consumer_messages
WHERE queue = ANY(ARRAY[$1::text]) AND suspicion = 0 AND priority < $2::bigint
  AND owner IS NULL AND available_after = 0
ORDER BY queue, suspicion, priority DESC, id LIMIT 1"
);

/// Returns the first queues in the order of an index. The search continues behind each queue, however
/// many rows it has.
macro_rules! queues {
    ($rows:literal, $order:literal) => {
        concat!(
            "
WITH RECURSIVE names (queue) AS (
  SELECT (SELECT queue FROM consumer_messages WHERE ",
            $rows,
            " ORDER BY ",
            $order,
            " LIMIT 1)
  UNION ALL
  SELECT (SELECT queue FROM consumer_messages WHERE ",
            $rows,
            " AND queue > names.queue ORDER BY ",
            $order,
            " LIMIT 1)
  FROM names WHERE names.queue IS NOT NULL)
SELECT queue FROM (SELECT queue FROM names LIMIT $1) AS first WHERE queue IS NOT NULL"
        )
    };
}

const QUEUES_READY: &str = queues!(
    "owner IS NULL AND available_after = 0",
    "queue, suspicion, priority DESC, id"
);

const QUEUES_DELAYED: &str = queues!(
    "owner IS NULL AND available_after > 0",
    "queue, available_after"
);

const DELAYED: &str = "
SELECT count(*) FROM (SELECT FROM consumer_messages
WHERE queue = $1 AND owner IS NULL AND available_after > 0 LIMIT $2) AS delayed";

/// The statements, prepared on a connection.
#[derive(Debug)]
pub(super) struct Counts {
    waiting: Statement,
    first: Statement,
    delayed: Statement,
}

impl Counts {
    pub(super) async fn prepare(client: &Client) -> Result<Self, Error> {
        let (waiting, first, delayed) = tokio::try_join!(
            client.prepare(WAITING),
            client.prepare(FIRST),
            client.prepare(DELAYED),
        )?;
        Ok(Self {
            waiting,
            first,
            delayed,
        })
    }
}

/// Counts the rows that could be claimed now, up to `most` of each kind, and finds the oldest.
pub(super) async fn waiting(
    client: &Client,
    counts: &Counts,
    queue: &str,
    most: u32,
) -> Result<WaitingRows, Error> {
    let counted = client
        .query_one(&counts.waiting, &[&queue, &i64::from(most)])
        .await?;
    let count = |column| counted.try_get(column).map(i64::unsigned_abs);
    let mut waiting = WaitingRows::new(count(0)?, count(1)?, most, counted.try_get(2)?);
    let mut below = i64::MAX;
    for _ in 0..PRIORITIES_MAX {
        let Some(first) = client.query_opt(&counts.first, &[&queue, &below]).await? else {
            break;
        };
        below = first.try_get(0)?;
        waiting.is_for(first.try_get(1)?);
    }
    Ok(waiting)
}

/// Returns the names of queues with rows that may be claimed or wait for a later time, up to `most` of
/// each kind.
pub(super) async fn queues(client: &Client, most: u32) -> Result<BTreeSet<String>, Error> {
    let mut names = BTreeSet::new();
    for queues in [QUEUES_READY, QUEUES_DELAYED] {
        let rows = client.query(queues, &[&i64::from(most)]).await?;
        for row in rows {
            names.insert(row.try_get(0)?);
        }
    }
    Ok(names)
}

/// Counts the delayed rows of the queue, due or not, up to `most`.
pub(super) async fn count_delayed(
    client: &Client,
    counts: &Counts,
    queue: &str,
    most: u32,
) -> Result<u64, Error> {
    let counted = client
        .query_one(&counts.delayed, &[&queue, &i64::from(most)])
        .await?;
    counted.try_get(0).map(i64::unsigned_abs)
}

/// Selects the columns of a list. Of a body that is stored apart the server reads the beginning only.
macro_rules! listed {
    ($rest:literal) => {
        concat!(
            "(SELECT id, suspicion, priority, available_after, created_at, attempts, last_error, message_id,
  correlation_id, reply_to, content_type, key, headers::text AS headers, substr(body, 1, $3::integer) AS beginning,
  substr(body_bytes, 1, $3::integer) AS beginning_bytes,
  coalesce(octet_length(body), octet_length(body_bytes))::bigint AS bytes
  FROM consumer_messages WHERE queue = ANY(ARRAY[$1::text]) AND owner IS NULL ",
            $rest,
            " LIMIT $2)"
        )
    };
}

/// The first rows in the order of claims, which due rows join at the next one.
const LIST: &str = concat!(
    "
SELECT * FROM (",
    listed!("AND available_after = 0 ORDER BY queue, suspicion, priority DESC, id"),
    "
UNION ALL ",
    listed!("AND available_after > 0 ORDER BY queue, available_after"),
    ") AS listed
ORDER BY CASE WHEN available_after > ",
    now_ms!(),
    " THEN available_after ELSE 0 END, suspicion, priority DESC, id LIMIT $2"
);

/// Returns the first rows of the queue without a claim, up to `most`, and the beginning of each body.
pub(super) async fn list(
    client: &Client,
    queue: &str,
    most: usize,
) -> Result<Vec<WaitingMessage>, Error> {
    let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let cut = i32::try_from(WAITING_BODY_BYTES).unwrap_or(i32::MAX);
    let values: [&(dyn ToSql + Sync); 3] = [&queue, &number(most), &cut];
    let rows = client.query(LIST, &values).await?;
    rows.iter().map(|row| listed(row, queue)).collect()
}

fn listed(row: &Row, queue: &str) -> Result<WaitingMessage, Error> {
    let available_after: i64 = row.try_get("available_after")?;
    let priority: i32 = row.try_get("priority")?;
    let bytes: i64 = row.try_get("bytes")?;
    let headers = headers::parse(row.try_get("headers")?).unwrap_or_default();
    let message = WaitingMessage {
        id: row_name(queue, row.try_get("id")?),
        priority: priority.into(),
        available_at: (available_after > 0).then(|| rfc_3339(available_after)),
        created_at: Some(rfc_3339(row.try_get("created_at")?)),
        attempts: row::count(row.try_get("attempts")?),
        last_error: row::text(row, "last_error")?,
        message_id: row::text(row, "message_id")?,
        correlation_id: row::text(row, "correlation_id")?,
        reply_to: row::text(row, "reply_to")?,
        content_type: row::text(row, "content_type")?,
        key: row::text(row, "key")?,
        ..WaitingMessage::default()
    };
    let beginning = row::body(row, "beginning", "beginning_bytes")?.unwrap_or_default();
    let message = message.with_headers(headers::not_ours(headers));
    Ok(message.with_body(&beginning, usize::try_from(bytes).unwrap_or_default()))
}
