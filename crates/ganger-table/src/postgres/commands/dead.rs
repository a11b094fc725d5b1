//! The dead letters in a PostgreSQL database: read, sent back, dropped.

use bytes::Bytes;
use tokio_postgres::{Error, Row};

use crate::postgres::client::{Client, Parameter};
use crate::postgres::columns::body;
use crate::postgres::row;
use crate::postgres::settle::{is_row, now_ms};
use crate::server::selection::Selection;
use crate::table::{headers, message_name};
use ganger_queue::dead_letter::{DeadLetter, DeadReply, rfc_3339};

/// Bytes of dead letters after which no further one is read in one batch.
const BATCH_BYTES_MAX: i64 = 4 << 20;

/// The condition of a [`Selection`].
macro_rules! chosen {
    () => {
        "($1::bigint[] IS NULL OR id = ANY($1)) AND ($2::text IS NULL OR pool = $2)"
    };
}

const READ_BATCH: &str = concat!("
WITH next AS (
  SELECT id, coalesce(octet_length(body), octet_length(body_bytes))
    + coalesce(octet_length(reply_body), octet_length(reply_body_bytes), 0) AS bytes
  FROM poisoned_messages WHERE ", chosen!(), " AND id > $3 ORDER BY id LIMIT $4),
page AS (SELECT id, sum(bytes) OVER (ORDER BY id) - bytes AS before FROM next)
SELECT poisoned_messages.id, pool, queue, reason, error, attempts, crashes, exit_code, signal, oom, stderr::text,
  first_failed_at, last_failed_at, correlation_id, reply_to, message_id, content_type, key, priority,
  headers::text, body, body_bytes, reply_queue, reply_headers::text, reply_body, reply_body_bytes, row_id
FROM poisoned_messages JOIN page ON poisoned_messages.id ", is_row!("page.id"), "
WHERE before < $5 ORDER BY page.id");

/// Condition that a dead letter needs its unique key again. A key that was held only until the first
/// claim was released for good then.
macro_rules! keeps_its_key {
    () => {
        concat!(
            "(unique_key IS NOT NULL AND coalesce(unique_scope, 'waiting') <> 'waiting'
              AND coalesce(unique_until > ",
            now_ms!(),
            ", true))"
        )
    };
}

/// Inserts dead letters as messages: `$from` selects them, the others give the parameters of another
/// body.
macro_rules! back {
    ($from:expr, $edited:literal, $text:literal, $bytes:literal) => {
        concat!("
INSERT INTO consumer_messages (queue, body, body_bytes, headers, correlation_id, reply_to, message_id,
  content_type, key, priority, unique_key, unique_scope, unique_until, unique_released)
SELECT queue, CASE WHEN ", $edited, " THEN ", $text, "::text ELSE body END,
  CASE WHEN ", $edited, " THEN ", $bytes, "::bytea ELSE body_bytes END, headers, correlation_id, reply_to,
  message_id, content_type, key, priority, unique_key, unique_scope, unique_until,
  CASE WHEN unique_key IS NULL OR ", keeps_its_key!(), " THEN 0 ELSE 1 END
FROM ", $from)
    };
}

const BACK: &str = concat!(
    "
WITH gone AS (
  DELETE FROM poisoned_messages WHERE ",
    chosen!(),
    " AND NOT ",
    keeps_its_key!(),
    " RETURNING *)",
    back!("gone ORDER BY id", "$3", "$4", "$5")
);

const KEYED: &str = concat!(
    "
SELECT id FROM poisoned_messages WHERE ",
    chosen!(),
    " AND ",
    keeps_its_key!(),
    "
ORDER BY id FOR UPDATE"
);

const BACK_IF_FREE: &str = concat!(
    "
WITH sent AS (",
    back!("poisoned_messages WHERE id = $1", "$2", "$3", "$4"),
    "
  ON CONFLICT (queue, unique_hold) WHERE unique_hold IS NOT NULL DO NOTHING RETURNING id)
DELETE FROM poisoned_messages WHERE id = $1 AND EXISTS (SELECT FROM sent)"
);

const HELD: &str = concat!(
    "
SELECT count(*) FROM poisoned_messages AS letter WHERE ",
    chosen!(),
    " AND ",
    keeps_its_key!(),
    "
  AND EXISTS (SELECT FROM consumer_messages AS other
    WHERE other.queue = letter.queue AND other.unique_hold = letter.unique_key OFFSET 0)"
);

const DROP: &str = concat!("DELETE FROM poisoned_messages WHERE ", chosen!());

/// Parameters of the condition `chosen!`.
fn chosen<'a>(selection: &'a Selection<'_>) -> [Parameter<'a>; 2] {
    [&selection.ids, &selection.pool]
}

/// Returns the first dead letters after row `after`: at most `most`, limited by their size.
pub(super) async fn read_batch(
    client: &Client,
    selection: &Selection<'_>,
    after: i64,
    most: usize,
) -> Result<Vec<(i64, DeadLetter)>, Error> {
    let [ids, pool] = chosen(selection);
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let values: [Parameter<'_>; 5] = [ids, pool, &after, &most, &BATCH_BYTES_MAX];
    let rows = client.query(READ_BATCH, &values).await?;
    let letters = rows
        .iter()
        .map(|row| Ok((row.try_get(0)?, dead_letter(row)?)));
    letters.collect()
}

/// Moves dead letters back to their queues, in the open transaction. Those without a key to hold go
/// first, all at once; then the others, one by one: each takes its key, or stays if that is held.
/// Returns the number moved.
pub(super) async fn send_back(
    client: &Client,
    selection: &Selection<'_>,
    edit: Option<&Bytes>,
) -> Result<u64, Error> {
    let [ids, pool] = chosen(selection);
    let (text, bytes) = edit.map_or((None, None), |edit| body(edit));
    let edited = edit.is_some();
    let values: [Parameter<'_>; 5] = [ids, pool, &edited, &text, &bytes];
    let mut moved = client.execute(BACK, &values).await?;
    for letter in client.query(KEYED, &[ids, pool]).await? {
        let id: i64 = letter.try_get(0)?;
        let values: [Parameter<'_>; 4] = [&id, &edited, &text, &bytes];
        moved += client.execute(BACK_IF_FREE, &values).await?;
    }
    Ok(moved)
}

/// Counts the dead letters that can't go back because another message holds their key.
pub(super) async fn held(client: &Client, selection: &Selection<'_>) -> Result<i64, Error> {
    let held = client.query_one(HELD, &chosen(selection)).await?;
    held.try_get(0)
}

/// Deletes the dead letters. Returns their number.
pub(super) async fn discard(client: &Client, selection: &Selection<'_>) -> Result<u64, Error> {
    client.execute(DROP, &chosen(selection)).await
}

fn dead_letter(row: &Row) -> Result<DeadLetter, Error> {
    let count = |column| row.try_get(column).map(row::count);
    let stderr: &str = row.try_get("stderr")?;
    let parsed = headers::parse(row.try_get("headers")?);
    let queue: String = row.try_get("queue")?;
    Ok(DeadLetter {
        id: row.try_get::<_, i64>("id")?.to_string(),
        pool: row.try_get("pool")?,
        message_name: message_name(&queue, row.try_get("row_id")?),
        queue,
        reason: row.try_get("reason")?,
        error: row.try_get("error")?,
        attempts: count("attempts")?,
        crashes: count("crashes")?,
        exit_code: row.try_get("exit_code")?,
        signal: row.try_get("signal")?,
        oom: row.try_get::<_, i16>("oom")? != 0,
        stderr: serde_json::from_str(stderr).unwrap_or_default(),
        first_failed_at: rfc_3339(row.try_get("first_failed_at")?),
        last_failed_at: rfc_3339(row.try_get("last_failed_at")?),
        correlation_id: row::text(row, "correlation_id")?.unwrap_or_default(),
        reply_to: row::text(row, "reply_to")?,
        message_id: row::text(row, "message_id")?,
        content_type: row::text(row, "content_type")?,
        key: row::text(row, "key")?,
        priority: row.try_get::<_, i32>("priority")?.into(),
        headers: parsed.unwrap_or_default(),
        body: row::body(row, "body", "body_bytes")?.unwrap_or_default(),
        reply: dead_reply(row)?,
    })
}

fn dead_reply(row: &Row) -> Result<Option<DeadReply>, Error> {
    // The reply may have had no queue to go to, which is why it is here.
    let Some(body) = row::body(row, "reply_body", "reply_body_bytes")? else {
        return Ok(None);
    };
    let parsed = row.try_get::<_, Option<&str>>("reply_headers")?;
    let parsed = parsed.map(headers::parse).transpose();
    Ok(Some(DeadReply {
        queue: row::text(row, "reply_queue")?.unwrap_or_default(),
        headers: parsed.unwrap_or_default().unwrap_or_default(),
        body,
    }))
}
