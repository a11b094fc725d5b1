//! Release of the claims of owners that have vanished. An owner whose rows the database refuses to
//! release, for example because of a user's trigger, is reported, and tried again as a whole.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::owner_watch::OwnerSnapshot;
use super::registry::{Registry, RequestFailure};

/// Time after which an owner that was refused is tried again.
pub(crate) const STUCK_FOR: Duration = Duration::from_secs(300);

/// Time after which an owner is tried again after another error, such as a lock held by somebody else.
const LATER: Duration = Duration::from_secs(30);

/// Owners whose claims could not be released, and the time until which each is skipped.
#[derive(Debug, Default)]
pub(crate) struct TakeBack {
    owners: HashMap<i64, Instant>,
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
                let freed = release_orphans(connection, owner).await;
                any |= self.record(owner, freed)?;
            }
        }
        Ok(any)
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

/// Releases the claims of an owner that is gone, unless it is back.
async fn take_from<R: Registry>(
    connection: &mut R,
    snapshot: &OwnerSnapshot,
) -> Result<bool, RequestFailure> {
    let freed = connection.take_back(snapshot).await?;
    if let Some(rows) = freed {
        let why = match snapshot.free {
            true => "its lock is free",
            false => "its heartbeat has stopped",
        };
        log_taken_back(snapshot.owner, rows, why);
    }
    Ok(freed.is_some())
}

/// Releases claims whose owner is not in the table.
async fn release_orphans<R: Registry>(
    connection: &mut R,
    owner: i64,
) -> Result<bool, RequestFailure> {
    let rows = connection.release_orphans(owner).await?;
    if rows > 0 {
        log_taken_back(owner, rows, "it is not registered as an owner");
    }
    Ok(rows > 0)
}

fn log_taken_back(owner: i64, rows: u64, why: &str) {
    tracing::warn!(owner, rows, why, "took back the messages of a dead owner");
}
