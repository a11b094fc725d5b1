//! Release of the claims of owners that have vanished. Rows that the database refuses to release, for
//! example because of a user's trigger, are found by bisection, so that only they stay behind.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::owner_watch::OwnerSnapshot;
use super::registry::{Registry, RequestFailure};

/// Time after which a row or an owner that was refused is tried again.
pub(crate) const STUCK_FOR: Duration = Duration::from_secs(300);

/// Time after which an owner is tried again after another error, such as a lock held by somebody else.
const LATER: Duration = Duration::from_secs(30);

/// Maximum number of rows of an owner that are processed at once, and number of refused ones at which
/// that ends: a heartbeat must not be delayed for long.
const ROWS_MAX: i64 = 1000;
const REFUSED_AT_ONCE_MAX: usize = 16;
/// Number of refused rows from which on the rows are not the cause: then the whole owner waits.
const REFUSED_MAX: usize = 256;

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
                let taken = self.take_from(connection, snapshot).await;
                any |= self.record(snapshot.owner, taken)?;
            }
        }
        if !orphans && gone.is_empty() {
            return Ok(any);
        }
        for owner in connection.missing_owners().await? {
            if !self.owners.contains_key(&owner) {
                let why = "it is not registered as an owner";
                let freed = self.release_orphans(connection, owner, why).await;
                any |= self.record(owner, freed)?;
            }
        }
        Ok(any)
    }

    /// Releases the claims of an owner that is gone, unless it is back.
    async fn take_from<R: Registry>(
        &mut self,
        connection: &mut R,
        snapshot: &OwnerSnapshot,
    ) -> Result<bool, RequestFailure> {
        let why = match snapshot.free {
            true => "its lock is free",
            false => "its heartbeat has stopped",
        };
        match connection.take_back(snapshot).await {
            Ok(freed) => {
                if let Some(freed) = freed {
                    log_taken_back(snapshot.owner, freed, why);
                }
                Ok(freed.is_some())
            }
            Err(failure) if failure.fault.is_permanent => {
                let removed = connection.remove_owner(snapshot).await?;
                Ok(removed
                    && self
                        .release_by_bisection(connection, snapshot.owner, why)
                        .await?)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Releases claims whose owner is not in the table.
    async fn release_orphans<R: Registry>(
        &mut self,
        connection: &mut R,
        owner: i64,
        why: &str,
    ) -> Result<bool, RequestFailure> {
        let refused = self.refused();
        match connection.release_orphans(owner, &refused).await {
            Ok(0) => Ok(false),
            Ok(freed) => {
                log_taken_back(owner, freed, why);
                Ok(true)
            }
            Err(failure) if failure.fault.is_permanent && refused.len() < REFUSED_MAX => {
                self.release_by_bisection(connection, owner, why).await
            }
            Err(failure) => Err(failure),
        }
    }

    /// Does the same by bisection, if single rows prevent the release of the others.
    async fn release_by_bisection<R: Registry>(
        &mut self,
        connection: &mut R,
        owner: i64,
        why: &str,
    ) -> Result<bool, RequestFailure> {
        let mut parts = vec![
            connection
                .orphan_rows(owner, &self.refused(), ROWS_MAX)
                .await?,
        ];
        let (mut freed, mut refused) = (0, 0);
        while let Some(mut part) = parts.pop() {
            match connection.release_rows(owner, &part).await {
                Ok(rows) => freed += rows,
                Err(failure) if !failure.fault.is_permanent => return Err(failure),
                Err(_) if part.len() > 1 => {
                    parts.push(part.split_off(part.len() / 2));
                    parts.push(part);
                }
                Err(failure) => {
                    refused += 1;
                    let problem = failure.fault.problem;
                    for row in part {
                        self.rows.insert(row, Instant::now() + STUCK_FOR);
                        tracing::error!(
                            owner,
                            row,
                            problem,
                            "this message of a dead owner can't be taken back: rejected by the database; retried in 5 minutes"
                        );
                    }
                }
            }
            if refused >= REFUSED_AT_ONCE_MAX {
                break;
            }
        }
        if freed > 0 {
            log_taken_back(owner, freed, why);
        }
        Ok(freed > 0)
    }

    fn refused(&self) -> Vec<i64> {
        self.rows.keys().copied().collect()
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

fn log_taken_back(owner: i64, rows: u64, why: &str) {
    tracing::warn!(owner, rows, why, "took back the messages of a dead owner");
}
