//! A producer of librdkafka: the records passed to it, those it has no room for, and its reports.
//! `producer` handles the reports.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, thread};

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError as Fault, RDKafkaErrorCode as Code};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{
    BaseProducer, BaseRecord, NoCustomPartitioner, Producer as _, ProducerContext,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::consumer::log;
use super::error::KafkaError;
use super::out_of_reach::OutOfReach;
use super::record::Outbound;
use ganger_core::backoff::AWAY;
use ganger_core::heartbeat::Heartbeat;

/// Maximum size of a record. A broker closes the connection over a request of more than 100 MiB
/// (`socket.request.max.bytes`), each time that it is sent, and other records in flight are lost with it.
const RECORD_BYTES_MAX: usize = 96 << 20;

/// Interval at which the thread that polls a producer checks whether it has to end. For up to a millisecond
/// before each check the library does not wait but spins. With ten checks per second, as in the library's own
/// thread, that alone took a twentieth of a core for twenty idle pools; with one per second it was still a
/// fifth of all that they take.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// Events recorded by the callbacks.
#[derive(Debug, Default)]
pub(crate) struct ProducerEvents {
    pub(crate) reports: Vec<(usize, Result<(), Code>)>,
    pub(crate) errors: Vec<(Code, String)>,
}

/// The callbacks. They run on the thread that polls the producer.
struct ProducerCallbacks {
    pool: String,
    notes: Arc<Mutex<ProducerEvents>>,
    wakeup: Arc<Notify>,
}

impl ProducerCallbacks {
    fn note(&self, note: impl FnOnce(&mut ProducerEvents)) {
        note(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner));
        self.wakeup.notify_one();
    }
}

impl ClientContext for ProducerCallbacks {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(&self.pool, level, facility, message);
    }

    fn stats_raw(&self, _: &[u8]) {}

    fn error(&self, error: Fault, reason: &str) {
        if let Some(code) = error.rdkafka_error_code() {
            self.note(|notes| notes.errors.push((code, reason.to_owned())));
        }
    }
}

impl ProducerContext<NoCustomPartitioner> for ProducerCallbacks {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, id: usize) {
        let result = match result {
            Ok(_) => Ok(()),
            Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(Code::Fail)),
        };
        self.note(|notes| notes.reports.push((id, result)));
    }
}

/// A producer of librdkafka and the thread that polls it. The thread is not joined.
struct NativeProducer {
    producer: Arc<BaseProducer<ProducerCallbacks>>,
    is_over: Arc<AtomicBool>,
}

impl NativeProducer {
    fn open(properties: &ClientConfig, context: ProducerCallbacks) -> Result<Self, KafkaError> {
        let pool = context.pool.clone();
        let producer = BaseProducer::from_config_and_context(properties, context);
        let producer = Arc::new(producer.map_err(KafkaError::of_client)?);
        let is_over = Arc::new(AtomicBool::new(false));
        let (hears, ends) = (Arc::clone(&producer), Arc::clone(&is_over));
        let hear = move || {
            let heartbeat = Heartbeat::of_this_thread();
            while !ends.load(Ordering::Relaxed) {
                heartbeat.away(|| hears.poll(CHECK_EVERY));
            }
        };
        let thread = thread::Builder::new().name(format!("kafka-producer-{pool}"));
        let spawned = thread.spawn(hear);
        spawned.map_err(|error| KafkaError::Client(format!("no thread: {error}")))?;
        Ok(Self { producer, is_over })
    }
}

impl Drop for NativeProducer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// A producer of librdkafka, its queue and its state.
pub(crate) struct ProducerClient {
    native: NativeProducer,
    notes: Arc<Mutex<ProducerEvents>>,
    /// Records that the library had no room for, in order.
    waiting: VecDeque<usize>,
    /// Number of renewals since the producer last accepted a record, and the earliest time of the next.
    renewals: u32,
    renew_at: Option<Instant>,
    away: OutOfReach,
}

