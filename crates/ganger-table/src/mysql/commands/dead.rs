//! The dead letters in a MySQL or MariaDB database: read, sent back, dropped.

use bytes::Bytes;

use crate::dead_letters::BATCH_MAX;
use crate::mysql::client::Client;
use crate::mysql::error::{CallError, is_taken};
use crate::mysql::row::{self, Row};
use crate::mysql::unique;
use crate::mysql::value::{Value, now_ms};
use crate::rules::fitting_together;
use crate::server::selection::Selection;
use crate::table::{headers, message_name};
use ganger_queue::dead_letter::{DeadLetter, DeadReply, rfc_3339};

/// Maximum bytes of dead letters read at once; a single larger one is read alone.
const BATCH_BYTES_MAX: usize = 4 << 20;

const SIZES: &str = "
SELECT id, LENGTH(body) + COALESCE(LENGTH(reply_body), 0) FROM poisoned_messages";

const READ_BATCH: &str = "
SELECT id, pool, queue, reason, error, attempts, crashes, exit_code, `signal`, oom, stderr,
  first_failed_at, last_failed_at, correlation_id, reply_to, message_id, content_type, `key`, priority,
  headers, body, reply_queue, reply_headers, reply_body, row_id
FROM poisoned_messages WHERE id IN ? ORDER BY id";

/// Condition that a dead letter needs its unique key again. A key that was held only until the first
/// claim was released for good then.
const KEEPS_ITS_KEY: &str = concat!(
    "(unique_key IS NOT NULL AND COALESCE(unique_scope, 'waiting') <> 'waiting'
      AND COALESCE(unique_until > ",
    now_ms!(),
    ", TRUE))"
);

/// Condition that another message holds that key now.
const IS_HELD: &str = "EXISTS (SELECT 1 FROM consumer_messages other
  FORCE INDEX (consumer_messages_unique) WHERE other.queue = poisoned_messages.queue AND other.unique_hold = poisoned_messages.unique_key)";

/// Inserts dead letters as messages, optionally with another body.
const BACK: &str = "
INSERT INTO consumer_messages (queue, body, headers, correlation_id, reply_to, message_id, content_type,
  `key`, priority, unique_key, unique_scope, unique_until, unique_released)
SELECT queue, COALESCE(?, body), headers, correlation_id, reply_to, message_id, content_type, `key`,
  priority, unique_key, unique_scope, unique_until, IF(unique_key IS NULL, 0, ?)
FROM poisoned_messages WHERE id IN ? ORDER BY id";

const GONE: &str = "DELETE FROM poisoned_messages WHERE id IN ?";

/// Makes the condition of a selection, with its values.
fn condition<'a>(selection: &'a Selection<'_>) -> (String, Vec<Value<'a>>) {
    let (mut texts, mut values) = (vec!["TRUE".to_owned()], Vec::new());
    if let Some(ids) = &selection.ids {
        texts.push("id IN ?".to_owned());
        values.push(Value::from(ids));
    }
    if let Some(pool) = selection.pool {
        texts.push("pool = ?".to_owned());
        values.push(pool.into());
    }
    (texts.join(" AND "), values)
}

/// Returns the first dead letters after row `after`: at most `most`, limited by their size.
pub(super) async fn read_batch(
    client: &mut Client,
    selection: &Selection<'_>,
    after: i64,
    most: usize,
) -> Result<Vec<(i64, DeadLetter)>, CallError> {
    let (condition, mut values) = condition(selection);
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    values.extend([Value::Number(after), Value::Number(most)]);
    let sizes = format!("{SIZES} WHERE {condition} AND id > ? ORDER BY id LIMIT ?");
    let sizes = client.query(&sizes, &values).await?;
    let sized = |row: &Row| Ok((row.get::<i64>(0)?, row.get::<usize>(1)?));
    let sizes = sizes.iter().map(sized);
    let sizes: Vec<(i64, usize)> = sizes.collect::<Result<_, CallError>>()?;
    let fitting = fitting_together(sizes.iter().map(|(_, bytes)| *bytes), BATCH_BYTES_MAX);
    let ids: Vec<i64> = sizes.iter().take(fitting).map(|(id, _)| *id).collect();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows = client.query(READ_BATCH, &[(&ids).into()]).await?;
    let letters = rows
        .into_iter()
        .map(|mut row| Ok((row.get(0)?, dead_letter(&mut row)?)));
    letters.collect()
}

