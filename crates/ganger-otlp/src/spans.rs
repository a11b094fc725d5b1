//! Conversion of spans for OpenTelemetry's exporter, and the exporter.

use std::borrow::Cow;
use std::str::FromStr;

use opentelemetry::trace::{
    Link, SpanContext as TheirContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue, Value as TheirValue};
use opentelemetry_otlp::{
    Compression, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};

use super::error::OtlpError;
use super::settings::{Endpoint, Protocol};
use super::transport;
use ganger_core::trace_context::SpanContext;
use ganger_telemetry::traces::{Span, Value};

/// Makes the exporter of spans.
pub(super) fn exporter(
    endpoint: &Endpoint,
    resource: &Resource,
) -> Result<SpanExporter, OtlpError> {
    let compression = endpoint.gzip.then_some(Compression::Gzip);
    let mut exporter = match endpoint.protocol {
        Protocol::Grpc => {
            let builder = SpanExporter::builder().with_tonic();
            let builder = builder
                .with_channel(transport::channel(endpoint)?)
                .with_timeout(endpoint.timeout);
            match compression {
                Some(compression) => builder.with_compression(compression).build()?,
                None => builder.build()?,
            }
        }
        Protocol::Http => {
            let builder = SpanExporter::builder().with_http();
            let builder = builder
                .with_http_client(transport::Http::new(endpoint)?)
                .with_endpoint(&endpoint.url)
                .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
                .with_timeout(endpoint.timeout);
            match compression {
                Some(compression) => builder.with_compression(compression).build()?,
                None => builder.build()?,
            }
        }
    };
    exporter.set_resource(resource);
    Ok(exporter)
}

/// Sends a batch of spans.
pub(super) async fn send(exporter: &SpanExporter, spans: Vec<Span>) -> Result<(), String> {
    let spans = spans.into_iter().map(translated).collect();
    let sent = exporter.export(spans).await;
    sent.map_err(|error| error.to_string())
}

fn translated(span: Span) -> SpanData {
    let mut links = SpanLinks::default();
    let link = span.link.map(|link| context(link, None));
    links.links.extend(link.map(Link::with_context));
    SpanData {
        span_context: context(span.context, span.state.as_deref()),
        parent_span_id: span.parent.map_or(SpanId::INVALID, span_id),
        parent_span_is_remote: span.is_parent_remote,
        span_kind: match span.is_consumer {
            true => SpanKind::Consumer,
            false => SpanKind::Internal,
        },
        name: Cow::Owned(span.name),
        start_time: span.start,
        end_time: span.end,
        attributes: span.attributes.into_iter().map(attribute).collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links,
        status: match span.error {
            Some(error) => Status::error(error),
            None => Status::Unset,
        },
        instrumentation_scope: InstrumentationScope::builder("ganger")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build(),
    }
}

fn span_id(context: SpanContext) -> SpanId {
    SpanId::from_bytes(context.span_id)
}

fn context(context: SpanContext, state: Option<&str>) -> TheirContext {
    let state = state.and_then(|state| TraceState::from_str(state).ok());
    TheirContext::new(
        TraceId::from_bytes(context.trace_id),
        span_id(context),
        TraceFlags::new(context.flags),
        false,
        state.unwrap_or_default(),
    )
}

fn attribute((name, value): (&'static str, Value)) -> KeyValue {
    let value = match value {
        Value::Text(text) => TheirValue::from(text),
        Value::Integer(number) => TheirValue::I64(number),
        Value::Flag(yes) => TheirValue::Bool(yes),
    };
    KeyValue::new(name, value)
}
