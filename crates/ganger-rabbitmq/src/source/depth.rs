//! Number of waiting messages: in the queue, and in the tiers of delayed ones. The broker is queried at
//! intervals, over a separate channel, so that neither the consumers nor a late answer are affected.

use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use crate::broker::connect::Broker;
use crate::broker::error::RabbitMqError;
use crate::broker::topology;
use crate::rules::tiers;
use ganger_config::model::{PoolConfig, Workers};

/// Ratio of the pool's load checks to queries of the queue, for a pool whose number of workers follows the
/// load.
const LOAD_CHECKS_PER_QUERY: u32 = 5;

/// Interval of the queries for the queue of another pool, and for the tiers, each of which takes one.
const EVERY: Duration = Duration::from_secs(10);

/// Answer of the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DepthAnswer {
    /// Number of messages that wait in the queue, if known.
    Ready(Option<u64>),
    /// Number of messages that wait for a later time, if known.
    Delayed(Option<u64>),
}

/// The queries, one after the other, and the next time of each.
#[derive(Default)]
pub(super) struct Depth {
    next_ready: Option<Instant>,
    next_delayed: Option<Instant>,
    asked: Option<Pin<Box<dyn Future<Output = DepthAnswer>>>>,
}

impl fmt::Debug for Depth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Depth")
            .field("next_ready", &self.next_ready)
            .field("next_delayed", &self.next_delayed)
            .field("asked", &self.asked.is_some())
            .finish_non_exhaustive()
    }
}

impl Depth {
    /// Sends a query, if one is due.
    pub(super) fn begin(&mut self, broker: &Rc<Broker>, pool: &PoolConfig, now: Instant) {
        let every = match pool.workers {
            Workers::Range(range) => EVERY.min(LOAD_CHECKS_PER_QUERY * range.look_every()),
            Workers::Fixed(_) => EVERY,
        };
        let is_due = |next: Option<Instant>| next.is_none_or(|next| next <= now);
        if self.asked.is_some() {
            return;
        }
        let (broker, queue) = (Rc::clone(broker), pool.queue.clone());
        if is_due(self.next_ready) {
            self.next_ready = Some(now + every);
            let asked =
                async move { DepthAnswer::Ready(known(topology::count(&broker, &queue).await)) };
            self.asked = Some(Box::pin(asked));
        } else if is_due(self.next_delayed) {
            self.next_delayed = Some(now + EVERY);
            // Tiers of an earlier version are not queried: the broker logs a query for each that does not
            // exist.
            let tiers = tiers::tiers(pool.retry.backoff.max).into_iter();
            let asked = async move {
                let places = tiers.map(|tier| tiers::tier_queue(&queue, tier));
                let counted = topology::count_all(&broker, places).await;
                DepthAnswer::Delayed(known(counted.map(Some)))
            };
            self.asked = Some(Box::pin(asked));
        }
    }

    /// Makes the queries due at once, by new rules.
    pub(super) fn make_due(&mut self) {
        self.next_ready = None;
    }

    /// Time of the next query. Queries do not overlap.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let next = [self.next_ready, self.next_delayed];
        let next = next.into_iter().flatten().min();
        next.filter(|_| self.asked.is_none())
    }

    /// Returns whether an answer is still expected. Its channel would disturb the end of the connection.
    pub(super) fn is_pending(&self) -> bool {
        self.asked.is_some()
    }

    /// Returns the answer, once it has arrived.
    pub(super) async fn answered(&mut self) -> DepthAnswer {
        let Some(asked) = &mut self.asked else {
            return pending().await;
        };
        let answer = asked.await;
        self.asked = None;
        answer
    }
}

/// Drops an error: problems of a queue or the connection are noticed elsewhere, too.
fn known(answer: Result<Option<u64>, RabbitMqError>) -> Option<u64> {
    answer.unwrap_or_else(|error| {
        tracing::debug!(%error, "queue depth not available");
        None
    })
}
