//! Publications in flight, and those waiting to be accepted: their number, and the queues that they wait for.
//! `purpose.rs` decides on the consequences of the broker's verdicts, and for a delivery its book.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use lapin::types::ShortString;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::purpose::Purpose;
use super::targets::{RefusalState, Targets};
use crate::broker::error::RabbitMqError;
use crate::broker::isolating::IsolatingPublisher;
use crate::broker::publish_connection::RECONNECT;
use crate::broker::publisher::{OutboundMessage, PublisherNews, Verdict};
use ganger_queue::delivery::{Publish, PublishError};
use ganger_queue::publishing::{UNDELIVERABLE_AFTER, confirm};

/// Number of rejected publications that may wait before no more work is begun.
const WAITING_MAX: usize = 1000;
/// Number of their body bytes.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// Maximum number of emits in flight at once.
const EMITS_MAX: usize = 64;

/// Time for the broker's confirm of a publication before a problem is reported.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(30);

/// Maximum number of unresponsive queues that are named.
const QUEUES_SHOWN_MAX: usize = 5;

/// A publication in progress.
#[derive(Debug)]
pub(super) struct Job {
    subject: JobSubject,
    purpose: Purpose,
    /// Message that is being published.
    parcel: Rc<OutboundMessage>,
    /// Messages to publish after it.
    then: VecDeque<OutboundMessage>,
    /// Time at which it was first rejected.
    refused: Option<Instant>,
}

/// Subject of a publication.
#[derive(Debug)]
enum JobSubject {
    /// The delivery with this tag, to be acknowledged after it.
    Delivery(u64),
    /// A worker that is still processing its message.
    Emit {
        confirmed: oneshot::Sender<Result<(), PublishError>>,
        queue: String,
    },
}

impl Job {
    pub(super) fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Queue of the message that is being published.
    pub(super) fn to(&self) -> &str {
        self.parcel.to.as_str()
    }

    /// Returns whether it is for one of these deliveries, given in order.
    fn is_for(&self, tags: &[u64]) -> bool {
        let tag = self.tag();
        tag.is_some_and(|tag| tags.binary_search(&tag).is_ok())
    }

    fn tag(&self) -> Option<u64> {
        match self.subject {
            JobSubject::Delivery(tag) => Some(tag),
            JobSubject::Emit { .. } => None,
        }
    }
}

/// Place of a job.
enum JobLocation {
    /// Index among the waiting jobs.
    Waiting(usize),
    /// Number given by the publisher.
    InFlight(u64),
}

/// All jobs, and the publisher.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Name of the pool, for log records.
    pool: String,
    publisher: IsolatingPublisher,
    /// Jobs in flight, by the publisher's numbers.
    jobs: HashMap<u64, Job>,
    /// Jobs that the broker can't accept at the moment.
    waiting: Vec<Job>,
    /// Number of consecutive times that a publication was not accepted.
    waits: u32,
    retry_at: Option<Instant>,
    emits: usize,
    targets: Targets,
    /// Backlog at the last check.
    backlog: Backlog,
    /// True if the broker accepts nothing at all: it has blocked the connection, or there is none.
    is_blocked: bool,
}

impl Outbox {
    pub(super) fn new(publisher: IsolatingPublisher, pool: &str, now: Instant) -> Self {
        let mut targets = Targets::default();
        targets.set_accepting(true, now);
        Self {
            pool: pool.to_owned(),
            publisher,
            jobs: HashMap::new(),
            waiting: Vec::new(),
            waits: 0,
            retry_at: None,
            emits: 0,
            targets,
            backlog: Backlog::default(),
            is_blocked: false,
        }
    }

    /// Queues that accept nothing.
    pub(super) fn targets(&self) -> &Targets {
        &self.targets
    }

    // -- in flight --

    /// Publishes for a delivery.
    pub(super) fn publish(
        &mut self,
        tag: u64,
        purpose: Purpose,
        parcels: VecDeque<OutboundMessage>,
    ) {
        self.begin(JobSubject::Delivery(tag), purpose, parcels);
    }

    /// Publishes for a worker that continues its work, or reports to it why that is not possible.
    pub(super) fn emit(&mut self, publish: Publish, parcel: Result<OutboundMessage, String>) {
        let Publish { message, confirmed } = publish;
        let queue = message.queue;
        match parcel {
            Ok(parcel) => {
                self.emits += 1;
                let subject = JobSubject::Emit { confirmed, queue };
                self.begin(subject, Purpose::Emit, VecDeque::from([parcel]));
            }
            Err(why) => confirm(confirmed, &queue, Err(why)),
        }
    }

