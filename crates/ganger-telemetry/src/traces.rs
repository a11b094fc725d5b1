//! What is recorded of the attempts at messages: whether one is, decided when the pool takes the
//! message, and which spans one leaves when it is over. Where spans go is not known here, but that
//! they wait for it in a bounded queue.
//!
//! An attempt that is not recorded costs a look at a flag; where traces are on, the search for a
//! header or one random number.

use std::sync::OnceLock;
use std::time::SystemTime;

use tokio::time::Instant;

use super::queue::Queue;
use super::sampler::Sampler;
use ganger_config::model::{Options, PoolConfig};
use ganger_core::trace_context;
use ganger_core::trace_context::{Recording, SpanContext};
use ganger_queue::delivery::{Delivery, Failure, Message, Outcome, Property};

/// How much of a failure's text a span has, in bytes.
const ERROR_BYTES_MAX: usize = 1024;

/// Set once, if traces are wanted.
static TRACES: OnceLock<Traces> = OnceLock::new();

/// How traces are recorded.
#[derive(Debug)]
struct Traces {
    sampler: Sampler,
    spans: &'static Queue<Span>,
}

/// A span that is over.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Which one.
    pub context: SpanContext,
    /// Below which one.
    pub parent: Option<SpanContext>,
    /// Whether that is another program's.
    pub is_parent_remote: bool,
    /// What it has to do with beside that.
    pub link: Option<SpanContext>,
    /// What the message's `tracestate` says.
    pub state: Option<String>,
    /// Whether it is the taking of a message, not what is done inside.
    pub is_consumer: bool,
    /// What is done, and where.
    pub name: String,
    /// When it began.
    pub start: SystemTime,
    /// When it ended.
    pub end: SystemTime,
    /// What is known of it.
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// Yes or no.
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

/// Has attempts recorded from now on, as that sampler decides. The first call counts.
pub fn record(sampler: Sampler, spans: &'static Queue<Span>) {
    TRACES.get_or_init(|| Traces { sampler, spans });
}

/// A pool takes a message: what is noted of the attempt, if it is recorded.
pub fn begin(delivery: &Delivery) -> Option<Box<Recording>> {
    let traces = TRACES.get()?;
    let headers = &delivery.message.headers;
    let parent = trace_context::incoming(headers);
    let earlier = delivery.history.earlier;
    let task = traces.sampler.span(parent, earlier, fastrand::u64(..))?;
    let recording = Recording::begin(task, headers, parent, earlier);
    Some(Box::new(recording))
}

/// Who had the message.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The pool.
    pub pool: &'a PoolConfig,
    /// The number of the worker.
    pub worker: usize,
    /// Its process.
    pub pid: Option<u32>,
}

/// An attempt is over, with that outcome. One that no worker was to have leaves nothing: it is to
/// begin elsewhere.
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

/// The spans of an attempt that ends now: the worker's, if it had a turn, and the whole.
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

/// By OpenTelemetry's conventions for messaging, where they have a word.
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

/// Which system the messages come from. Tables are nobody's but ours.
fn system(options: &Options) -> &'static str {
    match options {
        Options::Table => "ganger_table",
        Options::RabbitMq(_) => "rabbitmq",
        Options::Kafka(_) => "kafka",
    }
}

/// An outcome, as a label.
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

/// What the broker says of the message.
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
            // The number of a partition is a name to the conventions.
            Property::Integer(number) if *name == "partition" => Value::Text(number.to_string()),
            Property::Integer(number) => Value::Integer(*number),
            Property::Boolean(yes) => Value::Flag(*yes),
            Property::Text(text) if text.is_empty() => return None,
            Property::Text(text) => Value::Text(text.clone()),
            // It is a key, and no text.
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
