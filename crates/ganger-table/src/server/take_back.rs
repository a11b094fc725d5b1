//! Release of the claims of owners that have vanished. An owner whose rows the database refuses to
//! release, for example because of a user's trigger, is reported, and tried again as a whole.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::registry::{Registry, Undone};
use super::vigil::Sight;

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
        let mut any = false;
        for sight in gone {
            if !self.owners.contains_key(&sight.owner) {
                let taken = take_from(line, sight).await;
                any |= self.told(sight.owner, taken)?;
            }
        }
        if !strays && gone.is_empty() {
            return Ok(any);
        }
        for owner in line.strays().await? {
            if !self.owners.contains_key(&owner) {
                let freed = free_strays(line, owner).await;
                any |= self.told(owner, freed)?;
            }
        }
        Ok(any)
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

/// Releases the claims of an owner that is gone, unless it is back.
async fn take_from<R: Registry>(line: &mut R, sight: &Sight) -> Result<bool, Undone> {
    let freed = line.take_back(sight).await?;
    if let Some(rows) = freed {
        let why = match sight.free {
            true => "its lock is free",
            false => "its heart stands still",
        };
        tell(sight.owner, rows, why);
    }
    Ok(freed.is_some())
}

/// Releases claims whose owner is not in the table.
async fn free_strays<R: Registry>(line: &mut R, owner: i64) -> Result<bool, Undone> {
    let rows = line.free_strays(owner).await?;
    if rows > 0 {
        tell(owner, rows, "it is not among the owners");
    }
    Ok(rows > 0)
}

fn tell(owner: i64, rows: u64, why: &str) {
    tracing::warn!(
        owner,
        rows,
        why,
        "took back the messages of an owner that vanished"
    );
}
