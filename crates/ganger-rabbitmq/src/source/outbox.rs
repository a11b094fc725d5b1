//! What is on its way to the broker and what waits to be taken: how much of it there is, and which
//! queues it waits for. What follows from the broker's word is in `confirms.rs`.

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

/// So many that are not taken may wait before nothing new is begun,
const WAITING_MAX: usize = 1000;
/// and so many bytes of bodies.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// The most emits that are on their way to the broker at once.
const EMITS_MAX: usize = 64;

/// Something that is being published.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) subject: JobSubject,
    /// What is published now.
    pub(super) parcel: Rc<OutboundMessage>,
    /// What is published after it.
    pub(super) then: VecDeque<OutboundMessage>,
    /// When it was first not taken.
    pub(super) refused: Option<Instant>,
}

/// What it is published for.
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
    /// Whether what it is for needs no waiting: a letter says what was not delivered, or the worker
    /// that asked is told.
    pub(super) fn is_for_others(&self) -> bool {
        match &self.subject {
            JobSubject::Emit { .. } => true,
            JobSubject::Delivery { .. } => self.is_reply(),
        }
    }

    /// The delivery that it is for.
    fn tag(&self) -> Option<u64> {
        match &self.subject {
            JobSubject::Delivery { tag, .. } => Some(*tag),
            JobSubject::Emit { .. } => None,
        }
    }

    /// Whether it is the copy by which a message goes back to our own queue.
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

/// Where a job is.
enum Whereabouts {
    /// At this place of those that wait,
    Waiting(usize),
    /// or by the publisher's number.
    InFlight(u64),
}

/// All of it.
#[derive(Debug)]
pub(super) struct Outbox {
    publisher: IsolatingPublisher,
    /// What is on its way to the broker, by the publisher's numbers.
    jobs: HashMap<u64, Job>,
    /// What the broker can't take just now.
    waiting: Vec<Job>,
    /// How often in a row something was not taken.
    waits: u32,
    retry_at: Option<Instant>,
    emits: usize,
    targets: Targets,
    /// Nobody waits for these any more, but their verdict may come, by the publisher's numbers.
    forgotten: HashMap<u64, ShortString>,
    /// How many messages are set aside, since nothing can be published for them.
    aside: usize,
    /// What is not taken, as of the last look.
    backlog: Backlog,
    /// The broker takes nothing at all: it has blocked us, or there is no connection.
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

    // -- what is on its way --

    /// Something is to be published.
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

    /// Publishes what comes after the part that is confirmed. Returns the job if that was the last.
    pub(super) fn send_next(&mut self, mut job: Job) -> Option<Job> {
        let Some(next) = job.then.pop_front() else {
            return Some(job);
        };
        job.parcel = Rc::new(next);
        self.send(job);
        None
    }

    /// Tells a worker what has become of its emit.
    pub(super) fn end_emit(
        &mut self,
        confirmed: oneshot::Sender<Result<(), PublishError>>,
        queue: &str,
        result: Result<(), String>,
    ) {
        self.emits -= 1;
        confirm(confirmed, queue, result);
    }

    /// Whether another emit may be on its way.
    pub(super) fn has_room_for_emits(&self) -> bool {
        self.emits < EMITS_MAX
    }

