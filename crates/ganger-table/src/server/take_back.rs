//! Release of the claims of owners that have vanished. A row that the database refuses to release, for
//! example because of a user's trigger, is reported, and tried again alone.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::owner_watch::OwnerSnapshot;
use super::registry::{Registry, RequestFailure};

/// Time after which a row or an owner that was refused is tried again.
pub(crate) const STUCK_FOR: Duration = Duration::from_secs(300);

/// Time after which an owner is tried again after another error, such as a lock held by somebody else.
const LATER: Duration = Duration::from_secs(30);

/// Number of rows that are released at once: a heartbeat must not be delayed for long.
const ROWS_MAX: i64 = 1000;

/// Number of refused rows from which on the rows are not the cause: the others wait with them.
const REFUSED_MAX: usize = 64;

/// Owners and rows that could not be released, and the time until which each is skipped.
#[derive(Debug, Default)]
pub(crate) struct TakeBack {
    owners: HashMap<i64, Instant>,
    rows: HashMap<i64, Instant>,
}

impl TakeBack {
    /// Releases the claims of the owners that are gone. If there are any, or with `orphans`, also claims
    /// whose owner is not in the table. Returns whether any were released.
    pub(crate) async fn from<R: Registry>(
        &mut self,
        connection: &mut R,
        gone: &[OwnerSnapshot],
        orphans: bool,
    ) -> Result<bool, RequestFailure> {
        let now = Instant::now();
        self.owners.retain(|_, until| *until > now);
        self.rows.retain(|_, until| *until > now);
        let mut any = false;
        for snapshot in gone {
            if !self.owners.contains_key(&snapshot.owner) {
                let taken = take_from(connection, snapshot).await;
                any |= self.record(snapshot.owner, taken)?;
            }
        }
        if !orphans && gone.is_empty() {
            return Ok(any);
        }
        for owner in connection.missing_owners().await? {
            if !self.owners.contains_key(&owner) {
                let freed = self.release_orphans(connection, owner).await;
                any |= self.record(owner, freed)?;
            }
        }
        Ok(any)
    }

    /// Releases claims whose owner is not in the table, one by one where the database refuses all at once.
    async fn release_orphans<R: Registry>(
        &mut self,
        connection: &mut R,
        owner: i64,
    ) -> Result<bool, RequestFailure> {
        if self.rows.len() >= REFUSED_MAX {
            return Ok(false);
        }
        let refused: Vec<i64> = self.rows.keys().copied().collect();
        let rows = connection.orphans(owner, &refused, ROWS_MAX).await?;
        if rows.is_empty() {
            return Ok(false);
        }
        let released = match connection.release(owner, &rows).await {
            Err(failure) if failure.fault.is_permanent => {
                self.release_each(connection, owner, rows).await?
            }
            released => released?,
        };
        if released > 0 {
            log_taken_back(owner, released, "it is not registered as an owner");
        }
        Ok(released > 0)
    }

    async fn release_each<R: Registry>(
        &mut self,
        connection: &mut R,
        owner: i64,
        rows: Vec<i64>,
    ) -> Result<u64, RequestFailure> {
        let mut released = 0;
        for row in rows {
            match connection.release(owner, &[row]).await {
                Ok(changed) => released += changed,
                Err(failure) if failure.fault.is_permanent => {
                    let problem = failure.fault.problem;
                    tracing::error!(
                        owner,
                        row,
                        problem,
                        "a message of a dead owner can't be taken back; retried later"
                    );
                    self.rows.insert(row, Instant::now() + STUCK_FOR);
                }
                Err(failure) => return Err(failure),
            }
            if self.rows.len() >= REFUSED_MAX {
                break;
            }
        }
        Ok(released)
    }

    /// Returns the result, and logs an error. Only an error of the connection is passed on: if any other
    /// ended the session, others would take this source for dead.
    fn record(
        &mut self,
        owner: i64,
        taken: Result<bool, RequestFailure>,
    ) -> Result<bool, RequestFailure> {
        let fault = match taken {
            Ok(any) => return Ok(any),
            Err(failure) if failure.ends_the_connection => return Err(failure),
            Err(failure) => failure.fault,
        };
        let left_for = match fault.is_permanent {
            true => STUCK_FOR,
            false => LATER,
        };
        self.owners.insert(owner, Instant::now() + left_for);
        let problem = fault.problem;
        tracing::error!(
            owner,
            problem,
            "the messages of a dead owner can't be taken back; retried later"
        );
        Ok(false)
    }
}

/// Releases the claims of an owner that is gone, unless it is back. If the database refuses that, the
/// owner is removed alone, and its claims are orphans.
async fn take_from<R: Registry>(
    connection: &mut R,
    snapshot: &OwnerSnapshot,
) -> Result<bool, RequestFailure> {
    let freed = match connection.take_back(snapshot).await {
        Err(failure) if failure.fault.is_permanent => {
            connection.remove(snapshot).await?;
            return Ok(false);
        }
        freed => freed?,
    };
    if let Some(rows) = freed {
        let why = match snapshot.free {
            true => "its lock is free",
            false => "its heartbeat has stopped",
        };
        log_taken_back(snapshot.owner, rows, why);
    }
    Ok(freed.is_some())
}

fn log_taken_back(owner: i64, rows: u64, why: &str) {
    tracing::warn!(owner, rows, why, "took back the messages of a dead owner");
}
