//! Queues of the database that hold messages and that no pool reads: whoever writes to a table may
//! misspell the name of a queue, and no database minds.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::Task;
use crate::table::{Fault, Waiting};
use ganger_queue::delivery::Backlog;
use ganger_queue::unread::UnreadQueue;

/// How often they are looked for, by one pool of each source.
const EVERY: Duration = Duration::from_secs(60);
/// Of the time no more than such a part is spent on that.
const PART_OF_TIME: u32 = 200;

/// So many queues are looked at, in the order of their names.
const QUEUES_MAX: u32 = 500;
/// So many of them are told of that no pool reads.
const TOLD_MAX: usize = 20;
/// So many messages of each are counted.
const COUNTED_MAX: u32 = 10_000;

/// The private queues of those who wait for an answer.
const REPLIES: &str = "ganger.reply.";

impl Task {
    /// Looks for them, if it is time and this pool's turn.
    pub(super) async fn look_for_unread(&mut self) {
        let began = Instant::now();
        if !self.reader.begins(began, began + EVERY) {
            return;
        }
        // What is wrong with the database the claims show.
        let found = self.unread().await.unwrap_or_default();
        let now = Instant::now();
        let pause = EVERY.max(PART_OF_TIME * (now - began));
        self.reader.found(found, now + pause);
    }

    async fn unread(&mut self) -> Result<Vec<UnreadQueue>, Fault> {
        let mut found = Vec::new();
        for queue in self.store.queues(QUEUES_MAX).await? {
            if queue.starts_with(REPLIES) || self.reader.is_read(&queue) {
                continue;
            }
            let waiting = self.store.waiting(&queue, COUNTED_MAX).await?;
            if waiting.count > 0 {
                let backlog = backlog(waiting);
                found.push(UnreadQueue { queue, backlog });
            }
            if found.len() == TOLD_MAX {
                break;
            }
        }
        Ok(found)
    }
}

fn backlog(waiting: Waiting) -> Backlog {
    Backlog {
        depth: waiting.count,
        is_limit: waiting.is_limit,
        oldest: waiting
            .oldest
            .and_then(|age| SystemTime::now().checked_sub(age)),
    }
}
