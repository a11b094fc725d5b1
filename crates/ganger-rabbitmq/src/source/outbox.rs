//! Publications in flight, and those waiting to be accepted: how many there are, and which queues
//! they wait for. The consequences of the broker's verdicts are in `confirms.rs`.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use lapin::types::ShortString;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::publication::Publication;
use super::targets::{Standing, Targets};
use crate::broker::error::RabbitMqError;
use crate::broker::isolating::IsolatingPublisher;
use crate::broker::line::RECONNECT;
use crate::broker::publisher::{OutboundMessage, PublisherNews};
use ganger_queue::delivery::PublishError;
use ganger_queue::publishing::confirm;

/// Number of refused publications that may wait before nothing new is begun,
const WAITING_MAX: usize = 1000;
/// and number of their body bytes.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// Maximum number of emits in flight at once.
const EMITS_MAX: usize = 64;

/// A publication in progress.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) subject: JobSubject,
    /// Message that is being published.
    pub(super) parcel: Rc<OutboundMessage>,
    /// Messages to publish after it.
    pub(super) then: VecDeque<OutboundMessage>,
    /// Time at which it was first not accepted.
    pub(super) refused: Option<Instant>,
}

/// Subject of a publication.
#[derive(Debug)]
pub(super) enum JobSubject {
    /// A delivery, to be acknowledged after it.
    Delivery { tag: u64, aim: Publication },
    /// A worker, in the middle of its work.
    Emit {
        confirmed: oneshot::Sender<Result<(), PublishError>>,
        queue: String,
    },
}

impl Job {
    /// Returns whether its subject need not wait: a dead letter records what was not delivered, or
    /// the worker that asked gets the error.
    pub(super) fn is_for_others(&self) -> bool {
        match &self.subject {
            JobSubject::Emit { .. } => true,
            JobSubject::Delivery { .. } => self.is_reply(),
        }
    }

    /// Tag of the delivery that it is for.
    fn tag(&self) -> Option<u64> {
        match &self.subject {
            JobSubject::Delivery { tag, .. } => Some(*tag),
            JobSubject::Emit { .. } => None,
        }
    }

    /// Returns whether it is the copy by which a message goes back to our own queue.
    fn goes_back(&self) -> bool {
        matches!(
            self.subject,
            JobSubject::Delivery {
                aim: Publication::Back,
                ..
            }
        )
    }

    fn is_reply(&self) -> bool {
        let aim = match &self.subject {
            JobSubject::Delivery { aim, .. } => aim,
            JobSubject::Emit { .. } => return false,
        };
        matches!(aim, Publication::Reply(_))
    }
}

/// Place of a job.
enum Whereabouts {
    /// Index among the waiting jobs,
    Waiting(usize),
    /// or the publisher's number.
    InFlight(u64),
}

/// All jobs, and the publisher.
#[derive(Debug)]
pub(super) struct Outbox {
    publisher: IsolatingPublisher,
    /// Jobs in flight, by the publisher's numbers.
    jobs: HashMap<u64, Job>,
    /// Jobs that the broker can't accept at the moment.
    waiting: Vec<Job>,
    /// Number of times in a row that something was not accepted.
    waits: u32,
    retry_at: Option<Instant>,
    emits: usize,
    targets: Targets,
    /// Queues of publications no longer waited for whose verdict may come, by publisher's number.
    forgotten: HashMap<u64, ShortString>,
    /// Number of messages set aside, since nothing can be published for them.
    aside: usize,
    /// Backlog at the last look.
    backlog: Backlog,
    /// The broker accepts nothing at all: it has blocked us, or there is no connection.
    is_shut: bool,
}

impl Outbox {
    pub(super) fn new(publisher: IsolatingPublisher, now: Instant) -> Self {
        let mut targets = Targets::default();
        targets.listens(true, now);
        Self {
            publisher,
            jobs: HashMap::new(),
            waiting: Vec::new(),
            waits: 0,
            retry_at: None,
            emits: 0,
            targets,
            forgotten: HashMap::new(),
            aside: 0,
            backlog: Backlog::default(),
            is_shut: false,
        }
    }

    // -- in flight --

    /// Begins a publication.
    pub(super) fn begin(
        &mut self,
        subject: JobSubject,
        parcel: OutboundMessage,
        then: VecDeque<OutboundMessage>,
    ) {
        self.emits += usize::from(matches!(subject, JobSubject::Emit { .. }));
        self.send(Job {
            subject,
            parcel: Rc::new(parcel),
            then,
            refused: None,
        });
    }

    /// Publishes the next part after one that is confirmed. Returns the job if that was the last.
    pub(super) fn send_next(&mut self, mut job: Job) -> Option<Job> {
        let Some(next) = job.then.pop_front() else {
            return Some(job);
        };
        job.parcel = Rc::new(next);
        self.send(job);
        None
    }

