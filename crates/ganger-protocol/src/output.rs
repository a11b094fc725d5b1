//! Frames from a worker: answers, and notes on the way. Their effect on the message is decided
//! elsewhere.

use bytes::{Bytes, BytesMut};
use serde::de::{Error, MapAccess};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::decode::{DecodeError, Fields};
use super::status::Status;
use super::value::{
    Body, BodyValue, HeaderMap, HeadersValue, IntegerValue, NonNegativeValue, TextValue,
};
use super::{decode, frame};
use ganger_core::message::Headers;

/// One frame of a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// Key "0": the reply's body, the log's text, the reason of a failure.
    pub message: Bytes,
    /// Key "1".
    pub status: Status,
    /// Key "2". Values in their text form; those of ganger's own names are dropped.
    pub headers: Option<Headers>,
    /// Key "3": destination queue of a reply or an emit. Never empty.
    pub reply_queue: Option<String>,
    /// Key "4": number of the message that it concerns. `None` from a version 1 worker.
    pub id: Option<u64>,
    /// Key "5": delay before a retry, in milliseconds.
    pub retry_after_ms: Option<u64>,
}

impl Output {
    /// Creates an answer or a note with nothing but these.
    pub fn new(status: Status, id: Option<u64>, message: impl Into<Bytes>) -> Self {
        Self {
            message: message.into(),
            status,
            headers: None,
            reply_queue: None,
            id,
            retry_after_ms: None,
        }
    }

    /// Returns the number of messages that the worker takes at once, if this is a HELLO; one that
    /// does not say so, or not by a number, takes one.
    pub fn concurrency(&self) -> Option<usize> {
        if self.status != Status::HELLO {
            return None;
        }
        let mut headers = self.headers.iter().flatten();
        let told = headers.find(|(name, _)| name == "concurrency");
        let told = told.and_then(|(_, value)| value.trim().parse().ok());
        Some(told.unwrap_or(1))
    }

    /// Reads a frame (without its length) from a worker of either version, as liberally as
    /// `proto-spec/README.md` says.
    ///
    /// # Errors
    /// The frame breaks the protocol; the error says what is wrong, where, and what would be right.
    pub fn decode(frame: &[u8]) -> Result<Self, DecodeError> {
        let read: OutputFields = decode::decode(frame)?;
        Ok(Self {
            message: read.message,
            status: Status(read.status),
            headers: read.headers,
            reply_queue: read.reply_queue.filter(|name| !name.is_empty()),
            id: read.id,
            retry_after_ms: read.retry_after_ms,
        })
    }

    /// Decodes a frame from a worker that speaks version 1, or has not said what it speaks. A whole
    /// value that is no map is a failure with that value as its reason: some workers write one when
    /// their handler has failed.
    ///
    /// # Errors
    /// As [`Output::decode`].
    pub fn decode_version1(frame: &[u8]) -> Result<Self, DecodeError> {
        Self::decode(frame).or_else(|error| {
            let reason = decode::bare_value(frame).ok_or(error)?;
            Ok(Self::new(Status::UNKNOWN_ERROR, None, reason))
        })
    }

    /// Appends a whole frame, its length included, in the canonical form: keys in order, no empty
    /// ones, the shortest encoding of each value.
    ///
    /// A frame of 2 GiB or more can't be encoded; one byte is written in its place, which no reader
    /// takes for a message.
    pub fn encode(&self, out: &mut BytesMut) {
        if frame::append(out, self, self.message.len(), usize::MAX).is_err() {
            out.extend_from_slice(&[0, 0, 0, 1, 0xc1]);
        }
    }
}

#[derive(Default)]
struct OutputFields {
    message: Bytes,
    status: i64,
    headers: Option<Headers>,
    reply_queue: Option<String>,
    id: Option<u64>,
    retry_after_ms: Option<u64>,
}

impl<'de> Fields<'de> for OutputFields {
    const NAMES: &'static [&'static str] = &[
        "message",
        "status",
        "headers",
        "reply queue",
        "id",
        "retry after",
    ];
    const REQUIRED: usize = 2;

    fn read<A: MapAccess<'de>>(&mut self, key: usize, map: &mut A) -> Result<(), A::Error> {
        match key {
            0 => self.message = map.next_value_seed(BodyValue)?.bytes(),
            1 => self.status = map.next_value_seed(IntegerValue)?,
            2 => self.headers = map.next_value_seed(HeadersValue)?,
            3 => self.reply_queue = map.next_value_seed(TextValue)?,
            4 => self.id = map.next_value_seed(NonNegativeValue)?,
            5 => self.retry_after_ms = map.next_value_seed(NonNegativeValue)?,
            _ => return Err(A::Error::custom("not a key of an output")),
        }
        Ok(())
    }
}

impl Serialize for Output {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let optional = [
            self.headers.is_some(),
            self.reply_queue.is_some(),
            self.id.is_some(),
            self.retry_after_ms.is_some(),
        ];
        let present = optional.into_iter().filter(|present| *present).count();
        let mut map = serializer.serialize_map(Some(2 + present))?;
        map.serialize_entry("0", &Body::of(&self.message))?;
        map.serialize_entry("1", &self.status.0)?;
        if let Some(headers) = &self.headers {
            let pairs = || headers.iter().map(|(n, v)| (n.as_str(), v.as_str()));
            map.serialize_entry("2", &HeaderMap(pairs))?;
        }
        if let Some(queue) = &self.reply_queue {
            map.serialize_entry("3", queue)?;
        }
        if let Some(id) = self.id {
            map.serialize_entry("4", &id)?;
        }
        if let Some(milliseconds) = self.retry_after_ms {
            map.serialize_entry("5", &milliseconds)?;
        }
        map.end()
    }
}
