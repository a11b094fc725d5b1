//! What time brings about, and what a trigger leaves: rows of which nobody waits for the change.

use super::client::Client;
use super::error::CallError;
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
    client
        .in_a_transaction(async |client| {
            let mut script = client.script();
            let (over, published) = (script.add(OVER, &[]), script.add(PUBLISHED, &[]));
            let answers = client.run(script).await?;
            let ids = |at: usize| -> Result<Vec<i64>, CallError> {
                let rows = answers.get(at).map_or(&[][..], |answer| &answer.rows);
                rows.iter().map(|row| row.get(0)).collect()
            };
            let (over, published) = (ids(over)?, ids(published)?);
            if !over.is_empty() {
                let release = "UPDATE consumer_messages SET unique_released = 1 WHERE id IN ?";
                client.execute(release, &[(&over).into()]).await?;
            }
            if !published.is_empty() {
                let remove = "DELETE FROM published_messages WHERE id IN ?";
                client.execute(remove, &[(&published).into()]).await?;
            }
            Ok(())
        })
        .await
}
