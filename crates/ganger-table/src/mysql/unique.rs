//! Unique keys, each held by one message of a queue at a time. An index enforces that. A conflict can
//! only occur when a row is inserted, since a row never regains a key that it has released.

use super::client::Client;
use super::columns::{Sent, message, message_values};
use super::error::{CallError, is_taken};
use super::value::{Value, now_ms};
use crate::server::delays::delay_ms;
use ganger_queue::delivery::{IfTaken, Outgoing, Unique, UniqueScope};

/// The unique index of held keys.
pub(crate) const INDEX: &str = "consumer_messages_unique";

/// Number of attempts: others may take and release the key between two statements, but not for ever.
const TRIES: u32 = 100;

const INSERT: &str = concat!(
    "
INSERT INTO consumer_messages (queue, ",
    message!(),
    ", unique_key, unique_scope, unique_until)
VALUES (?, ",
    message_values!(),
    ", ?, ?, ",
    now_ms!(),
    " + ?)"
);

/// Replaces the content of the pending message; a claimed row stays as it is. With `longest`, it falls
/// due when the new message would, but no later than `longest` milliseconds after its own sending.
const REPLACE: &str = "
UPDATE consumer_messages FORCE INDEX (consumer_messages_unique) SET
  body = ?, headers = ?, correlation_id = ?, reply_to = ?, message_id = ?, content_type = ?, `key` = ?,
  priority = ?,
  available_after = IF(? IS NULL, available_after, LEAST(?, created_at + ?))
WHERE queue = ? AND unique_hold = ? AND owner IS NULL";

const HOLDER: &str = "
SELECT id FROM consumer_messages FORCE INDEX (consumer_messages_unique) WHERE queue = ? AND unique_hold = ?";

/// Inserts a message, unless another one holds its key. Returns the row of that one. It searches first: a
/// failed insert would keep a lock on the index entry, for which a daemon that claims the other row would
/// wait.
pub(crate) async fn publish(
    client: &mut Client,
    message: &Outgoing,
    unique: &Unique,
) -> Result<Option<i64>, CallError> {
    let sent = Sent::of(message);
    for _ in 0..TRIES {
        if let Some(holder) = holder(client, &sent, unique).await? {
            return Ok(Some(holder));
        }
        match insert(client, &sent, unique).await {
            Ok(()) => return Ok(None),
            // Somebody has just taken it.
            Err(error) if is_taken(&error, INDEX) => {}
            Err(error) => return Err(error),
        }
    }
    // A user's trigger may cause the same error each time: this attempt returns it.
    insert(client, &sent, unique).await?;
    Ok(None)
}

/// Returns the row that holds the key, after replacing its content if that is wanted.
async fn holder(
    client: &mut Client,
    sent: &Sent<'_>,
    unique: &Unique,
) -> Result<Option<i64>, CallError> {
    let (queue, key) = (Value::from(&sent.message.queue), Value::from(&unique.key));
    let longest = match unique.taken {
        IfTaken::Keep => None,
        IfTaken::Replace => Some(None),
        IfTaken::Debounce { longest } => Some(Some(delay_ms(longest))),
    };
    let mut script = client.script();
    if let Some(longest) = longest {
        let mut values = sent.values();
        let delay = values.split_off(values.len() - 1);
        values.remove(0);
        values.push(longest.into());
        values.extend(delay);
        values.extend([longest.into(), queue, key]);
        script.add(REPLACE, &values);
    }
    script.add(HOLDER, &[queue, key]);
    let answers = client.run(script).await?;
    let row = answers.last().and_then(|answer| answer.rows.first());
    row.map(|row| row.get(0)).transpose()
}

async fn insert(client: &mut Client, sent: &Sent<'_>, unique: &Unique) -> Result<(), CallError> {
    let until = match unique.scope {
        UniqueScope::Waiting | UniqueScope::WaitingOrRunning => None,
        UniqueScope::For(time) => Some(delay_ms(time)),
    };
    let mut values = sent.values();
    values.extend([
        Value::from(&unique.key),
        unique.scope.name().into(),
        until.into(),
    ]);
    client.execute(INSERT, &values).await.map(drop)
}
