//! What a dead letter of a broker says beside its message: text headers under `x-ganger-`, written
//! by the source that gives a message up and read by the commands; and the counters that every copy
//! of a message carries from queue to queue, under names of the same kind. No broker is known here.
//!
//! A letter's headers take [`LETTER_BYTES_MAX`] at most, whatever happened: stderr is cut first,
//! at its beginning, then the error, at its end, and both say so. A result that could not be
//! delivered belongs to the letter. A small one is among its headers; a larger one is a message of
//! its own, [`Apart`], in the same place as the letter and stored before it, so that whoever reads
//! the letter has met its reply already.

mod groups;
mod model;

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use jiff::Timestamp;

use crate::delivery::{Failure, Headers, Outgoing};
use ganger_core::names::OWN_HEADER_PREFIX;
use ganger_core::trace_context::SpanContext;
pub use groups::{Group, Groups};
pub use model::{DeadLetter, DeadReply};

/// The names of the headers. Workers never see them.
pub mod header {
    /// How many attempts have been charged. On every copy.
    pub const ATTEMPTS: &str = "x-ganger-attempts";
    /// How many workers, or daemons, the message took down. On every copy.
    pub(crate) const CRASHES: &str = "x-ganger-crashes";
    /// How often in a row a worker asked for it to come again. On every copy.
    pub(crate) const REQUEUES: &str = "x-ganger-requeues";
    /// When its first attempt failed: Unix time in milliseconds. On every copy.
    pub(crate) const FIRST_FAILED: &str = "x-ganger-first-failed-ms";
    /// The span of the last attempt, as a `traceparent`. On every copy, where it was recorded.
    pub const SPAN: &str = "x-ganger-span";
    /// When its last one did, likewise.
    pub(crate) const LAST_FAILED: &str = "x-ganger-last-failed-ms";
    /// The queue or topic that it was read from first. On every copy.
    pub const QUEUE: &str = "x-ganger-queue";

    /// The name of a dead letter, never used again for another.
    pub const LETTER_ID: &str = "x-ganger-letter-id";
    /// The name by which log records call the message.
    pub(crate) const MESSAGE_NAME: &str = "x-ganger-message-name";
    /// The pool that gave it up.
    pub(crate) const POOL: &str = "x-ganger-pool";
    /// The kind of failure.
    pub(crate) const REASON: &str = "x-ganger-reason";
    /// What happened, in a sentence.
    pub const ERROR: &str = "x-ganger-error";
    /// The exit code of the worker that died.
    pub(crate) const EXIT_CODE: &str = "x-ganger-exit-code";
    /// The number of the signal that ended it.
    pub(crate) const SIGNAL: &str = "x-ganger-signal";
    /// `true` where the kernel killed it for want of memory.
    pub(crate) const OOM: &str = "x-ganger-oom";
    /// The last lines that it wrote to stderr, each with its line feed.
    pub const STDERR: &str = "x-ganger-stderr";

    /// Where a reply that could not be delivered was to go.
    pub(crate) const REPLY_QUEUE: &str = "x-ganger-reply-queue";
    /// Its headers: a JSON array of pairs.
    pub const REPLY_HEADERS: &str = "x-ganger-reply-headers";
    /// Its body in base64, where it is small.
    pub(crate) const REPLY_BODY: &str = "x-ganger-reply-body";
    /// `true` on a letter whose reply is a message of its own.
    pub(crate) const REPLY_APART: &str = "x-ganger-reply-apart";
    /// On that message: the id of its letter. Its body is the reply's.
    pub const REPLY_OF: &str = "x-ganger-reply-of";
    /// Among the headers of a reply: how many others there was no room for.
    pub(crate) const REPLY_HEADERS_CUT: &str = "x-ganger-reply-headers-cut";
    /// Likewise: how many bytes there was no room for at the end of its body.
    pub const REPLY_CUT: &str = "x-ganger-reply-cut";
}

/// The most bytes that a letter's own headers take, names and all.
pub const LETTER_BYTES_MAX: usize = 16 << 10;

/// A reply of which queue, headers and body, as they are written, take more is stored apart.
const REPLY_BYTES_MAX: usize = 4 << 10;

