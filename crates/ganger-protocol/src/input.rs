//! Frames to a worker: one message as the daemon writes it. The worker's side, [`Task`], is in
//! `task.rs`.

use bytes::BytesMut;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::frame::Oversized;
use super::value::{Body, HeaderMap};
use super::{frame, value};
use ganger_core::message::{Message, Property};
use ganger_core::names;
use ganger_core::trace_context;
use ganger_core::trace_context::{SpanContext, TraceParent};

pub use super::task::Task;

/// A message on its way to a worker.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The message. Ganger's own headers are left out.
    pub message: &'a Message,
    /// Maximum time for the worker, in milliseconds: sets the `TimeoutMilliseconds` header. `None`
    /// leaves the header as the message has it.
    pub timeout_ms: Option<u64>,
    /// Parent span of the worker's spans: sets the `traceparent` header. `None` leaves the header
    /// as the message has it.
    pub span: Option<SpanContext>,
    /// The number by which a version 2 worker answers, unique within its connection. Version 1
    /// workers ignore it.
    pub id: u64,
    /// Keys that only version 2 workers receive. `None` while the worker's version is unknown.
    pub extras: Option<Extras>,
}

/// Keys that a version 2 worker receives beside the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extras {
    /// Number of this attempt, counted from 1.
    pub attempt: u32,
    /// Time until the hard deadline, in milliseconds; `None` for no deadline.
    pub milliseconds_left: Option<u64>,
}

/// Reason for which this worker can never be given a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The frame would be longer than `frame_bytes_max`.
    #[error("the frame must be at most {max} bytes (frame_bytes_max): {bytes}")]
    TooLarge {
        /// Size of the frame in bytes, its length not counted.
        bytes: usize,
        /// Maximum size.
        max: usize,
    },
    /// More headers than a frame may hold: no worker would take it.
    #[error("a message must have at most {max} headers: {count}")]
    TooManyHeaders {
        /// Number of headers, those that the daemon adds included.
        count: usize,
        /// Maximum number.
        max: usize,
    },
    /// The body is not UTF-8, and the worker has not said that it speaks version 2.
    #[error("the body must be UTF-8 for a version 1 worker: it is not, after byte {valid_up_to}")]
    BinaryForVersion1 {
        /// Number of bytes at the start that are UTF-8.
        valid_up_to: usize,
    },
}

impl Input<'_> {
    /// Appends a whole frame, its length included. On error `out` is as before.
    pub fn encode(&self, out: &mut BytesMut, frame_bytes_max: usize) -> Result<(), EncodeError> {
        let payload = Payload {
            input: self,
            body: self.body()?,
            headers: self.headers()?,
        };
        frame::append(out, &payload, self.message.body.len(), frame_bytes_max)
            .map_err(|Oversized { bytes, max }| EncodeError::TooLarge { bytes, max })
    }

    fn headers(&self) -> Result<Headers<'_>, EncodeError> {
        let headers = Headers {
            all: &self.message.headers,
            timeout_ms: self.timeout_ms,
            traceparent: self.span.map(|span| span.write()),
        };
        match (headers.count(), value::ENTRIES_MAX) {
            (count, max) if count > max => Err(EncodeError::TooManyHeaders { count, max }),
            _ => Ok(headers),
        }
    }

    fn body(&self) -> Result<Body<'_>, EncodeError> {
        match (std::str::from_utf8(&self.message.body), self.extras) {
            (Ok(text), _) => Ok(Body::Text(text)),
            (Err(_), Some(_)) => Ok(Body::Binary(&self.message.body)),
            (Err(error), None) => Err(EncodeError::BinaryForVersion1 {
                valid_up_to: error.valid_up_to(),
            }),
        }
    }
}

/// An [`Input`] whose body and headers have been checked.
struct Payload<'a> {
    input: &'a Input<'a>,
    body: Body<'a>,
    headers: Headers<'a>,
}

