//! The pool's rules for decisions: the part that is valid for the whole connection, and the time of a
//! decision.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::time::Instant;

use super::publication::Composer;
use super::targets::Targets;
use crate::broker::signature::CopyKey;
use crate::broker::topology::Topology;
use ganger_config::model::{DeadLetters, Options, PoolConfig, RabbitMqOptions, UnroutableReply};
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::Following;

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
    /// Way on which messages of occurrences are reported, if they are followed.
    pub(super) following: Option<Following>,
}

/// Parameters of a decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms<'a> {
    pub(super) limits: Limits,
    /// Time that the broker waits for an acknowledgement.
    pub(super) patience: Duration,
    pub(super) now: Instant,
    /// True if dead letters are rejected, for the broker to handle.
    pub(super) rejects_dead: bool,
    /// Way on which messages of occurrences are reported, if they are followed.
    pub(super) following: Option<&'a Following>,
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
            following: self.following.as_ref(),
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
