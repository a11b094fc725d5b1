//! What is settled: acknowledged, published for, or given back; and what follows from the broker's
//! word on what was published.

use std::collections::VecDeque;
use std::rc::Rc;

use lapin::options::BasicRejectOptions;
use tokio::time::Instant;

use super::error::RabbitMqError;
use super::health::Trouble;
use super::intake;
use super::job::{self, Aim, Form, Press};
use super::publisher::{Parcel, Verdict};
use super::rules;
use super::session::{Alone, Held, Job, Place, Session, Subject, written};
use super::topology::dead_queue;
use super::{RECONNECT, Task, confirm};
use crate::config::model::{DeadLetters, UnroutableReply};
use crate::delivery::{Failure, Outcome, Publish, Settlement};
use crate::metrics::dead_lettered;

impl Session {
    /// Takes in what the pool says of a delivery.
    pub(super) fn settle(
        &mut self,
        task: &mut Task,
        settlement: Settlement,
    ) -> Result<(), RabbitMqError> {
        let Some(tag) = self.tag(settlement.token) else {
            task.void(&settlement);
            return Ok(());
        };
        task.out = task.out.saturating_sub(1);
        if self.alone == Alone::Out(tag) {
            self.alone = Alone::No;
        }
        let Some(held) = self
            .ledger
            .get_mut(tag)
            .filter(|held| held.place == Place::Out)
        else {
            tracing::error!(tag, "settled, but never handed out");
            return Ok(());
        };
        let counters = held.arrival.counters;
        let aim = match settlement.outcome {
            Outcome::Done => {
                self.ledger.settle(tag);
                return Ok(());
            }
            Outcome::Return { suspect } => return self.take_back(task, tag, suspect),
            Outcome::Reply(reply) => Aim::Reply(reply),
            Outcome::Requeue { after } => Aim::Requeue {
                counters: rules::requeued(counters),
                after,
            },
            Outcome::RetryAfter { delay, failure } => Aim::Retry {
                counters: rules::charged(counters, failure.reason.is_crash(), now_ms()),
                delay,
                failure,
            },
            Outcome::DeadLetter(failure) => Aim::Letter {
                counters: rules::charged(counters, failure.reason.is_crash(), now_ms()),
                failure,
                form: Form::Full,
            },
        };
        self.publish_for(tag, aim)
    }

    /// A delivery that was not begun. As long as we take messages it is handed out again from here,
    /// which costs the broker nothing and leaves no mark on the message.
    fn take_back(&mut self, task: &Task, tag: u64, suspect: bool) -> Result<(), RabbitMqError> {
        if self.closing && suspect {
            return self.publish_for(tag, Aim::Back { suspect });
        }
        let old = |held: &Held| held.since.elapsed() >= intake::begin_within(task);
        if self.closing || self.ledger.get(tag).is_some_and(|held| old(held)) {
            return self.give_back(tag);
        }
        if let Some(held) = self.ledger.get_mut(tag) {
            held.place = Place::Here;
            held.arrival.suspect |= suspect;
            self.ready.push_front(tag);
        }
        Ok(())
    }

    /// Publishes for a delivery, in whichever form the broker and its protocol have room for.
    pub(super) fn publish_for(&mut self, tag: u64, aim: Aim) -> Result<(), RabbitMqError> {
        let mut aim = aim;
        loop {
            if matches!(aim, Aim::Letter { .. })
                && self.options().dead_letter == DeadLetters::Broker
            {
                return self.reject(tag);
            }
            let Some(held) = self.ledger.get_mut(tag) else {
                return Ok(());
            };
            held.place = Place::Leaving;
            let counters = held.arrival.counters;
            match self.parcels(tag, &aim) {
                Ok(parcels) => {
                    self.launch(Subject::Delivery { tag, aim }, parcels);
                    return Ok(());
                }
                Err(why) => match job::plainer(aim.clone(), counters, now_ms(), &why) {
                    Some(plainer) => aim = plainer,
                    None => return self.give_up(tag, &aim, &why),
                },
            }
        }
    }

    fn parcels(&self, tag: u64, aim: &Aim) -> Result<VecDeque<Parcel>, String> {
        let Some(held) = self.ledger.get(tag) else {
            return Ok(VecDeque::new());
        };
        let dead = dead_queue(&self.pool.queue, &self.options().dead_letter);
        let press = self.press(dead.as_deref().unwrap_or_default());
        Ok(press.parcels(&subject(held), aim)?.into())
    }

