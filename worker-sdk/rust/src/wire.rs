//! The bytes of the protocol: what the daemon sends, what a worker answers. No pipe is read here.

use std::collections::HashMap;
use std::fmt::Display;

use rmp::{Marker, decode, encode};

use crate::value::length;
use crate::{Error, Value};

/// The longest frame, unless the pool's `frame_bytes_max` says otherwise.
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 20;
/// How deep values may be nested, the frame's own map included.
pub(crate) const DEPTH_MAX: usize = 64;
/// How many headers the daemon takes.
const HEADERS_MAX: usize = 10_000;

/// The protocol's numbers.
pub(crate) mod status {
    pub(crate) const IGNORE_MESSAGE: i64 = -1;
    pub(crate) const HELLO: i64 = 100;
    pub(crate) const LOG: i64 = 101;
    pub(crate) const PROGRESS: i64 = 102;
    pub(crate) const EMIT: i64 = 103;
    pub(crate) const DONE: i64 = 200;
    pub(crate) const DONE_WITH_REPLY: i64 = 201;
    pub(crate) const REQUEUE: i64 = 300;
    pub(crate) const REJECT: i64 = 400;
    pub(crate) const RETRY: i64 = 429;
    pub(crate) const UNKNOWN_ERROR: i64 = 500;
}

fn wrong(reason: impl Display) -> Error {
    Error::Protocol(format!("an input must {reason}"))
}

// -- what a worker sends --

/// A frame from the worker, before it is one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Output<'a> {
    pub(crate) message: &'a [u8],
    pub(crate) status: i64,
    pub(crate) headers: Option<&'a [(String, Value)]>,
    pub(crate) queue: &'a str,
    pub(crate) id: Option<u64>,
    pub(crate) after_ms: Option<u64>,
}

impl Output<'_> {
    /// Writes it behind what is there, with its length. On an error nothing is added.
    pub(crate) fn append(&self, to: &mut Vec<u8>, frame_bytes_max: usize) -> Result<(), Error> {
        let start = to.len();
        let written = self.append_frame(to, frame_bytes_max);
        if written.is_err() {
            to.truncate(start);
        }
        written
    }

    fn append_frame(&self, to: &mut Vec<u8>, frame_bytes_max: usize) -> Result<(), Error> {
        let start = to.len();
        to.extend_from_slice(&[0; 4]);
        self.append_map(to)?;
        let size = to.len() - start - 4;
        if size > frame_bytes_max {
            let what = format!("an answer must have at most {frame_bytes_max} bytes: {size}");
            return Err(Error::Output(what));
        }
        to[start..start + 4].copy_from_slice(&length(size)?.to_be_bytes());
        Ok(())
    }

    fn append_map(&self, to: &mut Vec<u8>) -> Result<(), Error> {
        let optional = [
            self.headers.is_some(),
            !self.queue.is_empty(),
            self.id.is_some(),
            self.after_ms.is_some(),
        ];
        let there = optional.iter().filter(|there| **there).count();
        encode::write_map_len(to, length(2 + there)?)?;
        to.extend_from_slice(b"\xa10");
        match std::str::from_utf8(self.message) {
            Ok(text) => encode::write_str(to, text)?,
            Err(_) => encode::write_bin(to, self.message)?,
        }
        to.extend_from_slice(b"\xa11");
        encode::write_sint(to, self.status)?;
        if let Some(headers) = self.headers {
            if headers.len() > HEADERS_MAX {
                let (most, count) = (HEADERS_MAX, headers.len());
                let what = format!("an answer must have at most {most} headers: {count}");
                return Err(Error::Output(what));
            }
            to.extend_from_slice(b"\xa12");
            encode::write_map_len(to, length(headers.len())?)?;
            for (name, value) in headers {
                encode::write_str(to, name)?;
                value.write(to)?;
            }
        }
        if !self.queue.is_empty() {
            to.extend_from_slice(b"\xa13");
            encode::write_str(to, self.queue)?;
        }
        if let Some(id) = self.id {
            to.extend_from_slice(b"\xa14");
            encode::write_uint(to, id)?;
        }
        if let Some(after) = self.after_ms {
            to.extend_from_slice(b"\xa15");
            encode::write_uint(to, after)?;
        }
        Ok(())
    }
}

// -- what the daemon sends --

/// A frame from the daemon.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Input {
    pub(crate) message: Vec<u8>,
    pub(crate) correlation_id: String,
    pub(crate) queue: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) id: Option<u64>,
    pub(crate) attempt: Option<u64>,
    pub(crate) milliseconds_left: Option<u64>,
    pub(crate) properties: HashMap<String, Value>,
}