/// Moves dead letters back to their queues, in the open transaction. Those without a key to hold go
/// first, many at once; then the others, one by one: each takes its key, or stays if that is held.
/// Returns the number moved.
pub(super) async fn send_back(
    client: &mut Client,
    selection: &Selection<'_>,
    edit: Option<&Bytes>,
) -> Result<usize, CallError> {
    let mut moved = 0;
    let edit = edit.map(|edit| Value::Bytes(edit)).unwrap_or(Value::Null);
    loop {
        let keyless = format!("NOT {KEEPS_ITS_KEY}");
        let some = locked(client, selection, &keyless, i64::MIN).await?;
        if some.is_empty() {
            break;
        }
        // Their keys, if they had any, are released for good.
        let mut script = client.script();
        script.add(BACK, &[edit, 1.into(), (&some).into()]);
        script.add(GONE, &[(&some).into()]);
        client.run(script).await?;
        moved += some.len();
    }
    let mut after = i64::MIN;
    loop {
        let free = format!("{KEEPS_ITS_KEY} AND NOT {IS_HELD}");
        let some = locked(client, selection, &free, after).await?;
        let Some(last) = some.last() else {
            return Ok(moved);
        };
        after = *last;
        for id in some {
            let one = [id];
            let back = [edit, 0.into(), Value::Numbers(&one)];
            match client.execute(BACK, &back).await {
                Ok(_) => moved += 1,
                // Another message has just taken the key, or another of these dead letters has the same
                // one.
                Err(error) if is_taken(&error, unique::INDEX) => continue,
                Err(error) => return Err(error),
            }
            client.execute(GONE, &[Value::Numbers(&one)]).await?;
        }
    }
}

/// Locks and returns some of the dead letters after row `after` that meet the condition `also`, too.
async fn locked(
    client: &mut Client,
    selection: &Selection<'_>,
    also: &str,
    after: i64,
) -> Result<Vec<i64>, CallError> {
    let (condition, mut values) = condition(selection);
    let most = i64::try_from(BATCH_MAX).unwrap_or(i64::MAX);
    values.extend([Value::Number(after), Value::Number(most)]);
    let locked = format!(
        "SELECT id FROM poisoned_messages WHERE {condition} AND {also} AND id > ?
         ORDER BY id LIMIT ? FOR UPDATE"
    );
    let locked = client.query(&locked, &values).await?;
    locked.iter().map(|row| row.get(0)).collect()
}

/// Counts the dead letters that can't go back because another message holds their key.
pub(super) async fn held(
    client: &mut Client,
    selection: &Selection<'_>,
) -> Result<usize, CallError> {
    let (condition, values) = condition(selection);
    let held = format!(
        "SELECT COUNT(*) FROM poisoned_messages WHERE {condition} AND {KEEPS_ITS_KEY} AND {IS_HELD}"
    );
    client.query_one(&held, &values).await?.get(0)
}

/// Deletes the dead letters. Returns their number.
pub(super) async fn discard(
    client: &mut Client,
    selection: &Selection<'_>,
) -> Result<u64, CallError> {
    let (condition, values) = condition(selection);
    let discard = format!("DELETE FROM poisoned_messages WHERE {condition}");
    client.execute(&discard, &values).await
}

fn dead_letter(row: &mut Row) -> Result<DeadLetter, CallError> {
    let count = |row: &Row, column| row.get(column).map(row::count);
    let stderr: String = row.get("stderr")?;
    let parsed = headers::parse(&row.get::<String>("headers")?);
    let queue: String = row.get("queue")?;
    Ok(DeadLetter {
        id: row.get::<i64>("id")?.to_string(),
        pool: row.get("pool")?,
        message_name: message_name(&queue, row.get("row_id")?),
        queue,
        reason: row.get("reason")?,
        error: row.get("error")?,
        attempts: count(row, "attempts")?,
        crashes: count(row, "crashes")?,
        exit_code: row.get("exit_code")?,
        signal: row.get("signal")?,
        oom: row.get::<i64>("oom")? != 0,
        stderr: serde_json::from_str(&stderr).unwrap_or_default(),
        first_failed_at: rfc_3339(row.get("first_failed_at")?),
        last_failed_at: rfc_3339(row.get("last_failed_at")?),
        correlation_id: row.text("correlation_id")?.unwrap_or_default(),
        reply_to: row.text("reply_to")?,
        message_id: row.text("message_id")?,
        content_type: row.text("content_type")?,
        key: row.text("key")?,
        priority: row.get("priority")?,
        headers: parsed.unwrap_or_default(),
        body: row.take::<Vec<u8>>("body")?.into(),
        reply: dead_reply(row)?,
    })
}

fn dead_reply(row: &mut Row) -> Result<Option<DeadReply>, CallError> {
    // The reply may have had no queue to go to, which is why it is here.
    let Some(body) = row.take::<Option<Vec<u8>>>("reply_body")? else {
        return Ok(None);
    };
    let parsed: Option<String> = row.get("reply_headers")?;
    let parsed = parsed.as_deref().map(headers::parse).transpose();
    Ok(Some(DeadReply {
        queue: row.text("reply_queue")?.unwrap_or_default(),
        headers: parsed.unwrap_or_default().unwrap_or_default(),
        body: body.into(),
    }))
}