    fn press<'a>(&'a self, dead: &'a str) -> Press<'a> {
        Press {
            pool: &self.pool.name,
            queue: &self.pool.queue,
            dead,
            frame_max: self.broker.connection().configuration().frame_max(),
            now_ms: now_ms(),
            random: fastrand::u128(..),
        }
    }

    fn launch(&mut self, subject: Subject, mut parcels: VecDeque<Parcel>) {
        let Some(parcel) = parcels.pop_front() else {
            return;
        };
        self.send(Job {
            subject,
            parcel: Rc::new(parcel),
            then: parcels,
            waited: false,
            sent: Instant::now(),
        });
    }

    fn send(&mut self, mut job: Job) {
        job.sent = Instant::now();
        let id = self.publisher.send(Rc::clone(&job.parcel));
        self.jobs.insert(id, job);
    }

    /// The message is the broker's own business from here on.
    fn reject(&mut self, tag: u64) -> Result<(), RabbitMqError> {
        self.ledger.give_back(tag);
        written(
            self.channel
                .basic_reject(tag, BasicRejectOptions { requeue: false }),
        )
    }

    /// Publishes for a worker that goes on working.
    pub(super) fn emit(&mut self, publish: Publish) {
        let Publish { message, confirmed } = publish;
        match self.press("").outgoing(&message, None) {
            Ok(parcel) => {
                self.emits += 1;
                let queue = message.queue;
                self.launch(Subject::Emit { confirmed, queue }, VecDeque::from([parcel]));
            }
            Err(why) => confirm(confirmed, &message.queue, Err(why)),
        }
    }

    /// Takes in the broker's word on what was published.
    pub(super) fn judge_all(
        &mut self,
        task: &mut Task,
        verdicts: Vec<(u64, Verdict)>,
    ) -> Result<(), RabbitMqError> {
        let again = self.publisher.take_sent_again();
        let why = "they were published again after the broker had closed the channel";
        task.health.likely_duplicates(&task.end, again, why);
        for (id, verdict) in verdicts {
            if let Some(job) = self.jobs.remove(&id) {
                self.judge(task, job, verdict)?;
            }
        }
        self.watch_waiting(task);
        Ok(())
    }

    /// Once all that could not be taken is taken, the trouble is over.
    pub(super) fn watch_waiting(&mut self, task: &mut Task) {
        let over =
            self.waits > 0 && self.waiting.is_empty() && !self.jobs.values().any(|job| job.waited);
        if over {
            self.waits = 0;
            task.health.over(&task.end, Trouble::Publishing);
        }
    }

    fn judge(&mut self, task: &mut Task, job: Job, verdict: Verdict) -> Result<(), RabbitMqError> {
        match verdict {
            Verdict::Confirmed => {
                self.confirmed(job);
                Ok(())
            }
            Verdict::NotNow => {
                self.not_now(task, job);
                Ok(())
            }
            Verdict::Returned => self.returned(task, job),
            Verdict::Refused(why) => self.refused(job, &why),
        }
    }

    fn confirmed(&mut self, mut job: Job) {
        if let Some(next) = job.then.pop_front() {
            job.parcel = Rc::new(next);
            return self.send(job);
        }
        match job.subject {
            Subject::Delivery { tag, .. } => {
                self.ledger.settle(tag);
            }
            Subject::Emit { confirmed, queue } => {
                self.emits -= 1;
                confirm(confirmed, &queue, Ok(()));
            }
        }
    }

    /// The queue is full, say: it is tried again, and nothing new is begun meanwhile.
    fn not_now(&mut self, task: &mut Task, job: Job) {
        if let Subject::Delivery {
            tag,
            aim: Aim::Charge(counters),
        } = &job.subject
        {
            // Only working on its messages makes room in our own queue.
            let (tag, counters) = (*tag, *counters);
            if let Some(held) = self.ledger.get_mut(tag) {
                held.place = Place::Here;
                held.arrival.counters = counters;
                self.solo.push_back(tag);
            }
            return;
        }
        let problem = format!(
            "the queue `{}` does not take it: is it full?",
            job.parcel.to
        );
        task.health.begin(&task.end, Trouble::Publishing, &problem);
        self.wait(job);
    }

    fn wait(&mut self, mut job: Job) {
        job.waited = true;
        self.waiting.push(job);
        if self.retry_at.is_none() {
            self.waits = self.waits.saturating_add(1);
            self.retry_at = Some(Instant::now() + RECONNECT.wait(self.waits, fastrand::f64()));
        }
    }

