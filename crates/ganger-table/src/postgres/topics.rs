//! Topics: the subscriptions of queues, and messages for all queues of a topic.

use std::iter::once;

use tokio_postgres::Error;
use tokio_postgres::types::ToSql;

use super::client::Client;
use super::columns::Columns;
use super::settle::available_after;
use ganger_queue::delivery::{IfUnsubscribed, Outgoing};

const PUBLISH: &str = concat!(
    "
INSERT INTO published_messages (topic, body, body_bytes, headers, correlation_id, reply_to, message_id,
  content_type, key, priority, available_after, unsubscribed)
SELECT p.topic, p.body, p.bytes, p.headers::json, p.correlation_id, p.reply_to, p.message_id,
  p.content_type, p.key, p.priority, ",
    available_after!("p.delay"),
    ", $12::text
FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::text[],
  $8::text[], $9::text[], $10::integer[], $11::bigint[])
  AS p(topic, body, bytes, headers, correlation_id, reply_to, message_id, content_type, key, priority,
    delay)"
);

/// Inserts a message for a topic. A trigger copies it to the queues.
pub(crate) async fn publish(
    client: &Client,
    message: &Outgoing,
    unsubscribed: IfUnsubscribed,
) -> Result<(), Error> {
    let unsubscribed = unsubscribed.name();
    let columns = Columns::of(once(message));
    let mut values = columns.values();
    values.extend::<[&(dyn ToSql + Sync); 1]>([&unsubscribed]);
    client.execute(PUBLISH, &values).await?;
    Ok(())
}

/// Subscribes queues to topics, each pair once. Returns the new ones.
pub(crate) async fn subscribe(
    client: &Client,
    topics: &[&str],
    queues: &[&str],
) -> Result<Vec<(String, String)>, Error> {
    // Ordered, so that two daemons with the same pairs can't deadlock.
    let add = "INSERT INTO subscriptions (topic, queue)
               SELECT * FROM unnest($1::text[], $2::text[]) AS s(topic, queue) ORDER BY topic, queue
               ON CONFLICT DO NOTHING RETURNING topic, queue";
    let added = client.query(add, &[&topics, &queues]).await?;
    let pair = |row: &tokio_postgres::Row| Ok((row.try_get(0)?, row.try_get(1)?));
    added.iter().map(pair).collect()
}
