//! Queues of the database that hold messages and that no pool reads: a sender may misspell the name of a
//! queue, and no database rejects that.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::store::TableStore;
use crate::table::{Fault, WaitingRows};
use ganger_queue::delivery::Backlog;
use ganger_queue::unread::{Reader, UnreadQueue};

/// Minimum interval between searches, by one pool of each source.
const EVERY: Duration = Duration::from_secs(60);
/// Divisor of the share of time that is spent on searching.
const PART_OF_TIME: u32 = 200;

/// Maximum number of queues examined, in the order of their names.
const QUEUES_MAX: u32 = 500;
/// Maximum number of unread queues reported.
const REPORTED_MAX: usize = 20;
/// Limit of the count of messages in each.
const COUNTED_MAX: u32 = 10_000;

/// Prefix of the private queues of callers that wait for a reply.
const REPLIES: &str = "ganger.reply.";

/// Searches for them, if it is time and this pool's turn.
pub(super) async fn search(reader: &mut Reader, store: &mut dyn TableStore) {
    let began = Instant::now();
    if !reader.begins(began, began + EVERY) {
        return;
    }
    // Claims report the problems of the database.
    let found = unread(reader, store).await.unwrap_or_default();
    let now = Instant::now();
    let pause = EVERY.max(PART_OF_TIME * (now - began));
    reader.found(found, now + pause);
}

async fn unread(reader: &Reader, store: &mut dyn TableStore) -> Result<Vec<UnreadQueue>, Fault> {
    let mut found = Vec::new();
    for queue in store.queues(QUEUES_MAX).await? {
        if queue.starts_with(REPLIES) || reader.is_read(&queue) {
            continue;
        }
        let waiting = store.waiting(&queue, COUNTED_MAX).await?;
        if waiting.count > 0 {
            let backlog = backlog(waiting);
            found.push(UnreadQueue { queue, backlog });
        }
        if found.len() == REPORTED_MAX {
            break;
        }
    }
    Ok(found)
}

fn backlog(waiting: WaitingRows) -> Backlog {
    Backlog {
        depth: waiting.count,
        is_limit: waiting.is_limit,
        oldest: waiting
            .oldest
            .and_then(|age| SystemTime::now().checked_sub(age)),
    }
}
