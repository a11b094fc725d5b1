//! What arrives: how many messages are asked for, which of them the pool gets and when, and what
//! goes back unopened.

use bytes::Bytes;
use lapin::message::Delivery;
use lapin::options::BasicNackOptions;
use tokio::time::{Duration, Instant};

use super::Task;
use super::copy::{Received, unwrap};
use super::error::RabbitMqError;
use super::health::Trouble;
use super::job::{Aim, Form};
use super::message::message;
use super::rules::{self, Fate, Step};
use super::session::{Alone, Held, Job, Place, Session, written};
use crate::source::Limits;

/// How long the broker may send ahead more than is wanted. Shorter, and the consumers would change
/// with every change of a worker's pace; longer, and messages would wait here that others could
/// work on.
const SURPLUS_FOR: Duration = Duration::from_secs(1);
/// How long it may send ahead somewhat less: workers come up one after the other.
const SCARCE_FOR: Duration = Duration::from_millis(100);

/// The longest time between two looks at what is old.
const LOOK_AT_AGE_EVERY: Duration = Duration::from_secs(5);

/// How long the broker may take over what we publish before that is called a trouble.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(30);

/// How long a delivery may wait for a worker. The broker's patience is a setting of ours as well,
/// since it does not tell.
pub(super) fn begin_within(task: &Task) -> Duration {
    task.config.consumer_timeout / 2
}

impl Session {
    /// Takes in a message.
    pub(super) fn receive(&mut self, delivery: Delivery) -> Result<(), RabbitMqError> {
        let tag = delivery.delivery_tag;
        let (original, mut arrival) = unwrap(Received {
            properties: delivery.properties,
            exchange: &delivery.exchange,
            routing_key: &delivery.routing_key,
            redelivered: delivery.redelivered,
        });
        if original.properties.message_id().is_none() {
            arrival.number.get_or_insert_with(|| fastrand::u64(..));
        }
        if arrival.of_a_stream {
            let queue = self.pool.queue.to_string();
            return Err(RabbitMqError::Stream { queue });
        }
        let body = Bytes::from(delivery.data);
        self.body_bytes = average(self.body_bytes, body.len());
        let held = Held {
            original,
            arrival,
            body,
            since: Instant::now(),
            place: Place::Here,
            warnings: 0,
        };
        if self.ledger.receive(tag, Box::new(held)).is_some() {
            let why = format!("the broker has used the delivery tag {tag} twice");
            return Err(RabbitMqError::Lost { why });
        }
        if self.closing {
            return self.give_back(tag);
        }
        match rules::fate(arrival, Limits::of(&self.pool), self.charged) {
            Fate::HandOut => self.ready.push_back(tag),
            Fate::Solo => self.solo.push_back(tag),
            Fate::Charge(counters) => {
                self.charged = true;
                return self.publish_for(tag, Aim::Charge(counters));
            }
            Fate::Bury(counters, failure) => {
                self.charged = true;
                self.log_dead(tag, &failure);
                let aim = Aim::Letter {
                    counters,
                    failure: Box::new(failure),
                    form: Form::Full,
                };
                return self.publish_for(tag, aim);
            }
        }
        Ok(())
    }

    /// Hands to the pool what it has credit for.
    pub(super) fn hand_out(&mut self, task: &mut Task) {
        let paused = task.health.has(Trouble::Blocked) || task.health.has(Trouble::Publishing);
        if self.closing || paused || matches!(self.alone, Alone::Out(_)) {
            task.permits.want_no_more();
            return;
        }
        let room = rules::room(task.intake(), task.out);
        if room == 0 {
            task.permits.want_no_more();
        } else if self.solo.is_empty() {
            self.hand_out_ready(task, room);
        } else {
            self.hand_out_solo(task);
        }
    }

    fn hand_out_ready(&mut self, task: &mut Task, room: usize) {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let wanted = room.min(self.ready.len());
        if wanted == 0 {
            return;
        }
        let spare = task.permits.spare(count(task.out), count(wanted));
        for _ in 0..spare {
            let Some(tag) = self.ready.pop_front() else {
                return;
            };
            self.deliver(task, tag);
        }
    }

    /// Hands out one message as soon as nothing else of the daemon is out.
    fn hand_out_solo(&mut self, task: &mut Task) {
        self.alone = Alone::Next;
        if !task.permits.all() {
            return;
        }
        if let Some(tag) = self.solo.pop_front() {
            self.alone = Alone::Out(tag);
            self.deliver(task, tag);
        }
    }

    fn deliver(&mut self, task: &mut Task, tag: u64) {
        let token = self.token(tag);
        let Some(held) = self.ledger.get_mut(tag) else {
            return;
        };
        held.place = Place::Out;
        let begin_by = Some(held.since + begin_within(task));
        let again = held.arrival.redelivered || held.arrival.counters.attempts > 0;
        let message = message(&self.pool.queue, held, again);
        task.out += 1;
        let history = rules::history(held.arrival);
        if !task.end.deliver_by(token, message, history, begin_by) {
            tracing::debug!("the pool is gone; the message is on its way back");
        }
    }

