//! Consequences of the broker's verdicts on publications: acknowledge, retry, publish in another
//! form, or set aside.

use lapin::types::ShortString;
use tokio::time::Instant;

use super::health::HealthIssue;
use super::outbox::{Job, JobSubject};
use super::publication;
use super::publication::Publication;
use super::session::Session;
use super::settle::{now_ms, taken_nothing};
use super::targets::Standing;
use super::task::Task;
use crate::broker::error::RabbitMqError;
use crate::broker::publisher::Verdict;
use ganger_config::model::UnroutableReply;
use ganger_queue::delivery::Outgoing;
use ganger_queue::publishing::PATIENCE;

impl Session {
    /// Handles the broker's verdicts.
    pub(super) fn judge_all(
        &mut self,
        task: &mut Task,
        verdicts: Vec<(u64, Verdict)>,
    ) -> Result<(), RabbitMqError> {
        let again = self.outbox.take_sent_again();
        let why = "they were published again after the channel or its connection was lost";
        task.health.may_run_twice(&task.end, again, why);
        for (id, verdict) in verdicts {
            if let Some(job) = self.outbox.take(id) {
                self.judge(task, job, verdict)?;
            } else if let Some(queue) = self.outbox.remember(id)
                && verdict == Verdict::Confirmed
            {
                self.took(&queue);
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
            Verdict::EndsConnection(why) => self.ends_connection(task, job, &why),
        }
    }

    /// Handles a publication that ends every connection. A reply of that kind can't be delivered to
    /// anybody; anything else is permanently rejected.
    fn ends_connection(
        &mut self,
        task: &mut Task,
        job: Job,
        why: &str,
    ) -> Result<(), RabbitMqError> {
        let JobSubject::Delivery {
            tag,
            aim: Publication::Reply(reply),
        } = job.subject
        else {
            return self.refused(task, job, why);
        };
        let (pool, to) = (&self.pool.name, job.parcel.to.as_str());
        tracing::warn!(pool, to, why, "a reply ends the connection");
        self.reply_returned(tag, reply, why)
    }

    fn confirmed(&mut self, job: Job) {
        self.took(&job.parcel.to);
        let Some(job) = self.outbox.send_next(job) else {
            return;
        };
        match job.subject {
            JobSubject::Delivery { tag, .. } => self.deliveries.is_published(tag),
            JobSubject::Emit { confirmed, queue } => {
                self.outbox.end_emit(confirmed, &queue, Ok(()));
            }
        }
    }

    /// Records that a queue accepts messages.
    fn took(&mut self, queue: &ShortString) {
        if self.outbox.took(queue) {
            let (pool, queue) = (&self.pool.name, queue.as_str());
            tracing::info!(pool, queue, "the queue takes what is published again");
        }
    }

    /// Handles a queue that is full, for example: the publication is retried, unless that has been so for
    /// long. Not so a suspect's turn, since only working on the messages of our own queue makes room there.
    /// One that goes back to it waits for that, too: the broker would count it, and drop it at last.
    fn not_now(&mut self, task: &mut Task, mut job: Job) -> Result<(), RabbitMqError> {
        if let JobSubject::Delivery { tag, aim } = &job.subject
            && (*aim == Publication::Turn || *aim == Publication::Back && self.closing)
        {
            return self.give_up(*tag, aim, "the queue is full");
        }
        let standing = self.outbox.refused(&mut job, Instant::now());
        if self.is_given_up(&job.parcel.to, standing) && job.is_for_others() {
            return self.undeliverable(job, &taken_nothing());
        }
        let problem = format!(
            "the queue `{}` does not take it: is it full, or without a leader?",
            job.parcel.to
        );
        task.health
            .begin(&task.end, HealthIssue::Publishing, problem);
        self.outbox.wait(job);
        Ok(())
    }

    /// Handles a long silence of the queue. Returns the queue if its answer is waited for.
    pub(super) fn is_silent(
        &mut self,
        id: u64,
        now: Instant,
    ) -> Result<Option<ShortString>, RabbitMqError> {
        let Some((queue, standing, for_others)) = self.outbox.be_silent(id, now) else {
            return Ok(None);
        };
        if self.is_given_up(&queue, standing)
            && for_others
            && let Some(job) = self.outbox.forget(id)
        {
            self.undeliverable(job, &taken_nothing())?;
            return Ok(None);
        }
        self.outbox.waits_for_silent();
        Ok(Some(queue))
    }

    /// Logs a queue that is given up now. Returns whether its job is not waited for any more.
    fn is_given_up(&self, queue: &ShortString, standing: Standing) -> bool {
        if standing == Standing::IsGivenUp {
            let (pool, queue) = (&self.pool.name, queue.as_str());
            tracing::warn!(
                pool,
                queue,
                "the queue has taken nothing for {PATIENCE:?}; until it does, replies to it become \
                 dead letters and emits fail"
            );
        }
        standing != Standing::Waits
    }

    /// Gives up a reply or an emit whose queue is not waited for any more.
    fn undeliverable(&mut self, job: Job, why: &str) -> Result<(), RabbitMqError> {
        match job.subject {
            JobSubject::Emit { confirmed, queue } => {
                self.outbox.end_emit(confirmed, &queue, Err(why.into()));
                Ok(())
            }
            JobSubject::Delivery {
                tag,
                aim: Publication::Reply(reply),
            } => match self.undelivered(tag, reply, why) {
                Some(letter) => self.publish_for(tag, letter),
                None => Ok(()),
            },
            subject @ JobSubject::Delivery { .. } => {
                self.outbox.wait(Job { subject, ..job });
                Ok(())
            }
        }
    }

    /// Pauses intake when the backlog is too large, and resumes it when it shrinks. A caller that
    /// does not take its reply can't cause that: the oldest waiting reply goes first.
    pub(super) fn watch_backlog(&mut self, task: &mut Task) -> Result<(), RabbitMqError> {
        while self.outbox.look().is_full()
            && !self.outbox.is_shut()
            && let Some(job) = self.outbox.take_oldest_reply()
        {
            self.undeliverable(job, "too much else waits to be published")?;
        }
        if self.outbox.backlog().is_full() {
            let problem = "what there is to publish is not taken, and no more may wait";
            task.health.begin(&task.end, HealthIssue::Backlog, problem);
        } else {
            task.health.over(&task.end, HealthIssue::Backlog);
        }
        Ok(())
    }

    /// Publishes again what was not accepted.
    pub(super) fn try_again(&mut self, task: &mut Task) {
        self.outbox.try_again();
        self.watch_waiting(task);
    }

    /// Ends the health problem once everything refused before is accepted.
    pub(super) fn watch_waiting(&mut self, task: &mut Task) {
        if self.outbox.is_over() {
            task.health.over(&task.end, HealthIssue::Publishing);
        }
    }

    /// Handles a queue that does not exist.
    fn returned(&mut self, task: &mut Task, job: Job) -> Result<(), RabbitMqError> {
        let why = "there is no such queue";
        match job.subject {
            JobSubject::Emit { confirmed, queue } => {
                self.outbox.end_emit(confirmed, &queue, Err(why.into()));
                Ok(())
            }
            JobSubject::Delivery {
                tag,
                aim: Publication::Reply(reply),
            } => self.reply_returned(tag, reply, why),
            JobSubject::Delivery {
                tag,
                aim: aim @ (Publication::Turn | Publication::Back),
            } => self.give_up(tag, &aim, why),
            subject @ JobSubject::Delivery { .. } => {
                let problem = format!("the queue `{}` is missing", job.parcel.to);
                task.health
                    .begin(&task.end, HealthIssue::Publishing, problem);
                self.checks.look_now();
                self.outbox.wait(Job { subject, ..job });
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
            self.deliveries.is_published(tag);
            return Ok(());
        }
        match self.undelivered(tag, reply, why) {
            Some(letter) => self.publish_for(tag, letter),
            None => Ok(()),
        }
    }

    /// Fate of a message whose reply can't be delivered.
    pub(super) fn undelivered(
        &self,
        tag: u64,
        reply: Box<Outgoing>,
        why: &str,
    ) -> Option<Publication> {
        let counters = self.deliveries.get(tag)?.arrival.counters;
        let aim = publication::undeliverable(reply, counters, now_ms(), why);
        if let Publication::Letter { failure, .. } = &aim {
            self.log_dead(tag, failure);
        }
        Some(aim)
    }

    /// Handles a publication that the broker permanently rejects.
    fn refused(&mut self, task: &mut Task, job: Job, why: &str) -> Result<(), RabbitMqError> {
        let to = job.parcel.to.as_str();
        tracing::warn!(
            pool = self.pool.name,
            to,
            why,
            "the broker refuses a message"
        );
        let (tag, aim) = match job.subject {
            JobSubject::Delivery { tag, aim } => (tag, aim),
            JobSubject::Emit { confirmed, queue } => {
                self.outbox.end_emit(confirmed, &queue, Err(why.into()));
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

    /// Gives up publishing for a delivery.
    pub(super) fn give_up(
        &mut self,
        tag: u64,
        aim: &Publication,
        why: &str,
    ) -> Result<(), RabbitMqError> {
        let step = self.deliveries.give_up(tag, aim);
        if self.deliveries.is_aside(tag) {
            tracing::error!(
                pool = self.pool.name,
                tag,
                why,
                "a settlement is refused for good; the message is set aside"
            );
        }
        self.act(tag, step)
    }

    /// Reports the number of messages set aside.
    pub(super) fn watch_aside(&mut self, task: &mut Task) {
        let count = self.deliveries.aside();
        self.outbox.are_aside(count);
        if count == 0 {
            return task.health.over(&task.end, HealthIssue::Aside);
        }
        let problem =
            format!("the broker refuses for good what there is to publish for {count} messages");
        task.health.begin(&task.end, HealthIssue::Aside, problem);
    }
}