impl Input {
    /// Reads a frame, without its length.
    pub(crate) fn decode(frame: &[u8]) -> Result<Self, Error> {
        let mut from = Reader { rest: frame };
        let Some(Marker::FixMap(_) | Marker::Map16 | Marker::Map32) = from.marker() else {
            return Err(wrong("be a map"));
        };
        let mut input = Self::default();
        let mut seen = [false; 8];
        for _ in 0..from.map()? {
            let key =
                std::str::from_utf8(from.text()?).map_err(|_| wrong("have keys that are UTF-8"))?;
            let known = match key.as_bytes() {
                [digit @ b'0'..=b'7'] => usize::from(digit - b'0'),
                _ => {
                    from.skip(DEPTH_MAX - 1)?;
                    continue;
                }
            };
            if std::mem::replace(&mut seen[known], true) {
                return Err(wrong(format_args!(
                    "have each key once: {key:?} is there twice"
                )));
            }
            input.set(known, &mut from)?;
        }
        if !from.rest.is_empty() {
            let more = from.rest.len();
            return Err(wrong(format_args!("be one map: {more} bytes follow it")));
        }
        match seen[..4].iter().position(|there| !there) {
            Some(lacking) => Err(wrong(format_args!(
                "have the keys \"0\" to \"3\": no \"{lacking}\""
            ))),
            None => Ok(input),
        }
    }

    fn set(&mut self, key: usize, from: &mut Reader<'_>) -> Result<(), Error> {
        if from.marker() == Some(Marker::Null) {
            return from.skip(0);
        }
        let before = *from;
        let (set, wanted) = match key {
            0 => (
                from.body().map(|body| self.message = body),
                "a text or bytes",
            ),
            1 => (
                from.string().map(|text| self.correlation_id = text),
                "a text",
            ),
            2 => (from.string().map(|text| self.queue = text), "a text"),
            3 => (
                from.headers().map(|all| self.headers = all),
                "a map of texts to texts",
            ),
            4 => (from.count().map(|id| self.id = Some(id)), "a number from 0"),
            5 => (
                from.attempt().map(|number| self.attempt = Some(number)),
                "a number from 1",
            ),
            6 => (
                from.count().map(|left| self.milliseconds_left = Some(left)),
                "a number from 0",
            ),
            _ => (
                from.properties().map(|all| self.properties = all),
                "a map with texts as names",
            ),
        };
        set.map_err(|error| {
            // What is broken in any case is said as such.
            match (Reader { ..before }).skip(DEPTH_MAX - 1) {
                Err(broken) => broken,
                Ok(()) => wrong(format_args!(
                    "have {wanted} under its key \"{key}\": {error}"
                )),
            }
        })
    }
}

