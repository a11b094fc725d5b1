//! Which rows it is that the database refuses to have claimed or buried: they are found one by one.

use std::sync::Arc;

use tokio_postgres::Error;

use super::client::{Client, Statement};
use super::error::{fault, sentence};
use super::settle::{Statements, bury, now_ms};
use crate::broker::table::Claim;
use crate::broker::table::passed_over::tell;
use crate::delivery::Failure;
use crate::rules::Limits;

/// So many are tried at once.
const TRIED_MAX: i64 = 256;

/// The server answers with no more in one row.
const ROW_BYTES_MAX: i64 = 1000 << 20;

/// Those that a claim would take, whether they would be buried, and how large they are.
const CANDIDATES: &str = concat!(
    "
SELECT id, crashes >= $3 OR lapses >= $4 OR json_typeof(headers) <> 'object',
  coalesce(octet_length(body), octet_length(body_bytes))::bigint + octet_length(headers::text)
FROM consumer_messages
WHERE queue = $1 AND owner IS NULL AND available_after <= ",
    now_ms!(),
    " AND id <> ALL($2::bigint[])
ORDER BY suspicion, priority DESC, id LIMIT $5 FOR UPDATE SKIP LOCKED"
);

const TRY: &str = "
UPDATE consumer_messages SET available_after = 0, owner = 0, claim = $2 WHERE id = $1";

/// Stands for a claim that is taken back at once.
const TOKEN: i64 = 1;

/// Tries the rows that are next, each by itself, and undoes it. Returns those that are refused for good.
pub(super) async fn refused(
    client: &Client,
    statements: &Statements,
    queue: &Arc<str>,
    limits: Limits,
    known: &[i64],
) -> Result<Vec<i64>, Error> {
    client.begin().await?;
    let refused = tried(client, statements, queue, limits, known).await;
    client.roll_back().await?;
    refused
}

async fn tried(
    client: &Client,
    statements: &Statements,
    queue: &Arc<str>,
    limits: Limits,
    known: &[i64],
) -> Result<Vec<i64>, Error> {
    let (crashes, lapses) = (limits.crashes_max.max(1), limits.lapses_max);
    let (crashes, lapses) = (i64::from(crashes), i64::from(lapses));
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
        [&queue.as_ref(), &known, &crashes, &lapses, &TRIED_MAX];
    let candidates = client.query(CANDIDATES, &values).await?;
    let mark = client.prepare(TRY).await?;
    let mut refused = Vec::new();
    for candidate in candidates {
        let (row, is_dead): (i64, bool) = (candidate.try_get(0)?, candidate.try_get(1)?);
        let bytes: i64 = candidate.try_get(2)?;
        if bytes >= ROW_BYTES_MAX {
            tell(row, "it is larger than PostgreSQL hands out");
            refused.push(row);
            continue;
        }
        client.batch_execute("SAVEPOINT one").await?;
        match try_one(client, statements, &mark, row, is_dead).await {
            Err(error) if fault(&error).for_good => {
                tell(row, &sentence(&error));
                refused.push(row);
            }
            tried => tried?,
        }
        client.batch_execute("ROLLBACK TO SAVEPOINT one").await?;
    }
    Ok(refused)
}

async fn try_one(
    client: &Client,
    statements: &Statements,
    mark: &Statement,
    row: i64,
    is_dead: bool,
) -> Result<(), Error> {
    client.execute(mark, &[&row, &TOKEN]).await?;
    if is_dead {
        let claim = Claim { row, token: TOKEN };
        bury(
            client,
            statements,
            "",
            &[(claim, &Failure::default())],
            false,
        )
        .await?;
    }
    Ok(())
}