    /// Tells a worker the result of its emit.
    pub(super) fn end_emit(
        &mut self,
        confirmed: oneshot::Sender<Result<(), PublishError>>,
        queue: &str,
        result: Result<(), String>,
    ) {
        self.emits -= 1;
        confirm(confirmed, queue, result);
    }

    /// Returns whether another emit may be in flight.
    pub(super) fn has_room_for_emits(&self) -> bool {
        self.emits < EMITS_MAX
    }

    /// Polls the publisher's news.
    ///
    /// # Errors
    /// If the connection is lost, where it is not its own.
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

    /// Removes a job whose verdict has come.
    pub(super) fn take(&mut self, id: u64) -> Option<Job> {
        self.jobs.remove(&id)
    }

    /// Records that a queue accepts messages. Returns whether it was given up.
    pub(super) fn took(&mut self, queue: &ShortString) -> bool {
        self.targets.took(queue)
    }

    /// Records a long silence about a job: returns the standing of its queue, and whether the job
    /// need not wait for that.
    pub(super) fn be_silent(
        &mut self,
        id: u64,
        now: Instant,
    ) -> Option<(ShortString, Standing, bool)> {
        let job = self.jobs.get_mut(&id)?;
        job.refused.get_or_insert(now);
        self.publisher.be_silent(id);
        let standing = self.targets.refused(&job.parcel.to, now);
        Some((job.parcel.to.clone(), standing, job.is_for_others()))
    }

    /// Records that a silent queue is waited for: that is a problem until it is resolved.
    pub(super) fn waits_for_silent(&mut self) {
        self.waits = self.waits.max(1);
    }

    // -- waiting jobs --

    /// Queues a job to be retried later.
    pub(super) fn wait(&mut self, mut job: Job) {
        let now = Instant::now();
        job.refused.get_or_insert(now);
        self.waiting.push(job);
        if self.retry_at.is_none() {
            self.waits = self.waits.saturating_add(1);
            self.retry_at = Some(now + RECONNECT.wait(self.waits, fastrand::f64()));
        }
    }

    /// Time of the next retry.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Sends again what was not accepted.
    pub(super) fn try_again(&mut self) {
        self.retry_at = None;
        for job in std::mem::take(&mut self.waiting) {
            match job.subject {
                // Whoever asked has given up, so the task behind it failed and will publish again.
                JobSubject::Emit { confirmed, .. } if confirmed.is_closed() => self.emits -= 1,
                _ => self.send(job),
            }
        }
    }

    /// Returns whether everything refused before is accepted now, only once.
    pub(super) fn is_over(&mut self) -> bool {
        let over = self.waits > 0
            && self.waiting.is_empty()
            && !self.jobs.values().any(|job| job.refused.is_some());
        if over {
            self.waits = 0;
            // A try may be left for one that has gone back; the next to wait counts anew.
            self.retry_at = None;
        }
        over
    }

    /// Sets the number of messages set aside.
    pub(super) fn are_aside(&mut self, count: usize) {
        self.aside = count;
    }

    /// Cancels all publications for these deliveries, given in order. Returns those that were to go
    /// back as a copy: it may be in the queue, or there is no room for one.
    pub(super) fn forget_all(&mut self, tags: &[u64]) -> BTreeSet<u64> {
        let is_one = |job: &Job| {
            job.tag()
                .is_some_and(|tag| tags.binary_search(&tag).is_ok())
        };
        let jobs = self.jobs.values().chain(&self.waiting);
        let copied = jobs.filter(|job| job.goes_back()).filter_map(Job::tag);
        let copied = copied.collect();
        self.waiting.retain(|job| !is_one(job));
        let stuck = self.jobs.iter().filter(|(_, job)| is_one(job));
        let stuck: Vec<u64> = stuck.map(|(id, _)| *id).collect();
        for id in stuck {
            // Whatever the broker says of it, nothing follows: the message is none of ours.
            drop(self.forget(id));
        }
        copied
    }

    // -- the line --

    /// Closes the publisher in order.
    pub(super) async fn close(self) {
        self.publisher.close().await;
    }

    /// Gives up all jobs, since the connection of the deliveries is lost.
    pub(super) fn abandon(self) {
        for job in self.jobs.into_values().chain(self.waiting) {
            if let JobSubject::Emit { confirmed, queue } = job.subject {
                confirm(confirmed, &queue, Err("the connection is lost".into()));
            }
        }
    }

    fn send(&mut self, job: Job) {
        let id = self.publisher.send(Rc::clone(&job.parcel));
        self.jobs.insert(id, job);
    }

    /// Records whether the broker accepts nothing from now on.
    pub(super) fn shut(&mut self, is_shut: bool, now: Instant) {
        self.is_shut = is_shut;
        self.targets.listens(!is_shut, now);
        if !is_shut {
            self.publisher.wait_anew(now);
        }
    }

    pub(super) fn is_shut(&self) -> bool {
        self.is_shut
    }

    /// Clears the forgotten publications: only the others are sent again over another connection.
    pub(super) fn lose(&mut self) {
        self.forgotten.clear();
    }