/// The most bytes of a reply's own headers that are stored apart: they must fit into one frame of
/// AMQP.
const REPLY_HEADERS_BYTES_MAX: usize = 48 << 10;

/// The most bytes of the name of a queue. No broker has longer ones, but a worker may ask for one.
const QUEUE_BYTES_MAX: usize = 255;

/// What a header takes beside its name and its value, on the wire of any broker.
const HEADER_BYTES: usize = 8;

/// The longest note that something was cut.
const NOTE_BYTES_MAX: usize = 48;

/// Headers of our own.
pub type Own = Vec<(&'static str, String)>;

/// What a message has been through. Every copy of it carries this on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Attempts that were charged.
    pub attempts: u32,
    /// Workers, or daemons, that it took down.
    pub crashes: u32,
    /// How often in a row a worker asked for it to come again.
    pub requeues: u32,
    /// When its first attempt failed, in milliseconds of Unix time.
    pub first_failed_ms: Option<i64>,
    /// The span of the last attempt, if that was recorded.
    pub span: Option<SpanContext>,
}

impl Counters {
    /// As headers; what is zero or unknown is left out.
    pub fn write(&self) -> Own {
        let count = |name, count: u32| (count > 0).then(|| (name, count.to_string()));
        let first_failed = self.first_failed_ms.map(|ms| ms.to_string());
        let all = [
            count(header::ATTEMPTS, self.attempts),
            count(header::CRASHES, self.crashes),
            count(header::REQUEUES, self.requeues),
            first_failed.map(|ms| (header::FIRST_FAILED, ms)),
            self.span.map(|span| (header::SPAN, span.to_string())),
        ];
        all.into_iter().flatten().collect()
    }

    /// Out of a message's headers; what is not there, or is no number, counts for nothing.
    pub fn read(headers: &Headers) -> Self {
        Self {
            attempts: number(headers, header::ATTEMPTS).unwrap_or_default(),
            crashes: number(headers, header::CRASHES).unwrap_or_default(),
            requeues: number(headers, header::REQUEUES).unwrap_or_default(),
            first_failed_ms: number(headers, header::FIRST_FAILED),
            span: find(headers, header::SPAN).and_then(SpanContext::parse),
        }
    }
}

/// A message that is given up, and why.
#[derive(Debug, Clone)]
pub struct Letter<'a> {
    /// Made by [`id`].
    pub id: &'a str,
    /// The pool that gives it up.
    pub pool: &'a str,
    /// The queue or topic that it was read from first: where a retry sends it.
    pub queue: &'a str,
    /// The name by which log records call it, if its source has one for it.
    pub message_name: Option<String>,
    /// What it has been through, the last attempt included.
    pub counters: Counters,
    /// When that failed, in milliseconds of Unix time.
    pub now_ms: i64,
    /// Why.
    pub failure: &'a Failure,
}

/// A letter in the form in which it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// What the copy of the message gets in place of its `x-ganger-` headers.
    pub headers: Own,
    /// A reply that is too large for them. It goes to the same place, and must be safe there
    /// before the letter is sent.
    pub reply: Option<Apart>,
}

/// A message that holds the reply which belongs to a letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Apart {
    /// All headers that it has.
    pub headers: Own,
    /// The reply's body.
    pub body: Bytes,
}

/// A name for a new dead letter: a UUID of version 7, so that later ones sort behind, and with its
/// hyphens never taken for a number. `now_ms` is Unix time.
pub fn id(now_ms: i64, random: u128) -> String {
    const VERSION_7: u128 = 7 << 76;
    const VARIANT: u128 = 2 << 62;
    let time = u128::from(now_ms.unsigned_abs() & 0xffff_ffff_ffff) << 80;
    let random = random & ((0xfff << 64) | 0x3fff_ffff_ffff_ffff);
    let hex = format!("{:032x}", time | VERSION_7 | VARIANT | random);
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}

/// When a letter was written, in Unix time, by its id; none if the id is none of ours.
pub fn written_ms(id: &str) -> Option<i64> {
    let hex: String = id.split('-').collect();
    let is_ours = hex.len() == 32 && hex.as_bytes()[12] == b'7';
    let bits = u128::from_str_radix(&hex, 16).ok().filter(|_| is_ours)?;
    i64::try_from(bits >> 80).ok()
}

