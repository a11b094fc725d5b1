//! What time brings about, and what a trigger leaves: rows of which nobody waits for the change.

use super::client::Client;
use super::error::{CallError, ends_the_connection, is_of_no_table};
use super::value::now_ms;

/// Rows that hold a key whose time is over.
const OVER: &str = concat!(
    "SELECT id FROM consumer_messages FORCE INDEX (consumer_messages_until)
     WHERE unique_released = 0 AND unique_until <= ",
    now_ms!(),
    " LIMIT ?"
);
const OVER_MAX: u32 = 500;
const RELEASE: &str = "
UPDATE consumer_messages FORCE INDEX (PRIMARY) SET unique_released = 1 WHERE id IN ?";

/// Rows of which the trigger has made messages, but which it may not remove. What is of a transaction that is
/// still open is not there yet.
const PUBLISHED: &str = "SELECT id FROM published_messages ORDER BY id LIMIT ?";
const REMOVE: &str = "
DELETE p FROM published_messages AS p FORCE INDEX (PRIMARY) WHERE p.id IN ?";

/// Lets go the keys whose time is over, and removes what has become messages, so many at once. What is in the way
/// of one is not in the way of the other.
pub(super) async fn tidy_up(client: &mut Client, rows: u32) -> Result<(), CallError> {
    let released = for_those(client, OVER, RELEASE, rows.min(OVER_MAX)).await;
    if released.as_ref().is_err_and(ends_the_connection) {
        return released;
    }
    let removed = match for_those(client, PUBLISHED, REMOVE, rows).await {
        // A server whose trigger could not be made has no such table.
        Err(error) if is_of_no_table(&error) => Ok(()),
        removed => removed,
    };
    released.and(removed)
}

/// Does it with the rows that are chosen. There are none nearly always, and to see that takes no transaction.
/// Those that somebody is just changing have their turn the next time.
async fn for_those(
    client: &mut Client,
    choose: &str,
    what: &str,
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
                client.execute(what, &[(&ids).into()]).await?;
            }
            Ok(())
        })
        .await
}