    /// What the publisher has to tell.
    ///
    /// # Errors
    /// If the connection is lost, where it is not its own.
    pub(super) fn poll_news(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<PublisherNews, RabbitMqError>> {
        self.publisher.poll_news(cx)
    }

    /// How many were sent once more, since this was last asked, although the broker may have had
    /// them.
    pub(super) fn take_sent_again(&mut self) -> u64 {
        self.publisher.take_sent_again()
    }

    /// Takes out what the broker has spoken of.
    pub(super) fn take(&mut self, id: u64) -> Option<Job> {
        self.jobs.remove(&id)
    }

    /// A queue takes what it is sent. Returns whether it was given up.
    pub(super) fn took(&mut self, queue: &ShortString) -> bool {
        self.targets.took(queue)
    }

    /// A job for which nothing was said for long: how its queue stands now, and whether nobody need
    /// wait for that.
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

    /// A silent queue is waited for: that is trouble until it is over.
    pub(super) fn waits_for_silent(&mut self) {
        self.waits = self.waits.max(1);
    }

    // -- what waits --

    /// It is tried again later.
    pub(super) fn wait(&mut self, mut job: Job) {
        let now = Instant::now();
        job.refused.get_or_insert(now);
        self.waiting.push(job);
        if self.retry_at.is_none() {
            self.waits = self.waits.saturating_add(1);
            self.retry_at = Some(now + RECONNECT.wait(self.waits, fastrand::f64()));
        }
    }

    /// When what waits is tried again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Sends once more what could not be taken.
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

    /// Whether all that could not be taken is taken now, told once.
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

    /// So many messages are set aside.
    pub(super) fn are_aside(&mut self, count: usize) {
        self.aside = count;
    }

    /// Nothing is published for these deliveries, in order, any more. Returns those that were to go
    /// back as a copy: it may be there, or there is no room for one.
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

    /// Ends it in order.
    pub(super) async fn close(self) {
        self.publisher.close().await;
    }

    /// The connection of the deliveries is lost.
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

    /// The broker takes nothing from now on, or takes what there is.
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

    /// What was on its way over another connection is sent again, but for what is forgotten.
    pub(super) fn lose(&mut self) {
        self.forgotten.clear();
    }

    /// How many are left.
    pub(super) fn pending(&self) -> usize {
        self.jobs.len() + self.waiting.len()
    }

    /// Looks at what is not taken.
    pub(super) fn look(&mut self) -> Backlog {
        self.backlog = self.not_taken();
        self.backlog
    }

    /// What was not taken at the last look.
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

    /// Takes out the messages, in order, whose way back their queue has no room for.
    pub(super) fn take_backs(&mut self) -> Vec<u64> {
        let backs = self.waiting.extract_if(.., |job| job.goes_back());
        let mut tags: Vec<u64> = backs.filter_map(|job| job.tag()).collect();
        tags.sort_unstable();
        tags
    }

    /// The reply that has waited longest for a queue that does not take it, or does not answer.
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

    /// Whether there is no use in sending something to this queue: it is given up, and has not even
    /// answered to what it was sent.
    pub(super) fn is_hopeless(&self, queue: &str) -> bool {
        self.targets.is_given_up(queue)
            && self.forgotten.values().any(|other| other.as_str() == queue)
    }

    /// What was sent so long ago and is not answered to, in order, and what was not sent since its
    /// queue has answered to nothing for so long.
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

    /// Takes back what a queue does not answer to.
    pub(super) fn forget(&mut self, id: u64) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        if self.publisher.forget(id) {
            self.forgotten.insert(id, job.parcel.to.clone());
        }
        Some(job)
    }

    /// The broker has spoken of something that is forgotten: the queue that it is for.
    pub(super) fn remember(&mut self, id: u64) -> Option<ShortString> {
        self.forgotten.remove(&id)
    }

    /// A queue has not taken a job, or has not answered to it.
    pub(super) fn refused(&mut self, job: &mut Job, now: Instant) -> Standing {
        job.refused.get_or_insert(now);
        self.targets.refused(&job.parcel.to, now)
    }
}

/// How much is not taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Backlog {
    pub(super) count: usize,
    pub(super) bytes: usize,
    /// What never will be, or once others are worked on. It holds nobody up.
    pub(super) aside: usize,
}

impl Backlog {
    /// Nothing new is begun, since it might come to wait, too.
    pub(super) fn is_full(self) -> bool {
        self.count >= WAITING_MAX || self.bytes >= WAITING_BYTES_MAX
    }

    /// How many more messages the broker is to send ahead for it: what waits is not acknowledged,
    /// and must not be in the way of others. In few steps, since each costs the broker something.
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