    /// Number of jobs left.
    pub(super) fn pending(&self) -> usize {
        self.jobs.len() + self.waiting.len()
    }

    /// Updates the backlog.
    pub(super) fn look(&mut self) -> Backlog {
        self.backlog = self.not_taken();
        self.backlog
    }

    /// Backlog at the last look.
    pub(super) fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn not_taken(&self) -> Backlog {
        let mut backlog = Backlog {
            aside: self.aside,
            ..Backlog::default()
        };
        if !self.is_shut && self.waits == 0 {
            return backlog;
        }
        let not_taken = |job: &&Job| self.is_shut || job.refused.is_some();
        let jobs = self.jobs.values().filter(not_taken).chain(&self.waiting);
        for job in jobs {
            if job.goes_back() {
                backlog.aside += 1;
                continue;
            }
            backlog.count += 1;
            let then = job.then.iter().map(|parcel| parcel.body.len());
            backlog.bytes += job.parcel.body.len() + then.sum::<usize>();
        }
        backlog
    }

    /// Removes the messages, in order, whose return their queue has no room for.
    pub(super) fn take_backs(&mut self) -> Vec<u64> {
        let backs = self.waiting.extract_if(.., |job| job.goes_back());
        let mut tags: Vec<u64> = backs.filter_map(|job| job.tag()).collect();
        tags.sort_unstable();
        tags
    }

    /// Oldest reply that waits for a queue which does not accept it, or does not answer.
    pub(super) fn take_oldest_reply(&mut self) -> Option<Job> {
        let waiting = self.waiting.iter().enumerate();
        let waiting = waiting.filter(|(_, job)| job.is_reply());
        let waiting = waiting.map(|(at, job)| (job.refused, Whereabouts::Waiting(at)));
        let publisher = &self.publisher;
        let is_silent = |(id, job): &(&u64, &Job)| {
            job.is_reply() && job.refused.is_some() && publisher.is_stuck(**id)
        };
        let silent = self.jobs.iter().filter(is_silent);
        let silent = silent.map(|(id, job)| (job.refused, Whereabouts::InFlight(*id)));
        let (_, oldest) = waiting.chain(silent).min_by_key(|(refused, _)| *refused)?;
        match oldest {
            Whereabouts::Waiting(at) => Some(self.waiting.remove(at)),
            Whereabouts::InFlight(id) => self.forget(id),
        }
    }

    /// Returns whether sending to this queue is useless: it is given up, and has not even answered
    /// to what it was sent.
    pub(super) fn is_hopeless(&self, queue: &str) -> bool {
        self.targets.is_given_up(queue)
            && self.forgotten.values().any(|other| other.as_str() == queue)
    }

    /// Publications sent so long ago without an answer, in order, and those not sent because their
    /// queue has not answered for so long.
    pub(super) fn silent_for(&self, within: Duration, now: Instant) -> Vec<u64> {
        if self.is_shut {
            return Vec::new();
        }
        let ids = self.jobs.keys().copied();
        let is_silent = |id: &u64| {
            let since = self.publisher.unanswered_since(*id);
            since.is_some_and(|since| now.duration_since(since) >= within)
        };
        let mut silent: Vec<u64> = ids.filter(is_silent).collect();
        silent.sort_unstable();
        silent
    }

    /// Withdraws a publication that its queue does not answer.
    pub(super) fn forget(&mut self, id: u64) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        if self.publisher.forget(id) {
            self.forgotten.insert(id, job.parcel.to.clone());
        }
        Some(job)
    }

    /// Queue of a forgotten publication whose verdict has come.
    pub(super) fn remember(&mut self, id: u64) -> Option<ShortString> {
        self.forgotten.remove(&id)
    }

    /// Records that a queue has not accepted a job, or has not answered to it.
    pub(super) fn refused(&mut self, job: &mut Job, now: Instant) -> Standing {
        job.refused.get_or_insert(now);
        self.targets.refused(&job.parcel.to, now)
    }
}

/// Amount of refused publications.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Backlog {
    pub(super) count: usize,
    pub(super) bytes: usize,
    /// Number of those never accepted, or only once others are worked on. They block nothing.
    pub(super) aside: usize,
}

impl Backlog {
    /// Returns whether nothing new is begun, since it might come to wait, too.
    pub(super) fn is_full(self) -> bool {
        self.count >= WAITING_MAX || self.bytes >= WAITING_BYTES_MAX
    }

    /// Number of messages to send ahead in addition: those that wait are unacknowledged, and must
    /// not be in the way of others. In few steps, since each costs the broker something.
    pub(super) fn ahead(self) -> u16 {
        let steps = match self.count + self.aside {
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
        for ((count, bytes, aside), is_full, ahead) in table {
            let backlog = Backlog {
                count,
                bytes,
                aside,
            };
            assert_eq!((backlog.is_full(), backlog.ahead()), (is_full, ahead));
        }
    }
}
