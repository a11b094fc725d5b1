//! The pool's rules as decisions get them: what holds for the whole connection, and the moment of a decision.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::time::Instant;

use super::publication::Composer;
use super::targets::Targets;
use crate::broker::signature::CopyKey;
use crate::broker::topology::Topology;
use ganger_config::model::{DeadLetters, Options, PoolConfig, RabbitMqOptions, UnroutableReply};
use ganger_queue::attempts::Limits;

/// Rules of a pool on its connection.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) pool: Arc<PoolConfig>,
    /// Key by which copies are signed.
    pub(super) key: CopyKey,
    /// Maximum size of a frame in bytes.
    pub(super) frame_max: u32,
    /// Time that the broker waits for an acknowledgement.
    pub(super) patience: Duration,
}

/// Parameters of a decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms<'a> {
    pub(super) limits: Limits,
    /// Time that the broker waits for an acknowledgement.
    pub(super) patience: Duration,
    pub(super) now: Instant,
    /// Dead letters are rejected, for the broker to handle.
    pub(super) rejects_dead: bool,
    pub(super) composer: Composer<'a>,
}

impl Rules {
    /// Parameters of a decision that is made now.
    pub(super) fn terms<'a>(&'a self, topology: &'a Topology, targets: &'a Targets) -> Terms<'a> {
        let dead = topology.dead.as_ref();
        Terms {
            limits: Limits::of(&self.pool),
            patience: self.patience,
            now: Instant::now(),
            rejects_dead: options(&self.pool).dead_letter == DeadLetters::Broker,
            composer: Composer {
                pool: &self.pool.name,
                queue: &self.pool.queue,
                dead: dead.map_or("", |dead| &dead.name),
                key: &self.key,
                targets,
                frame_max: self.frame_max,
                now_ms: jiff::Timestamp::now().as_millisecond(),
                random: fastrand::u128(..),
            },
        }
    }

    /// Returns whether a reply without a queue is dropped.
    pub(super) fn drops_replies(&self) -> bool {
        options(&self.pool).unroutable_reply == UnroutableReply::Drop
    }
}

/// Options that only a pool on RabbitMQ has.
pub(super) fn options(pool: &PoolConfig) -> &RabbitMqOptions {
    static DEFAULT: LazyLock<RabbitMqOptions> = LazyLock::new(RabbitMqOptions::default);
    match &pool.options {
        Options::RabbitMq(options) => options,
        Options::Table | Options::Kafka(_) => &DEFAULT,
    }
}
