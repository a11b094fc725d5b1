//! Message that a worker's output is about, and its way to the log of an occurrence.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::Value;
use tracing::Level;

use ganger_core::trace_context::SpanContext;
use ganger_queue::delivery::{LogStream, Message, Run};
use ganger_telemetry::Fields;

/// A message that a worker has, for what the worker tells about it.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The message.
    pub message: &'a Message,
    /// Span of the worker's part, if its attempt is recorded.
    pub span: Option<SpanContext>,
    /// Way to its occurrence, if a ledger has that.
    pub run: Option<&'a Arc<Run>>,
}

/// Adds a record to the log of the occurrence.
pub(super) fn log(run: &Run, stream: LogStream, level: Level, text: &str, fields: &Fields) {
    run.line(stream, word(level), || {
        let mut line = text.to_owned();
        for (name, value) in fields {
            let written = match value {
                Value::String(text) => write!(line, " {name}={text}"),
                value => write!(line, " {name}={value}"),
            };
            written.expect("writing to a String does not fail");
        }
        line
    });
}

fn word(level: Level) -> &'static str {
    match level {
        Level::TRACE => "trace",
        Level::DEBUG => "debug",
        Level::INFO => "info",
        Level::WARN => "warn",
        Level::ERROR => "error",
    }
}
