//! Settlements by the pool: a delivery is acknowledged, returned, or published for. The
//! consequences of the broker's verdicts on publications are in `confirms.rs`.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::deliveries::Terms;
use super::outbox::JobSubject;
use super::publication;
use super::publication::{Composer, Publication};
use super::session::Session;
use super::task::Task;
use crate::broker::error::RabbitMqError;
use crate::broker::publisher::OutboundMessage;
use ganger_config::model::DeadLetters;
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::{Failure, Outcome, Publish, Settlement};
use ganger_queue::publishing::PATIENCE;
use ganger_queue::publishing::confirm;
use ganger_telemetry::metrics::dead_lettered;

impl Session {
    /// Handles the pool's settlements: all of them, even if the connection is lost in the middle.
    /// Those after that are void, as all later ones are.
    pub(super) fn settle_all(
        &mut self,
        task: &mut Task,
        settlements: impl Iterator<Item = Settlement>,
    ) -> Result<(), RabbitMqError> {
        let terms = self.terms(task);
        let mut result = Ok(());
        let mut void = 0;
        for settlement in settlements {
            task.is_back(settlement.token);
            let tag = self
                .deliveries
                .tag(settlement.token)
                .filter(|_| result.is_ok());
            match tag {
                Some(tag) => {
                    self.deliveries.attempted(tag, settlement.span);
                    result = self.settle(tag, settlement.outcome, &terms);
                }
                None => void += u64::from(settlement.outcome.is_of_work()),
            }
        }
        task.void(void);
        result
    }

    fn settle(&mut self, tag: u64, outcome: Outcome, terms: &Terms) -> Result<(), RabbitMqError> {
        match self.deliveries.settle(tag, outcome, terms) {
            Some(step) => self.act(tag, step),
            None => {
                tracing::error!(tag, "settled, but never handed out");
                Ok(())
            }
        }
    }

    fn terms(&self, task: &Task) -> Terms {
        Terms {
            limits: Limits::of(&self.pool),
            patience: task.config.consumer_timeout,
            now: Instant::now(),
            now_ms: now_ms(),
        }
    }

    /// Publishes for a delivery, in the first form that the protocol has room for.
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
            if self.deliveries.get(tag).is_none() {
                return Ok(());
            }
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

    /// Substitute for a publication that is permanently rejected.
    pub(super) fn plainer(&self, tag: u64, aim: &Publication, why: &str) -> Option<Publication> {
        let arrival = self.deliveries.get(tag)?.arrival;
        let plainer = publication::plainer(aim.clone(), arrival, now_ms(), why)?;
        if let Publication::Letter { failure, .. } = &plainer
            && !matches!(aim, Publication::Letter { .. })
        {
            self.log_dead(tag, failure);
        }
        Some(plainer)
    }

    /// Logs the dead letter of a message that its pool takes to be done, or to come again.
    pub(super) fn log_dead(&self, tag: u64, failure: &Failure) {
        let name = self.deliveries.get(tag).map(|held| held.log_name());
        dead_lettered(&self.pool.name, &name.unwrap_or_default(), failure);
    }

    fn parcels(&self, tag: u64, aim: &Publication) -> Result<VecDeque<OutboundMessage>, String> {
        let Some(held) = self.deliveries.get(tag) else {
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
            key: &self.key,
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

    /// Rejects a message, which the broker handles from here on.
    fn reject(&mut self, tag: u64) -> Result<(), RabbitMqError> {
        self.deliveries.let_go(tag);
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

/// Reason why a queue is not waited for any more.
pub(super) fn taken_nothing() -> String {
    format!("the queue has taken nothing for {PATIENCE:?}")
}

/// Unix time, for people to read only; no decision depends on it.
pub(super) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
