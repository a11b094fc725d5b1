//! Which rows it is that the database refuses to have claimed or buried: they are found one by one.

use super::client::Client;
use super::error::{CallError, fault, sentence};
use super::settle;
use super::transaction::roll_back_unless;
use super::value::{Value, now_ms};
use crate::broker::table::passed_over::tell;
use crate::delivery::Failure;
use crate::rules::Limits;

/// So many are tried at once.
const TRIED_MAX: i64 = 256;

/// Those that a claim would take, and whether they would be buried.
const CANDIDATES: &str = concat!(
    "
SELECT id, crashes >= ? OR lapses >= ? OR JSON_TYPE(headers) <> 'OBJECT'
FROM consumer_messages FORCE INDEX (consumer_messages_ready)
WHERE queue = ? AND owner IS NULL AND available_after <= ",
    now_ms!(),
    " AND id NOT IN ?
ORDER BY suspicion, turn, id LIMIT ? FOR UPDATE SKIP LOCKED"
);

const TRY: &str = "
UPDATE consumer_messages FORCE INDEX (PRIMARY) SET available_after = 0, owner = 0, claim = 1
WHERE id = ?";

/// Tries the rows that are next, each by itself, and undoes it. Returns those that are refused for good.
pub(super) async fn refused(
    client: &mut Client,
    queue: &str,
    limits: Limits,
    known: &[i64],
) -> Result<Vec<i64>, CallError> {
    client.begin().await?;
    let refused = tried(client, queue, limits, known).await;
    let refused = roll_back_unless(client, refused).await?;
    client.roll_back().await?;
    Ok(refused)
}

async fn tried(
    client: &mut Client,
    queue: &str,
    limits: Limits,
    known: &[i64],
) -> Result<Vec<i64>, CallError> {
    let values = [
        limits.crashes_max.max(1).into(),
        limits.lapses_max.into(),
        queue.into(),
        Value::from(known),
        TRIED_MAX.into(),
    ];
    let mut refused = Vec::new();
    for candidate in client.query(CANDIDATES, &values).await? {
        let (row, is_dead): (i64, i64) = (candidate.get(0)?, candidate.get(1)?);
        client.batch_execute("SAVEPOINT one").await?;
        match try_one(client, row, is_dead != 0).await {
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

async fn try_one(client: &mut Client, row: i64, is_dead: bool) -> Result<(), CallError> {
    let mut script = client.script();
    script.add(TRY, &[row.into()]);
    if is_dead {
        settle::bury(&mut script, "", &[(row, &Failure::default())], false);
    }
    client.run(script).await.map(drop)
}
