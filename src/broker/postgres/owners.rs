//! The table of owners, and what is claimed by them: the statements.

use tokio_postgres::Error;

use super::client::Client;
use super::settle::now_ms;

pub(super) const LOCK: &str = "SELECT pg_try_advisory_lock($1)";

pub(super) const ENTER: &str = concat!(
    "
INSERT INTO owners (host, pid, pool, started_at, lease_ms, beaten_at, lock_key)
VALUES ($1, $2, $3, ",
    now_ms!(),
    ", $4, ",
    now_ms!(),
    ", $5) RETURNING id"
);

pub(super) const BEAT: &str = concat!(
    "
UPDATE owners SET heartbeat = heartbeat + 1, beaten_at = ",
    now_ms!(),
    " WHERE id = $1"
);

/// The locks that are held in this database, by their keys.
macro_rules! held {
    () => {
        "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
         WHERE locktype = 'advisory' AND objsubid = 1 AND granted
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    };
}

pub(super) const OTHERS: &str = concat!(
    "
SELECT id, heartbeat, lock_key > 0 AND lock_key NOT IN (",
    held!(),
    "), beaten_at + lease_ms < ",
    now_ms!(),
    "
FROM owners WHERE id <> $1"
);

/// The one suspect that ran is charged with the attempt.
macro_rules! free {
    () => {
        "UPDATE consumer_messages SET
           attempts = CASE WHEN suspicion > 0 THEN attempts ELSE greatest(attempts - 1, 0) END,
           lapses = least(lapses, 4294967294) + 1,
           last_error = CASE WHEN suspicion > 0
             THEN 'the daemon vanished with it in hand' ELSE last_error END,
           owner = NULL, claim = NULL
         WHERE owner = $1"
    };
}

/// Only while it still stands as it was seen. It may be back, and then goes on.
pub(super) const TAKE_BACK: &str = concat!(
    "
WITH struck AS (
  DELETE FROM owners WHERE id = $1 AND heartbeat = $2
    AND (beaten_at + lease_ms < ",
    now_ms!(),
    " OR lock_key > 0 AND lock_key NOT IN (",
    held!(),
    "))
  RETURNING id),
freed AS (",
    free!(),
    " AND EXISTS (SELECT FROM struck) RETURNING id)
SELECT (SELECT count(*) FROM struck), (SELECT count(*) FROM freed)"
);

/// Owners of claims that are not in the table: their claim was just being made when they were struck,
/// or someone has edited it. From one owner to the next by the index, however many rows each has.
pub(super) const STRAYS: &str = "
WITH RECURSIVE claiming(owner) AS (
  (SELECT min(owner) FROM consumer_messages WHERE owner IS NOT NULL)
  UNION ALL
  SELECT (SELECT min(owner) FROM consumer_messages m WHERE m.owner > claiming.owner)
  FROM claiming WHERE claiming.owner IS NOT NULL)
SELECT owner FROM claiming WHERE owner IS NOT NULL AND owner NOT IN (SELECT id FROM owners)";

/// Where the rows can't all be taken back at once.
pub(super) const STRIKE: &str = concat!(
    "
DELETE FROM owners WHERE id = $1 AND heartbeat = $2
  AND (beaten_at + lease_ms < ",
    now_ms!(),
    " OR lock_key > 0 AND lock_key NOT IN (",
    held!(),
    "))"
);

/// All but those that are refused.
pub(super) const FREE_STRAYS: &str = concat!(
    free!(),
    " AND id <> ALL($2::bigint[]) AND NOT EXISTS (SELECT FROM owners WHERE id = $1)"
);

pub(super) const STRAY_ROWS: &str = "
SELECT id FROM consumer_messages
WHERE owner = $1 AND id <> ALL($2::bigint[]) AND NOT EXISTS (SELECT FROM owners WHERE id = $1)
LIMIT $3";

/// Some of them.
pub(super) const FREE_SOME: &str = concat!(
    free!(),
    " AND id = ANY($2::bigint[]) AND NOT EXISTS (SELECT FROM owners WHERE id = $1)"
);

/// The channel by which the trigger tells of new messages.
pub(super) const CHANNEL: &str = "
SELECT 'ganger.' || left(encode(sha256(convert_to($1::text || '.' || $2::text, 'UTF8')), 'hex'), 40)";

/// The name of that channel for a queue.
pub(crate) async fn channel(client: &Client, schema: &str, queue: &str) -> Result<String, Error> {
    client
        .query_one(CHANNEL, &[&schema, &queue])
        .await?
        .try_get(0)
}

/// For people who read the table; nothing is decided by it.
pub(super) fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Gives back what is still claimed, charged, so that it can't come again for ever, and strikes us.
pub(super) async fn leave(client: &Client, owner: i64) -> Result<(), Error> {
    let release = "UPDATE consumer_messages SET owner = NULL, claim = NULL WHERE owner = $1";
    client.execute(release, &[&owner]).await?;
    client
        .execute("DELETE FROM owners WHERE id = $1", &[&owner])
        .await?;
    Ok(())
}
