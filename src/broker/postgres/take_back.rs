//! Taking back what owners had claimed that are gone. Rows that the database refuses to have taken back,
//! as a trigger of someone's may, are found by halves, so that they alone wait.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::client::Client;
use super::error::{ends_the_connection, fault, sentence};
use super::owners::{FREE_SOME, FREE_STRAYS, STRAY_ROWS, STRAYS, STRIKE, TAKE_BACK};
use super::vigil::Sight;

/// What is refused is tried again after that.
pub(super) const STUCK_FOR: Duration = Duration::from_secs(300);

/// What fails for another reason, a lock of someone's perhaps, is tried again after that.
const LATER: Duration = Duration::from_secs(30);

/// So many rows of an owner are gone through at once, and so many may be refused of them: a heartbeat
/// must not wait for long.
const ROWS_MAX: i64 = 1000;
const REFUSED_AT_ONCE_MAX: usize = 16;
/// More than so many, and it is not the rows: then their owner waits as a whole.
const REFUSED_MAX: usize = 256;

/// What could not be taken back, and until when it is left.
#[derive(Debug, Default)]
pub(super) struct TakeBack {
    owners: HashMap<i64, Instant>,
    rows: HashMap<i64, Instant>,
}

impl TakeBack {
    /// Takes back what those had claimed who are gone; now and then also what belongs to nobody. Returns
    /// whether that was anything.
    pub(super) async fn from(
        &mut self,
        client: &Client,
        gone: &[Sight],
        strays: bool,
    ) -> Result<bool, Error> {
        let now = Instant::now();
        self.owners.retain(|_, until| *until > now);
        self.rows.retain(|_, until| *until > now);
        let mut any = false;
        for sight in gone {
            if !self.owners.contains_key(&sight.owner) {
                let taken = self.take_from(client, sight).await;
                any |= self.told(sight.owner, taken)?;
            }
        }
        if !strays && gone.is_empty() {
            return Ok(any);
        }
        for row in client.query(STRAYS, &[]).await? {
            let owner: i64 = row.try_get(0)?;
            if !self.owners.contains_key(&owner) {
                let why = "it is not among the owners";
                let freed = self.free_strays(client, owner, why).await;
                any |= self.told(owner, freed)?;
            }
        }
        Ok(any)
    }

    /// It may be back, and then goes on.
    async fn take_from(&mut self, client: &Client, sight: &Sight) -> Result<bool, Error> {
        let why = match sight.free {
            true => "its lock is free",
            false => "its heart stands still",
        };
        let seen: [&(dyn ToSql + Sync); 2] = [&sight.owner, &sight.heartbeat];
        match client.query_one(TAKE_BACK, &seen).await {
            Ok(taken) => {
                let (struck, freed): (i64, i64) = (taken.try_get(0)?, taken.try_get(1)?);
                if struck > 0 {
                    tell(sight.owner, freed.unsigned_abs(), why);
                }
                Ok(struck > 0)
            }
            Err(error) if fault(&error).for_good => {
                let struck = client.execute(STRIKE, &seen).await?;
                Ok(struck > 0 && self.free_by_halves(client, sight.owner, why).await?)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes back what the owner has who is none.
    async fn free_strays(&mut self, client: &Client, owner: i64, why: &str) -> Result<bool, Error> {
        let refused = self.refused();
        match client.execute(FREE_STRAYS, &[&owner, &refused]).await {
            Ok(0) => Ok(false),
            Ok(freed) => {
                tell(owner, freed, why);
                Ok(true)
            }
            Err(error) if fault(&error).for_good && refused.len() < REFUSED_MAX => {
                self.free_by_halves(client, owner, why).await
            }
            Err(error) => Err(error),
        }
    }

    /// The same where one of the rows is in the way of the others.
    async fn free_by_halves(
        &mut self,
        client: &Client,
        owner: i64,
        why: &str,
    ) -> Result<bool, Error> {
        let values: [&(dyn ToSql + Sync); 3] = [&owner, &self.refused(), &ROWS_MAX];
        let rows = client.query(STRAY_ROWS, &values).await?;
        let rows = rows.iter().map(|row: &Row| row.try_get(0));
        let mut parts: Vec<Vec<i64>> = vec![rows.collect::<Result<_, Error>>()?];
        let (mut freed, mut refused) = (0, 0);
        while let Some(mut part) = parts.pop() {
            match client.execute(FREE_SOME, &[&owner, &part]).await {
                Ok(rows) => freed += rows,
                Err(error) if !fault(&error).for_good => return Err(error),
                Err(_) if part.len() > 1 => {
                    parts.push(part.split_off(part.len() / 2));
                    parts.push(part);
                }
                Err(error) => {
                    refused += 1;
                    for row in part {
                        self.rows.insert(row, Instant::now() + STUCK_FOR);
                        let problem = sentence(&error);
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

    /// What fails does not end the session: others would take us for dead.
    fn told(&mut self, owner: i64, taken: Result<bool, Error>) -> Result<bool, Error> {
        let error = match taken {
            Ok(any) => return Ok(any),
            Err(error) if ends_the_connection(&error) => return Err(error),
            Err(error) => error,
        };
        let left_for = match fault(&error).for_good {
            true => STUCK_FOR,
            false => LATER,
        };
        self.owners.insert(owner, Instant::now() + left_for);
        let problem = sentence(&error);
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
