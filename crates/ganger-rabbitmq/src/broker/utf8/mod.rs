//! Makes the broker's frames readable for the library, which gives up the connection over a single text that
//! is not UTF-8, every time, while RabbitMQ accepts any bytes in properties, names of headers and routing
//! keys. Such bytes are replaced on input, one for one, so that only the texts change. Headers nested so deep
//! that they would overflow the library's stack are replaced, too. The handling of the message is decided
//! elsewhere. Returned messages found in the stream are recorded in [`Returns`], the broker's limit for frames in
//! [`FrameLimit`].

pub(crate) mod restore;

use std::collections::BTreeSet;

use super::frame_limit::FrameLimit;
use super::returned::{self, Returns};

/// Replacement of a byte that is not UTF-8: U+001A, the character of ASCII for this purpose, which texts do
/// not normally contain.
pub(crate) const SUBSTITUTE: char = '\u{1a}';

/// Size of a frame's type, channel and payload size; a byte that ends the frame follows the payload.
const HEAD_BYTES: usize = 7;
const END_BYTES: usize = 1;
/// Size above which frames are not inspected: no broker sends methods or properties that long.
pub(crate) const FRAME_BYTES_MAX: usize = 1 << 20;
/// Maximum nesting of headers that is passed to the library: it follows nested tables without a limit, down
/// to the end of its stack.
const DEPTH_MAX: usize = 32;

const METHOD: u8 = 1;
const HEADER: u8 = 2;
/// Valid frame types.
const TYPES: std::ops::RangeInclusive<u8> = 1..=8;

/// Bytes before the properties: the class, a weight, the size of the body.
const SIZE_AND_BEFORE: usize = 12;

/// The class and method of `connection.tune`, `basic.return`, `basic.deliver` and `basic.get-ok`.
const TUNE: (u16, u16) = (10, 30);
const RETURN: (u16, u16) = (60, 50);
const DELIVER: (u16, u16) = (60, 60);
const GET_OK: (u16, u16) = (60, 71);

/// An incoming stream of frames.
#[derive(Debug, Default)]
pub(crate) struct Utf8Repair {
    /// Bytes received and not passed on.
    held: Vec<u8>,
    /// Number of these that may be passed on. The beginning of a frame follows.
    ready: usize,
    /// Number of bytes still to come of a frame that is not inspected.
    passing: usize,
    observer: Observer,
}

/// Records what the broker says in passing.
#[derive(Debug, Default)]
struct Observer {
    limit: FrameLimit,
    returns: Returns,
    /// Channels on which the properties of a returned message are next.
    returning: BTreeSet<[u8; 2]>,
}

impl Utf8Repair {
    /// Creates one that records returned messages and the limit for frames.
    pub(crate) fn new(returns: Returns, limit: FrameLimit) -> Self {
        let observer = Observer {
            limit,
            returns,
            ..Observer::default()
        };
        Self {
            observer,
            ..Self::default()
        }
    }

    /// Takes in the first `count` bytes of `buffer`, and replaces them with those that may be passed on.
    /// Returns their number; zero if more has to arrive first.
    pub(crate) fn pass(&mut self, buffer: &mut [u8], count: usize) -> usize {
        let read = &mut buffer[..count];
        if self.held.is_empty() {
            let ready = repair_frames(read, &mut self.passing, &mut self.observer);
            self.held.extend_from_slice(&read[ready..]);
            return ready;
        }
        self.held.extend_from_slice(read);
        let behind = &mut self.held[self.ready..];
        self.ready += repair_frames(behind, &mut self.passing, &mut self.observer);
        self.rest(buffer)
    }

    /// Puts into `buffer` the bytes that may be passed on and did not fit before.
    pub(crate) fn rest(&mut self, buffer: &mut [u8]) -> usize {
        let count = self.ready.min(buffer.len());
        buffer[..count].copy_from_slice(&self.held[..count]);
        self.held.drain(..count);
        self.ready -= count;
        count
    }
}

/// Beginning of a stream.
enum Next {
    /// A frame that is not complete yet.
    Part,
    /// A frame of this size that may be passed on unchanged.
    Plain(usize),
    /// A complete frame of this size, with texts.
    Texts(usize),
}

/// Repairs all complete frames, and returns the number of bytes that may be passed on.
fn repair_frames(bytes: &mut [u8], passing: &mut usize, observer: &mut Observer) -> usize {
    let mut at = 0;
    loop {
        let passed = (*passing).min(bytes.len() - at);
        *passing -= passed;
        at += passed;
        match next(&bytes[at..]) {
            Next::Part => return at,
            Next::Plain(size) => *passing = size,
            Next::Texts(size) => {
                repair_frame(&mut bytes[at..at + size], observer);
                at += size;
            }
        }
    }
}

