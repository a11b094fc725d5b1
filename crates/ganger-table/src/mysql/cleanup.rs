//! Periodic clean-up: expired unique keys, and rows that a trigger has copied and can't remove. No other
//! work waits for it.

use super::client::Client;
use super::error::{CallError, ends_the_connection, is_missing_column, is_missing_table};
use super::value::now_ms;

/// Rows that hold an expired key.
const OVER: &str = concat!(
    "SELECT id FROM consumer_messages FORCE INDEX (consumer_messages_until)
     WHERE unique_released = 0 AND unique_until <= ",
    now_ms!(),
    " LIMIT ?"
);
const OVER_MAX: u32 = 500;
const RELEASE: &str = "
UPDATE consumer_messages FORCE INDEX (PRIMARY) SET unique_released = 1 WHERE id IN ?";

/// Rows that the trigger has copied to the queues, as `fanned_out` shows. A trigger can't delete from
/// its own table. Rows of open transactions are not visible yet. No index is forced, so that a missing
/// column is reported as such.
const FANNED_OUT: &str = "
SELECT id FROM published_messages WHERE fanned_out = 1 ORDER BY id LIMIT ?";
const REMOVE: &str = "
DELETE p FROM published_messages AS p FORCE INDEX (PRIMARY) WHERE p.id IN ?";

/// First row that was inserted while there were no triggers.
const NOBODYS: &str = "
SELECT id FROM published_messages WHERE fanned_out = 0 ORDER BY id LIMIT 1";

/// Rows of the first version's table, which do not show whether they were copied. It remains in use
/// where triggers may not be created.
const ANY: &str = "SELECT id FROM published_messages ORDER BY id LIMIT ?";
const UNMARKED: &str = "the table `published_messages` is of an earlier version, in which a message is lost \
                        where the trigger is missing: have an administrator run what `ganger schema` prints";

/// Releases expired keys, and removes copied rows, at most `rows` of each. Returns the problem with the
/// remaining rows, if there is one. An error of the one does not prevent the other, unless it ends the
/// connection.
pub(super) async fn clean_up(client: &mut Client, rows: u32) -> Result<Option<String>, CallError> {
    let released = for_those(client, OVER, RELEASE, rows.min(OVER_MAX)).await;
    if let Err(error) = &released
        && ends_the_connection(error)
    {
        return released.map(|()| None);
    }
    let removed = remove_published(client, rows).await;
    released.and(removed)
}

async fn remove_published(client: &mut Client, rows: u32) -> Result<Option<String>, CallError> {
    match for_those(client, FANNED_OUT, REMOVE, rows).await {
        Ok(()) => {}
        // Missing on servers on which the triggers could not be created.
        Err(error) if is_missing_table(&error) => return Ok(None),
        Err(error) if is_missing_column(&error) => return remove_unmarked(client, rows).await,
        Err(error) => return Err(error),
    }
    let Some(row) = client.query_opt(NOBODYS, &[]).await? else {
        return Ok(None);
    };
    let id: i64 = row.get(0)?;
    let table = client.table_name("published_messages");
    Ok(Some(format!(
        "the row {id} of `{table}` was not delivered and is kept: the trigger `{table}_fan_out` is missing, \
         or was missing when the row was inserted"
    )))
}

async fn remove_unmarked(client: &mut Client, rows: u32) -> Result<Option<String>, CallError> {
    match for_those(client, ANY, REMOVE, rows).await {
        // The table was the placeholder that accepts no messages, and has just been replaced.
        Err(error) if is_missing_column(&error) || is_missing_table(&error) => Ok(None),
        removed => removed.map(|()| Some(UNMARKED.to_owned())),
    }
}

/// Runs `what` for the rows selected by `choose`. Usually there are none, and that check needs no
/// transaction. Rows that somebody has locked are left for the next time.
async fn for_those(
    client: &mut Client,
    choose: &str,
    statement: &str,
    most: u32,
) -> Result<(), CallError> {
    let most = [i64::from(most).into()];
    if client.query_opt(choose, &most).await?.is_none() {
        return Ok(());
    }
    let lock = format!("{choose} FOR UPDATE SKIP LOCKED");
    client
        .in_a_transaction(async |client| {
            let rows = client.query(&lock, &most).await?;
            let ids: Result<Vec<i64>, CallError> = rows.iter().map(|row| row.get(0)).collect();
            let ids = ids?;
            if !ids.is_empty() {
                client.execute(statement, &[(&ids).into()]).await?;
            }
            Ok(())
        })
        .await
}
