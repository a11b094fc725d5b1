//! The pool's queues at the broker: what they are to be, whether they are there, and when they are
//! looked at again after something was wrong with them.

use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::rc::Rc;

use tokio::time::Instant;

use crate::broker::connect::Broker;
use crate::broker::error::RabbitMqError;
use crate::broker::lifetime::ShortLived;
use crate::broker::line::RECONNECT;
use crate::broker::topology::Topology;

type Look = Pin<Box<dyn Future<Output = Result<Vec<ShortLived>, RabbitMqError>>>>;

/// What is known of the queues.
pub(super) struct Checks {
    topology: Topology,
    /// When they are looked at.
    at: Option<Instant>,
    /// How often in a row that was planned.
    planned: u32,
    look: Option<Look>,
    /// The queue that is consumed is there, as far as we know.
    is_consumable: bool,
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checks")
            .field("at", &self.at)
            .field("is_consumable", &self.is_consumable)
            .finish_non_exhaustive()
    }
}

impl Checks {
    /// They are as they should be.
    pub(super) fn new(topology: Topology) -> Self {
        Self {
            topology,
            at: None,
            planned: 0,
            look: None,
            is_consumable: true,
        }
    }

    /// What they are to be.
    pub(super) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// They are to be so from now on: there may be more tiers.
    pub(super) fn adopt(&mut self, topology: Topology) {
        if topology != self.topology {
            self.topology = topology;
            self.look_now();
        }
    }

    pub(super) fn is_consumable(&self) -> bool {
        self.is_consumable
    }

    /// The queue is not there, or was not when it was last seen.
    pub(super) fn is_lost(&mut self) {
        self.is_consumable = false;
        self.look_later();
    }

    /// Something seems to be wrong.
    pub(super) fn look_now(&mut self) {
        self.at = Some(Instant::now());
    }

    /// Something is wrong; it is seen to after a pause that grows.
    pub(super) fn look_later(&mut self) {
        if self.at.is_none() {
            self.planned = self.planned.saturating_add(1);
            let wait = RECONNECT.wait(self.planned, fastrand::f64());
            self.at = Some(Instant::now() + wait);
        }
    }

    /// Looks, if it is time.
    pub(super) fn begin(&mut self, broker: &Rc<Broker>, declare: bool, now: Instant) {
        if self.deadline().is_some_and(|at| at <= now) {
            self.at = None;
            let (broker, topology) = (Rc::clone(broker), self.topology.clone());
            let look = async move { see_to_queues(&broker, &topology, declare).await };
            self.look = Some(Box::pin(look));
        }
    }

    /// When it is time. One look comes after the other.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.at.filter(|_| self.look.is_none())
    }

    /// The end of a look, if there is one.
    pub(super) async fn seen(&mut self) -> Result<Vec<ShortLived>, RabbitMqError> {
        let Some(look) = &mut self.look else {
            return pending().await;
        };
        let seen = look.await;
        self.look = None;
        if seen.is_ok() {
            self.planned = 0;
            self.is_consumable = true;
        }
        seen
    }
}

/// Sees to it that they are there and as they should be, as far as we may. Returns those that are
/// there and may be deleted with their messages.
pub(super) async fn see_to_queues(
    broker: &Broker,
    topology: &Topology,
    declare: bool,
) -> Result<Vec<ShortLived>, RabbitMqError> {
    // A message can't tell: its producer may have written whatever a stream does.
    topology.refuse_stream(broker).await?;
    topology.check(broker, declare).await?;
    topology.short_lived(broker).await
}
