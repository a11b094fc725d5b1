//! How many messages wait in the queue, for a pool whose number of workers follows that: the broker
//! is asked now and then, over a channel of its own, so that neither the consumers nor an answer that
//! is late are touched by it.

use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::rc::Rc;

use tokio::time::Instant;

use crate::broker::rabbitmq::connect::Broker;
use crate::broker::rabbitmq::error::RabbitMqError;
use crate::broker::rabbitmq::topology;
use crate::config::model::{PoolConfig, Workers};

/// The broker is asked so many times less often than the pool looks at its load.
const LOOKS: u32 = 5;

type Answer = Result<Option<u64>, RabbitMqError>;

/// The question, and when it is asked next.
#[derive(Default)]
pub(super) struct Depth {
    /// None while the pool does not want to know.
    next: Option<Instant>,
    asked: Option<Pin<Box<dyn Future<Output = Answer>>>>,
}

impl fmt::Debug for Depth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Depth")
            .field("next", &self.next)
            .field("asked", &self.asked.is_some())
            .finish_non_exhaustive()
    }
}

impl Depth {
    /// Asks, if the pool wants to know and it is time. Returns whether it wants to know no more.
    pub(super) fn begin(&mut self, broker: &Rc<Broker>, pool: &PoolConfig, now: Instant) -> bool {
        let Workers::Range(range) = pool.workers else {
            return self.next.take().is_some();
        };
        if self.asked.is_none() && self.next.is_none_or(|next| next <= now) {
            self.next = Some(now + LOOKS * range.look_every());
            let (broker, queue) = (Rc::clone(broker), pool.queue.clone());
            let asked = async move { topology::count(&broker, &queue).await };
            self.asked = Some(Box::pin(asked));
        }
        false
    }

    /// When it is time. One question comes after the other.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next.filter(|_| self.asked.is_none())
    }

    /// Whether an answer is still to come. Its channel would spoil the end of the connection.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// The answer, once there is one: how many messages wait, if the broker says so. What is wrong with
    /// the queue or the connection others see, too.
    pub(super) async fn answered(&mut self) -> Option<u64> {
        let Some(asked) = &mut self.asked else {
            return pending().await;
        };
        let answer = asked.await;
        self.asked = None;
        let known = answer.unwrap_or_else(|error| {
            tracing::debug!(%error, "the broker did not say how many messages wait");
            None
        });
        known.filter(|_| self.next.is_some())
    }
}
