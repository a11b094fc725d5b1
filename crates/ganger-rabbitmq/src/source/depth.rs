//! How many messages wait: in the queue, and in the tiers of delayed ones. The broker is asked now and
//! then, over a channel of its own, so that neither the consumers nor an answer that is late are touched
//! by it.

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

/// For a pool whose number of workers follows the load, the broker is asked for the queue so many times
/// less often than the pool looks at its load.
const LOOKS: u32 = 5;

/// How often it is asked for the queue of another pool, and for the tiers, each of which is a question.
const EVERY: Duration = Duration::from_secs(10);

/// What the broker has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// So many messages wait in the queue, if it says so.
    Ready(Option<u64>),
    /// So many wait for a later time.
    Delayed(Option<u64>),
}

/// The questions, one after the other, and when each is asked next.
#[derive(Default)]
pub(super) struct Depth {
    next_ready: Option<Instant>,
    next_delayed: Option<Instant>,
    asked: Option<Pin<Box<dyn Future<Output = Told>>>>,
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
    /// Asks, if it is time.
    pub(super) fn begin(&mut self, broker: &Rc<Broker>, pool: &PoolConfig, now: Instant) {
        let every = match pool.workers {
            Workers::Range(range) => EVERY.min(LOOKS * range.look_every()),
            Workers::Fixed(_) => EVERY,
        };
        let is_due = |next: Option<Instant>| next.is_none_or(|next| next <= now);
        if self.asked.is_some() {
            return;
        }
        let (broker, queue) = (Rc::clone(broker), pool.queue.clone());
        if is_due(self.next_ready) {
            self.next_ready = Some(now + every);
            let asked = async move { Told::Ready(known(topology::count(&broker, &queue).await)) };
            self.asked = Some(Box::pin(asked));
        } else if is_due(self.next_delayed) {
            self.next_delayed = Some(now + EVERY);
            // Those of an earlier version are not asked for: the broker logs each that is not there.
            let tiers = tiers::tiers(pool.retry.backoff.max).into_iter();
            let asked = async move {
                let places = tiers.map(|tier| tiers::tier_queue(&queue, tier));
                let counted = topology::count_all(&broker, places).await;
                Told::Delayed(known(counted.map(Some)))
            };
            self.asked = Some(Box::pin(asked));
        }
    }

    /// They are asked at once, by new rules.
    pub(super) fn again(&mut self) {
        self.next_ready = None;
    }

    /// When it is time. One question comes after the other.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let next = [self.next_ready, self.next_delayed];
        let next = next.into_iter().flatten().min();
        next.filter(|_| self.asked.is_none())
    }

    /// Whether an answer is still to come. Its channel would spoil the end of the connection.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// The answer, once there is one.
    pub(super) async fn answered(&mut self) -> Told {
        let Some(asked) = &mut self.asked else {
            return pending().await;
        };
        let told = asked.await;
        self.asked = None;
        told
    }
}

/// What is wrong with a queue or the connection others see, too.
fn known(answer: Result<Option<u64>, RabbitMqError>) -> Option<u64> {
    answer.unwrap_or_else(|error| {
        tracing::debug!(%error, "the broker did not say how many messages wait");
        None
    })
}