impl Serialize for Payload<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Input {
            message,
            id,
            extras,
            ..
        } = self.input;
        let mut map = serializer.serialize_map(Some(if extras.is_some() { 8 } else { 5 }))?;
        map.serialize_entry("0", &self.body)?;
        map.serialize_entry("1", &message.correlation_id)?;
        map.serialize_entry("2", &*message.queue)?;
        map.serialize_entry("3", &self.headers)?;
        map.serialize_entry("4", id)?;
        if let Some(extras) = extras {
            map.serialize_entry("5", &extras.attempt)?;
            map.serialize_entry("6", &extras.milliseconds_left)?;
            map.serialize_entry("7", &Properties(message))?;
        }
        map.end()
    }
}

/// The headers that a worker sees.
struct Headers<'a> {
    all: &'a [(String, String)],
    timeout_ms: Option<u64>,
    traceparent: Option<TraceParent>,
}

impl<'a> Headers<'a> {
    fn count(&self) -> usize {
        let added = [self.timeout_ms.is_some(), self.traceparent.is_some()];
        self.kept().count() + added.into_iter().filter(|is_added| *is_added).count()
    }

    fn kept(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let replaces_timeout = self.timeout_ms.is_some();
        let replaces_span = self.traceparent.is_some();
        self.all
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .filter(|(name, _)| !value::is_own_header(name))
            .filter(move |(name, _)| !(replaces_timeout && *name == names::TIMEOUT_HEADER))
            .filter(move |(name, _)| {
                !(replaces_span && trace_context::is(name, names::TRACEPARENT))
            })
    }
}

impl Serialize for Headers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut digits = [0; DIGITS_MAX];
        let timeout = self.timeout_ms.map(|ms| decimal(ms, &mut digits));
        let timeout = timeout.map(|text| (names::TIMEOUT_HEADER, text));
        let span = self.traceparent.as_ref();
        let span = span.map(|span| (names::TRACEPARENT, span.as_str()));
        HeaderMap(|| self.kept().chain(timeout).chain(span)).serialize(serializer)
    }
}

/// Number of decimal digits of the greatest `u64`.
const DIGITS_MAX: usize = 20;

/// Writes `number` in decimal into `digits`, without allocating.
fn decimal(mut number: u64, digits: &mut [u8; DIGITS_MAX]) -> &str {
    let mut start = DIGITS_MAX;
    loop {
        start -= 1;
        digits[start] = b"0123456789"[usize::from((number % 10) as u8)];
        number /= 10;
        if number == 0 {
            break;
        }
    }
    std::str::from_utf8(&digits[start..]).expect("decimal digits are ASCII")
}

/// The properties, each under its name, and the destination of a reply.
struct Properties<'a>(&'a Message);

impl Serialize for Properties<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Message {
            properties,
            reply_to,
            ..
        } = self.0;
        let entries = properties.len() + usize::from(reply_to.is_some());
        let mut map = serializer.serialize_map(Some(entries))?;
        for (name, property) in properties {
            map.serialize_entry(name, &PropertyOut(property))?;
        }
        if let Some(queue) = reply_to {
            map.serialize_entry(names::REPLY_TO_PROPERTY, queue)?;
        }
        map.end()
    }
}

struct PropertyOut<'a>(&'a Property);

