//! Arrivals: the number of messages asked for, which of them the pool gets and when, and which go
//! back unopened.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use lapin::message::Delivery;
use tokio::time::Instant;

use super::deliveries::begin_within;
use super::health::HealthIssue;
use super::held::{DeliveryStep, Held};
use super::inbox::{InboxStep, Outlook};
use super::message::message;
use super::publication::{LetterDetail, Publication};
use super::session::Session;
use super::survived::Fingerprint;
use super::task::Task;
use crate::broker::error::RabbitMqError;
use crate::broker::ledger::Others;
use crate::broker::republish::{Received, claims_to_be_of, unwrap};
use crate::broker::utf8::restore;
use crate::rules;
use crate::rules::demand;
use ganger_config::model::PoolConfig;
use ganger_queue::attempts::Limits;
use ganger_queue::credit;
use ganger_queue::delivery::{Claim, History, Intake};

impl Session {
    /// Takes in a message.
    pub(super) fn receive(
        &mut self,
        task: &mut Task,
        delivery: Delivery,
    ) -> Result<(), RabbitMqError> {
        let tag = delivery.delivery_tag;
        let is_copy = self.is_copy(task, &delivery);
        let received = Received {
            properties: delivery.properties,
            exchange: delivery.exchange,
            routing_key: delivery.routing_key,
            redelivered: delivery.redelivered,
        };
        let shown = restore::shown(&received);
        let is_unreadable = shown.is_some();
        let (original, mut arrival) = unwrap(shown.unwrap_or(received), is_copy);
        arrival.is_unreadable = is_unreadable;
        if original.properties.message_id().is_none() {
            arrival.number.get_or_insert_with(|| fastrand::u64(..));
        }
        let body = Bytes::from(delivery.data);
        if arrival.redelivered && !task.survived.is_empty() {
            let print = Fingerprint::of(&original, &body);
            arrival.excused = task.survived.excused(print, arrival.returns);
        }
        self.inbox.weigh(body.len());
        let hold = task.share.hold(body.len());
        let held = Held::new(original, arrival, body, hold, Instant::now());
        let Some(step) = self.deliveries.receive(tag, held, Limits::of(&self.pool)) else {
            let why = format!("the broker has used the delivery tag {tag} twice");
            return Err(RabbitMqError::Lost { why });
        };
        self.act(tag, step)
    }

    /// Returns whether it is a copy of a message of this queue, made by a daemon. One that only
    /// claims to be is like any message: its attempts begin anew.
    fn is_copy(&self, task: &mut Task, delivery: &Delivery) -> bool {
        if !claims_to_be_of(&delivery.properties, &self.pool.queue) {
            return false;
        }
        let is_signed = self.key.knows(&delivery.properties, &delivery.data);
        if !is_signed && !std::mem::replace(&mut task.told_of_unsigned, true) {
            tracing::warn!(
                pool = self.pool.name,
                queue = %self.pool.queue,
                "a message says that it is a copy of ours and is not signed by this source: its \
                 headers `x-ganger-` are ignored, and its attempts begin anew. Either another program \
                 writes these headers, or a daemon of this queue has another password: give both the \
                 same `signing_secret`"
            );
        }
        is_signed
    }

    /// Hands out as many messages as the pool has credit for.
    pub(super) fn hand_out(&mut self, task: &mut Task) {
        if self.is_held_up() {
            return;
        }
        for _ in 0..task.room() {
            let Some((token, held)) = self.deliveries.hand_out() else {
                return;
            };
            deliver(task, &self.claim, &self.pool, token, held);
        }
    }

    /// Returns whether nothing more is begun.
    pub(super) fn is_held_up(&self) -> bool {
        self.closing || self.outbox.backlog().is_full()
    }

    /// Asks the broker for as many messages as the pool can use.
    pub(super) fn plan_prefetch(&mut self, task: &Task, now: Instant) -> Result<(), RabbitMqError> {
        let credit = credit::room(task.intake(), 0);
        let unacknowledged = self.deliveries.unacknowledged();
        // By the newest rules: the credit may be by them already.
        let usual = {
            let pool = task.policy.borrow();
            // The only consumer that is fed can't grow with them. What it is sent too early nobody
            // else could have had.
            let workers = match self.inbox.is_single() {
                true => pool.workers.max(),
                false => pool.workers.min(),
            };
            demand::usual(workers, pool.prefetch)
        };
        let outlook = Outlook {
            useful: self.inbox.useful(credit, unacknowledged, &task.share),
            ahead: self.outbox.backlog().ahead(),
            usual,
            most_bytes: task.share.most(),
            unacknowledged,
            closing: self.closing,
            consumable: self.checks.is_consumable(),
        };
        match self.inbox.plan(&outlook, now) {
            InboxStep::Nothing => {}
            InboxStep::Cancelled => self.acks.begin_anew(),
            InboxStep::Surplus => return self.give_back_the_surplus(task),
            InboxStep::Outgrown => self.tell_of_too_small_a_consumer(outlook.useful),
        }
        Ok(())
    }

