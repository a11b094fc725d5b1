//! The producer: what is published is kept until the broker has confirmed it, whatever that takes.
//! It never waits: what librdkafka has no room for stays here. What a confirmation is for is the
//! task's business; it comes back with it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError as Native, RDKafkaErrorCode as Code};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{
    BaseRecord, NoCustomPartitioner, Producer as _, ProducerContext, ThreadedProducer,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::consumer::log;
use super::error::KafkaError;
use super::record::Outbound;
use crate::backoff::Backoff;

/// The pauses before what failed is sent again.
const AGAIN: Backoff = Backoff {
    initial: Duration::from_millis(100),
    factor: 2.0,
    max: Duration::from_secs(5),
    jitter: 0.2,
};

/// With nothing confirmed for so long, something is wrong, though nobody says what.
/// Longer than a topic that is just being made may be unknown.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// What the callbacks took down.
#[derive(Debug, Default)]
struct Notes {
    reports: Vec<(usize, Result<(), Code>)>,
    errors: Vec<(Code, String)>,
}

/// The callbacks. They run on librdkafka's polling thread.
struct Context {
    pool: String,
    notes: Arc<Mutex<Notes>>,
    bell: Arc<Notify>,
}

impl Context {
    fn note(&self, note: impl FnOnce(&mut Notes)) {
        note(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner));
        self.bell.notify_one();
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(&self.pool, level, facility, message);
    }

    fn stats_raw(&self, _: &[u8]) {}

    fn error(&self, error: Native, reason: &str) {
        if let Some(code) = error.rdkafka_error_code() {
            self.note(|notes| notes.errors.push((code, reason.to_owned())));
        }
    }
}

impl ProducerContext<NoCustomPartitioner> for Context {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, id: usize) {
        let result = match result {
            Ok(_) => Ok(()),
            Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(Code::Fail)),
        };
        self.note(|notes| notes.reports.push((id, result)));
    }
}

/// How a publication ended.
#[derive(Debug)]
pub(super) struct Report<P> {
    /// What it was for.
    pub(super) purpose: P,
    /// Why it was given up.
    pub(super) result: Result<(), Code>,
}

/// What becomes of a publication that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// It is sent again: that may soon pass.
    Again,
    /// It is sent again although the broker refuses it, until someone changes the broker.
    Insist,
    /// It ends.
    GiveUp,
}

/// What has happened to what was published.
#[derive(Debug)]
pub(super) struct Reports<P> {
    /// What has been confirmed or given up.
    pub(super) ended: Vec<Report<P>>,
    /// Why what is insisted on was refused, and by which topic.
    pub(super) refused: Vec<(Code, String)>,
    /// What else is wrong.
    pub(super) errors: Vec<(Code, String)>,
}

/// What is published and not confirmed.
#[derive(Debug)]
struct Job<P> {
    record: Outbound,
    purpose: P,
    failures: u32,
    /// It was refused, and is insisted on.
    is_refused: bool,
}

/// A producer, with what it has not had confirmed yet.
pub(super) struct Producer<P> {
    properties: ClientConfig,
    pool: String,
    native: ThreadedProducer<Context>,
    notes: Arc<Mutex<Notes>>,
    bell: Arc<Notify>,
    jobs: HashMap<usize, Job<P>>,
    /// Those that librdkafka had no room for, in order.
    waiting: VecDeque<usize>,
    /// Those that failed, and when they are sent again.
    paused: BTreeSet<(Instant, usize)>,
    last_id: usize,
    /// What all jobs take.
    bytes: usize,
    /// How many of them were refused, and are insisted on.
    refused: usize,
    /// How often it was made anew since something was confirmed, and when it may be again.
    renewals: u32,
    renew_at: Option<Instant>,
    /// Since when something is waiting and nothing has been confirmed.
    silent_since: Option<Instant>,
}

impl<P> fmt::Debug for Producer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jobs = self.jobs.len();
        f.debug_struct("Producer")
            .field("jobs", &jobs)
            .finish_non_exhaustive()
    }
}