impl Serialize for PropertyOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Property::Text(text) => serializer.serialize_str(text),
            Property::Integer(number) => serializer.serialize_i64(*number),
            Property::Boolean(yes) => serializer.serialize_bool(*yes),
            Property::Bytes(bytes) => serializer.serialize_bytes(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::frame::{LENGTH_BYTES, next_frame};
    use super::*;

    fn message(body: &'static [u8], headers: &[(&str, &str)]) -> Message {
        Message {
            queue: "q".into(),
            body: Bytes::from_static(body),
            headers: headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            correlation_id: String::new(),
            reply_to: None,
            properties: Vec::new(),
            occurrence: None,
        }
    }

    fn input(message: &Message) -> Input<'_> {
        Input {
            message,
            timeout_ms: None,
            span: None,
            id: 1,
            extras: None,
        }
    }

    fn headers_sent(headers: &[(&str, &str)], timeout_ms: Option<u64>) -> Vec<(String, String)> {
        let message = message(b"", headers);
        let input = Input {
            timeout_ms,
            ..input(&message)
        };
        let mut out = BytesMut::new();
        input.encode(&mut out, 1000).unwrap();
        let frame = next_frame(&mut out, 1000).unwrap().unwrap();
        Task::decode(&frame).unwrap().headers
    }

    #[test]
    fn headers_of_our_own_are_hidden_whatever_their_case() {
        let sent = headers_sent(
            &[("x-ganger-a", "1"), ("X-Ganger-B", "2"), ("x-gang", "3")],
            None,
        );
        assert_eq!(sent, [("x-gang".to_owned(), "3".to_owned())]);
    }

    #[test]
    fn the_timeout_replaces_the_messages_own() {
        let own = [("TimeoutMilliseconds", "-1"), ("a", "b")];
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let untouched = headers_sent(&own, None);
        assert_eq!(
            untouched,
            [pair("TimeoutMilliseconds", "-1"), pair("a", "b")]
        );
        let replaced = headers_sent(&own, Some(30_000));
        assert_eq!(
            replaced,
            [pair("a", "b"), pair("TimeoutMilliseconds", "30000")]
        );
    }

    #[test]
    fn the_span_replaces_the_messages_own() {
        let span = SpanContext::in_trace(7);
        let message = message(b"", &[("Traceparent", "producer"), ("tracestate", "a=b")]);
        let input = Input {
            span: Some(span),
            ..input(&message)
        };
        let mut out = BytesMut::new();
        input.encode(&mut out, 1000).unwrap();
        let frame = next_frame(&mut out, 1000).unwrap().unwrap();
        let expected = [
            ("tracestate".to_owned(), "a=b".to_owned()),
            ("traceparent".to_owned(), span.to_string()),
        ];
        assert_eq!(Task::decode(&frame).unwrap().headers, expected);
    }

    #[test]
    fn writes_any_number_in_decimal() {
        for number in [0, 9, 10, 123_456_789, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; DIGITS_MAX]), number.to_string());
        }
    }

    #[test]
    fn a_binary_body_needs_version_2() {
        let message = message(b"ab\xff", &[]);
        let mut out = BytesMut::from(&b"before"[..]);
        assert_eq!(
            input(&message).encode(&mut out, 1000),
            Err(EncodeError::BinaryForVersion1 { valid_up_to: 2 })
        );
        assert_eq!(out, "before");
    }

    /// A worker would refuse the frame, as the daemon does with its answers.
    #[test]
    fn more_headers_than_a_worker_takes_are_refused_with_their_number() {
        let max = value::ENTRIES_MAX;
        let headers = |count| Message {
            headers: (0..count).map(|n| (n.to_string(), String::new())).collect(),
            ..message(b"", &[])
        };
        let mut out = BytesMut::new();
        let encode = |message: &Message, timeout_ms, out: &mut BytesMut| {
            let input = Input {
                timeout_ms,
                ..input(message)
            };
            input.encode(out, 1 << 20)
        };
        assert_eq!(encode(&headers(max), None, &mut out), Ok(()));
        let frame = next_frame(&mut out, 1 << 20).unwrap().unwrap();
        assert_eq!(Task::decode(&frame).unwrap().headers.len(), max);
        let refused = Err(EncodeError::TooManyHeaders {
            count: max + 1,
            max,
        });
        assert_eq!(encode(&headers(max + 1), None, &mut out), refused);
        assert_eq!(encode(&headers(max), Some(1), &mut out), refused);
        assert!(out.is_empty());
        // Headers that a worker never sees don't count.
        let mut hidden = headers(max);
        hidden
            .headers
            .push(("x-ganger-a".to_owned(), String::new()));
        assert_eq!(encode(&hidden, None, &mut out), Ok(()));
    }

    #[test]
    fn a_large_body_is_refused_with_its_size() {
        let message = message(&[b'x'; 1000], &[]);
        let mut out = BytesMut::new();
        input(&message).encode(&mut out, 2000).unwrap();
        let whole = out.len() - LENGTH_BYTES;
        out.clear();
        let refused = input(&message).encode(&mut out, whole - 1);
        let (bytes, max) = (whole, whole - 1);
        assert_eq!(refused, Err(EncodeError::TooLarge { bytes, max }));
        assert!(out.is_empty());
        assert_eq!(input(&message).encode(&mut out, whole), Ok(()));
    }
}
