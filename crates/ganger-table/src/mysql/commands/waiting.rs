//! Messages without a claim, for commands: counted, cancelled, taken as replies.

use bytes::Bytes;

use crate::dead_letters::BATCH_MAX;
use crate::mysql::client::Client;
use crate::mysql::error::CallError;
use crate::mysql::value::{Value, now_ms};
use crate::server::occurrences;
use crate::table::headers;
use ganger_queue::client::{Depth, Reply};
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