    fn begin(
        &mut self,
        subject: JobSubject,
        purpose: Purpose,
        mut then: VecDeque<OutboundMessage>,
    ) {
        if let Some(parcel) = then.pop_front() {
            self.send(Job {
                subject,
                purpose,
                parcel: Rc::new(parcel),
                then,
                refused: None,
            });
        }
    }

    fn send(&mut self, job: Job) {
        let id = self.publisher.send(Rc::clone(&job.parcel));
        self.jobs.insert(id, job);
    }

    /// Ends a job, and reports the result of an emit to its worker. Returns the tag of a delivery.
    pub(super) fn end(&mut self, job: Job, result: Result<(), &str>) -> Option<u64> {
        match job.subject {
            JobSubject::Delivery(tag) => Some(tag),
            JobSubject::Emit { confirmed, queue } => {
                self.emits -= 1;
                confirm(confirmed, &queue, result.map_err(str::to_owned));
                None
            }
        }
    }

    /// Returns whether another emit may be in flight.
    pub(super) fn has_room_for_emits(&self) -> bool {
        self.emits < EMITS_MAX
    }

    /// Polls the publisher's news.
    ///
    /// # Errors
    /// If the connection is lost and is not the publisher's own.
    pub(super) fn poll_news(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<PublisherNews, RabbitMqError>> {
        self.publisher.poll_news(cx)
    }

    /// Number of messages sent again since the last call although the broker may have had them.
    pub(super) fn take_sent_again(&mut self) -> u64 {
        self.publisher.take_sent_again()
    }

    /// Takes in a verdict. Returns the job if the verdict decides it: after a confirm the next part is
    /// published first.
    pub(super) fn answered(&mut self, id: u64, verdict: &Verdict) -> Option<Job> {
        let job = self.jobs.remove(&id);
        let queue = match &job {
            Some(job) => job.parcel.to.clone(),
            None => self.targets.remember(id)?,
        };
        if *verdict != Verdict::Confirmed {
            return job;
        }
        if self.targets.accepted(&queue) {
            let (pool, queue) = (&self.pool, queue.as_str());
            tracing::info!(pool, queue, "queue accepts publications again");
        }
        let mut job = job?;
        let Some(next) = job.then.pop_front() else {
            return Some(job);
        };
        job.parcel = Rc::new(next);
        self.send(job);
        None
    }

    // -- waiting jobs --

    /// Queues a job whose queue is full, for example, to be retried later. Returns it if its queue is given
    /// up.
    pub(super) fn wait_for_room(&mut self, mut job: Job, now: Instant) -> Option<Job> {
        job.refused.get_or_insert(now);
        if self.is_given_up(&job.parcel.to, now) && job.purpose.is_for_others() {
            return Some(job);
        }
        self.wait(job, now);
        None
    }

    /// Queues a job to be retried later.
    pub(super) fn wait(&mut self, mut job: Job, now: Instant) {
        job.refused.get_or_insert(now);
        self.waiting.push(job);
        if self.retry_at.is_none() {
            self.waits = self.waits.saturating_add(1);
            self.retry_at = Some(now + RECONNECT.wait(self.waits, fastrand::f64()));
        }
    }

    /// Records that a queue has not accepted a publication. Returns whether the queue is given up.
    fn is_given_up(&mut self, queue: &ShortString, now: Instant) -> bool {
        let state = self.targets.refused(queue, now);
        if state == RefusalState::JustGivenUp {
            let (pool, queue) = (&self.pool, queue.as_str());
            tracing::warn!(
                pool,
                queue,
                "the queue has accepted nothing for {UNDELIVERABLE_AFTER:?}; until it does, replies to it \
                 become dead letters and emits fail"
            );
        }
        state != RefusalState::MayBeFull
    }

    /// Time of the next retry.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Sends the rejected publications again, if that is due.
    pub(super) fn try_again(&mut self, now: Instant) {
        if self.retry_at.is_none_or(|at| at > now) {
            return;
        }
        self.retry_at = None;
        for job in std::mem::take(&mut self.waiting) {
            match job.subject {
                // The caller no longer waits, so the task behind it failed and will publish again.
                JobSubject::Emit { confirmed, .. } if confirmed.is_closed() => self.emits -= 1,
                _ => self.send(job),
            }
        }
    }

    /// Returns, only once, whether everything rejected before is accepted now.
    pub(super) fn take_recovered(&mut self) -> bool {
        let over = self.waits > 0
            && self.waiting.is_empty()
            && !self.jobs.values().any(|job| job.refused.is_some());
        if over {
            self.waits = 0;
            // A retry may be left for a message that was given back; the next one to wait counts from the
            // beginning.
            self.retry_at = None;
        }
        over
    }

    /// Cancels all publications for these deliveries, given in order.
    pub(super) fn forget_all(&mut self, tags: &[u64]) {
        self.waiting.retain(|job| !job.is_for(tags));
        let stuck = self.jobs.iter().filter(|(_, job)| job.is_for(tags));
        let stuck: Vec<u64> = stuck.map(|(id, _)| *id).collect();
        for id in stuck {
            // Whatever the broker answers, there are no consequences: the message is no longer held.
            drop(self.forget(id));
        }
    }

    /// Removes the messages, in order, for whose return their queue has no room.
    pub(super) fn take_returns(&mut self) -> Vec<u64> {
        let backs = self
            .waiting
            .extract_if(.., |job| job.purpose == Purpose::Back);
        let mut tags: Vec<u64> = backs.filter_map(|job| job.tag()).collect();
        tags.sort_unstable();
        tags
    }

    // -- silence --

    /// Finds queues that accept publications and never confirm them, such as one without a leader. Returns
    /// the problem with those that are not given up, and the jobs of those that are given up now.
    pub(super) fn check_unconfirmed(&mut self, now: Instant) -> (Option<String>, Vec<Job>) {
        let (mut queues, mut undeliverable) = (BTreeSet::new(), Vec::new());
        for id in self.silent(now) {
            let Some(job) = self.jobs.get_mut(&id) else {
                continue;
            };
            job.refused.get_or_insert(now);
            let (queue, purpose) = (job.parcel.to.clone(), job.purpose);
            self.publisher.mark_silent(id);
            if self.is_given_up(&queue, now) && purpose.is_for_others() {
                undeliverable.extend(self.forget(id));
            } else {
                // This is a problem until it is resolved.
                self.waits = self.waits.max(1);
                queues.insert(queue);
            }
        }
        let problem = (!queues.is_empty()).then(|| unconfirmed_problem(&queues));
        (problem, undeliverable)
    }

    /// Publications sent long ago without an answer, in order, and those not sent because their queue
    /// has not answered for so long.
    fn silent(&self, now: Instant) -> Vec<u64> {
        if self.is_blocked {
            return Vec::new();
        }
        let ids = self.jobs.keys().copied();
        let is_silent = |id: &u64| {
            let since = self.publisher.unanswered_since(*id);
            since.is_some_and(|since| now.duration_since(since) >= CONFIRMED_WITHIN)
        };
        let mut silent: Vec<u64> = ids.filter(is_silent).collect();
        silent.sort_unstable();
        silent
    }

    /// Withdraws a publication to which its queue does not answer.
    fn forget(&mut self, id: u64) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        if self.publisher.forget(id) {
            self.targets.forget(id, job.parcel.to.clone());
        }
        Some(job)
    }

