//! A message as its handler sees it.

use std::collections::HashMap;
use std::fmt;
use std::str::Utf8Error;
use std::sync::Arc;

use crate::handle::Handle;
use crate::wire::{Input, Output, status};
use crate::{Cancellation, Cancelled, Error, Value};

/// A message as its handler sees it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Task {
    /// The body, whether it is text or not.
    pub message: Vec<u8>,
    /// Empty if the message has none.
    pub correlation_id: String,
    /// The queue or topic that it was read from.
    pub queue: String,
    /// In their text form.
    pub headers: HashMap<String, String>,
    /// The daemon's number for it on this connection.
    pub id: Option<u64>,
    /// Which try this is, from 1; None if the daemon does not tell.
    pub attempt: Option<u64>,
    /// How long from its begin until this process is killed for taking too long; None for never.
    pub milliseconds_left: Option<u64>,
    /// What the source knows of it: message id, content type, topic, offset and so on.
    pub properties: HashMap<String, Value>,
    handle: Arc<Handle>,
}

/// How much a record of the log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// What only its writer wants to see.
    Trace,
    /// What helps to find a mistake.
    Debug,
    /// What an operator may want to know.
    Info,
    /// What should be looked at.
    Warn,
    /// What has gone wrong.
    Error,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        })
    }
}

impl Task {
    pub(crate) fn new(input: Input, handle: Arc<Handle>) -> Self {
        Self {
            message: input.message,
            correlation_id: input.correlation_id,
            queue: input.queue,
            headers: input.headers,
            id: input.id,
            attempt: input.attempt,
            milliseconds_left: input.milliseconds_left,
            properties: input.properties,
            handle,
        }
    }

    /// The message as text.
    ///
    /// # Errors
    /// If it is not UTF-8.
    pub fn text(&self) -> Result<&str, Utf8Error> {
        std::str::from_utf8(&self.message)
    }

    /// Publishes a message, text or bytes, while the work goes on. This task is not done before it is
    /// stored; when it is tried again, it emits again, with the same header `ganger-emit-id`.
    ///
    /// # Errors
    /// If it can't be sent: the queue has no name, it is too large, the task is answered already, or
    /// the daemon speaks version 1 only.
    pub fn emit(
        &self,
        queue: &str,
        message: impl AsRef<[u8]>,
        headers: &[(&str, Value)],
    ) -> Result<(), Error> {
        let headers = self.check_emit(queue, headers)?;
        let output = emit(queue, message.as_ref(), &headers);
        self.note(output)
    }

    /// Shows how far it is; it also proves that the worker is alive (`stall_timeout`).
    pub fn progress(&self, message: impl AsRef<str>) {
        let status = match self.handle.link.version {
            1 => status::IGNORE_MESSAGE,
            _ => status::PROGRESS,
        };
        let output = Output {
            message: message.as_ref().as_bytes(),
            status,
            ..Output::default()
        };
        // One that can't be sent any more has come too late.
        self.note(output).unwrap_or_default();
    }

    /// Writes a record of this message to the daemon's log. A field `target` names the origin. To a
    /// version 1 daemon it goes over stderr, and so does what can't be sent: the task is answered already,
    /// or the record is too large. See also the feature `log`.
    pub fn log(&self, level: Level, message: impl AsRef<str>, fields: &[(&str, Value)]) {
        self.handle.log(level, message.as_ref(), owned(fields));
    }

    /// Whether the daemon asks to abandon this message: it took too long, or the daemon wants it back.
    /// What the handler answers then counts.
    pub fn is_cancelled(&self) -> bool {
        self.handle.is_cancelled()
    }

    /// As [`is_cancelled`](Self::is_cancelled), for `?`.
    ///
    /// # Errors
    /// [`Cancelled`] then; a handler that returns it answers a retry.
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.is_cancelled() {
            return Err(Cancelled);
        }
        Ok(())
    }

    /// A handle that tells when this message is to be abandoned, to sleep on or to hand on. The future
    /// of an `async` handler is dropped when that happens, unless it has called this: then it is left
    /// to look after that by itself.
    pub fn cancellation(&self) -> Cancellation {
        Cancellation::of(&self.handle)
    }

    fn note(&self, output: Output<'_>) -> Result<(), Error> {
        let handle = &self.handle;
        handle.link.outbox.note(handle.about(output), &handle.over)
    }

    pub(crate) fn check_emit(
        &self,
        queue: &str,
        headers: &[(&str, Value)],
    ) -> Result<Vec<(String, Value)>, Error> {
        let reason = if queue.is_empty() {
            "emit needs the name of a queue: \"\""
        } else if self.handle.link.version == 1 {
            "emit needs version 2 of the protocol, which this daemon lacks"
        } else {
            return Ok(owned(headers));
        };
        Err(Error::Output(reason.to_owned()))
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }
}

pub(crate) fn emit<'a>(
    queue: &'a str,
    message: &'a [u8],
    headers: &'a [(String, Value)],
) -> Output<'a> {
    Output {
        message,
        status: status::EMIT,
        headers: (!headers.is_empty()).then_some(headers),
        queue,
        ..Output::default()
    }
}

fn owned(values: &[(&str, Value)]) -> Vec<(String, Value)> {
    let own = |(name, value): &(&str, Value)| ((*name).to_owned(), value.clone());
    values.iter().map(own).collect()
}

impl Handle {
    /// Writes a record to the daemon's log.
    #[expect(
        clippy::print_stderr,
        reason = "stderr is what the daemon logs of what it has no record for"
    )]
    pub(crate) fn log(&self, level: Level, message: &str, fields: Vec<(String, Value)>) {
        let mut headers = vec![("level".to_owned(), Value::from(level.to_string()))];
        headers.extend(fields.into_iter().map(|(name, value)| match name.as_str() {
            // The record's own is another.
            "level" => ("level_".to_owned(), value),
            _ => (name, value),
        }));
        let output = self.about(Output {
            message: message.as_bytes(),
            status: status::LOG,
            headers: Some(&headers),
            ..Output::default()
        });
        let outbox = &self.link.outbox;
        if self.link.version == 1 || outbox.note(output, &self.over).is_err() {
            let fields = headers[1..]
                .iter()
                .map(|(name, value)| format!(" {name}={value}"));
            eprintln!("{level}: {message}{}", fields.collect::<String>());
        }
    }
}
