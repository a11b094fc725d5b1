//! What the pool says of a delivery: acknowledged, given back, or published for. What follows from
//! the broker's word on what was published is in `confirms.rs`.

use std::collections::VecDeque;

use super::held::HeldState;
use super::intake::begin_within;
use super::outbox::JobSubject;
use super::publication;
use super::publication::{Composer, LetterDetail, Publication};
use super::session::Session;
use super::task::Task;
use crate::broker::rabbitmq::error::RabbitMqError;
use crate::broker::rabbitmq::publisher::OutboundMessage;
use crate::config::model::DeadLetters;
use crate::delivery::{Failure, Outcome, Publish, Settlement};
use crate::metrics::dead_lettered;
use crate::rules::attempts;
use crate::rules::publishing::PATIENCE;
use crate::rules::publishing::confirm;

impl Session {
    /// Takes in what the pool says: all of it, even if the connection is lost in the middle. What
    /// comes after that is void, as all that comes later is.
    pub(super) fn settle_all(
        &mut self,
        task: &mut Task,
        settlements: impl Iterator<Item = Settlement>,
    ) -> Result<(), RabbitMqError> {
        let mut result = Ok(());
        let mut void = 0;
        for settlement in settlements {
            task.is_back(settlement.token);
            let tag = self.tag(settlement.token).filter(|_| result.is_ok());
            match tag {
                Some(tag) => result = self.settle(task, tag, settlement.outcome),
                None => void += u64::from(settlement.outcome.is_of_work()),
            }
        }
        task.void(void);
        result
    }

    fn settle(&mut self, task: &Task, tag: u64, outcome: Outcome) -> Result<(), RabbitMqError> {
        let held = self.ledger.get(tag);
        let Some(held) = held.filter(|held| held.place == HeldState::Out) else {
            tracing::error!(tag, "settled, but never handed out");
            return Ok(());
        };
        let counters = held.arrival.counters;
        let aim = match outcome {
            Outcome::Done => {
                self.ledger.settle(tag);
                return Ok(());
            }
            Outcome::Return { suspect } => return self.take_back(task, tag, suspect),
            Outcome::Reply(reply) => Publication::Reply(reply),
            Outcome::Requeue { after } => Publication::Requeue {
                counters: attempts::requeued(counters),
                after,
            },
            Outcome::ReturnAfter { delay } => Publication::Requeue {
                counters,
                after: delay,
            },
            Outcome::RetryAfter { delay, failure } => Publication::Retry {
                counters: attempts::charged(counters, failure.reason, now_ms()),
                delay,
                failure,
            },
            Outcome::DeadLetter(failure) => Publication::Letter {
                counters: attempts::charged(counters, failure.reason, now_ms()),
                failure,
                form: LetterDetail::Full,
            },
        };
        self.publish_for(tag, aim)
    }

    /// A delivery that was not begun. As long as we take messages it is handed out again from here,
    /// which costs the broker nothing and leaves no mark on the message.
    fn take_back(&mut self, task: &Task, tag: u64, suspect: bool) -> Result<(), RabbitMqError> {
        let Some(held) = self.ledger.get_mut(tag) else {
            return Ok(());
        };
        held.arrival.suspect |= suspect;
        if held.since.elapsed() >= begin_within(task) {
            return self.give_back(tag);
        }
        // At the end of all it goes back from there, when it can't come again.
        self.line_up(tag)
    }

    /// Publishes for a delivery, in whichever form the protocol has room for.
    pub(super) fn publish_for(
        &mut self,
        tag: u64,
        mut aim: Publication,
    ) -> Result<(), RabbitMqError> {
        loop {
            let by_broker = self.options().dead_letter == DeadLetters::Broker;
            if by_broker && matches!(aim, Publication::Letter { .. }) {
                return self.reject(tag);
            }
            aim = match aim {
                Publication::Reply(reply) if self.outbox.is_hopeless(&reply.queue) => {
                    match self.undelivered(tag, reply, &taken_nothing()) {
                        Some(letter) => letter,
                        None => return Ok(()),
                    }
                }
                aim => aim,
            };
            let Some(held) = self.ledger.get_mut(tag) else {
                return Ok(());
            };
            held.place = HeldState::Leaving;
            match self.parcels(tag, &aim) {
                Ok(parcels) => {
                    self.launch(JobSubject::Delivery { tag, aim }, parcels);
                    return Ok(());
                }
                Err(why) => match self.plainer(tag, &aim, &why) {
                    Some(plainer) => aim = plainer,
                    None => return self.give_up(tag, &aim, &why),
                },
            }
        }
    }

    /// What to publish instead of what is refused for good.
    pub(super) fn plainer(&self, tag: u64, aim: &Publication, why: &str) -> Option<Publication> {
        let arrival = self.ledger.get(tag)?.arrival;
        let plainer = publication::plainer(aim.clone(), arrival, now_ms(), why)?;
        if let Publication::Letter { failure, .. } = &plainer
            && !matches!(aim, Publication::Letter { .. })
        {
            self.log_dead(tag, failure);
        }
        Some(plainer)
    }

    /// A message is given up that its pool takes to be done, or to come again.
    pub(super) fn log_dead(&self, tag: u64, failure: &Failure) {
        let held = self.ledger.get(tag);
        let id = held.and_then(|held| held.original.properties.correlation_id().as_ref());
        let id = id.map_or("", |id| id.as_str());
        dead_lettered(&self.pool.name, id, failure);
    }

    fn parcels(&self, tag: u64, aim: &Publication) -> Result<VecDeque<OutboundMessage>, String> {
        let Some(held) = self.ledger.get(tag) else {
            return Ok(VecDeque::new());
        };
        let subject = publication::Subject {
            original: &held.original,
            body: &held.body,
            arrival: held.arrival,
        };
        Ok(self.press().parcels(&subject, aim)?.into())
    }

    fn press(&self) -> Composer<'_> {
        let dead = self.checks.topology().dead.as_ref();
        Composer {
            pool: &self.pool.name,
            queue: &self.pool.queue,
            dead: dead.map_or("", |dead| &dead.name),
            frame_max: self.broker.connection().configuration().frame_max(),
            now_ms: now_ms(),
            random: fastrand::u128(..),
        }
    }

    fn launch(&mut self, subject: JobSubject, mut parcels: VecDeque<OutboundMessage>) {
        if let Some(parcel) = parcels.pop_front() {
            self.outbox.begin(subject, parcel, parcels);
        }
    }

    /// The message is the broker's own business from here on.
    fn reject(&mut self, tag: u64) -> Result<(), RabbitMqError> {
        self.ledger.give_back(tag);
        self.acks.reject(tag)
    }

    /// Publishes for a worker that goes on working.
    pub(super) fn emit(&mut self, publish: Publish) {
        let Publish { message, confirmed } = publish;
        if self.outbox.is_hopeless(&message.queue) {
            return confirm(confirmed, &message.queue, Err(taken_nothing()));
        }
        match self.press().outgoing(&message, None) {
            Ok(parcel) => {
                let queue = message.queue;
                let subject = JobSubject::Emit { confirmed, queue };
                self.launch(subject, VecDeque::from([parcel]));
            }
            Err(why) => confirm(confirmed, &message.queue, Err(why)),
        }
    }
}

/// Why nobody waits for a queue any more.
pub(super) fn taken_nothing() -> String {
    format!("the queue has taken nothing for {PATIENCE:?}")
}

/// Unix time. It decides nothing: people read it.
pub(super) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
