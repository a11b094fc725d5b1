//! What time brings about, and what a trigger leaves: rows of which nobody waits for the change.

use super::client::Client;
use super::error::{CallError, is_of_no_table};
use super::value::now_ms;

/// Rows that hold a key whose time is over. Those that somebody is just changing have their turn the next
/// time.
const OVER: &str = concat!(
    "
SELECT id FROM consumer_messages FORCE INDEX (consumer_messages_until)
WHERE unique_released = 0 AND unique_until <= ",
    now_ms!(),
    "
LIMIT 500 FOR UPDATE SKIP LOCKED"
);

/// Rows of which the trigger has made messages, but which it may not remove. What is of a transaction that is
/// still open has its turn later.
const PUBLISHED: &str = "
SELECT id FROM published_messages ORDER BY id LIMIT 5000 FOR UPDATE SKIP LOCKED";

/// Lets go the keys whose time is over, and removes what has become messages.
pub(super) async fn tidy_up(client: &mut Client) -> Result<(), CallError> {
    let release = "UPDATE consumer_messages SET unique_released = 1 WHERE id IN ?";
    for_those(client, OVER, release).await?;
    let remove = "DELETE FROM published_messages WHERE id IN ?";
    match for_those(client, PUBLISHED, remove).await {
        // A server whose trigger could not be made has no such table.
        Err(error) if is_of_no_table(&error) => Ok(()),
        removed => removed,
    }
}

/// Does it with the rows that are chosen.
async fn for_those(client: &mut Client, choose: &str, what: &str) -> Result<(), CallError> {
    client
        .in_a_transaction(async |client| {
            let rows = client.query(choose, &[]).await?;
            let ids: Result<Vec<i64>, CallError> = rows.iter().map(|row| row.get(0)).collect();
            let ids = ids?;
            if !ids.is_empty() {
                client.execute(what, &[(&ids).into()]).await?;
            }
            Ok(())
        })
        .await
}
