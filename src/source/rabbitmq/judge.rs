//! What follows from the broker's word on what was published: acknowledged, tried again, published
//! in another form, or set aside.

use std::rc::Rc;

use tokio::time::Instant;

use super::error::RabbitMqError;
use super::health::Trouble;
use super::job::{self, Aim};
use super::publisher::Verdict;
use super::session::{Job, Place, Session, Subject};
use super::settle::now_ms;
use super::{RECONNECT, Task, confirm};
use crate::config::model::UnroutableReply;
use crate::delivery::Outgoing;

impl Session {
    /// Takes in what the broker says.
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

    fn judge(&mut self, task: &mut Task, job: Job, verdict: Verdict) -> Result<(), RabbitMqError> {
        match verdict {
            Verdict::Confirmed => {
                self.confirmed(job);
                Ok(())
            }
            Verdict::NotNow => self.not_now(task, job),
            Verdict::Returned => self.returned(task, job),
            Verdict::Refused(why) => self.refused(task, job, &why),
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

    /// The queue is full, say: it is tried again, and nothing new is begun meanwhile. Not so with
    /// our own queue, where only working on its messages makes room.
    fn not_now(&mut self, task: &mut Task, job: Job) -> Result<(), RabbitMqError> {
        if let Subject::Delivery { tag, aim } = &job.subject
            && matches!(aim, Aim::Charge(_) | Aim::Back)
        {
            return self.give_up(*tag, aim, "the queue is full");
        }
        let problem = format!(
            "the queue `{}` does not take it: is it full?",
            job.parcel.to
        );
        task.health.begin(&task.end, Trouble::Publishing, &problem);
        self.wait(job);
        Ok(())
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

    /// Once all that could not be taken is taken, the trouble is over.
    pub(super) fn watch_waiting(&mut self, task: &mut Task) {
        let over =
            self.waits > 0 && self.waiting.is_empty() && !self.jobs.values().any(|job| job.waited);
        if over {
            self.waits = 0;
            // A try may be left for one that has gone back; the next to wait counts anew.
            self.retry_at = None;
            task.health.over(&task.end, Trouble::Publishing);
        }
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
            Subject::Delivery {
                tag,
                aim: aim @ (Aim::Charge(_) | Aim::Back),
            } => self.give_up(tag, &aim, why),
            subject @ Subject::Delivery { .. } => {
                let problem = format!("the queue `{}` is missing", job.parcel.to);
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
        reply: Box<Outgoing>,
        why: &str,
    ) -> Result<(), RabbitMqError> {
        if self.options().unroutable_reply == UnroutableReply::Drop {
            let queue = &reply.queue;
            tracing::info!(pool = self.pool.name, queue, why, "reply dropped");
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

    /// The broker will never take it.
    fn refused(&mut self, task: &mut Task, job: Job, why: &str) -> Result<(), RabbitMqError> {
        let to = job.parcel.to.as_str();
        tracing::warn!(
            pool = self.pool.name,
            to,
            why,
            "the broker refuses a message"
        );
        let (tag, aim) = match job.subject {
            Subject::Delivery { tag, aim } => (tag, aim),
            Subject::Emit { confirmed, queue } => {
                self.emits -= 1;
                confirm(confirmed, &queue, Err(why.into()));
                return Ok(());
            }
        };
        match self.plainer(tag, &aim, why) {
            Some(plainer) => self.publish_for(tag, plainer)?,
            None => self.give_up(tag, &aim, why)?,
        }
        self.watch_aside(task);
        Ok(())
    }

    /// Nothing can be published for it.
    pub(super) fn give_up(&mut self, tag: u64, aim: &Aim, why: &str) -> Result<(), RabbitMqError> {
        match aim {
            // The work is not done: it goes back as it is.
            Aim::Back => return self.nack(tag),
            Aim::Charge(counters) => {
                if let Some(held) = self.ledger.get_mut(tag) {
                    held.place = Place::Here;
                    held.arrival.counters = *counters;
                    self.solo.push_back(tag);
                }
            }
            Aim::Requeue { .. } | Aim::Reply(_) | Aim::Retry { .. } | Aim::Letter { .. } => {
                if let Some(held) = self.ledger.get_mut(tag) {
                    held.place = Place::Aside;
                }
                tracing::error!(
                    pool = self.pool.name,
                    tag,
                    why,
                    "a settlement is refused for good; the message is set aside"
                );
            }
        }
        Ok(())
    }

    /// Tells how many messages are set aside.
    pub(super) fn watch_aside(&self, task: &mut Task) {
        let held = self.ledger.iter();
        let count = held.filter(|(_, held)| held.place == Place::Aside).count();
        if count == 0 {
            return task.health.over(&task.end, Trouble::Aside);
        }
        let problem =
            format!("the broker refuses for good what there is to publish for {count} messages");
        task.health.begin(&task.end, Trouble::Aside, &problem);
    }
}