    // -- the connection --

    /// Closes the publisher in an orderly way.
    pub(super) async fn close(self) {
        self.publisher.close().await;
    }

    /// Gives up all jobs, since the connection of the deliveries is lost.
    pub(super) fn abandon(mut self) {
        let jobs = std::mem::take(&mut self.jobs).into_values();
        for job in jobs.chain(std::mem::take(&mut self.waiting)) {
            self.end(job, Err("the connection is lost"));
        }
    }

    /// Records whether the broker accepts nothing from now on.
    pub(super) fn set_blocked(&mut self, is_blocked: bool, now: Instant) {
        self.is_blocked = is_blocked;
        self.targets.set_accepting(!is_blocked, now);
        if !is_blocked {
            self.publisher.restart_waits(now);
        }
    }

    /// Clears the forgotten publications: only the others are sent again over another connection.
    pub(super) fn lose(&mut self) {
        self.targets.lose();
    }

    // -- backlog --

    /// Number of jobs left.
    pub(super) fn pending(&self) -> usize {
        self.jobs.len() + self.waiting.len()
    }

    /// Numbers of the jobs in flight, in order, with the tags of their deliveries.
    #[cfg(test)]
    pub(super) fn in_flight(&self) -> Vec<(u64, Option<u64>)> {
        let jobs = self.jobs.iter().map(|(id, job)| (*id, job.tag()));
        let mut jobs: Vec<(u64, Option<u64>)> = jobs.collect();
        jobs.sort_unstable();
        jobs
    }

    /// Tags of all deliveries that wait for a publication.
    #[cfg(test)]
    pub(super) fn tags(&self) -> Vec<u64> {
        let mut tags: Vec<u64> = self
            .jobs
            .values()
            .chain(&self.waiting)
            .filter_map(Job::tag)
            .collect();
        tags.sort_unstable();
        tags
    }