    fn tell_of_too_small_a_consumer(&self, useful: u16) {
        tracing::warn!(
            pool = self.pool.name,
            queue = %self.inbox.queue(),
            prefetch = self.inbox.prefetch(),
            useful,
            "the workers could use more than the single active consumer of their queue was made \
             for, and it stays: pause and resume the pool, which hands the queue to a daemon that \
             waits for it, or set `workers` or `prefetch` so high from the start"
        );
    }

    /// Returns messages of the cancelled consumers that the pool has no use for, so that others can
    /// have them. Before the consumers are cancelled they would only come back to us.
    fn give_back_the_surplus(&mut self, task: &Task) -> Result<(), RabbitMqError> {
        if self.inbox.gives_back(self.closing) {
            // What goes back now would keep back acknowledgements that come after it.
            self.acks.write(&mut self.deliveries, Others::Single)?;
            for tag in self.outbox.take_backs().into_iter().rev() {
                self.nack(tag)?;
            }
        }
        let kept = if self.closing { 0 } else { task.room() };
        let with_suspects = self.closing || task.intake() == Intake::Credit(0);
        let back = self.deliveries.surplus(kept, with_suspects);
        self.give_back_all(&back)
    }

    /// Returns messages to their queue, from the last on, so that the first of them is the first
    /// there again.
    pub(super) fn give_back_all(&mut self, tags: &[u64]) -> Result<(), RabbitMqError> {
        for tag in tags.iter().rev() {
            let step = self.deliveries.give_back(*tag);
            self.act(*tag, step)?;
        }
        Ok(())
    }

    /// Carries out the next step of a delivery.
    pub(super) fn act(&mut self, tag: u64, step: DeliveryStep) -> Result<(), RabbitMqError> {
        match step {
            DeliveryStep::Rest => Ok(()),
            DeliveryStep::Publish(aim) => self.publish_for(tag, aim),
            DeliveryStep::Bury(counters, failure) => {
                self.log_dead(tag, &failure);
                let aim = Publication::Letter {
                    counters,
                    failure,
                    form: LetterDetail::Full,
                };
                self.publish_for(tag, aim)
            }
            DeliveryStep::Return => self.nack(tag),
        }
    }

    /// Returns a message to its queue, whatever the broker makes of it.
    fn nack(&mut self, tag: u64) -> Result<(), RabbitMqError> {
        self.deliveries.let_go(tag);
        self.acks.give_back(tag)
    }

    /// Handles the cancellation of our consumers by the broker. From RabbitMQ 4.3 on a quorum queue
    /// does that about work that takes too long, and late messages are for others then.
    pub(super) fn consumer_lost(&mut self, task: &mut Task) {
        let late = self
            .deliveries
            .count_late(task.config.consumer_timeout, Instant::now());
        let why = "the broker has cancelled their consumer, and they took nearly as long as its \
                   consumer_timeout or longer";
        let count = u64::try_from(late).unwrap_or(u64::MAX);
        task.health.may_run_twice(&task.end, count, why);
        let problem = "the broker cancelled the consumer: its queue was deleted, or has moved, or a \
                       message took longer than the broker's consumer_timeout";
        task.health.begin(&task.end, HealthIssue::Queues, problem);
        self.checks.is_lost();
    }
}

/// Hands a message to the pool.
pub(super) fn deliver(task: &mut Task, claim: &Claim, pool: &PoolConfig, token: u64, held: &Held) {
    let begin_by = held.since + begin_within(task.config.consumer_timeout);
    let again = held.arrival.redelivered || held.arrival.counters.attempts > 0;
    let message = message(&pool.queue, held, again);
    let properties = &held.original.properties;
    let sent = properties.timestamp().filter(|_| !again);
    let sent = sent.and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
    let priority = properties.priority().unwrap_or(0);
    task.oldest.handed_out(priority, sent, SystemTime::now());
    task.out += 1;
    let history = History {
        step: held.original.step(),
        ..rules::history(held.arrival)
    };
    task.end
        .deliver_by(claim, token, message, history, begin_by);
}
