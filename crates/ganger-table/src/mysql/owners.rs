//! The table of owners and their claims: the statements, and their use by a lease.

use std::time::Duration;

use super::cleanup;
use super::client::Client;
use super::connect::{ConnectTarget, is_set};
use super::error::{CallError, ends_the_connection, fault};
use super::transaction::roll_back_unless;
use super::value::{Value, now_ms};
use crate::server::occurrences;
use crate::server::owner_watch::OwnerSnapshot;
use crate::server::registry::{
    self, ConnectFailure, NewOwner, Registry, RequestFailure, ServerEvent,
};
use crate::table::Fault;

const LOCK: &str = "SELECT COALESCE(GET_LOCK(?, 0), 0)";

const ENTER: &str = concat!(
    "
INSERT INTO owners (host, pid, pool, started_at, lease_ms, beaten_at, lock_name)
VALUES (?, ?, ?, ",
    now_ms!(),
    ", ?, ",
    now_ms!(),
    ", ?)"
);

const BEAT: &str = concat!(
    "UPDATE owners SET heartbeat = heartbeat + 1, beaten_at = ",
    now_ms!(),
    " WHERE id = ?"
);

/// Condition that an owner uses a lock and no session holds it.
macro_rules! is_free {
    () => {
        "(lock_name LIKE 'ganger.%' AND IS_FREE_LOCK(lock_name) = 1)"
    };
}

/// Condition that the last heartbeat of an owner is older than its lease.
macro_rules! is_stale {
    () => {
        concat!("(beaten_at + lease_ms < ", now_ms!(), ")")
    };
}

const OTHERS: &str = concat!(
    "SELECT id, heartbeat, ",
    is_free!(),
    ", ",
    is_stale!(),
    ", lease_ms FROM owners WHERE id <> ?"
);

/// Read-only state: a server that accepted writes may have become a replica.
const IS_READ_ONLY: &str = "SELECT @@innodb_read_only, @@global.read_only";

/// Locks an owner if its heartbeat has not changed since it was seen, and its lock, if that was free, still
/// is. Otherwise the owner has returned, and its row stays.
const SEEN: &str = concat!(
    "SELECT id FROM owners WHERE id = ? AND heartbeat = ? AND (NOT ? OR ",
    is_free!(),
    ") FOR UPDATE"
);

/// Releases claims. A suspect is charged with the attempt: it was the only suspect that ran. `lapses` is
/// set last, since assignments see the values that were set before them.
macro_rules! free {
    ($index:literal) => {
        concat!(
            "
UPDATE consumer_messages FORCE INDEX (",
            $index,
            ") SET
  attempts = CASE WHEN suspicion > 0 THEN attempts ELSE GREATEST(attempts - 1, 0) END,
  last_error = CASE WHEN suspicion > 0
    THEN 'the daemon vanished with it in hand' ELSE last_error END,
  lapses = LEAST(lapses, 4294967294) + 1, owner = NULL, claim = NULL
WHERE owner = ?"
        )
    };
}

const FREE: &str = free!("consumer_messages_claimed");

/// The next owner of claims, in order, and whether it is in the table. Each owner takes a statement of its
/// own, since a single statement might read through the claims of each.
const NEXT_CLAIMING: &str = "
SELECT owner, owner IN (SELECT id FROM owners) FROM consumer_messages FORCE INDEX (consumer_messages_claimed)
WHERE owner > ? ORDER BY owner LIMIT 1";

const ORPHANS: &str = "
SELECT id FROM consumer_messages FORCE INDEX (consumer_messages_claimed)
WHERE owner = ? AND id NOT IN ? AND NOT EXISTS (SELECT 1 FROM owners WHERE owners.id = ?) LIMIT ?";

/// Releases some rows of an owner that is not in the table.
const RELEASE_ORPHANS: &str = concat!(
    free!("PRIMARY"),
    " AND id IN ? AND NOT EXISTS (SELECT 1 FROM owners WHERE owners.id = ?)"
);

/// Returns the name of a lock: a server has one set of names for all its databases.
fn lock_name(key: i64) -> String {
    match key > 0 {
        true => format!("ganger.{key:x}"),
        false => format!("none.{:x}", key.unsigned_abs()),
    }
}

/// Releases the remaining claims, charged, so that their messages can't return for ever, and removes the
/// owner.
pub(super) async fn leave(client: &mut Client, owner: i64) -> Result<(), CallError> {
    let mut script = client.script();
    let release = "
        UPDATE consumer_messages FORCE INDEX (consumer_messages_claimed)
        SET owner = NULL, claim = NULL WHERE owner = ?";
    script.add(release, &[owner.into()]);
    script.add("DELETE FROM owners WHERE id = ?", &[owner.into()]);
    client.run(script).await.map(drop)
}

impl registry::Endpoint for ConnectTarget {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, ConnectFailure> {
        self.connect().await.map_err(|error| ConnectFailure {
            why: error.to_string(),
            is_transient: error.is_transient(),
        })
    }
}

impl From<CallError> for RequestFailure {
    fn from(error: CallError) -> Self {
        Self {
            fault: fault(&error),
            ends_the_connection: ends_the_connection(&error),
        }
    }
}

impl Client {
    /// Opens a transaction and locks the owner, if it is unchanged since it was seen. Returns whether it
    /// is.
    async fn lock_owner(&mut self, snapshot: &OwnerSnapshot) -> Result<bool, CallError> {
        let mut script = self.transaction(None);
        let free = i64::from(snapshot.free);
        let seen = [
            snapshot.owner.into(),
            snapshot.heartbeat.into(),
            free.into(),
        ];
        let seen = script.add(SEEN, &seen);
        let answers = self.run(script).await?;
        Ok(!answers[seen].rows.is_empty())
    }

    /// Removes an owner if it is unchanged, and releases its claims if `releases`. Returns their number, or
    /// none if the owner stays.
    async fn remove_owner(
        &mut self,
        snapshot: &OwnerSnapshot,
        releases: bool,
    ) -> Result<Option<u64>, CallError> {
        if !self.lock_owner(snapshot).await? {
            self.roll_back().await?;
            return Ok(None);
        }
        occurrences::lost(self, snapshot.owner).await?;
        let mut script = self.script();
        script.add("DELETE FROM owners WHERE id = ?", &[snapshot.owner.into()]);
        let freed = releases.then(|| script.add(FREE, &[snapshot.owner.into()]));
        self.commit_by(&mut script);
        let answers = self.run(script).await?;
        Ok(Some(freed.map_or(0, |at| answers[at].changed)))
    }
}

impl Registry for Client {
    fn has_locks(&self) -> bool {
        self.has_locks()
    }

    async fn lock(&mut self, key: i64) -> Result<bool, RequestFailure> {
        let name = lock_name(key);
        let locked = self.query_one(LOCK, &[Value::from(&name)]).await?;
        Ok(locked.get::<i64>(0)? != 0)
    }

    async fn listen(&mut self, _queue: &str) -> Result<(), RequestFailure> {
        Ok(())
    }

    async fn next_event(&mut self) -> ServerEvent {
        std::future::pending().await
    }

    async fn enter(&mut self, new_owner: NewOwner<'_>) -> Result<i64, RequestFailure> {
        let lock = lock_name(new_owner.key);
        let values = [
            new_owner.host.into(),
            new_owner.pid.into(),
            new_owner.pool.into(),
            new_owner.lease_ms.into(),
            Value::from(&lock),
        ];
        let mut script = self.script();
        script.add(ENTER, &values);
        let id = script.add("SELECT LAST_INSERT_ID()", &[]);
        let answers = self.run(script).await?;
        let row = answers[id].rows.first();
        let row = row.ok_or_else(|| CallError::Unexpected("no row".to_owned()))?;
        Ok(row.get(0)?)
    }

    async fn beat(&mut self, owner: i64) -> Result<bool, RequestFailure> {
        Ok(self.execute(BEAT, &[owner.into()]).await? > 0)
    }

    async fn others(&mut self, owner: Option<i64>) -> Result<Vec<OwnerSnapshot>, RequestFailure> {
        let mut script = self.script();
        let read_only = script.add(IS_READ_ONLY, &[]);
        let others = script.add(OTHERS, &[owner.unwrap_or(0).into()]);
        let answers = self.run(script).await?;
        for row in &answers[read_only].rows {
            if is_set(&row.get::<String>(0)?) || is_set(&row.get::<String>(1)?) {
                return Err(RequestFailure {
                    fault: Fault::transient("the server has become read-only"),
                    ends_the_connection: true,
                });
            }
        }
        let mut seen = Vec::with_capacity(answers[others].rows.len());
        for row in &answers[others].rows {
            seen.push(OwnerSnapshot {
                owner: row.get(0)?,
                heartbeat: row.get(1)?,
                free: row.get::<i64>(2)? != 0,
                stale: row.get::<i64>(3)? != 0,
                lease: Duration::from_millis(row.get::<i64>(4)?.unsigned_abs()),
            });
        }
        Ok(seen)
    }

    async fn clean_up(&mut self, rows: u32) -> Result<Option<String>, RequestFailure> {
        Ok(cleanup::clean_up(self, rows).await?)
    }

    async fn take_back(&mut self, snapshot: &OwnerSnapshot) -> Result<Option<u64>, RequestFailure> {
        let freed = self.remove_owner(snapshot, true).await;
        Ok(roll_back_unless(self, freed).await?)
    }

    async fn remove(&mut self, snapshot: &OwnerSnapshot) -> Result<(), RequestFailure> {
        let removed = self.remove_owner(snapshot, false).await;
        roll_back_unless(self, removed).await?;
        Ok(())
    }

    async fn missing_owners(&mut self) -> Result<Vec<i64>, RequestFailure> {
        let (mut last, mut orphans) = (i64::MIN, Vec::new());
        while let Some(row) = self.query_opt(NEXT_CLAIMING, &[last.into()]).await? {
            last = row.get(0)?;
            if row.get::<i64>(1)? == 0 {
                orphans.push(last);
            }
        }
        Ok(orphans)
    }

    async fn orphans(
        &mut self,
        owner: i64,
        but: &[i64],
        max: i64,
    ) -> Result<Vec<i64>, RequestFailure> {
        let values = [owner.into(), Value::from(but), owner.into(), max.into()];
        let rows = self.query(ORPHANS, &values).await?;
        let rows = rows.iter().map(|row| row.get(0));
        Ok(rows.collect::<Result<_, CallError>>()?)
    }

    async fn release(&mut self, owner: i64, rows: &[i64]) -> Result<u64, RequestFailure> {
        let values = [owner.into(), Value::from(rows), owner.into()];
        Ok(self.execute(RELEASE_ORPHANS, &values).await?)
    }

    fn abort(self) {
        self.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_has_a_name_that_every_server_takes() {
        assert_eq!(lock_name(255), "ganger.ff");
        assert_eq!(lock_name(-255), "none.ff");
        assert!(lock_name(i64::MAX).len() <= 64);
    }
}
