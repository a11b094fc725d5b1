//! Checks of the pool's queues at the broker: their expected properties, their existence, and the time of the
//! next check after a problem.

use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::rc::Rc;

use tokio::time::Instant;

use crate::broker::connect::Broker;
use crate::broker::error::RabbitMqError;
use crate::broker::lifetime::ShortLived;
use crate::broker::publish_connection::RECONNECT;
use crate::broker::topology::Topology;

type CheckFuture = Pin<Box<dyn Future<Output = Result<Vec<ShortLived>, RabbitMqError>>>>;

/// State of the checks.
pub(super) struct Checks {
    topology: Topology,
    /// Time of the next check.
    at: Option<Instant>,
    /// Number of consecutive times that one was planned.
    planned: u32,
    check: Option<CheckFuture>,
    /// True if the consumed queue exists, as far as known.
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
    /// Starts with queues that match the configuration.
    pub(super) fn new(topology: Topology) -> Self {
        Self {
            topology,
            at: None,
            planned: 0,
            check: None,
            is_consumable: true,
        }
    }

    /// Queues with their expected properties.
    pub(super) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Changes the expected properties of the queues: there may be more tiers.
    pub(super) fn adopt(&mut self, topology: Topology) {
        if topology != self.topology {
            self.topology = topology;
            self.check_now();
        }
    }

    pub(super) fn is_consumable(&self) -> bool {
        self.is_consumable
    }

    /// Records that the queue is missing, or was when last checked.
    pub(super) fn mark_missing(&mut self) {
        self.is_consumable = false;
        self.check_later();
    }

    /// Plans a check at once, since there may be a problem.
    pub(super) fn check_now(&mut self) {
        self.at = Some(Instant::now());
    }

    /// Plans a check after a pause that grows, since there is a problem.
    pub(super) fn check_later(&mut self) {
        if self.at.is_none() {
            self.planned = self.planned.saturating_add(1);
            let wait = RECONNECT.wait(self.planned, fastrand::f64());
            self.at = Some(Instant::now() + wait);
        }
    }

    /// Begins a check, if one is due.
    pub(super) fn begin(&mut self, broker: &Rc<Broker>, declare: bool, now: Instant) {
        if self.deadline().is_some_and(|at| at <= now) {
            self.at = None;
            let (broker, topology) = (Rc::clone(broker), self.topology.clone());
            let check = async move { ensure_queues(&broker, &topology, declare).await };
            self.check = Some(Box::pin(check));
        }
    }

    /// Time of the next check. Checks do not overlap.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.at.filter(|_| self.check.is_none())
    }

    /// Result of a check, once it ends.
    pub(super) async fn finished(&mut self) -> Result<Vec<ShortLived>, RabbitMqError> {
        let Some(check) = &mut self.check else {
            return pending().await;
        };
        let result = check.await;
        self.check = None;
        if result.is_ok() {
            self.planned = 0;
            self.is_consumable = true;
        }
        result
    }
}

/// Ensures that the queues exist and match the configuration, as far as this user may. Returns those that
/// exist and may be deleted with their messages.
pub(super) async fn ensure_queues(
    broker: &Broker,
    topology: &Topology,
    declare: bool,
) -> Result<Vec<ShortLived>, RabbitMqError> {
    // A message can't show it: its producer may have written the same headers as a stream.
    topology.refuse_stream(broker).await?;
    topology.check(broker, declare).await?;
    topology.short_lived(broker).await
}
