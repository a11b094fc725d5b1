//! Traces of attempts: whether an attempt is recorded, decided when the pool takes the message, and the
//! spans that it leaves when it ends. The destination of spans is not known here, only the bounded queue
//! in which they wait for it.
//!
//! An attempt that is not recorded costs the check of a flag; with tracing on, the search for a header or
//! one random number.

use std::sync::OnceLock;
use std::time::SystemTime;

use tokio::time::Instant;

use super::queue::Queue;
use super::sampler::Sampler;
use ganger_config::model::{Options, PoolConfig};
use ganger_core::trace_context;
use ganger_core::trace_context::{Recording, SpanContext};
use ganger_queue::delivery::{Delivery, Failure, Message, Outcome, Property};

/// Maximum bytes of a failure's text in a span.
const ERROR_BYTES_MAX: usize = 1024;

/// Set once, if traces are wanted.
static TRACES: OnceLock<Traces> = OnceLock::new();

/// Settings of trace recording.
#[derive(Debug)]
struct Traces {
    sampler: Sampler,
    spans: &'static Queue<Span>,
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Context of the span itself.
    pub context: SpanContext,
    /// Context of its parent.
    pub parent: Option<SpanContext>,
    /// The parent belongs to another program.
    pub is_parent_remote: bool,
    /// A related span beside the parent.
    pub link: Option<SpanContext>,
    /// `tracestate` of the message.
    pub state: Option<String>,
    /// It is the receipt of a message, not the work inside.
    pub is_consumer: bool,
    /// Operation and destination.
    pub name: String,
    /// Start time.
    pub start: SystemTime,
    /// End time.
    pub end: SystemTime,
    /// Attributes.
    pub attributes: Vec<(&'static str, Value)>,
    /// Error, if it failed.
    pub error: Option<String>,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// True or false.
    Flag(bool),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Integer(number.into())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// Enables the recording of attempts by that sampler. Only the first call has an effect.
pub fn record(sampler: Sampler, spans: &'static Queue<Span>) {
    TRACES.get_or_init(|| Traces { sampler, spans });
}

/// Begins the recording of an attempt when a pool takes a message, if it is sampled.
pub fn begin(delivery: &Delivery) -> Option<Box<Recording>> {
    let traces = TRACES.get()?;
    let headers = &delivery.message.headers;
    let parent = trace_context::incoming(headers);
    let earlier = delivery.history.earlier;
    let task = traces.sampler.span(parent, earlier, fastrand::u64(..))?;
    let recording = Recording::begin(task, headers, parent, earlier);
    Some(Box::new(recording))
}

/// Worker that had the message.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The pool.
    pub pool: &'a PoolConfig,
    /// The number of the worker.
    pub worker: usize,
    /// Its process id.
    pub pid: Option<u32>,
}

/// Ends an attempt with that outcome. One that no worker was to have leaves no span: it is to begin
/// elsewhere.
pub fn end(at: Place<'_>, delivery: &Delivery, recording: &Recording, outcome: &Outcome) {
    if !recording.was_given && !outcome.is_of_work() {
        return;
    }
    let Some(traces) = TRACES.get() else {
        return;
    };
    let spans = spans(at, delivery, recording, outcome, Instant::now());
    spans.into_iter().for_each(|span| traces.spans.push(span));
}

/// Returns the spans of an attempt that ends now: the worker's, if it had a turn, and the whole.
fn spans(
    at: Place<'_>,
    delivery: &Delivery,
    recording: &Recording,
    outcome: &Outcome,
    now: Instant,
) -> Vec<Span> {
    let failure = failure(outcome);
    let error = failure.map(|failure| cut(&failure.error).to_owned());
    let end = recording.wall(now);
    let mut all = Vec::with_capacity(2);
    all.extend(recording.begun.map(|begun| Span {
        context: recording.worker,
        parent: Some(recording.task),
        is_parent_remote: false,
        link: None,
        state: recording.state.clone(),
        is_consumer: false,
        name: format!("work {}", at.pool.name),
        start: recording.wall(begun),
        end: recording.answered.map_or(end, |then| recording.wall(then)),
        attributes: worker_attributes(at, failure),
        error: error.clone(),
    }));
    all.push(Span {
        context: recording.task,
        parent: recording.parent,
        is_parent_remote: true,
        link: recording.earlier,
        state: recording.state.clone(),
        is_consumer: true,
        name: format!("process {}", delivery.message.queue),
        start: recording.taken_at,
        end,
        attributes: task_attributes(at, delivery, outcome),
        error,
    });
    all
}

fn failure(outcome: &Outcome) -> Option<&Failure> {
    match outcome {
        Outcome::RetryAfter { failure, .. } | Outcome::DeadLetter(failure) => Some(failure),
        Outcome::Done
        | Outcome::Reply(_)
        | Outcome::Requeue { .. }
        | Outcome::Return { .. }
        | Outcome::ReturnAfter { .. } => None,
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(ERROR_BYTES_MAX)]
}

fn worker_attributes(at: Place<'_>, failure: Option<&Failure>) -> Vec<(&'static str, Value)> {
    let mut all = vec![
        ("ganger.pool", Value::from(at.pool.name.as_str())),
        ("ganger.worker", at.worker.into()),
    ];
    all.extend(at.pid.map(|pid| ("ganger.worker.pid", pid.into())));
    all.extend(failure.into_iter().flat_map(of_failure));
    all
}

/// Returns the attributes by OpenTelemetry's conventions for messaging, where they define one.
fn task_attributes(
    at: Place<'_>,
    delivery: &Delivery,
    outcome: &Outcome,
) -> Vec<(&'static str, Value)> {
    let Delivery {
        message, history, ..
    } = delivery;
    let mut all = vec![
        ("messaging.system", system(&at.pool.options).into()),
        ("messaging.operation.type", "process".into()),
        ("messaging.operation.name", "process".into()),
        ("messaging.destination.name", (&*message.queue).into()),
        ("messaging.message.body.size", message.body.len().into()),
        ("ganger.pool", at.pool.name.as_str().into()),
        ("ganger.attempt", history.attempt.into()),
        ("ganger.outcome", word(outcome).into()),
    ];
    if !message.correlation_id.is_empty() {
        let id = message.correlation_id.as_str();
        all.push(("messaging.message.conversation_id", id.into()));
    }
    all.extend(described(message));
    if let Outcome::Reply(reply) = outcome {
        all.push(("ganger.reply.queue", reply.queue.as_str().into()));
    }
    all.extend(failure(outcome).into_iter().flat_map(of_failure));
    all
}

/// Returns the messaging system. Tables are ganger's own.
fn system(options: &Options) -> &'static str {
    match options {
        Options::Table => "ganger_table",
        Options::RabbitMq(_) => "rabbitmq",
        Options::Kafka(_) => "kafka",
    }
}