impl Letter<'_> {
    /// Writes the letter.
    pub fn write(&self) -> Written {
        let mut headers = self.facts();
        let mut apart = None;
        match self
            .failure
            .reply
            .as_deref()
            .map(|reply| written_reply(self.id, reply))
        {
            Some(WrittenReply::Within(reply)) => headers.extend(reply),
            Some(WrittenReply::Apart(reply)) => {
                headers.push((header::REPLY_APART, "true".to_owned()));
                apart = Some(reply);
            }
            None => {}
        }
        let names = header::ERROR.len() + header::STDERR.len() + 2 * HEADER_BYTES;
        let room = LETTER_BYTES_MAX.saturating_sub(size(&headers) + names);
        let stderr: String = self
            .failure
            .stderr
            .iter()
            .flat_map(|line| [line, "\n"])
            .collect();
        let error = without_end(&self.failure.error, room.saturating_sub(NOTE_BYTES_MAX));
        let stderr = without_start(&stderr, room.saturating_sub(error.len()));
        headers.push((header::ERROR, error.into_owned()));
        if !stderr.is_empty() {
            headers.push((header::STDERR, stderr.into_owned()));
        }
        Written {
            headers,
            reply: apart,
        }
    }

    /// All that has a bound by itself.
    fn facts(&self) -> Own {
        let exit = self.failure.exit.unwrap_or_default();
        let counters = self.counters;
        let first_failed_ms = counters.first_failed_ms.unwrap_or(self.now_ms);
        let mut facts = vec![
            (header::LETTER_ID, self.id.to_owned()),
            (header::POOL, self.pool.to_owned()),
            (header::QUEUE, self.queue.to_owned()),
            (header::REASON, self.failure.reason.as_str().to_owned()),
            (header::ATTEMPTS, counters.attempts.to_string()),
            (header::CRASHES, counters.crashes.to_string()),
            (header::FIRST_FAILED, first_failed_ms.to_string()),
            (header::LAST_FAILED, self.now_ms.to_string()),
        ];
        let maybe = [
            (header::MESSAGE_NAME, self.message_name.clone()),
            (header::EXIT_CODE, exit.code.map(|code| code.to_string())),
            (header::SIGNAL, exit.signal.map(|signal| signal.to_string())),
            (header::OOM, exit.oom.then(|| "true".to_owned())),
        ];
        facts.extend(
            maybe
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        facts
    }
}

enum WrittenReply {
    Within(Own),
    Apart(Apart),
}

fn written_reply(id: &str, reply: &Outgoing) -> WrittenReply {
    let base64_bytes = base64::encoded_len(reply.body.len(), true).unwrap_or(usize::MAX);
    let queue = without_end(&reply.queue, QUEUE_BYTES_MAX).into_owned();
    let mut headers = vec![
        (header::REPLY_QUEUE, queue),
        (header::REPLY_HEADERS, pairs_json(&reply.headers)),
    ];
    if size(&headers).saturating_add(base64_bytes) <= REPLY_BYTES_MAX {
        headers.push((header::REPLY_BODY, BASE64.encode(&reply.body)));
        return WrittenReply::Within(headers);
    }
    headers.push((header::REPLY_OF, id.to_owned()));
    WrittenReply::Apart(Apart {
        headers,
        body: reply.body.clone(),
    })
}

/// A JSON array of as many pairs as there is room for, and one that says how many there was not.
fn pairs_json(headers: &Headers) -> String {
    let mut json = String::from("[");
    for (done, (name, value)) in headers.iter().enumerate() {
        let pair = serde_json::json!([name, value]).to_string();
        if json.len() + pair.len() > REPLY_HEADERS_BYTES_MAX {
            let cut = (headers.len() - done).to_string();
            json += &serde_json::json!([header::REPLY_HEADERS_CUT, cut]).to_string();
            json.push(',');
            break;
        }
        json += &pair;
        json.push(',');
    }
    let pairs = json.trim_end_matches(',').len();
    json.truncate(pairs);
    json + "]"
}

/// The bytes that headers take at most on the wire.
fn size(headers: &Own) -> usize {
    let each = |(name, value): &(&str, String)| name.len() + value.len() + HEADER_BYTES;
    headers.iter().map(each).sum()
}

