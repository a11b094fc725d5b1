//! Messages without a claim, for commands: counted, listed, cancelled, taken as replies.

use bytes::Bytes;

use crate::dead_letters::BATCH_MAX;
use crate::mysql::client::Client;
use crate::mysql::error::CallError;
use crate::mysql::row::{self, Row};
use crate::mysql::value::{Value, now_ms};
use crate::server::occurrences;
use crate::table::{headers, row_name};
use ganger_queue::client::{Depth, Reply, WAITING_BODY_BYTES, WaitingMessage};
use ganger_queue::dead_letter::rfc_3339;
use ganger_queue::delivery::{CANCELLED, Failure, Reason};

const DEPTH: &str = "
SELECT
  (SELECT COUNT(*) FROM consumer_messages
   WHERE queue = ? AND owner IS NULL AND available_after = 0),
  (SELECT COUNT(*) FROM consumer_messages
   WHERE queue = ? AND owner IS NULL AND available_after > 0),
  (SELECT COUNT(*) FROM consumer_messages WHERE queue = ? AND owner IS NOT NULL)";

/// Uses the index of waiting rows: the table may be large, and most rows another queue's.
const WAITING: &str = "
SELECT id FROM consumer_messages FORCE INDEX (consumer_messages_ready)
WHERE queue = ? AND owner IS NULL AND (correlation_id = ? OR message_id = ? OR id = ?)
LIMIT ?";

const STILL_WAITING: &str = "
SELECT id FROM consumer_messages FORCE INDEX (PRIMARY) WHERE id IN ? AND owner IS NULL
ORDER BY id FOR UPDATE";

