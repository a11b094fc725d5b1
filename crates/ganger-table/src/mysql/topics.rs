//! Topics: the subscriptions of queues, and messages for all queues of a topic.

use super::client::Client;
use super::columns::{Sent, message, message_values};
use super::error::{CallError, is_taken};
use super::row::Row;
use ganger_queue::delivery::{IfUnsubscribed, Outgoing};

const PUBLISH: &str = concat!(
    "INSERT INTO published_messages (topic, ",
    message!(),
    ", unsubscribed) VALUES (?, ",
    message_values!(),
    ", ?)"
);

/// Inserts a message for a topic. A trigger copies it to the queues.
pub(crate) async fn publish(
    client: &mut Client,
    message: &Outgoing,
    unsubscribed: IfUnsubscribed,
) -> Result<(), CallError> {
    let sent = Sent::of(message);
    let mut values = sent.values();
    values.push(unsubscribed.name().into());
    client.execute(PUBLISH, &values).await.map(drop)
}

/// Subscribes queues to topics in the open transaction, each pair once. Returns the new ones.
pub(crate) async fn subscribe(
    client: &mut Client,
    pairs: &[(String, String)],
) -> Result<Vec<(String, String)>, CallError> {
    let there = client
        .query("SELECT topic, queue FROM subscriptions", &[])
        .await?;
    let pair = |row: &Row| Ok((row.get(0)?, row.get(1)?));
    let there = there.iter().map(pair);
    let there: Vec<(String, String)> = there.collect::<Result<_, CallError>>()?;
    // Sorted, so that two daemons with the same pairs can't deadlock.
    let mut missing: Vec<(String, String)> = pairs
        .iter()
        .filter(|pair| !there.contains(pair))
        .cloned()
        .collect();
    missing.sort_unstable();
    missing.dedup();
    let mut added = Vec::new();
    for (topic, queue) in missing {
        let add = "INSERT INTO subscriptions (topic, queue) VALUES (?, ?)";
        match client
            .execute(add, &[(&topic).into(), (&queue).into()])
            .await
        {
            Ok(_) => added.push((topic, queue)),
            // Another daemon has just added it.
            Err(error) if is_taken(&error, "PRIMARY") => {}
            Err(error) => return Err(error),
        }
    }
    Ok(added)
}