/// Returns an outcome as a label.
fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::Reply(_) => "replied",
        Outcome::Requeue { .. } => "requeued",
        Outcome::Return { .. } | Outcome::ReturnAfter { .. } => "returned",
        Outcome::RetryAfter { .. } => "retried",
        Outcome::DeadLetter(_) => "dead",
    }
}

/// Returns the broker's attributes of the message.
fn described(message: &Message) -> impl Iterator<Item = (&'static str, Value)> {
    let told = message.properties.iter();
    told.filter_map(|(name, property)| {
        let attribute = match *name {
            "message_id" => "messaging.message.id",
            "partition" => "messaging.destination.partition.id",
            "offset" => "messaging.kafka.offset",
            "key" => "messaging.kafka.message.key",
            "tombstone" => "messaging.kafka.message.tombstone",
            "routing_key" => "messaging.rabbitmq.destination.routing_key",
            "row_id" => "ganger.row_id",
            _ => return None,
        };
        let value = match property {
            // By the conventions a partition's number is a name.
            Property::Integer(number) if *name == "partition" => Value::Text(number.to_string()),
            Property::Integer(number) => Value::Integer(*number),
            Property::Boolean(yes) => Value::Flag(*yes),
            Property::Text(text) if text.is_empty() => return None,
            Property::Text(text) => Value::Text(text.clone()),
            // It is a key, but no text.
            Property::Bytes(_) => return None,
        };
        Some((attribute, value))
    })
}

fn of_failure(failure: &Failure) -> Vec<(&'static str, Value)> {
    let mut all = vec![("error.type", Value::from(failure.reason.as_str()))];
    if let Some(exit) = failure.exit {
        let number = |number: i32| Value::Integer(number.into());
        all.extend(exit.code.map(|code| ("ganger.exit.code", number(code))));
        all.extend(
            exit.signal
                .map(|signal| ("ganger.exit.signal", number(signal))),
        );
        all.extend(exit.oom.then_some(("ganger.exit.oom", Value::Flag(true))));
    }
    all
}