fn next(bytes: &[u8]) -> Next {
    match bytes.first() {
        None => return Next::Part,
        // The library reports input that is not AMQP.
        Some(kind) if !TYPES.contains(kind) => return Next::Plain(usize::MAX),
        Some(_) => {}
    }
    let Some(([kind, _, _, size @ ..], _)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return Next::Part;
    };
    let payload = usize::try_from(u32::from_be_bytes(*size)).unwrap_or(usize::MAX);
    let size = payload.saturating_add(HEAD_BYTES + END_BYTES);
    match *kind {
        METHOD | HEADER if size <= FRAME_BYTES_MAX && size > bytes.len() => Next::Part,
        METHOD | HEADER if size <= FRAME_BYTES_MAX => Next::Texts(size),
        _ => Next::Plain(size),
    }
}

fn repair_frame(frame: &mut [u8], observer: &mut Observer) {
    let (kind, channel) = (frame[0], [frame[1], frame[2]]);
    let payload = HEAD_BYTES..frame.len() - END_BYTES;
    let payload = &mut frame[payload];
    observer.inspect(kind, channel, payload);
    let mut cursor = Cursor { rest: payload };
    // The library reports a method that ends too early.
    let _ = match kind {
        METHOD => cursor.method(),
        _ => cursor.properties(),
    };
}

impl Observer {
    fn inspect(&mut self, kind: u8, channel: [u8; 2], payload: &mut [u8]) {
        let mut cursor = Cursor { rest: payload };
        if kind == METHOD {
            match cursor.short().zip(cursor.short()) {
                Some(RETURN) => drop(self.returning.insert(channel)),
                Some(TUNE) => {
                    // After the maximum of channels.
                    let limit = cursor.short().and_then(|_| cursor.chunk());
                    if let Some(limit) = limit {
                        self.limit.told(u32::from_be_bytes(limit));
                    }
                }
                Some(_) | None => {}
            }
        } else if self.returning.remove(&channel) {
            let channel = u16::from_be_bytes(channel);
            self.returns.came_back(channel, cursor.number());
        }
    }
}

/// Rest of a payload. All methods return `None` if it is too short.
struct Cursor<'a> {
    rest: &'a mut [u8],
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Option<&'a mut [u8]> {
        let rest = std::mem::take(&mut self.rest);
        let (taken, rest) = rest.split_at_mut_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn short(&mut self) -> Option<u16> {
        self.chunk().map(u16::from_be_bytes)
    }

    fn long(&mut self) -> Option<usize> {
        let long = u32::from_be_bytes(self.chunk()?);
        usize::try_from(long).ok()
    }

    /// Repairs a text with its length before it.
    fn text(&mut self) -> Option<()> {
        let [bytes] = self.chunk()?;
        repair_text(self.take(bytes.into())?);
        Some(())
    }

    fn method(&mut self) -> Option<()> {
        match (self.short()?, self.short()?) {
            RETURN => {
                self.take(2)?;
                self.text()?;
            }
            DELIVER => {
                self.text()?;
                self.take(9)?;
            }
            GET_OK => drop(self.take(9)?),
            _ => return Some(()),
        }
        // The exchange and the routing key.
        self.text()?;
        self.text()
    }

    /// Repairs the properties in the order of AMQP 0-9-1, section 1.8.4 of its definition of classes.
    fn properties(&mut self) -> Option<()> {
        self.take(SIZE_AND_BEFORE)?;
        let present = self.short()?;
        for (index, kind) in PROPERTIES.iter().enumerate() {
            if present & (0x8000 >> index) == 0 {
                continue;
            }
            match kind {
                Kind::Text => self.text()?,
                Kind::Table => self.headers()?,
                Kind::Bytes(count) => drop(self.take(*count)?),
            }
        }
        Some(())
    }

    /// Number that a message was sent with.
    fn number(&mut self) -> Option<u64> {
        self.take(SIZE_AND_BEFORE)?;
        let present = self.short()?;
        for (index, kind) in PROPERTIES.iter().enumerate() {
            match kind {
                _ if present & (0x8000 >> index) == 0 => {}
                Kind::Text => self.text()?,
                Kind::Bytes(count) => drop(self.take(*count)?),
                Kind::Table => return self.number_in_table(),
            }
        }
        None
    }

    fn number_in_table(&mut self) -> Option<u64> {
        let bytes = self.long()?;
        let mut table = Cursor {
            rest: self.take(bytes)?,
        };
        loop {
            let [length] = table.chunk()?;
            let is_it = table.take(length.into())? == returned::HEADER.as_bytes();
            if is_it && table.rest.first() == Some(&b'l') {
                let [_, number @ ..] = table.chunk::<9>()?;
                return Some(u64::from_be_bytes(number));
            }
            // Skipped at any depth.
            table.skip()?;
        }
    }

    fn headers(&mut self) -> Option<()> {
        let bytes = self.long()?;
        let mut table = Cursor {
            rest: self.take(bytes)?,
        };
        while !table.rest.is_empty() {
            let bytes = match table.header_bytes() {
                Some(bytes) => bytes,
                // Its end can't be determined.
                None => return flatten_all(table.rest),
            };
            repair_header(table.take(bytes)?)?;
        }
        Some(())
    }

    /// Length of the next header.
    fn header_bytes(&mut self) -> Option<usize> {
        let all = self.rest.len();
        let mut behind = Cursor {
            rest: &mut *self.rest,
        };
        let [length] = behind.chunk()?;
        behind.take(length.into())?;
        behind.skip()?;
        Some(all - behind.rest.len())
    }

    /// Repairs a table. Returns whether it is not nested too deep.
    fn table(&mut self, depth: usize) -> Option<bool> {
        let bytes = self.long()?;
        let mut table = Cursor {
            rest: self.take(bytes)?,
        };
        let mut is_whole = true;
        while !table.rest.is_empty() {
            table.text()?;
            is_whole &= table.value(depth)?;
        }
        Some(is_whole)
    }

    fn array(&mut self, depth: usize) -> Option<bool> {
        let bytes = self.long()?;
        let mut array = Cursor {
            rest: self.take(bytes)?,
        };
        let mut is_whole = true;
        while !array.rest.is_empty() {
            is_whole &= array.value(depth)?;
        }
        Some(is_whole)
    }

    /// Repairs a value. Values are never texts that must be UTF-8, but tables contain names.
    fn value(&mut self, depth: usize) -> Option<bool> {
        let Some(depth) = depth.checked_sub(1) else {
            self.skip()?;
            return Some(false);
        };
        match self.rest.first()? {
            b'F' => {
                self.take(1)?;
                self.table(depth)
            }
            b'A' => {
                self.take(1)?;
                self.array(depth)
            }
            _ => self.skip().map(|()| true),
        }
    }

    /// Skips a value, by RabbitMQ's type letters.
    fn skip(&mut self) -> Option<()> {
        let bytes = match self.chunk()? {
            [b'F' | b'A' | b'S' | b'x'] => self.long()?,
            [b'V'] => 0,
            [b't' | b'b' | b'B'] => 1,
            [b's' | b'U' | b'u'] => 2,
            [b'I' | b'i' | b'f'] => 4,
            [b'D'] => 5,
            [b'l' | b'L' | b'd' | b'T'] => 8,
            _ => return None,
        };
        self.take(bytes).map(drop)
    }
}

