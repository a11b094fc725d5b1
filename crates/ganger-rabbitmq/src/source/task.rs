//! State that outlives a connection to RabbitMQ: the link to the pool, the pool's deliveries of any
//! connection, and the source's health.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use super::arrivals::Arrivals;
use super::book::{Held, begin_within};
use super::health::Health;
use super::message::message;
use super::turns::Turns;
use crate::broker::signature::CopyKey;
use crate::rules;
use crate::rules::demand;
use ganger_config::model::{PoolConfig, RabbitMqSource};
use ganger_core::budget::Share;
use ganger_queue::backlog::Oldest;
use ganger_queue::credit;
use ganger_queue::delivery::{Backlog, Claim, History, Intake, Settlement, SourceEnd};
use ganger_queue::source::link::Link;

/// State that outlives a connection.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) config: RabbitMqSource,
    /// Key by which copies are signed.
    pub(super) key: CopyKey,
    pub(super) arrivals: Arrivals,
    pub(super) end: SourceEnd,
    pub(super) policy: watch::Receiver<Arc<PoolConfig>>,
    /// The daemon's turn for suspects.
    pub(super) turns: Turns,
    pub(super) health: Health,
    /// Share of memory for the held bodies, and those that the broker may send ahead.
    pub(super) share: Share,
    /// Number of deliveries that the pool has, of any connection.
    pub(super) out: usize,
    /// Token of the next connection's first delivery.
    pub(super) next_token: u64,
    /// Time since which messages wait in the queue.
    pub(super) oldest: Oldest,
}

impl Task {
    pub(super) fn new(config: RabbitMqSource, link: Link) -> Self {
        let pool = link.policy.borrow().name.clone();
        let key = CopyKey::of(&config);
        Self {
            arrivals: Arrivals::new(key.clone()),
            key,
            config,
            end: link.end,
            policy: link.policy,
            turns: Turns::new(&link.exclusive, &pool),
            health: Health::new(&pool),
            share: link.share.within(demand::BYTES_ASKED_MAX),
            out: 0,
            next_token: 0,
            oldest: Oldest::default(),
        }
    }

    pub(super) fn pool(&self) -> Arc<PoolConfig> {
        Arc::clone(&self.policy.borrow())
    }

    /// Reports the number of waiting messages to the pool, if known.
    pub(super) fn report_backlog(&mut self, depth: Option<u64>) {
        let backlog = depth.map(|depth| Backlog {
            depth,
            is_limit: false,
            oldest: self.oldest.since(depth, None, SystemTime::now()),
        });
        credit::report_backlog(&self.end, backlog);
    }

    pub(super) fn intake(&self) -> Intake {
        credit::intake(&self.end)
    }

    /// Number of messages that may still be handed out.
    pub(super) fn room(&self) -> usize {
        credit::room(self.intake(), self.out)
    }

    /// Hands a message to the pool.
    pub(super) fn deliver(&mut self, claim: &Claim, pool: &PoolConfig, token: u64, held: &Held) {
        let begin_by = held.since + begin_within(self.config.consumer_timeout);
        let again = held.arrival.redelivered || held.arrival.counters.attempts > 0;
        let message = message(&pool.queue, held, again);
        let properties = &held.original.properties;
        let sent = properties.timestamp().filter(|_| !again);
        let sent = sent.and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
        let priority = properties.priority().unwrap_or(0);
        self.oldest.handed_out(priority, sent, SystemTime::now());
        self.out += 1;
        let history = History {
            step: held.original.step(),
            attempts_max: held.original.attempts_max(),
            ..rules::history(held.arrival)
        };
        self.end
            .deliver_by(claim, token, message, history, begin_by);
    }

    /// Returns whether the end is requested, with no delivery left that could be settled.
    pub(super) fn is_over(&self) -> bool {
        self.intake() == Intake::Closed && self.out == 0
    }

    /// Counts settlements of deliveries whose connection is lost: the broker has taken the messages back.
    pub(super) fn void(&self, count: u64) {
        let why = "they were settled after their connection was lost";
        self.health.may_run_twice(&self.end, count, why);
    }

    /// Handles settlements while there is no connection.
    pub(super) fn settle_nothing(&mut self, first: &Settlement) {
        let worked_on = |settlement: &Settlement| u64::from(settlement.outcome.is_of_work());
        let mut void = worked_on(first);
        self.is_back(first.token);
        while let Ok(settlement) = self.end.settlements.try_recv() {
            void += worked_on(&settlement);
            self.is_back(settlement.token);
        }
        self.void(void);
    }

    /// Records that a delivery has left the pool.
    pub(super) fn is_back(&mut self, token: u64) {
        self.out = self.out.saturating_sub(1);
        self.turns.is_back(token);
    }
}
