//! Timeouts: deliveries and publications that have waited too long for a worker, on their worker,
//! or for the broker's answer.

use std::collections::BTreeSet;
use std::time::Duration;

use lapin::types::ShortString;
use tokio::time::Instant;

use super::health::HealthIssue;
use super::held::Held;
use super::session::Session;
use super::task::Task;
use crate::broker::error::RabbitMqError;

/// Maximum time between two checks of what is old.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Time for the broker's confirm of a publication before a problem is reported.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(30);

/// Maximum number of unresponsive queues that are named.
const QUEUES_SHOWN_MAX: usize = 5;

impl Session {
    /// Runs the checks that are due.
    pub(super) fn keep_time(&mut self, task: &mut Task, now: Instant) -> Result<(), RabbitMqError> {
        if self.outbox.deadline().is_some_and(|at| at <= now) {
            self.try_again(task);
        }
        if now >= self.age_at {
            self.age_at = now + (task.config.consumer_timeout / 32).min(LOOK_EVERY);
            self.look_at_silence(task, now)?;
            self.look_at_age(task, now)?;
        }
        Ok(())
    }

    /// Finds queues that accept publications and never confirm them, such as one without a leader.
    fn look_at_silence(&mut self, task: &mut Task, now: Instant) -> Result<(), RabbitMqError> {
        let mut queues = BTreeSet::new();
        for id in self.outbox.silent_for(CONFIRMED_WITHIN, now) {
            queues.extend(self.is_silent(id, now)?);
        }
        if !queues.is_empty() {
            let problem = silence(&queues);
            task.health
                .begin(&task.end, HealthIssue::Publishing, problem);
        }
        Ok(())
    }

    /// Finds old deliveries. The broker ends the channel, with everything on it, when one delivery
    /// is not acknowledged for too long. One that is not begun goes back in time; for others there
    /// is a warning; one that can't be settled goes back at last.
    fn look_at_age(&mut self, task: &mut Task, now: Instant) -> Result<(), RabbitMqError> {
        let patience = task.config.consumer_timeout;
        let aged = self.deliveries.look_at_age(patience, now);
        for held in aged.slow.iter().filter_map(|tag| self.deliveries.get(*tag)) {
            warn_of_age(&self.pool.name, held, held.age(now), patience);
        }
        self.give_back_unbegun(&aged.unbegun)?;
        self.give_back_stuck(task, &aged.stuck)
    }

    fn give_back_unbegun(&mut self, tags: &[u64]) -> Result<(), RabbitMqError> {
        if tags.is_empty() {
            return Ok(());
        }
        tracing::warn!(
            pool = self.pool.name,
            count = tags.len(),
            "messages have waited for a worker for half of the broker's consumer_timeout and go back"
        );
        self.give_back_all(tags)
    }

    /// Returns deliveries whose work is done and can't be recorded: they run again rather than take
    /// all others along.
    fn give_back_stuck(&mut self, task: &mut Task, tags: &[u64]) -> Result<(), RabbitMqError> {
        if tags.is_empty() {
            return Ok(());
        }
        let why = "what there is to publish for them could not be published in time";
        let count = u64::try_from(tags.len()).unwrap_or(u64::MAX);
        task.health.may_run_twice(&task.end, count, why);
        // Of these a copy may be there, or there is no room for one.
        let copied = self.outbox.forget_all(tags);
        for tag in tags {
            let step = self.deliveries.give_back_stuck(*tag, copied.contains(tag));
            self.act(*tag, step)?;
        }
        self.watch_waiting(task);
        self.watch_aside(task);
        Ok(())
    }
}

/// Text of the problem with queues that answer nothing.
fn silence(queues: &BTreeSet<ShortString>) -> String {
    let shown = queues.iter().take(QUEUES_SHOWN_MAX);
    let shown: Vec<String> = shown.map(|queue| format!("`{queue}`")).collect();
    let shown = shown.join(", ");
    let others = queues.len().saturating_sub(QUEUES_SHOWN_MAX);
    let which = match (queues.len(), others) {
        (1, _) => format!("the queue {shown} has"),
        (_, 0) => format!("the queues {shown} have"),
        (_, others) => format!("the queues {shown} and {others} others have"),
    };
    format!("{which} not confirmed a message for {CONFIRMED_WITHIN:?}")
}

fn warn_of_age(pool: &str, held: &Held, age: Duration, patience: Duration) {
    let name = held.log_name();
    tracing::warn!(
        pool,
        correlation_id = name.correlation_id(),
        message_name = name.message(),
        ?age,
        consumer_timeout = ?patience,
        "a message is being worked on for so long that the broker is going to take it back, with \
         all others of this connection: raise the broker's consumer_timeout"
    );
}