impl fmt::Debug for ProducerClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProducerClient")
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}

impl ProducerClient {
    /// Opens a producer. `wakeup` fires when it has a report; `patience` is the maximum time without a
    /// reachable broker.
    pub(crate) fn open(
        properties: &ClientConfig,
        pool: &str,
        patience: Duration,
        wakeup: &Arc<Notify>,
    ) -> Result<Self, KafkaError> {
        let notes = Arc::default();
        let context = ProducerCallbacks {
            pool: pool.to_owned(),
            notes: Arc::clone(&notes),
            wakeup: Arc::clone(wakeup),
        };
        Ok(Self {
            native: NativeProducer::open(properties, context)?,
            notes,
            waiting: VecDeque::new(),
            renewals: 0,
            renew_at: None,
            away: OutOfReach::new(patience),
        })
    }

    /// Returns its events since the last call.
    pub(crate) fn notes(&self) -> ProducerEvents {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Queues a record until there is room.
    pub(crate) fn queue(&mut self, id: usize) {
        self.waiting.push_back(id);
    }

    /// Passes as many records to librdkafka as there is room for; `record` looks up each, unless it has
    /// ended.
    pub(crate) fn push<'a>(&mut self, record: impl Fn(usize) -> Option<&'a Outbound>) {
        while let Some(&id) = self.waiting.front() {
            let refusal = record(id).and_then(|record| self.refusal(record, id));
            if refusal == Some(Code::QueueFull) {
                return;
            }
            self.waiting.pop_front();
            if let Some(code) = refusal {
                let context = self.native.producer.context();
                context.note(|notes| notes.reports.push((id, Err(code))));
            }
        }
    }

    /// Passes one record to librdkafka; returns the reason if it was not accepted.
    fn refusal(&self, record: &Outbound, id: usize) -> Option<Code> {
        if record.bytes() > RECORD_BYTES_MAX {
            return Some(Code::MessageSizeTooLarge);
        }
        let (error, _) = self.native.producer.send(native_record(record, id)).err()?;
        match error.rdkafka_error_code().unwrap_or(Code::InvalidArgument) {
            // There is nothing in flight that could make room, so there will never be room for it.
            Code::QueueFull if self.native.producer.in_flight_count() == 0 => {
                Some(Code::MessageSizeTooLarge)
            }
            code => Some(code),
        }
    }

    /// Returns the fatal error of the producer, if any.
    pub(crate) fn fatal(&self) -> Option<(Code, String)> {
        self.native.producer.client().fatal_error()
    }

    /// Records that the producer has accepted a record.
    pub(crate) fn record_success(&mut self) {
        self.renewals = 0;
        self.away.is_over();
    }

    /// Records that the producer reaches no broker.
    pub(crate) fn record_unreachable(&mut self, now: Instant) {
        self.away.began(now);
    }

    /// Schedules a renewal after a pause.
    pub(crate) fn plan_renewal(&mut self, now: Instant) {
        if self.renew_at.is_none() {
            self.renewals = self.renewals.saturating_add(1);
            self.renew_at = Some(now + AWAY.wait(self.renewals, fastrand::f64()));
        }
    }

    /// Returns whether a renewal may be due.
    pub(crate) fn needs_renewal(&self) -> bool {
        self.renew_at.is_some() || self.away.due().is_some()
    }

    /// Returns the time of the renewal if a record has been in flight since `oldest`.
    pub(crate) fn renew_at(&self, oldest: Instant) -> Option<Instant> {
        let planned = self.renew_at.into_iter();
        planned.chain(self.away.due_for(oldest)).min()
    }

    /// Replaces the producer with another, or records that none could be created. Final events of the
    /// old one are discarded.
    pub(crate) fn renewed(&mut self, by: Option<Self>) {
        self.renew_at = None;
        self.away.renewed();
        if let Some(new) = by {
            let (renewals, away) = (self.renewals, self.away.clone());
            *self = new;
            self.renewals = renewals;
            self.away = away;
        }
    }
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