/// The text, or as much of its beginning as fits together with a note of what is cut.
pub fn without_end(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    let kept = text.floor_char_boundary(bytes_max.saturating_sub(NOTE_BYTES_MAX));
    Cow::Owned(format!(
        "{} … ({} bytes cut)",
        &text[..kept],
        text.len() - kept
    ))
}

/// The text, or as much of its end as fits below a note of what is cut.
fn without_start(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    let kept = bytes_max.saturating_sub(NOTE_BYTES_MAX);
    let cut = text.ceil_char_boundary(text.len() - kept);
    Cow::Owned(format!("({cut} bytes cut) …\n{}", &text[cut..]))
}

/// What the headers of a message say of a letter, the message's own parts left for the caller to
/// fill in: `headers` are those that are not ours. None if the message is no letter of ours.
pub fn read(headers: &Headers) -> Option<DeadLetter> {
    let text = |name| find(headers, name).unwrap_or_default().to_owned();
    let time = |name| number(headers, name).map(rfc_3339).unwrap_or_default();
    Some(DeadLetter {
        id: find(headers, header::LETTER_ID)?.to_owned(),
        pool: text(header::POOL),
        queue: text(header::QUEUE),
        message_name: find(headers, header::MESSAGE_NAME).map(ToOwned::to_owned),
        reason: text(header::REASON),
        error: text(header::ERROR),
        attempts: number(headers, header::ATTEMPTS).unwrap_or_default(),
        crashes: number(headers, header::CRASHES).unwrap_or_default(),
        exit_code: number(headers, header::EXIT_CODE),
        signal: number(headers, header::SIGNAL),
        oom: find(headers, header::OOM).is_some(),
        stderr: lines(find(headers, header::STDERR).unwrap_or_default()),
        first_failed_at: time(header::FIRST_FAILED),
        last_failed_at: time(header::LAST_FAILED),
        headers: not_ours(headers),
        reply: reply_within(headers),
        ..DeadLetter::default()
    })
}

/// The id of the letter that this message holds the reply of, and the reply. None if it is no such
/// message.
pub fn read_apart(headers: &Headers, body: &Bytes) -> Option<(String, DeadReply)> {
    let id = find(headers, header::REPLY_OF)?.to_owned();
    Some((id, reply(headers, body.clone())))
}

/// The key of the message that holds a letter's reply, in a place where the letter's own key is its
/// id.
pub fn reply_key(id: &str) -> String {
    format!("{id}/reply")
}

/// The id of the letter whose reply has this key.
pub fn id_of_reply_key(key: &str) -> Option<&str> {
    key.strip_suffix("/reply")
}

/// Whether a letter's reply is a message of its own.
pub fn has_reply_apart(headers: &Headers) -> bool {
    find(headers, header::REPLY_APART).is_some()
}

/// The headers that are the message's own.
pub fn not_ours(headers: &Headers) -> Headers {
    let theirs = |name: &str| !name.starts_with(OWN_HEADER_PREFIX);
    headers
        .iter()
        .filter(|(name, _)| theirs(name))
        .cloned()
        .collect()
}

/// Unix time in milliseconds as people read it.
pub fn rfc_3339(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |time| time.to_string())
}

fn reply_within(headers: &Headers) -> Option<DeadReply> {
    let body = BASE64.decode(find(headers, header::REPLY_BODY)?).ok()?;
    Some(reply(headers, body.into()))
}

fn reply(headers: &Headers, body: Bytes) -> DeadReply {
    let pairs = find(headers, header::REPLY_HEADERS).unwrap_or_default();
    DeadReply {
        queue: find(headers, header::REPLY_QUEUE)
            .unwrap_or_default()
            .to_owned(),
        headers: serde_json::from_str(pairs).unwrap_or_default(),
        body,
    }
}

fn lines(text: &str) -> Vec<String> {
    text.split_terminator('\n').map(ToOwned::to_owned).collect()
}

fn find<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    let found = headers.iter().find(|(other, _)| other == name);
    found.map(|(_, value)| value.as_str())
}

fn number<T: std::str::FromStr>(headers: &Headers, name: &str) -> Option<T> {
    find(headers, name)?.parse().ok()
}

#[cfg(test)]
mod tests;