    /// Backlog at the last check.
    pub(super) fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// Checks the backlog, with `parked` messages parked. As long as it is full, removes the oldest reply
    /// that waits: a caller that does not take its reply must not pause the intake.
    pub(super) fn take_excess(&mut self, parked: usize) -> Option<Job> {
        self.backlog = self.unaccepted(parked);
        if self.backlog.is_full() && !self.is_blocked {
            self.take_oldest_reply()
        } else {
            None
        }
    }

    fn unaccepted(&self, parked: usize) -> Backlog {
        let mut backlog = Backlog {
            parked,
            ..Backlog::default()
        };
        if !self.is_blocked && self.waits == 0 {
            return backlog;
        }
        let unaccepted = |job: &&Job| self.is_blocked || job.refused.is_some();
        let jobs = self.jobs.values().filter(unaccepted).chain(&self.waiting);
        for job in jobs {
            if job.purpose == Purpose::Back {
                backlog.parked += 1;
                continue;
            }
            backlog.count += 1;
            let then = job.then.iter().map(|parcel| parcel.body.len());
            backlog.bytes += job.parcel.body.len() + then.sum::<usize>();
        }
        backlog
    }

    /// Removes the oldest reply that waits for a queue which does not accept it, or does not answer.
    fn take_oldest_reply(&mut self) -> Option<Job> {
        let is_reply = |job: &Job| job.purpose == Purpose::Reply;
        let waiting = self.waiting.iter().enumerate();
        let waiting = waiting.filter(|(_, job)| is_reply(job));
        let waiting = waiting.map(|(at, job)| (job.refused, JobLocation::Waiting(at)));
        let publisher = &self.publisher;
        let is_silent = |(id, job): &(&u64, &Job)| {
            is_reply(job) && job.refused.is_some() && publisher.is_stuck(**id)
        };
        let silent = self.jobs.iter().filter(is_silent);
        let silent = silent.map(|(id, job)| (job.refused, JobLocation::InFlight(*id)));
        let (_, oldest) = waiting.chain(silent).min_by_key(|(refused, _)| *refused)?;
        match oldest {
            JobLocation::Waiting(at) => Some(self.waiting.remove(at)),
            JobLocation::InFlight(id) => self.forget(id),
        }
    }
}

/// Text of the problem with queues that answer nothing.
fn unconfirmed_problem(queues: &BTreeSet<ShortString>) -> String {
    let shown = queues.iter().take(QUEUES_SHOWN_MAX);
    let shown: Vec<String> = shown.map(|queue| format!("`{queue}`")).collect();
    let shown = shown.join(", ");
    let others = queues.len().saturating_sub(QUEUES_SHOWN_MAX);
    let which = match (queues.len(), others) {
        (1, _) => format!("the queue {shown} has"),
        (_, 0) => format!("the queues {shown} have"),
        (_, others) => format!("the queues {shown} and {others} others have"),
    };
    format!("{which} not confirmed a message for {CONFIRMED_WITHIN:?}")
}

/// Amount of refused publications.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Backlog {
    pub(super) count: usize,
    pub(super) bytes: usize,
    /// Number of those that are never accepted, or only once others are processed. They block nothing.
    pub(super) parked: usize,
}

impl Backlog {
    /// Returns whether no more work is begun, since its publications might have to wait, too.
    pub(super) fn is_full(self) -> bool {
        self.count >= WAITING_MAX || self.bytes >= WAITING_BYTES_MAX
    }

    /// Additional number of messages to send ahead: those that wait are unacknowledged, and must not block
    /// others. In few steps, since each has a cost for the broker.
    pub(super) fn ahead(self) -> u16 {
        let steps = match self.count + self.parked {
            0 => 0,
            count => count.next_power_of_two(),
        };
        u16::try_from(steps.min(WAITING_MAX.next_power_of_two())).unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_or_sixteen_mebibytes_are_enough() {
        let table = [
            ((0, 0, 0), false, 0),
            ((1, 0, 0), false, 1),
            ((3, 100, 0), false, 4),
            ((999, (16 << 20) - 1, 0), false, 1024),
            ((1000, 0, 0), true, 1024),
            ((5000, 0, 0), true, 1024),
            ((1, 16 << 20, 0), true, 1),
            ((0, 0, 5000), false, 1024),
            ((3, 0, 2), false, 8),
        ];
        for ((count, bytes, parked), is_full, ahead) in table {
            let backlog = Backlog {
                count,
                bytes,
                parked,
            };
            assert_eq!((backlog.is_full(), backlog.ahead()), (is_full, ahead));
        }
    }
}
