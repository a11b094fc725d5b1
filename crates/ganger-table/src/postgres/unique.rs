//! Unique keys, each held by one message of a queue at a time. An index enforces that. A conflict can
//! only occur when a row is inserted, since a row never regains a key that it has released.

use std::iter::once;

use tokio_postgres::Error;
use tokio_postgres::types::ToSql;

use super::client::Client;
use super::columns::Columns;
use super::settle::{available_after, now_ms};
use crate::server::delays::delay_ms;
use ganger_queue::delivery::{IfTaken, Outgoing, Unique, UniqueScope};

/// The columns of a message that is sent, in the order of [`Columns`].
macro_rules! message {
    () => {
        "unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::text[],
           $8::text[], $9::text[], $10::integer[], $11::bigint[])
         AS p(queue, body, bytes, headers, correlation_id, reply_to, message_id, content_type, key,
           priority, delay)"
    };
}

/// Number of attempts: others may take and release the key between two statements, but not for ever.
const TRIES: u32 = 100;

macro_rules! insert {
    () => {
        concat!(
            "
INSERT INTO consumer_messages (queue, body, body_bytes, headers, correlation_id, reply_to, message_id,
  content_type, key, priority, available_after, unique_key, unique_scope, unique_until)
SELECT p.queue, p.body, p.bytes, p.headers::json, p.correlation_id, p.reply_to, p.message_id,
  p.content_type, p.key, p.priority, ",
            available_after!("p.delay"),
            ", $12::text, $13::text, ",
            now_ms!(),
            " + $14::bigint
FROM ",
            message!()
        )
    };
}

const INSERT_IF_FREE: &str = concat!(
    insert!(),
    " ON CONFLICT (queue, unique_hold) WHERE unique_hold IS NOT NULL DO NOTHING"
);

/// Replaces the content of the pending message; a claimed row stays as it is. The queue is compared as a
/// single value: in a join the server would search all queues for the key, if its statistics say that
/// the table is nearly empty.
const REPLACE: &str = concat!(
    "
UPDATE consumer_messages m SET
  body = p.body, body_bytes = p.bytes, headers = p.headers::json, correlation_id = p.correlation_id,
  reply_to = p.reply_to, message_id = p.message_id, content_type = p.content_type, key = p.key,
  priority = p.priority,
  available_after = CASE WHEN $13::bigint IS NULL THEN m.available_after
    ELSE least(",
    available_after!("p.delay"),
    ", m.created_at + $13) END
FROM ",
    message!(),
    "
WHERE m.queue = ($1::text[])[1] AND m.unique_hold = $12::text AND m.owner IS NULL
RETURNING m.id"
);

const HOLDER: &str = "SELECT id FROM consumer_messages WHERE queue = $1 AND unique_hold = $2";

/// Maximum number of keys that are released at once.
pub(super) const RELEASED_MAX: u32 = 500;

/// Releases expired keys, up to a number. Rows that somebody has locked are left for the next time.
pub(super) const RELEASE: &str = concat!(
    "
UPDATE consumer_messages SET unique_released = 1
WHERE id = ANY(ARRAY(
  SELECT id FROM consumer_messages
  WHERE unique_until IS NOT NULL AND unique_released = 0 AND unique_until <= ",
    now_ms!(),
    "
  LIMIT $1 FOR UPDATE SKIP LOCKED))"
);

/// Inserts a message, unless another one holds its key. Returns the row of that one, if it exists.
pub(crate) async fn publish(
    client: &Client,
    message: &Outgoing,
    unique: &Unique,
) -> Result<Option<i64>, Error> {
    for _ in 0..TRIES {
        if insert(client, INSERT_IF_FREE, message, unique).await? {
            return Ok(None);
        }
        let holder = match unique.taken {
            IfTaken::Keep => None,
            IfTaken::Replace => replace(client, message, &unique.key, None).await?,
            IfTaken::Debounce { longest } => {
                replace(client, message, &unique.key, Some(delay_ms(longest))).await?
            }
        };
        let holder = match holder {
            Some(replaced) => Some(replaced),
            None => {
                let values: [&(dyn ToSql + Sync); 2] = [&message.queue, &unique.key];
                let row = client.query_opt(HOLDER, &values).await?;
                row.map(|row| row.try_get(0)).transpose()?
            }
        };
        // Otherwise the key was released meanwhile, and somebody may take it again.
        if holder.is_some() {
            return Ok(holder);
        }
    }
    // A user's trigger that drops messages must not cause an endless loop.
    insert(client, insert!(), message, unique).await?;
    Ok(None)
}

async fn insert(
    client: &Client,
    statement: &str,
    message: &Outgoing,
    unique: &Unique,
) -> Result<bool, Error> {
    let until = match unique.scope {
        UniqueScope::Waiting | UniqueScope::WaitingOrRunning => None,
        UniqueScope::For(time) => Some(delay_ms(time)),
    };
    let scope = unique.scope.name();
    let columns = Columns::of(once(message));
    let mut values = columns.values();
    values.extend::<[&(dyn ToSql + Sync); 3]>([&unique.key, &scope, &until]);
    Ok(client.execute(statement, &values).await? > 0)
}

/// Replaces the content of the pending message. With `longest`, it falls due when the new message would,
/// but no later than `longest` milliseconds after its own sending.
async fn replace(
    client: &Client,
    message: &Outgoing,
    key: &str,
    longest: Option<i64>,
) -> Result<Option<i64>, Error> {
    let columns = Columns::of(once(message));
    let mut values = columns.values();
    values.extend::<[&(dyn ToSql + Sync); 2]>([&key, &longest]);
    let replaced = client.query_opt(REPLACE, &values).await?;
    replaced.map(|row| row.try_get(0)).transpose()
}
