//! Release of the claims of owners that have vanished. Rows that the database refuses to release, for
//! example because of a user's trigger, are found by bisection, so that only they stay behind.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::registry::{Registry, Undone};
use super::vigil::Sight;

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
    /// Releases the claims of the owners that are gone. If there are any, or with `strays`, also claims
    /// whose owner is not in the table. Returns whether any were released.
    pub(crate) async fn from<R: Registry>(
        &mut self,
        line: &mut R,
        gone: &[Sight],
        strays: bool,
    ) -> Result<bool, Undone> {
        let now = Instant::now();
        self.owners.retain(|_, until| *until > now);
        self.rows.retain(|_, until| *until > now);
        let mut any = false;
        for sight in gone {
            if !self.owners.contains_key(&sight.owner) {
                let taken = self.take_from(line, sight).await;
                any |= self.told(sight.owner, taken)?;
            }
        }
        if !strays && gone.is_empty() {
            return Ok(any);
        }
        for owner in line.strays().await? {
            if !self.owners.contains_key(&owner) {
                let why = "it is not among the owners";
                let freed = self.free_strays(line, owner, why).await;
                any |= self.told(owner, freed)?;
            }
        }
        Ok(any)
    }

    /// Releases the claims of an owner that is gone, unless it is back.
    async fn take_from<R: Registry>(
        &mut self,
        line: &mut R,
        sight: &Sight,
    ) -> Result<bool, Undone> {
        let why = match sight.free {
            true => "its lock is free",
            false => "its heart stands still",
        };
        match line.take_back(sight).await {
            Ok(freed) => {
                if let Some(freed) = freed {
                    tell(sight.owner, freed, why);
                }
                Ok(freed.is_some())
            }
            Err(undone) if undone.fault.is_permanent => {
                let struck = line.strike(sight).await?;
                Ok(struck && self.free_by_halves(line, sight.owner, why).await?)
            }
            Err(undone) => Err(undone),
        }
    }

    /// Releases claims whose owner is not in the table.
    async fn free_strays<R: Registry>(
        &mut self,
        line: &mut R,
        owner: i64,
        why: &str,
    ) -> Result<bool, Undone> {
        let refused = self.refused();
        match line.free_strays(owner, &refused).await {
            Ok(0) => Ok(false),
            Ok(freed) => {
                tell(owner, freed, why);
                Ok(true)
            }
            Err(undone) if undone.fault.is_permanent && refused.len() < REFUSED_MAX => {
                self.free_by_halves(line, owner, why).await
            }
            Err(undone) => Err(undone),
        }
    }

    /// Does the same by bisection, if single rows prevent the release of the others.
    async fn free_by_halves<R: Registry>(
        &mut self,
        line: &mut R,
        owner: i64,
        why: &str,
    ) -> Result<bool, Undone> {
        let mut parts = vec![line.stray_rows(owner, &self.refused(), ROWS_MAX).await?];
        let (mut freed, mut refused) = (0, 0);
        while let Some(mut part) = parts.pop() {
            match line.free_some(owner, &part).await {
                Ok(rows) => freed += rows,
                Err(undone) if !undone.fault.is_permanent => return Err(undone),
                Err(_) if part.len() > 1 => {
                    parts.push(part.split_off(part.len() / 2));
                    parts.push(part);
                }
                Err(undone) => {
                    refused += 1;
                    let problem = undone.fault.problem;
                    for row in part {
                        self.rows.insert(row, Instant::now() + STUCK_FOR);
                        tracing::error!(
                            owner,
                            row,
                            problem,
                            "the database refuses to have this message taken back from an owner that vanished; it waits, and is tried again after a while"
                        );
                    }
                }
            }
            if refused >= REFUSED_AT_ONCE_MAX {
                break;
            }
        }
        if freed > 0 {
            tell(owner, freed, why);
        }
        Ok(freed > 0)
    }

    fn refused(&self) -> Vec<i64> {
        self.rows.keys().copied().collect()
    }

    /// Returns the result, and logs an error. Only an error of the connection is passed on: if any other
    /// ended the session, others would take this source for dead.
    fn told(&mut self, owner: i64, taken: Result<bool, Undone>) -> Result<bool, Undone> {
        let fault = match taken {
            Ok(any) => return Ok(any),
            Err(undone) if undone.ends_the_connection => return Err(undone),
            Err(undone) => undone.fault,
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
            "the messages of an owner that vanished can't be taken back; it is tried again after a while"
        );
        Ok(false)
    }
}

fn tell(owner: i64, rows: u64, why: &str) {
    tracing::warn!(
        owner,
        rows,
        why,
        "took back the messages of an owner that vanished"
    );
}