const BURY: &str = concat!(
    "
INSERT INTO poisoned_messages (pool, queue, reason, error, attempts, crashes, lapses, oom, stderr,
  first_failed_at, last_failed_at, body, headers, correlation_id, reply_to, message_id, content_type,
  `key`, priority, created_at, unique_key, unique_scope, unique_until, row_id)
SELECT ?, queue, ?, ?, attempts, crashes, lapses, 0, '[]', COALESCE(first_failed_at, ",
    now_ms!(),
    "), ",
    now_ms!(),
    ", body, headers, correlation_id, reply_to, message_id, content_type, `key`, priority, created_at,
  unique_key, unique_scope, unique_until, id
FROM consumer_messages FORCE INDEX (PRIMARY) WHERE id IN ? ORDER BY id"
);

const GONE: &str = "
DELETE m FROM consumer_messages AS m FORCE INDEX (PRIMARY) WHERE m.id IN ?";

const REPLY_THERE: &str = "
SELECT id FROM consumer_messages FORCE INDEX (consumer_messages_ready)
WHERE queue = ? AND owner IS NULL AND available_after = 0 AND correlation_id = ?
ORDER BY id LIMIT 1";

const REPLY: &str = "
SELECT body, headers, correlation_id, content_type FROM consumer_messages
WHERE id = ? AND owner IS NULL FOR UPDATE";

/// Counts the messages of the queue.
pub(super) async fn depth(client: &mut Client, queue: &str) -> Result<Depth, CallError> {
    let row = client.query_one(DEPTH, &[queue.into(); 3]).await?;
    let count = |column: usize| row.get::<i64>(column).map(i64::unsigned_abs);
    Ok(Depth {
        ready: count(0)?,
        delayed: count(1)?,
        claimed: count(2)?,
    })
}

/// Selects the columns of a list.
macro_rules! listed {
    ($rest:literal) => {
        concat!(
            "(SELECT id, suspicion, turn, priority, available_after, created_at, attempts, last_error, message_id,
  correlation_id, reply_to, content_type, `key`, headers, SUBSTRING(body, 1, ?) AS beginning, LENGTH(body) AS bytes
  FROM consumer_messages FORCE INDEX (consumer_messages_ready) WHERE queue = ? AND owner IS NULL ",
            $rest,
            " LIMIT ?)"
        )
    };
}

/// The first rows in the order of claims, which due rows join at the next one.
const LIST: &str = concat!(
    "
SELECT * FROM (",
    listed!("AND available_after = 0 ORDER BY suspicion, turn, id"),
    "
UNION ALL ",
    listed!("AND available_after > 0 ORDER BY available_after"),
    ") AS listed
ORDER BY CASE WHEN available_after > ",
    now_ms!(),
    " THEN available_after ELSE 0 END, suspicion, turn, id LIMIT ?"
);

/// Returns the first rows of the queue without a claim, up to `most`, and the beginning of each body.
pub(super) async fn list(
    client: &mut Client,
    queue: &str,
    most: usize,
) -> Result<Vec<WaitingMessage>, CallError> {
    let number = |number: usize| Value::Number(i64::try_from(number).unwrap_or(i64::MAX));
    let of_one = [number(WAITING_BODY_BYTES), queue.into(), number(most)];
    let values = [&of_one[..], &of_one, &[number(most)]].concat();
    let rows = client.query(LIST, &values).await?;
    rows.iter().map(|row| listed(row, queue)).collect()
}

fn listed(row: &Row, queue: &str) -> Result<WaitingMessage, CallError> {
    let available_after: i64 = row.get("available_after")?;
    let headers = headers::parse(&row.get::<String>("headers")?).unwrap_or_default();
    let message = WaitingMessage {
        id: row_name(queue, row.get("id")?),
        priority: row.get("priority")?,
        available_at: (available_after > 0).then(|| rfc_3339(available_after)),
        created_at: Some(rfc_3339(row.get("created_at")?)),
        attempts: row::count(row.get("attempts")?),
        last_error: row.text("last_error")?,
        message_id: row.text("message_id")?,
        correlation_id: row.text("correlation_id")?,
        reply_to: row.text("reply_to")?,
        content_type: row.text("content_type")?,
        key: row.text("key")?,
        ..WaitingMessage::default()
    };
    let beginning: Vec<u8> = row.get("beginning")?;
    let message = message.with_headers(headers::not_ours(headers));
    Ok(message.with_body(&beginning, row.get("bytes")?))
}

/// Moves some of the messages that wait under that id to the dead letters, in the open transaction.
/// Returns their number.
pub(crate) async fn cancel(
    client: &mut Client,
    pool: &str,
    queue: &str,
    id: &str,
) -> Result<usize, CallError> {
    let row = id.strip_prefix(queue).and_then(|end| end.strip_prefix(':'));
    let row: Option<i64> = row.and_then(|row| row.parse().ok());
    let most = i64::try_from(BATCH_MAX).unwrap_or(i64::MAX);
    // Found without a lock: locks on all rows examined would block claims.
    let values = [
        queue.into(),
        id.into(),
        id.into(),
        row.into(),
        Value::Number(most),
    ];
    let found = ids(client, WAITING, &values).await?;
    if found.is_empty() {
        return Ok(0);
    }
    let waiting = ids(client, STILL_WAITING, &[(&found).into()]).await?;
    if waiting.is_empty() {
        return Ok(0);
    }
    let failure = Failure::new(Reason::Cancelled, CANCELLED);
    let dead: Vec<(i64, &Failure)> = waiting.iter().map(|row| (*row, &failure)).collect();
    occurrences::buried(client, &dead).await?;
    let (reason, waits) = (Reason::Cancelled.as_str(), Value::from(&waiting));
    let mut script = client.script();
    script.add(BURY, &[pool.into(), reason.into(), CANCELLED.into(), waits]);
    script.add(GONE, &[waits]);
    client.run(script).await?;
    Ok(waiting.len())
}

async fn ids(client: &mut Client, text: &str, values: &[Value<'_>]) -> Result<Vec<i64>, CallError> {
    let rows = client.query(text, values).await?;
    rows.iter().map(|row| row.get(0)).collect()
}

/// Returns the row of the first reply to that message, if there is one.
pub(super) async fn reply_there(
    client: &mut Client,
    queue: &str,
    correlation_id: &str,
) -> Result<Option<i64>, CallError> {
    let values = [queue.into(), correlation_id.into()];
    let row = client.query_opt(REPLY_THERE, &values).await?;
    row.map(|row| row.get(0)).transpose()
}

/// Takes the reply, in the open transaction; none if another client has taken it.
pub(super) async fn take_reply(client: &mut Client, row: i64) -> Result<Option<Reply>, CallError> {
    let Some(mut reply) = client.query_opt(REPLY, &[row.into()]).await? else {
        return Ok(None);
    };
    let taken = "DELETE FROM consumer_messages WHERE id = ?";
    client.execute(taken, &[row.into()]).await?;
    let headers = headers::parse(&reply.get::<String>("headers")?);
    Ok(Some(Reply {
        body: Bytes::from(reply.take::<Vec<u8>>("body")?),
        headers: headers::not_ours(headers.unwrap_or_default()),
        correlation_id: reply.text("correlation_id")?.unwrap_or_default(),
        content_type: reply.text("content_type")?,
    }))
}
