//! Counts of waiting rows, by the index and up to a limit.

use std::collections::BTreeSet;

use super::claim::waits;
use super::client::Client;
use super::error::CallError;
use super::value::{Value, now_ms};
use crate::table::{PRIORITIES_MAX, WaitingRows};

/// Number of ready and of due rows, and milliseconds since the first due row fell due.
const WAITING: &str = concat!(
    "
SELECT
  (SELECT COUNT(*) FROM (",
    waits!("1"),
    " AND available_after = 0 LIMIT ?) AS ready),
  (SELECT COUNT(*) FROM (",
    waits!("1"),
    " AND available_after > 0 AND available_after <= ",
    now_ms!(),
    " LIMIT ?) AS due),
  ",
    now_ms!(),
    " - (",
    waits!("available_after"),
    " AND available_after > 0 ORDER BY available_after LIMIT 1)"
);

/// The first row in the order of claims with a lower priority than the given one, and its age.
const FIRST: &str = concat!(
    waits!(concat!("turn, ", now_ms!(), " - created_at")),
    " AND available_after = 0 AND suspicion = 0 AND turn > ?
ORDER BY turn, id LIMIT 1"
);

/// The next queue in the order of the index, however many rows the previous one has. The server searches
/// the index for the name only if that is known when the statement is planned.
const NEXT_QUEUE: &str = "
SELECT queue FROM consumer_messages FORCE INDEX (consumer_messages_ready)
WHERE queue > ? ORDER BY queue LIMIT 1";

const DELAYED: &str = concat!(
    "
SELECT COUNT(*) FROM (",
    waits!("1"),
    " AND available_after > 0 LIMIT ?) AS is_delayed"
);

/// Counts the rows that could be claimed now, up to `most` of each kind, and finds the oldest.
pub(super) async fn waiting(
    client: &mut Client,
    queue: &str,
    most: u32,
) -> Result<WaitingRows, CallError> {
    let (name, limit) = (Value::from(queue), Value::from(most));
    let values = [name, limit, name, limit, name];
    let counted = client.query_one(WAITING, &values).await?;
    let mut waiting = WaitingRows::new(counted.get(0)?, counted.get(1)?, most, counted.get(2)?);
    let mut beyond = i64::from(i32::MIN);
    for _ in 0..PRIORITIES_MAX {
        let first = client.query(FIRST, &[name, beyond.into()]).await?;
        let Some(first) = first.first() else {
            break;
        };
        beyond = first.get(0)?;
        waiting.is_for(first.get(1)?);
    }
    Ok(waiting)
}

/// Returns the names of queues that hold rows, up to `most`.
pub(super) async fn queues(client: &mut Client, most: u32) -> Result<BTreeSet<String>, CallError> {
    let (mut names, mut last) = (BTreeSet::new(), String::new());
    for _ in 0..most {
        let next = client.query(NEXT_QUEUE, &[(&last).into()]).await?;
        let Some(next) = next.first() else {
            break;
        };
        last = next.get(0)?;
        names.insert(last.clone());
    }
    Ok(names)
}

/// Counts the delayed rows of the queue, due or not, up to `most`.
pub(super) async fn count_delayed(
    client: &mut Client,
    queue: &str,
    most: u32,
) -> Result<u64, CallError> {
    client
        .query_one(DELAYED, &[queue.into(), most.into()])
        .await?
        .get(0)
}
