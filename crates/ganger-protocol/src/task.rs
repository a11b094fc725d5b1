//! A worker's view of a message: the owned counterpart of [`Input`](super::Input), for workers
//! written in Rust, for tests and for benchmarks. The daemon itself never decodes one.

use bytes::Bytes;
use serde::de::{Error, MapAccess};

use super::decode;
use super::decode::{DecodeError, Fields};
use super::value::{
    BodyValue, HeadersValue, NonNegativeValue, OwnedBody, PropertiesValue, TextValue,
};
use ganger_core::message::{Headers, Property};

/// A message as a worker receives it.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Key "0".
    pub message: Bytes,
    /// True if the message came as bytes rather than text. Only version 2 workers see that.
    pub binary: bool,
    /// Key "1". Empty where the message has none.
    pub correlation_id: String,
    /// Key "2": queue that it was read from.
    pub queue: String,
    /// Key "3".
    pub headers: Headers,
    /// Key "4". Echoed in answers by a version 2 worker.
    pub id: Option<u64>,
    /// Key "5": number of this attempt, counted from 1. `None` under version 1.
    pub attempt: Option<u32>,
    /// Key "6": time until the hard deadline, in milliseconds.
    pub milliseconds_left: Option<u64>,
    /// Key "7".
    pub properties: Vec<(String, Property)>,
}

impl Task {
    /// Decodes a frame (without its length) from the daemon.
    ///
    /// # Errors
    /// The frame breaks the protocol.
    pub fn decode(frame: &[u8]) -> Result<Self, DecodeError> {
        let read: TaskFields = decode::decode(frame)?;
        let binary = matches!(read.message, OwnedBody::Binary(_));
        Ok(Self {
            message: read.message.bytes(),
            binary,
            correlation_id: read.correlation_id,
            queue: read.queue,
            headers: read.headers,
            id: read.id,
            attempt: read.attempt,
            milliseconds_left: read.milliseconds_left,
            properties: read.properties,
        })
    }
}

#[derive(Default)]
struct TaskFields {
    message: OwnedBody,
    correlation_id: String,
    queue: String,
    headers: Headers,
    id: Option<u64>,
    attempt: Option<u32>,
    milliseconds_left: Option<u64>,
    properties: Vec<(String, Property)>,
}

impl<'de> Fields<'de> for TaskFields {
    const NAMES: &'static [&'static str] = &[
        "message",
        "correlation id",
        "queue",
        "headers",
        "id",
        "attempt",
        "milliseconds left",
        "properties",
    ];
    const REQUIRED: usize = 4;

    fn read<A: MapAccess<'de>>(&mut self, key: usize, map: &mut A) -> Result<(), A::Error> {
        match key {
            0 => self.message = map.next_value_seed(BodyValue)?,
            1 => self.correlation_id = map.next_value_seed(TextValue)?.unwrap_or_default(),
            2 => self.queue = map.next_value_seed(TextValue)?.unwrap_or_default(),
            3 => self.headers = map.next_value_seed(HeadersValue)?.unwrap_or_default(),
            4 => self.id = map.next_value_seed(NonNegativeValue)?,
            5 => self.attempt = attempt(map.next_value_seed(NonNegativeValue)?)?,
            6 => self.milliseconds_left = map.next_value_seed(NonNegativeValue)?,
            7 => self.properties = map.next_value_seed(PropertiesValue)?,
            _ => return Err(A::Error::custom("not a key of an input")),
        }
        Ok(())
    }
}

fn attempt<E: Error>(number: Option<u64>) -> Result<Option<u32>, E> {
    number
        .map(u32::try_from)
        .transpose()
        .map_err(|_| E::custom("expected an attempt below 2^32"))
}
