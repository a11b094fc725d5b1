//! What arrives: how many messages are asked for, which of them the pool gets and when, and what
//! goes back unopened.

use bytes::Bytes;
use lapin::message::Delivery;
use tokio::time::{Duration, Instant};

use super::health::HealthIssue;
use super::held::{Held, HeldState};
use super::inbox::{InboxStep, Outlook};
use super::message::message;
use super::publication::{LetterDetail, Publication};
use super::session::Session;
use super::survived::Fingerprint;
use super::task::Task;
use crate::broker::rabbitmq::error::RabbitMqError;
use crate::broker::rabbitmq::ledger::Others;
use crate::broker::rabbitmq::republish::{Received, unwrap};
use crate::broker::rabbitmq::utf8::restore;
use crate::delivery::Intake;
use crate::rules::rabbitmq::{Fate, demand};
use crate::rules::{Limits, credit, rabbitmq as rules};

/// How long a delivery may wait for a worker. The broker's patience is a setting of ours as well,
/// since it does not tell.
pub(super) fn begin_within(task: &Task) -> Duration {
    task.config.consumer_timeout / 2
}

impl Session {
    /// Takes in a message.
    pub(super) fn receive(
        &mut self,
        task: &mut Task,
        delivery: Delivery,
    ) -> Result<(), RabbitMqError> {
        let tag = delivery.delivery_tag;
        let received = Received {
            properties: delivery.properties,
            exchange: delivery.exchange,
            routing_key: delivery.routing_key,
            redelivered: delivery.redelivered,
        };
        let shown = restore::shown(&received);
        let is_unreadable = shown.is_some();
        let (original, mut arrival) = unwrap(shown.unwrap_or(received));
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
        let held = Held {
            original,
            arrival,
            hold: task.share.hold(body.len()),
            body,
            since: Instant::now(),
            place: HeldState::Here,
            warnings: 0,
        };
        if self.ledger.receive(tag, Box::new(held)).is_some() {
            let why = format!("the broker has used the delivery tag {tag} twice");
            return Err(RabbitMqError::Lost { why });
        }
        self.line_up(tag)
    }

    /// Puts a message where it belongs, which may be the dead letters.
    pub(super) fn line_up(&mut self, tag: u64) -> Result<(), RabbitMqError> {
        let Some(held) = self.ledger.get_mut(tag) else {
            return Ok(());
        };
        held.place = HeldState::Here;
        match rules::fate(held.arrival, Limits::of(&self.pool)) {
            // Those that come back from the pool were there before the others.
            Fate::HandOut => {
                let at = self.ready.partition_point(|other| *other < tag);
                self.ready.insert(at, tag);
                Ok(())
            }
            Fate::Suspect(lapses) => {
                held.arrival.lapses = lapses;
                held.arrival.turn = None;
                self.suspects.wait(tag);
                Ok(())
            }
            Fate::InTurn(turn) => {
                self.suspects.come(tag, turn);
                Ok(())
            }
            Fate::Renew(lapses) => {
                held.arrival.lapses = lapses;
                self.publish_for(tag, Publication::Back)
            }
            Fate::Bury(counters, failure) => {
                self.log_dead(tag, &failure);
                let aim = Publication::Letter {
                    counters,
                    failure: Box::new(failure),
                    form: LetterDetail::Full,
                };
                self.publish_for(tag, aim)
            }
        }
    }

    /// Hands to the pool what it has credit for.
    pub(super) fn hand_out(&mut self, task: &mut Task) {
        if self.is_held_up() {
            return;
        }
        for _ in 0..task.room() {
            let Some(tag) = self.ready.pop_front() else {
                return;
            };
            self.deliver(task, tag);
        }
    }

    /// Whether nothing more is begun.
    pub(super) fn is_held_up(&self) -> bool {
        self.closing || self.outbox.backlog().is_full()
    }

    pub(super) fn deliver(&mut self, task: &mut Task, tag: u64) {
        let token = self.token(tag);
        let Some(held) = self.ledger.get_mut(tag) else {
            return;
        };
        held.place = HeldState::Out;
        let begin_by = Some(held.since + begin_within(task));
        let again = held.arrival.redelivered || held.arrival.counters.attempts > 0;
        let message = message(&self.pool.queue, held, again);
        task.out += 1;
        let history = rules::history(held.arrival);
        task.end.deliver_by(token, message, history, begin_by);
    }

    /// Asks the broker for as many messages as the pool can use.
    pub(super) fn plan_prefetch(&mut self, task: &Task, now: Instant) -> Result<(), RabbitMqError> {
        let credit = credit::room(task.intake(), 0);
        let unacknowledged = self.ledger.unacknowledged();
        // By the newest rules: the credit may be by them already.
        let usual = {
            let pool = task.policy.borrow();
            demand::usual(pool.workers, pool.prefetch)
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
        }
        Ok(())
    }

    /// What the cancelled consumers had and the pool has no use for is for others to have. Before
    /// they are cancelled it would only come back to us.
    fn give_back_the_surplus(&mut self, task: &Task) -> Result<(), RabbitMqError> {
        if self.inbox.gives_back(self.closing) {
            // What goes back now would keep back acknowledgements that come after it.
            self.acks.write(&mut self.ledger, Others::Single)?;
            for tag in self.outbox.take_backs().into_iter().rev() {
                self.nack(tag)?;
            }
        }
        let kept = if self.closing { 0 } else { task.room() };
        let surplus = self.ready.split_off(kept.min(self.ready.len()));
        let mut back: Vec<u64> = surplus.into();
        if self.closing || task.intake() == Intake::Credit(0) {
            back.extend(self.suspects.drain());
            back.sort_unstable();
        }
        self.give_back_all(&back)
    }

    /// Messages go back to their queue, from the last on, so that the first of them is the first
    /// there again.
    pub(super) fn give_back_all(&mut self, tags: &[u64]) -> Result<(), RabbitMqError> {
        tags.iter().rev().try_for_each(|tag| self.give_back(*tag))
    }

    /// One message goes back to its queue.
    pub(super) fn give_back(&mut self, tag: u64) -> Result<(), RabbitMqError> {
        let Some(held) = self.ledger.get(tag) else {
            return Ok(());
        };
        if rules::returns_as_copy(held.arrival) {
            return self.publish_for(tag, Publication::Back);
        }
        self.nack(tag)
    }

    /// Likewise, whatever the broker makes of it.
    pub(super) fn nack(&mut self, tag: u64) -> Result<(), RabbitMqError> {
        self.ledger.give_back(tag);
        self.acks.give_back(tag)
    }

    /// The broker has cancelled our consumers.
    pub(super) fn consumer_lost(&mut self, task: &mut Task) {
        let problem = "the broker cancelled the consumer: its queue was deleted, or has moved, or a \
                       message took longer than the broker's consumer_timeout";
        task.health.begin(&task.end, HealthIssue::Queues, problem);
        self.checks.is_lost();
    }
}