/// What is left of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The type of what comes next.
    fn marker(&self) -> Option<Marker> {
        self.rest.first().map(|byte| Marker::from_u8(*byte))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            let more = count - self.rest.len();
            return Err(wrong(format_args!("be whole: it claims {more} bytes more")));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn taken(&mut self, count: u32) -> Result<&'a [u8], Error> {
        self.take(usize::try_from(count).map_err(wrong)?)
    }

    fn map(&mut self) -> Result<u32, Error> {
        decode::read_map_len(&mut self.rest).map_err(wrong)
    }

    fn text(&mut self) -> Result<&'a [u8], Error> {
        let size = decode::read_str_len(&mut self.rest).map_err(|error| match error {
            decode::ValueReadError::TypeMismatch(other) => {
                wrong(format_args!("have a text there: {other:?}"))
            }
            decode::ValueReadError::InvalidMarkerRead(_)
            | decode::ValueReadError::InvalidDataRead(_) => wrong("be whole"),
        })?;
        self.taken(size)
    }

    fn string(&mut self) -> Result<String, Error> {
        String::from_utf8(self.text()?.to_owned()).map_err(wrong)
    }

    fn body(&mut self) -> Result<Vec<u8>, Error> {
        let bytes = match self.marker() {
            Some(Marker::Bin8 | Marker::Bin16 | Marker::Bin32) => {
                let size = decode::read_bin_len(&mut self.rest).map_err(wrong)?;
                self.taken(size)?
            }
            _ => self.text()?,
        };
        Ok(bytes.to_owned())
    }

    fn count(&mut self) -> Result<u64, Error> {
        decode::read_int(&mut self.rest).map_err(wrong)
    }

    fn attempt(&mut self) -> Result<u64, Error> {
        match self.count()? {
            0 => Err(wrong("begin with attempt 1: 0")),
            number => Ok(number),
        }
    }

    fn headers(&mut self) -> Result<HashMap<String, String>, Error> {
        let mut headers = HashMap::new();
        for _ in 0..self.map()? {
            headers.insert(self.string()?, self.string()?);
        }
        Ok(headers)
    }

    fn properties(&mut self) -> Result<HashMap<String, Value>, Error> {
        let mut properties = HashMap::new();
        for _ in 0..self.map()? {
            properties.insert(self.string()?, self.value(DEPTH_MAX - 2)?);
        }
        Ok(properties)
    }

    /// Goes past a value that may hold lists and maps in each other so deep.
    fn skip(&mut self, depth: usize) -> Result<(), Error> {
        let (bytes, values) = self.head()?;
        self.take(bytes)?;
        if values > 0 && depth == 0 {
            return Err(wrong(format_args!("be nested at most {DEPTH_MAX} deep")));
        }
        for _ in 0..values {
            self.skip(depth - 1)?;
        }
        Ok(())
    }

    /// Past the marker and the length: how many bytes and how many values belong to this one.
    fn head(&mut self) -> Result<(usize, u64), Error> {
        let Some(marker) = self.marker() else {
            return Err(wrong("be whole: it ends before a value"));
        };
        self.take(1)?;
        Ok(match marker {
            Marker::Reserved => {
                return Err(wrong("be MessagePack, which never has the byte 0xc1"));
            }
            Marker::FixPos(_) | Marker::FixNeg(_) => (0, 0),
            Marker::Null | Marker::True | Marker::False => (0, 0),
            Marker::U8 | Marker::I8 => (1, 0),
            Marker::U16 | Marker::I16 | Marker::FixExt1 => (2, 0),
            Marker::FixExt2 => (3, 0),
            Marker::U32 | Marker::I32 | Marker::F32 => (4, 0),
            Marker::FixExt4 => (5, 0),
            Marker::U64 | Marker::I64 | Marker::F64 => (8, 0),
            Marker::FixExt8 => (9, 0),
            Marker::FixExt16 => (17, 0),
            Marker::FixStr(size) => (size.into(), 0),
            Marker::Str8 | Marker::Bin8 => (self.size(1)?, 0),
            Marker::Str16 | Marker::Bin16 => (self.size(2)?, 0),
            Marker::Str32 | Marker::Bin32 => (self.size(4)?, 0),
            Marker::Ext8 => (self.size(1)?.saturating_add(1), 0),
            Marker::Ext16 => (self.size(2)?.saturating_add(1), 0),
            Marker::Ext32 => (self.size(4)?.saturating_add(1), 0),
            Marker::FixArray(count) => (0, count.into()),
            Marker::Array16 => (0, self.size(2)? as u64),
            Marker::Array32 => (0, self.size(4)? as u64),
            Marker::FixMap(count) => (0, 2 * u64::from(count)),
            Marker::Map16 => (0, 2 * self.size(2)? as u64),
            Marker::Map32 => (0, 2 * self.size(4)? as u64),
        })
    }

    /// A length of so many bytes.
    fn size(&mut self, width: usize) -> Result<usize, Error> {
        let bytes = self.take(width)?;
        Ok(bytes
            .iter()
            .fold(0, |size, byte| size << 8 | usize::from(*byte)))
    }

    /// A value that may hold lists and maps in each other so deep.
    pub(crate) fn value(&mut self, depth: usize) -> Result<Value, Error> {
        let (bytes, values) = {
            let mut ahead = *self;
            ahead.head()?
        };
        if values > 0 && depth == 0 {
            return Err(wrong(format_args!("be nested at most {DEPTH_MAX} deep")));
        }
        let marker = self.marker();
        Ok(match marker {
            Some(Marker::True | Marker::False) => {
                Value::Boolean(decode::read_bool(&mut self.rest).map_err(wrong)?)
            }
            Some(Marker::F32) => Value::from(decode::read_f32(&mut self.rest).map_err(wrong)?),
            Some(Marker::F64) => Value::from(decode::read_f64(&mut self.rest).map_err(wrong)?),
            Some(Marker::U64) => Value::from(self.count()?),
            Some(
                Marker::FixPos(_)
                | Marker::FixNeg(_)
                | Marker::U8
                | Marker::U16
                | Marker::U32
                | Marker::I8
                | Marker::I16
                | Marker::I32
                | Marker::I64,
            ) => Value::from(decode::read_int::<i64, _>(&mut self.rest).map_err(wrong)?),
            Some(Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32) => {
                match String::from_utf8(self.text()?.to_owned()) {
                    Ok(text) => Value::Text(text),
                    Err(error) => Value::Bytes(error.into_bytes()),
                }
            }
            Some(Marker::Bin8 | Marker::Bin16 | Marker::Bin32) => Value::Bytes(self.body()?),
            Some(Marker::FixArray(_) | Marker::Array16 | Marker::Array32) => {
                self.head()?;
                let each = (0..values).map(|_| self.value(depth - 1));
                Value::List(each.collect::<Result<_, _>>()?)
            }
            Some(Marker::FixMap(_) | Marker::Map16 | Marker::Map32) => {
                self.head()?;
                let pairs =
                    (0..values / 2).map(|_| Ok((self.value(depth - 1)?, self.value(depth - 1)?)));
                Value::Map(pairs.collect::<Result<_, Error>>()?)
            }
            Some(Marker::Null) => {
                self.take(1)?;
                Value::Nil
            }
            _ => {
                self.head()?;
                match self.take(bytes)? {
                    [kind, data @ ..] => {
                        Value::Extension(i8::from_be_bytes([*kind]), data.to_owned())
                    }
                    [] => return Err(wrong("be MessagePack")),
                }
            }
        })
    }
}