    /// Asks the broker for as many messages as the pool can use.
    pub(super) fn plan_prefetch(&mut self, task: &Task, now: Instant) -> Result<(), RabbitMqError> {
        if self.consumers.is_changing() || self.check_at.is_some() {
            return Ok(());
        }
        let flow = self.consumers.flow(self.ledger.unacknowledged());
        if self.closing {
            if flow.consumers > 0 {
                self.consumers.replace(0);
            }
            return Ok(());
        }
        let wanted = rules::prefetch(task.intake(), self.body_bytes);
        let settled = self.change_at.is_some_and(|at| at <= now);
        match rules::step(flow, wanted, settled) {
            Step::Stay => self.change_at = None,
            Step::Wait => {
                let patience = if wanted > flow.prefetch {
                    SCARCE_FOR
                } else {
                    SURPLUS_FOR
                };
                self.change_at.get_or_insert(now + patience);
            }
            Step::Add(more) => {
                self.change_at = None;
                self.consumers.add(more);
            }
            Step::Replace(all) => {
                self.change_at = None;
                self.consumers.replace(all);
                // What waits here is for others to have.
                return self.give_back_all();
            }
        }
        Ok(())
    }

    /// The broker has cancelled our consumer.
    pub(super) fn consumer_lost(&mut self, task: &mut Task) {
        let problem = "the broker cancelled the consumer: its queue was deleted, or has moved";
        task.health.begin(&task.end, Trouble::Queues, problem);
        self.check_later();
    }

    /// Everything that was not handed out goes back.
    pub(super) fn give_back_all(&mut self) -> Result<(), RabbitMqError> {
        let ready = std::mem::take(&mut self.ready);
        let solo = std::mem::take(&mut self.solo);
        if self.alone == Alone::Next {
            self.alone = Alone::No;
        }
        // From the last on, so that the first of them is the first in its queue again.
        for tag in ready.into_iter().chain(solo).rev() {
            self.give_back(tag)?;
        }
        Ok(())
    }

    /// One message goes back to its queue.
    pub(super) fn give_back(&mut self, tag: u64) -> Result<(), RabbitMqError> {
        let Some(held) = self.ledger.get(tag) else {
            return Ok(());
        };
        if rules::returns_as_copy(held.arrival, Limits::of(&self.pool)) {
            return self.publish_for(tag, Aim::Back { suspect: false });
        }
        self.ledger.give_back(tag);
        self.nack(tag)
    }

    pub(super) fn nack(&self, tag: u64) -> Result<(), RabbitMqError> {
        let options = BasicNackOptions {
            multiple: false,
            requeue: true,
        };
        written(self.channel.basic_nack(tag, options))
    }

    /// What falls due by itself.
    pub(super) fn keep_time(&mut self, task: &mut Task, now: Instant) -> Result<(), RabbitMqError> {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.try_again(task);
        }
        if now >= self.age_at {
            self.age_at = now + (task.config.consumer_timeout / 32).min(LOOK_AT_AGE_EVERY);
            self.look_at_silence(task, now);
            self.look_at_age(task, now)?;
        }
        Ok(())
    }

    /// A queue without a leader, say, takes what is published and never confirms it.
    fn look_at_silence(&mut self, task: &mut Task, now: Instant) {
        let blocked = task.health.has(Trouble::Blocked);
        let late = |job: &Job| now.duration_since(job.sent) >= CONFIRMED_WITHIN;
        let Some(job) = self.jobs.values_mut().find(|job| !blocked && late(job)) else {
            return;
        };
        job.waited = true;
        self.waits = self.waits.max(1);
        let problem = format!(
            "the queue `{}` has not confirmed a message for {CONFIRMED_WITHIN:?}",
            job.parcel.to
        );
        task.health.begin(&task.end, Trouble::Publishing, &problem);
    }

    /// The broker ends the channel, with everything on it, when one delivery is not acknowledged
    /// for too long. What nobody has begun goes back in time; of the rest it is warned.
    fn look_at_age(&mut self, task: &Task, now: Instant) -> Result<(), RabbitMqError> {
        let patience = task.config.consumer_timeout;
        let old = |held: &Held| now.duration_since(held.since) >= begin_within(task);
        let aged: Vec<u64> = self
            .ledger
            .iter()
            .filter(|(_, held)| old(held))
            .map(|(tag, _)| tag)
            .collect();
        for tag in aged {
            let Some(held) = self.ledger.get_mut(tag) else {
                continue;
            };
            let age = now.duration_since(held.since);
            let late = age >= patience / 4 * 3;
            match held.place {
                Place::Here => {
                    self.ready.retain(|other| *other != tag);
                    self.solo.retain(|other| *other != tag);
                    self.give_back(tag)?;
                }
                Place::Aside if late => {
                    self.ledger.give_back(tag);
                    self.nack(tag)?;
                }
                Place::Out | Place::Leaving | Place::Aside => {
                    let due = 1 + u8::from(late);
                    if held.warnings < due {
                        held.warnings = due;
                        warn_of_age(&self.pool.name, held, age, patience);
                    }
                }
            }
        }
        Ok(())
    }
}

fn warn_of_age(pool: &str, held: &Held, age: Duration, patience: Duration) {
    let correlation_id = held.original.properties.correlation_id().as_ref();
    tracing::warn!(
        pool,
        correlation_id = correlation_id.map_or("", |id| id.as_str()),
        ?age,
        consumer_timeout = ?patience,
        "a message is being worked on for so long that the broker is going to take it back, with \
         all others of this connection: raise the broker's consumer_timeout"
    );
}

/// A moving average that believes a growth at once.
fn average(old: usize, new: usize) -> usize {
    if new >= old {
        new
    } else {
        old - (old - new) / 64
    }
}
