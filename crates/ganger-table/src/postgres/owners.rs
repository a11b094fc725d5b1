//! The table of owners and their claims: the statements.

use std::time::Duration;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::client::Client;
use super::connect::{ConnectTarget, RawConnection};
use super::error::{ends_the_connection, fault};
use super::schema::quoted;
use super::settle::now_ms;
use super::transaction::roll_back_unless;
use super::unique::{RELEASE, RELEASED_MAX};
use crate::server::occurrences;
use crate::server::owner_watch::OwnerSnapshot;
use crate::server::registry::{
    self, ConnectFailure, NewOwner, NotifyState, Registry, RequestFailure, ServerEvent,
};
use crate::server::sql::Sql;

const LOCK: &str = "SELECT pg_try_advisory_lock($1)";

const ENTER: &str = concat!(
    "
INSERT INTO owners (host, pid, pool, started_at, lease_ms, beaten_at, lock_key)
VALUES ($1, $2, $3, ",
    now_ms!(),
    ", $4, ",
    now_ms!(),
    ", $5) RETURNING id"
);

const BEAT: &str = concat!(
    "
UPDATE owners SET heartbeat = heartbeat + 1, beaten_at = ",
    now_ms!(),
    " WHERE id = $1"
);

/// Keys of the locks that are held in this database.
macro_rules! held {
    () => {
        "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
         WHERE locktype = 'advisory' AND objsubid = 1 AND granted
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    };
}

const OTHERS: &str = concat!(
    "
SELECT id, heartbeat, lock_key > 0 AND lock_key NOT IN (",
    held!(),
    "), beaten_at + lease_ms < ",
    now_ms!(),
    ", lease_ms
FROM owners WHERE id <> $1"
);

/// Releases claims. A suspect is charged with the attempt: it was the only suspect that ran.
macro_rules! free {
    ($which:literal) => {
        concat!(
            "UPDATE consumer_messages SET
               attempts = CASE WHEN suspicion > 0 THEN attempts ELSE greatest(attempts - 1, 0) END,
               lapses = least(lapses, 4294967294) + 1,
               last_error = CASE WHEN suspicion > 0
                 THEN 'the daemon vanished with it in hand' ELSE last_error END,
               owner = NULL, claim = NULL
             WHERE ",
            $which
        )
    };
}

/// Removes an owner and releases its claims, if its heartbeat has not changed since it was seen, and its
/// lock, if that was free, still is. Otherwise the owner has returned, and its row stays.
const TAKE_BACK: &str = concat!(
    "
WITH struck AS (
  DELETE FROM owners WHERE id = $1 AND heartbeat = $2
    AND (NOT $3 OR lock_key > 0 AND lock_key NOT IN (",
    held!(),
    "))
  RETURNING id),
freed AS (",
    free!("owner = $1"),
    " AND EXISTS (SELECT FROM struck) RETURNING id)
SELECT (SELECT count(*) FROM struck), (SELECT count(*) FROM freed)"
);

/// Owners of claims that are missing in the table: a claim was in progress when they were removed, or
/// the table was edited by hand. Steps from one owner to the next by the index, however many rows each
/// has claimed.
const MISSING_OWNERS: &str = "
WITH RECURSIVE claiming(owner) AS (
  (SELECT owner FROM consumer_messages WHERE owner IS NOT NULL ORDER BY owner LIMIT 1)
  UNION ALL
  SELECT (SELECT owner FROM consumer_messages m WHERE m.owner > claiming.owner ORDER BY owner LIMIT 1)
  FROM claiming WHERE claiming.owner IS NOT NULL)
SELECT owner FROM claiming WHERE owner IS NOT NULL AND owner NOT IN (SELECT id FROM owners)";

/// Removes an owner on the same conditions.
const REMOVE: &str = concat!(
    "
WITH struck AS (
  DELETE FROM owners WHERE id = $1 AND heartbeat = $2
    AND (NOT $3 OR lock_key > 0 AND lock_key NOT IN (",
    held!(),
    "))
  RETURNING id)
SELECT count(*), 0::bigint FROM struck"
);

const ORPHANS: &str = "
SELECT id FROM consumer_messages
WHERE owner = $1 AND id <> ALL($2::bigint[]) AND NOT EXISTS (SELECT FROM owners WHERE id = $1)
LIMIT $3";

/// Releases some rows, found by their ids: no index supports the comparison of the owner.
const RELEASE_ORPHANS: &str = concat!(
    free!("id = ANY($2::bigint[]) AND owner IS NOT DISTINCT FROM $1"),
    " AND NOT EXISTS (SELECT FROM owners WHERE id = $1)"
);

/// The channel on which the trigger notifies of new messages.
const CHANNEL: &str = "
SELECT 'ganger.' || left(encode(sha256(convert_to($1::text || '.' || $2::text, 'UTF8')), 'hex'), 40)";

/// The advisory lock of a queue: one of 1024 under ganger's own number, so that a transaction that sends
/// to very many queues does not fill the server's table of locks. A sender that gets it shared keeps it
/// until the end of its transaction, and does not notify. A sender notifies if it does not get the lock,
/// because a source that wants notifications holds it.
macro_rules! lock {
    ($do:literal) => {
        concat!(
            $do,
            "(1734438503, hashtext($1::text || '.' || $2::text) & 1023)"
        )
    };
}

/// 1 if this session now holds the lock exclusively, 2 if another one does, 0 if somebody sends without
/// notifying.
const REQUEST_NOTIFICATIONS: &str = concat!(
    "
SELECT CASE
  WHEN ",
    lock!("pg_try_advisory_lock"),
    " THEN 1
  WHEN NOT ",
    lock!("pg_try_advisory_lock_shared"),
    " THEN 2
  WHEN ",
    lock!("pg_advisory_unlock_shared"),
    " THEN 0 END"
);

/// The channel on which a source that withdraws its request informs those that were notified because of
/// it.
const WOKEN: &str = "SELECT 'ganger.' || (hashtext($1::text || '.' || $2::text) & 1023)";

const WAKE_UP: &str = concat!(
    "SELECT ",
    lock!("pg_advisory_unlock"),
    ", pg_notify('ganger.' || (hashtext($1::text || '.' || $2::text) & 1023), '')"
);

/// Requests notifications of everything that is sent to a queue from now on. If it is granted,
/// everything that was sent before is committed.
pub(crate) async fn request_notifications(
    client: &Client,
    schema: &str,
    queue: &str,
) -> Result<NotifyState, Error> {
    let asleep = client
        .query_one(REQUEST_NOTIFICATIONS, &[&schema, &queue])
        .await?;
    Ok(match asleep.try_get::<_, i32>(0)? {
        1 => NotifyState::Own,
        2 => NotifyState::Others,
        _ => NotifyState::Incomplete,
    })
}

/// Releases all advisory locks of this session without informing other sources: for the only reader of a
/// queue.
pub(crate) async fn withdraw_request(client: &Client) -> Result<(), Error> {
    client
        .execute("SELECT pg_advisory_unlock_all()", &[])
        .await?;
    Ok(())
}

/// Begins to listen to the notifications for a queue.
pub(crate) async fn listen(client: &Client, schema: &str, queue: &str) -> Result<(), Error> {
    for channel in [CHANNEL, WOKEN] {
        let channel = client.query_one(channel, &[&schema, &queue]).await?;
        let listen = format!("LISTEN {}", quoted(channel.try_get(0)?));
        client.batch_execute(&listen).await?;
    }
    Ok(())
}

/// Releases the remaining claims, charged, so that their messages can't return for ever, and removes the
/// owner.
pub(super) async fn leave(client: &Client, owner: i64) -> Result<(), Error> {
    let release = "UPDATE consumer_messages SET owner = NULL, claim = NULL WHERE owner = $1";
    client.execute(release, &[&owner]).await?;
    client
        .execute("DELETE FROM owners WHERE id = $1", &[&owner])
        .await?;
    Ok(())
}

impl registry::Endpoint for ConnectTarget {
    type Connection = RawConnection;

    async fn connect(&self) -> Result<RawConnection, ConnectFailure> {
        self.connect().await.map_err(|error| ConnectFailure {
            why: error.to_string(),
            is_transient: error.is_transient(),
        })
    }
}

impl From<Error> for RequestFailure {
    fn from(error: Error) -> Self {
        Self {
            fault: fault(&error),
            ends_the_connection: ends_the_connection(&error),
        }
    }
}

/// Runs the statement that removes an owner, and notes in the ledger, if there is one, that its runs are
/// lost. Returns the number of claims that were released, or none if the owner stays.
async fn remove_owner(
    raw: &RawConnection,
    snapshot: &OwnerSnapshot,
    statement: &str,
) -> Result<Option<u64>, Error> {
    let (client, mut sql) = (&raw.client, raw);
    let has_ledger = sql.has_ledger().await?;
    let run = async {
        if has_ledger {
            client.begin().await?;
            occurrences::lost(&mut sql, snapshot.owner).await?;
        }
        let seen: [&(dyn ToSql + Sync); 3] = [&snapshot.owner, &snapshot.heartbeat, &snapshot.free];
        let removed = client.query_one(statement, &seen).await?;
        let (removed, freed): (i64, i64) = (removed.try_get(0)?, removed.try_get(1)?);
        Ok((removed > 0).then(|| freed.unsigned_abs()))
    };
    match run.await {
        Ok(Some(freed)) if has_ledger => client.commit().await.map(|()| Some(freed)),
        Ok(None) if has_ledger => client.roll_back().await.map(|()| None),
        done => roll_back_unless(client, done).await,
    }
}

impl Registry for RawConnection {
    fn has_locks(&self) -> bool {
        !self.client.is_pooled()
    }

    async fn lock(&mut self, key: i64) -> Result<bool, RequestFailure> {
        Ok(self.client.query_one(LOCK, &[&key]).await?.try_get(0)?)
    }

    async fn listen(&mut self, queue: &str) -> Result<(), RequestFailure> {
        match self.client.is_pooled() {
            true => Ok(()),
            false => Ok(listen(&self.client, &self.schema, queue).await?),
        }
    }

    async fn request_notifications(&mut self, queue: &str) -> Result<NotifyState, RequestFailure> {
        match self.client.is_pooled() {
            true => Ok(NotifyState::Incomplete),
            false => Ok(request_notifications(&self.client, &self.schema, queue).await?),
        }
    }

    async fn release_notifications(&mut self, queue: &str) -> Result<(), RequestFailure> {
        let of = [&self.schema.as_str() as &(dyn ToSql + Sync), &queue];
        self.client.query_one(WAKE_UP, &of).await?;
        Ok(())
    }

    async fn next_event(&mut self) -> ServerEvent {
        tokio::select! {
            biased;
            _ = &mut self.driver => ServerEvent::ConnectionLost,
            () = self.notification.notified() => ServerEvent::Notification,
        }
    }

    async fn enter(&mut self, new_owner: NewOwner<'_>) -> Result<i64, RequestFailure> {
        let values: [&(dyn ToSql + Sync); 5] = [
            &new_owner.host,
            &new_owner.pid,
            &new_owner.pool,
            &new_owner.lease_ms,
            &new_owner.key,
        ];
        Ok(self.client.query_one(ENTER, &values).await?.try_get(0)?)
    }

    async fn beat(&mut self, owner: i64) -> Result<bool, RequestFailure> {
        Ok(self.client.execute(BEAT, &[&owner]).await? > 0)
    }

    async fn others(&mut self, owner: Option<i64>) -> Result<Vec<OwnerSnapshot>, RequestFailure> {
        let snapshot = |row: &Row| {
            Ok(OwnerSnapshot {
                owner: row.try_get(0)?,
                heartbeat: row.try_get(1)?,
                free: row.try_get(2)?,
                stale: row.try_get(3)?,
                lease: Duration::from_millis(row.try_get::<_, i64>(4)?.unsigned_abs()),
            })
        };
        let prepare = || self.client.prepare(OTHERS);
        let others = self.others.get_or_try_init(prepare).await?;
        let rows = self.client.query(others, &[&owner]).await?;
        rows.iter().map(snapshot).collect()
    }

    async fn clean_up(&mut self, rows: u32) -> Result<Option<String>, RequestFailure> {
        let prepare = || self.client.prepare(RELEASE);
        let release = self.release.get_or_try_init(prepare).await?;
        let most = i64::from(rows.min(RELEASED_MAX));
        self.client.execute(release, &[&most]).await?;
        Ok(None)
    }

    async fn take_back(&mut self, snapshot: &OwnerSnapshot) -> Result<Option<u64>, RequestFailure> {
        Ok(remove_owner(self, snapshot, TAKE_BACK).await?)
    }

    async fn remove(&mut self, snapshot: &OwnerSnapshot) -> Result<(), RequestFailure> {
        remove_owner(self, snapshot, REMOVE).await?;
        Ok(())
    }

    async fn missing_owners(&mut self) -> Result<Vec<i64>, RequestFailure> {
        ids(&self.client.query(MISSING_OWNERS, &[]).await?)
    }

    async fn orphans(
        &mut self,
        owner: i64,
        but: &[i64],
        max: i64,
    ) -> Result<Vec<i64>, RequestFailure> {
        ids(&self.client.query(ORPHANS, &[&owner, &but, &max]).await?)
    }

    async fn release(&mut self, owner: i64, rows: &[i64]) -> Result<u64, RequestFailure> {
        Ok(self
            .client
            .execute(RELEASE_ORPHANS, &[&owner, &rows])
            .await?)
    }

    fn abort(self) {
        self.abort();
    }
}

fn ids(rows: &[Row]) -> Result<Vec<i64>, RequestFailure> {
    let ids = rows.iter().map(|row| row.try_get(0));
    Ok(ids.collect::<Result<_, Error>>()?)
}
