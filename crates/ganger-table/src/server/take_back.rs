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

/// Number of rows that are released at once, and of those that are released one by one in a call: a
/// heartbeat must not be delayed for long.
const ROWS_MAX: i64 = 1000;
const SINGLE_ROWS_MAX: usize = 100;

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
        let mut singles = SINGLE_ROWS_MAX;
        for owner in connection.missing_owners().await? {
            if !self.owners.contains_key(&owner) {
                let freed = self.release_orphans(connection, owner, &mut singles).await;
                any |= self.record(owner, freed)?;
            }
        }
        Ok(any)
    }

    /// Releases claims whose owner is not in the table: where the database refuses all at once, `singles`
    /// of them one by one. Each of those is released or skipped from then on, so that the next call gets
    /// to others.
    async fn release_orphans<R: Registry>(
        &mut self,
        connection: &mut R,
        owner: i64,
        singles: &mut usize,
    ) -> Result<bool, RequestFailure> {
        let refused: Vec<i64> = self.rows.keys().copied().collect();
        let rows = connection.orphans(owner, &refused, ROWS_MAX).await?;
        if rows.is_empty() {
            return Ok(false);
        }
        let released = match connection.release(owner, &rows).await {
            Err(failure) if failure.fault.is_permanent => {
                let few = rows.get(..*singles).unwrap_or(&rows);
                *singles -= few.len();
                self.release_each(connection, owner, few).await?
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
        rows: &[i64],
    ) -> Result<u64, RequestFailure> {
        let mut released = 0;
        for &row in rows {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::future::pending;

    use super::super::registry::{NewOwner, ServerEvent};
    use super::*;
    use crate::table::Fault;

    /// A server that holds these rows of an owner that is gone, and refuses to release some of them.
    #[derive(Debug, Default)]
    struct Server {
        /// The owner is in its table.
        has_owner: bool,
        rows: BTreeSet<i64>,
        refused: BTreeSet<i64>,
    }

    impl Server {
        fn release_all(&mut self, rows: &[i64]) -> Result<u64, RequestFailure> {
            if rows.iter().any(|row| self.refused.contains(row)) {
                return Err(RequestFailure {
                    fault: Fault {
                        is_permanent: true,
                        ..Fault::transient("refused")
                    },
                    ends_the_connection: false,
                });
            }
            let before = self.rows.len();
            self.rows.retain(|row| !rows.contains(row));
            Ok(u64::try_from(before - self.rows.len()).unwrap())
        }
    }

    const OWNER: i64 = 7;

    impl Registry for Server {
        fn has_locks(&self) -> bool {
            true
        }

        async fn lock(&mut self, _: i64) -> Result<bool, RequestFailure> {
            Ok(true)
        }

        async fn listen(&mut self, _: &str) -> Result<(), RequestFailure> {
            Ok(())
        }

        async fn next_event(&mut self) -> ServerEvent {
            pending().await
        }

        async fn enter(&mut self, _: NewOwner<'_>) -> Result<i64, RequestFailure> {
            Ok(1)
        }

        async fn beat(&mut self, _: i64) -> Result<bool, RequestFailure> {
            Ok(true)
        }

        async fn others(&mut self, _: Option<i64>) -> Result<Vec<OwnerSnapshot>, RequestFailure> {
            Ok(Vec::new())
        }

        async fn clean_up(&mut self, _: u32) -> Result<Option<String>, RequestFailure> {
            Ok(None)
        }

        async fn take_back(&mut self, _: &OwnerSnapshot) -> Result<Option<u64>, RequestFailure> {
            let rows: Vec<i64> = self.rows.iter().copied().collect();
            let released = self.release_all(&rows)?;
            self.has_owner = false;
            Ok(Some(released))
        }

        async fn remove(&mut self, _: &OwnerSnapshot) -> Result<(), RequestFailure> {
            self.has_owner = false;
            Ok(())
        }

        async fn missing_owners(&mut self) -> Result<Vec<i64>, RequestFailure> {
            let is_missing = !self.has_owner && !self.rows.is_empty();
            Ok(is_missing.then_some(OWNER).into_iter().collect())
        }

        async fn orphans(
            &mut self,
            _: i64,
            but: &[i64],
            max: i64,
        ) -> Result<Vec<i64>, RequestFailure> {
            let rows = self.rows.iter().copied().filter(|row| !but.contains(row));
            Ok(rows.take(usize::try_from(max).unwrap()).collect())
        }

        async fn release(&mut self, _: i64, rows: &[i64]) -> Result<u64, RequestFailure> {
            self.release_all(rows)
        }

        fn abort(self) {}
    }

    /// The refused rows come first, and one call can't try all of them.
    #[tokio::test(start_paused = true)]
    async fn refused_rows_hold_up_no_others_however_many() {
        let gone = OwnerSnapshot {
            owner: OWNER,
            heartbeat: 1,
            lease: Duration::from_secs(30),
            free: true,
            stale: true,
        };
        let mut server = Server {
            has_owner: true,
            rows: (0..1500).collect(),
            refused: (0..250).collect(),
        };
        let mut take_back = TakeBack::default();
        let first = take_back.from(&mut server, &[gone], false).await.unwrap();
        assert!(!first && server.rows.len() == 1500, "{take_back:?}");
        for _ in 0..4 {
            take_back.from(&mut server, &[], true).await.unwrap();
        }
        assert_eq!(server.rows, server.refused);
        // Rows that are no longer refused are released by the next attempt.
        server.refused.clear();
        take_back.from(&mut server, &[], true).await.unwrap();
        assert_eq!(server.rows.len(), 250);
        tokio::time::advance(STUCK_FOR).await;
        assert!(take_back.from(&mut server, &[], true).await.unwrap());
        assert!(server.rows.is_empty());
    }
}