impl<P> Producer<P> {
    /// Makes one. `bell` rings when there are reports.
    pub(super) fn new(
        properties: ClientConfig,
        pool: &str,
        bell: Arc<Notify>,
    ) -> Result<Self, KafkaError> {
        let notes = Arc::default();
        let native = native(&properties, pool, &notes, &bell)?;
        Ok(Self {
            properties,
            pool: pool.to_owned(),
            native,
            notes,
            bell,
            jobs: HashMap::new(),
            waiting: VecDeque::new(),
            paused: BTreeSet::new(),
            // Zero would be a null pointer to librdkafka.
            last_id: 0,
            bytes: 0,
            refused: 0,
            renewals: 0,
            renew_at: None,
            silent_since: None,
        })
    }

    /// Nothing is waiting for its confirmation.
    pub(super) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// How many publications are not confirmed.
    pub(super) fn pending(&self) -> usize {
        self.jobs.len()
    }

    /// How many bytes those take.
    pub(super) fn pending_bytes(&self) -> usize {
        self.bytes
    }

    /// How many of those were refused, and are insisted on.
    pub(super) fn refused(&self) -> usize {
        self.refused
    }

    /// When something is to be sent again.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let paused = self.paused.first().map(|(due, _)| *due);
        let renewal = self.renew_at.filter(|_| !self.jobs.is_empty());
        let paused = paused.into_iter().chain(renewal).min();
        // Once it is over, nothing more falls due.
        let silence = self.silent_since.map(|since| since + SILENCE_MAX);
        let silence = silence.filter(|silence| *silence > Instant::now());
        paused.into_iter().chain(silence).min()
    }

    /// Whether the broker has confirmed nothing of what is waiting for suspiciously long.
    pub(super) fn is_unheard(&self, now: Instant) -> bool {
        self.silent_since
            .is_some_and(|since| now >= since + SILENCE_MAX)
    }

    /// Publishes.
    pub(super) fn send(&mut self, record: Outbound, purpose: P) {
        self.last_id = self.last_id.wrapping_add(1).max(1);
        let id = self.last_id;
        let job = Job {
            record,
            purpose,
            failures: 0,
            is_refused: false,
        };
        self.bytes += job.record.bytes();
        self.jobs.insert(id, job);
        self.silent_since.get_or_insert_with(Instant::now);
        self.waiting.push_back(id);
        self.push();
    }

    /// Hands on to librdkafka what it has room for.
    fn push(&mut self) {
        while let Some(&id) = self.waiting.front() {
            let Some(job) = self.jobs.get(&id) else {
                self.waiting.pop_front();
                continue;
            };
            match self.native.send(native_record(&job.record, id)) {
                Ok(()) => {
                    self.waiting.pop_front();
                }
                Err((error, _)) => {
                    let code = error.rdkafka_error_code().unwrap_or(Code::InvalidArgument);
                    if code == Code::QueueFull {
                        return;
                    }
                    self.waiting.pop_front();
                    let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
                    notes.reports.push((id, Err(code)));
                    self.bell.notify_one();
                }
            }
        }
    }

    /// What has happened since the last call; `then` says what becomes of what failed.
    pub(super) fn reports(&mut self, now: Instant, then: impl Fn(&P, Code) -> Then) -> Reports<P> {
        let mut notes =
            std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner));
        let mut ended = Vec::with_capacity(notes.reports.len());
        let mut refused = Vec::new();
        for (id, result) in notes.reports.drain(..) {
            let Some(job) = self.jobs.get_mut(&id) else {
                continue;
            };
            if let Err(code) = result {
                match then(&job.purpose, code) {
                    Then::GiveUp => ended.extend(self.end(id, result)),
                    Then::Again => {
                        notes.errors.push((code, job.record.topic.clone()));
                        self.pause(id, now);
                    }
                    Then::Insist => {
                        self.refused += usize::from(!job.is_refused);
                        job.is_refused = true;
                        refused.push((code, job.record.topic.clone()));
                        self.pause(id, now);
                    }
                }
            } else {
                ended.extend(self.end(id, result));
            }
        }
        if self.jobs.is_empty() {
            self.silent_since = None;
        } else if !ended.is_empty() || !refused.is_empty() {
            self.silent_since = Some(now);
        }
        // The code of the error need not say that it is one of those.
        let asked = (!notes.errors.is_empty()).then(|| self.native.client().fatal_error());
        if let Some(fatal) = asked.flatten() {
            // All else fails because of it.
            refused.clear();
            notes.errors = vec![fatal];
            self.plan_renewal(now);
        }
        // Without jobs it need not be sound.
        if self.renew_at.is_some_and(|when| when <= now) && !self.jobs.is_empty() {
            self.renew(now);
        }
        self.wake(now);
        self.push();
        Reports {
            ended,
            refused,
            errors: notes.errors,
        }
    }

    fn plan_renewal(&mut self, now: Instant) {
        if self.renew_at.is_none() {
            self.renewals = self.renewals.saturating_add(1);
            self.renew_at = Some(now + AGAIN.wait(self.renewals, fastrand::f64()));
        }
    }

    fn end(&mut self, id: usize, result: Result<(), Code>) -> Option<Report<P>> {
        let job = self.jobs.remove(&id)?;
        self.bytes -= job.record.bytes();
        self.refused -= usize::from(job.is_refused);
        if result.is_ok() {
            self.renewals = 0;
        }
        Some(Report {
            purpose: job.purpose,
            result,
        })
    }

    fn pause(&mut self, id: usize, now: Instant) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.failures = job.failures.saturating_add(1);
            let wait = AGAIN.wait(job.failures, fastrand::f64());
            self.paused.insert((now + wait, id));
        }
    }

    fn wake(&mut self, now: Instant) {
        while let Some(&(due, id)) = self.paused.first().filter(|(due, _)| *due <= now) {
            self.paused.remove(&(due, id));
            self.waiting.push_back(id);
        }
    }

    /// An idempotent producer that has lost track of its sequence is of no use any more. All that
    /// is not confirmed goes through a new one, and so may come twice.
    fn renew(&mut self, now: Instant) {
        tracing::warn!(
            pool = self.pool,
            unconfirmed = self.jobs.len(),
            "the producer broke down and is made anew"
        );
        self.renew_at = None;
        let notes = Arc::default();
        match native(&self.properties, &self.pool, &notes, &self.bell) {
            Ok(native) => {
                // The reports of the old one, which it still makes at its end, are nobody's.
                self.notes = notes;
                self.native = native;
                self.paused.clear();
                let mut all: Vec<usize> = self.jobs.keys().copied().collect();
                all.sort_unstable();
                self.waiting = all.into();
            }
            Err(error) => {
                tracing::error!(pool = self.pool, %error, "no new producer could be made");
                let ids: Vec<usize> = self.jobs.keys().copied().collect();
                ids.into_iter().for_each(|id| self.pause(id, now));
            }
        }
    }
}

fn native(
    properties: &ClientConfig,
    pool: &str,
    notes: &Arc<Mutex<Notes>>,
    bell: &Arc<Notify>,
) -> Result<ThreadedProducer<Context>, KafkaError> {
    let context = Context {
        pool: pool.to_owned(),
        notes: Arc::clone(notes),
        bell: Arc::clone(bell),
    };
    ThreadedProducer::from_config_and_context(properties, context).map_err(KafkaError::of_client)
}

fn native_record(record: &Outbound, id: usize) -> BaseRecord<'_, [u8], [u8], usize> {
    let mut native = BaseRecord::with_opaque_to(&record.topic, id);
    native.key = record.key.as_deref();
    native.payload = record.value.as_deref();
    native.timestamp = record.timestamp_ms;
    if !record.headers.is_empty() {
        let headers = OwnedHeaders::new_with_capacity(record.headers.len());
        native.headers = Some(
            record
                .headers
                .iter()
                .fold(headers, |headers, (key, value)| {
                    let value = value.as_deref();
                    headers.insert(Header { key, value })
                }),
        );
    }
    native
}
