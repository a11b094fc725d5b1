//! Log records for a collector: a layer beside the one that writes them to stderr, with the same level.

use std::fmt;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
pub(super) use opentelemetry_proto::tonic::resource::v1::Resource;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use ganger_telemetry::context;
use ganger_telemetry::queue::Queue;

/// Maximum bytes of a text in a record.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// The queue of records to be sent, once the export runs.
static RECORDS: OnceLock<&'static Queue<LogRecord>> = OnceLock::new();

/// Enables the export of records.
pub(super) fn record(queue: &'static Queue<LogRecord>) {
    RECORDS.get_or_init(|| queue);
}

/// Layer that passes records to a collector, if they are wanted there.
#[derive(Debug)]
pub(crate) struct Bridge;

impl<S: Subscriber> Layer<S> for Bridge {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if let Some(queue) = RECORDS.get() {
            queue.push(translated(event));
        }
    }
}

fn translated(event: &Event<'_>) -> LogRecord {
    let mut fields = EventFields::default();
    event.record(&mut fields);
    let metadata = event.metadata();
    let severity = severity(*metadata.level());
    fields.add("target", text(metadata.target()));
    if !fields.has_pool {
        let pool = context::pool(|pool| Some(text(pool?)));
        pool.into_iter().for_each(|pool| fields.add("pool", pool));
    }
    context::fields(|given| {
        for (name, value) in given {
            fields.add(&format!("fields.{name}"), of_json(value));
        }
    });
    let now = nanos(SystemTime::now());
    let span = context::span();
    LogRecord {
        time_unix_nano: now,
        observed_time_unix_nano: now,
        severity_number: severity.into(),
        severity_text: metadata.level().to_string(),
        body: Some(any(text(&fields.message))),
        attributes: fields.attributes,
        trace_id: span.map(|span| span.trace_id.to_vec()).unwrap_or_default(),
        span_id: span.map(|span| span.span_id.to_vec()).unwrap_or_default(),
        flags: span.map(|span| span.flags.into()).unwrap_or_default(),
        ..LogRecord::default()
    }
}

fn severity(level: Level) -> SeverityNumber {
    match level {
        Level::TRACE => SeverityNumber::Trace,
        Level::DEBUG => SeverityNumber::Debug,
        Level::INFO => SeverityNumber::Info,
        Level::WARN => SeverityNumber::Warn,
        Level::ERROR => SeverityNumber::Error,
    }
}

/// Converts the resource to OpenTelemetry's message.
pub(super) fn resource(told: &opentelemetry_sdk::Resource) -> Resource {
    let attributes = told.iter().map(|(name, value)| KeyValue {
        key: name.to_string(),
        value: Some(any(match value {
            opentelemetry::Value::I64(number) => Value::IntValue(*number),
            other => Value::StringValue(other.to_string()),
        })),
        ..KeyValue::default()
    });
    Resource {
        attributes: attributes.collect(),
        ..Resource::default()
    }
}

/// Makes a request with these records.
pub(super) fn request(resource: &Resource, records: Vec<LogRecord>) -> ExportLogsServiceRequest {
    let logs = ScopeLogs {
        scope: Some(scope()),
        log_records: records,
        ..ScopeLogs::default()
    };
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(resource.clone()),
            scope_logs: vec![logs],
            ..ResourceLogs::default()
        }],
    }
}

/// Returns the instrumentation scope of all telemetry.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "ganger".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        ..InstrumentationScope::default()
    }
}

/// Converts a time to nanoseconds of Unix time.
pub(super) fn nanos(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn text(text: &str) -> Value {
    Value::StringValue(text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned())
}

fn of_json(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::String(string) => text(string),
        serde_json::Value::Bool(yes) => Value::BoolValue(*yes),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Value::IntValue(whole),
            (None, Some(float)) => Value::DoubleValue(float),
            (None, None) => text(&number.to_string()),
        },
        other => text(&other.to_string()),
    }
}

pub(super) fn any(value: Value) -> AnyValue {
    AnyValue { value: Some(value) }
}

/// Fields of a record.
#[derive(Default)]
struct EventFields {
    message: String,
    attributes: Vec<KeyValue>,
    has_pool: bool,
}

impl EventFields {
    fn add(&mut self, name: &str, value: Value) {
        self.has_pool |= name == "pool";
        self.attributes.push(KeyValue {
            key: name.to_owned(),
            value: Some(any(value)),
            ..KeyValue::default()
        });
    }
}

impl Visit for EventFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            name => self.add(name, text(value)),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field.name(), Value::IntValue(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(
            field.name(),
            Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)),
        );
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field.name(), Value::DoubleValue(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field.name(), Value::BoolValue(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}