    /// Sends once more what could not be taken.
    pub(super) fn try_again(&mut self, task: &mut Task) {
        self.retry_at = None;
        for job in std::mem::take(&mut self.waiting) {
            match job.subject {
                // Whoever asked has given up, so the task behind it failed and will publish again.
                Subject::Emit { confirmed, .. } if confirmed.is_closed() => self.emits -= 1,
                _ => self.send(job),
            }
        }
        self.watch_waiting(task);
    }

    /// There is no such queue.
    fn returned(&mut self, task: &mut Task, job: Job) -> Result<(), RabbitMqError> {
        let why = "there is no such queue";
        match job.subject {
            Subject::Emit { confirmed, queue } => {
                self.emits -= 1;
                confirm(confirmed, &queue, Err(why.into()));
                Ok(())
            }
            Subject::Delivery {
                tag,
                aim: Aim::Reply(reply),
            } => self.reply_returned(tag, reply, why),
            subject @ Subject::Delivery { .. } => {
                let problem = format!("the queue `{}` is missing", job.parcel.to);
                task.health.begin(&task.end, Trouble::Queues, &problem);
                task.health.begin(&task.end, Trouble::Publishing, &problem);
                self.check_at = Some(Instant::now());
                self.wait(Job { subject, ..job });
                Ok(())
            }
        }
    }

    fn reply_returned(
        &mut self,
        tag: u64,
        reply: Box<crate::delivery::Outgoing>,
        why: &str,
    ) -> Result<(), RabbitMqError> {
        if self.options().unroutable_reply == UnroutableReply::Drop {
            tracing::info!(
                pool = self.pool.name,
                queue = reply.queue,
                "reply dropped: {why}"
            );
            self.ledger.settle(tag);
            return Ok(());
        }
        let Some(held) = self.ledger.get(tag) else {
            return Ok(());
        };
        let aim = job::undeliverable(reply, held.arrival.counters, now_ms(), why);
        if let Aim::Letter { failure, .. } = &aim {
            self.log_dead(tag, failure);
        }
        self.publish_for(tag, aim)
    }

    /// A message is given up that its pool takes to be done.
    pub(super) fn log_dead(&self, tag: u64, failure: &Failure) {
        let held = self.ledger.get(tag);
        let id = held.and_then(|held| held.original.properties.correlation_id().as_ref());
        let id = id.map_or("", |id| id.as_str());
        dead_lettered(&self.pool.name, id, failure);
    }

    /// The broker will never take it.
    fn refused(&mut self, job: Job, why: &str) -> Result<(), RabbitMqError> {
        let (tag, aim) = match job.subject {
            Subject::Delivery { tag, aim } => (tag, aim),
            Subject::Emit { confirmed, queue } => {
                self.emits -= 1;
                confirm(confirmed, &queue, Err(why.into()));
                return Ok(());
            }
        };
        let Some(held) = self.ledger.get(tag) else {
            return Ok(());
        };
        tracing::warn!(
            pool = self.pool.name,
            to = job.parcel.to.as_str(),
            why,
            "publish refused"
        );
        match job::plainer(aim.clone(), held.arrival.counters, now_ms(), why) {
            Some(plainer) => self.publish_for(tag, plainer),
            None => self.give_up(tag, &aim, why),
        }
    }

    /// Nothing can be published for it.
    fn give_up(&mut self, tag: u64, aim: &Aim, why: &str) -> Result<(), RabbitMqError> {
        match aim {
            // The work is not done: it goes back as it is.
            Aim::Requeue { .. } | Aim::Back { .. } => {
                self.ledger.give_back(tag);
                self.nack(tag)
            }
            Aim::Charge(_) => {
                if let Some(held) = self.ledger.get_mut(tag) {
                    held.place = Place::Here;
                    self.solo.push_back(tag);
                }
                Ok(())
            }
            Aim::Reply(_) | Aim::Retry { .. } | Aim::Letter { .. } => {
                if let Some(held) = self.ledger.get_mut(tag) {
                    held.place = Place::Aside;
                }
                tracing::error!(
                    pool = self.pool.name,
                    tag,
                    why,
                    "a settlement is refused for good; the message is set aside"
                );
                Ok(())
            }
        }
    }
}

fn subject(held: &Held) -> job::Subject<'_> {
    job::Subject {
        original: &held.original,
        body: &held.body,
        arrival: held.arrival,
    }
}

/// Unix time. It decides nothing: people read it.
fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
