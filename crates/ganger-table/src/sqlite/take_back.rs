//! Release of the claims of owners that have vanished; `leases.rs` finds these owners.

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::heartbeats::HeartbeatRow;
use super::occurrences;
use super::owners::exists;
use super::rejected::{RowError, with};
use crate::rejected_rows::RejectedRows;

/// An owner whose claims are to be released.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeadOwner {
    owner: i64,
    /// Heartbeat at which its count must still stand, if that is the reason.
    last_heartbeat: Option<i64>,
}

impl DeadOwner {
    pub(crate) fn unlocked(owner: i64) -> Self {
        Self {
            owner,
            last_heartbeat: None,
        }
    }

    pub(crate) fn silent(beat: HeartbeatRow) -> Self {
        Self {
            owner: beat.owner,
            last_heartbeat: Some(beat.heartbeat),
        }
    }
}

/// Claims released of one owner, once the transaction is committed.
#[derive(Debug)]
pub(crate) struct TakenBack {
    owner: i64,
    rows: usize,
    why: &'static str,
    /// The owner's lock file, unless another process removed the owner first.
    pub(crate) file: Option<String>,
}

impl TakenBack {
    /// Logs it.
    pub(crate) fn log(&self) {
        tracing::warn!(
            owner = self.owner,
            rows = self.rows,
            why = self.why,
            "took back the messages of a dead owner"
        );
    }
}

/// Releases the claims of the owners and removes them from the table, except for those that turn out to
/// be alive.
pub(crate) fn from(
    tx: &Transaction<'_>,
    dead: &[DeadOwner],
    stuck: &RejectedRows,
) -> Result<Vec<TakenBack>, RowError> {
    let mut taken = Vec::new();
    for owner in dead {
        taken.extend(from_one(tx, *owner, stuck)?);
    }
    Ok(taken)
}

fn from_one(
    tx: &Transaction<'_>,
    dead: DeadOwner,
    stuck: &RejectedRows,
) -> Result<Option<TakenBack>, RowError> {
    let strike = "DELETE FROM owners WHERE id = ?1 AND (?2 IS NULL OR heartbeat = ?2) \
                  RETURNING lock_file";
    let file: Option<String> = tx
        .query_row(strike, params![dead.owner, dead.last_heartbeat], |row| {
            row.get(0)
        })
        .optional()?;
    if file.is_none() && exists(tx, dead.owner)? {
        return Ok(None);
    }
    let rows = free(tx, dead.owner, stuck)?;
    let why = dead
        .last_heartbeat
        .map_or("its lock is free", |_| "its heartbeat has stopped");
    Ok(Some(TakenBack {
        owner: dead.owner,
        rows,
        why,
        file,
    }))
}

/// Releases the claims of an owner, except for stuck rows. Returns their number.
fn free(tx: &Transaction<'_>, owner: i64, stuck: &RejectedRows) -> Result<usize, RowError> {
    let mut claimed = tx.prepare_cached(CLAIMED)?;
    let rows = claimed.query_map([owner], |row| row.get(0))?;
    let mut rows: Vec<i64> = rows.collect::<rusqlite::Result<_>>()?;
    rows.retain(|row| !stuck.has(*row));
    let mut free = tx.prepare_cached(FREE)?;
    for row in &rows {
        occurrences::lost(tx, *row).map_err(with(*row))?;
        free.execute([row]).map_err(with(*row))?;
    }
    Ok(rows.len())
}

const CLAIMED: &str = "
SELECT id FROM consumer_messages INDEXED BY consumer_messages_claimed WHERE owner = ?1";

/// A suspect is charged with the attempt: it was the only suspect that ran. A row that the daemon ran
/// entirely alone, as the first version did, is charged with a crash, too.
const FREE: &str = "
UPDATE consumer_messages SET
  attempts = CASE WHEN claim_alone OR suspicion > 0 THEN attempts ELSE max(attempts - 1, 0) END,
  crashes = min(crashes, 4294967294) + (claim_alone <> 0),
  lapses = min(lapses, 4294967294) + 1,
  last_error = CASE WHEN claim_alone OR suspicion > 0
    THEN 'the daemon vanished with it in hand' ELSE last_error END,
  owner = NULL, claim = NULL, claim_alone = 0
WHERE id = ?1";

/// Returns owners of claims that are missing in the table, as after a manual change, or because their
/// last rows are stuck; those with only stuck rows are left out.
pub(crate) fn ownerless(
    conn: &Connection,
    stuck: &RejectedRows,
) -> rusqlite::Result<Vec<DeadOwner>> {
    let mut statement = conn.prepare_cached(OWNERLESS)?;
    let owners = statement.query_map([], |row| row.get(0))?;
    let mut dead = Vec::new();
    for owner in owners {
        let owner = owner?;
        if has_any_but(conn, owner, stuck)? {
            dead.push(DeadOwner::unlocked(owner));
        }
    }
    Ok(dead)
}

fn has_any_but(conn: &Connection, owner: i64, stuck: &RejectedRows) -> rusqlite::Result<bool> {
    let mut claimed = conn.prepare_cached(CLAIMED)?;
    let mut rows = claimed.query([owner])?;
    while let Some(row) = rows.next()? {
        if !stuck.has(row.get(0)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Steps from one owner to the next by the index, however many rows each has claimed.
const OWNERLESS: &str = "
WITH RECURSIVE claiming(owner) AS (
  SELECT min(owner) FROM consumer_messages WHERE owner IS NOT NULL
  UNION ALL
  SELECT (SELECT min(owner) FROM consumer_messages WHERE owner > claiming.owner)
  FROM claiming WHERE claiming.owner IS NOT NULL)
SELECT owner FROM claiming WHERE owner IS NOT NULL AND owner NOT IN (SELECT id FROM owners)";

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn to_look_for_strays_costs_nothing_for_each_claim() {
        let dir = tempfile::tempdir().unwrap();
        let conn = crate::sqlite::open_for_tests(&dir.path().join("q.db"));
        conn.execute_batch(
            "INSERT INTO owners (id, host, pid, started_at, lease_ms, lock_file) \
             VALUES (1, 'h', 1, 0, 1, 'l'), (5, 'h', 1, 0, 1, 'l');
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) \
             INSERT INTO consumer_messages (queue, body, owner, claim) \
             SELECT 'q', '', 1 + i % 3 * 2, i FROM n;",
        )
        .unwrap();
        let ownerless = ownerless(&conn, &RejectedRows::default()).unwrap();
        assert_eq!(
            ownerless.iter().map(|dead| dead.owner).collect::<Vec<_>>(),
            [3]
        );
        let statement = conn.prepare_cached(OWNERLESS).unwrap();
        let steps = statement.get_status(StatementStatus::VmStep);
        assert!(steps < 1_000, "{steps} steps");
    }
}