fn repair_header(header: &mut [u8]) -> Option<()> {
    let mut cursor = Cursor { rest: &mut *header };
    cursor.text()?;
    match cursor.value(DEPTH_MAX) {
        Some(true) => Some(()),
        // It is nested too deep, or contains data over which the library would give up the connection.
        Some(false) | None => flatten(header),
    }
}

/// Turns the rest of a table into one header of plain bytes, with the name of an unreadable one; if it is too
/// short for that, into one with such a name and no value.
fn flatten_all(rest: &mut [u8]) -> Option<()> {
    const LEAST: usize = 1 + 1 + 1 + 4;
    let name = if rest.len() < LEAST {
        let (kind, _) = rest.split_last_mut()?;
        *kind = b'V';
        rest.len().checked_sub(2)?
    } else {
        1
    };
    rest[0] = u8::try_from(name).ok()?;
    rest[1..=name].fill(SUBSTITUTE as u8);
    if rest.len() >= LEAST {
        flatten(rest)?;
    }
    Some(())
}

/// Turns a header that is nested too deep, or can't be read, into one of plain bytes with the same length,
/// and with a name that could not be read: so the message is recognised as unreadable. An empty name takes a
/// byte from the value.
fn flatten(header: &mut [u8]) -> Option<()> {
    let name = (*header.first()?).max(1);
    let (_, value) = header.split_at_mut_checked(1 + usize::from(name))?;
    let (kind_and_size, bytes) = value.split_at_mut_checked(1 + 4)?;
    let size = u32::try_from(bytes.len()).ok()?.to_be_bytes();
    kind_and_size[0] = b'x';
    kind_and_size[1..].copy_from_slice(&size);
    header[0] = name;
    // The rest of its first character is removed with it.
    header[1] = 0xff;
    repair_text(&mut header[1..=usize::from(name)]);
    Some(())
}

/// Wire format of a property.
enum Kind {
    Text,
    Table,
    Bytes(usize),
}

const PROPERTIES: [Kind; 14] = [
    Kind::Text,     // content-type
    Kind::Text,     // content-encoding
    Kind::Table,    // headers
    Kind::Bytes(1), // delivery-mode
    Kind::Bytes(1), // priority
    Kind::Text,     // correlation-id
    Kind::Text,     // reply-to
    Kind::Text,     // expiration
    Kind::Text,     // message-id
    Kind::Bytes(8), // timestamp
    Kind::Text,     // type
    Kind::Text,     // user-id
    Kind::Text,     // app-id
    Kind::Text,     // cluster-id
];

fn repair_text(text: &mut [u8]) {
    let mut from = 0;
    while let Err(error) = std::str::from_utf8(&text[from..]) {
        let at = from + error.valid_up_to();
        let end = error.error_len().map_or(text.len(), |bytes| at + bytes);
        text[at..end].fill(SUBSTITUTE as u8);
        from = end;
    }
}

#[cfg(test)]
mod tests;
