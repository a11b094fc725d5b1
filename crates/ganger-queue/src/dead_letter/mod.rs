//! The headers of a broker's dead letter: text headers under `x-ganger-`, written by the source that
//! gives a message up and read by the commands; and the counters that every copy of a message carries
//! from queue to queue, under names of the same kind. No broker is known here.
//!
//! A dead letter's headers take [`DEAD_LETTER_BYTES_MAX`] at most, whatever happened: stderr is cut first, at
//! its beginning, then the error, at its end, and both say so. A reply that could not be delivered
//! belongs to the dead letter. A small one is among its headers; a larger one is a message of its own,
//! [`SeparateReply`], in the same place as the dead letter and stored before it, so that whoever reads
//! the dead letter has met its reply already.

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
pub use groups::{DeadGroups, Group, Groups};
pub use model::{DeadLetter, DeadReply};

/// Names of the headers. Workers never see them.
pub mod header {
    /// Number of charged attempts. On every copy.
    pub const ATTEMPTS: &str = "x-ganger-attempts";
    /// Number of workers or daemons that the message took down. On every copy.
    pub(crate) const CRASHES: &str = "x-ganger-crashes";
    /// Number of times in a row that a worker asked for it to come again. On every copy.
    pub(crate) const REQUEUES: &str = "x-ganger-requeues";
    /// Time of the first failed attempt: Unix time in milliseconds. On every copy.
    pub(crate) const FIRST_FAILED: &str = "x-ganger-first-failed-ms";
    /// The span of the last attempt, as a `traceparent`. On every copy, where it was recorded.
    pub const SPAN: &str = "x-ganger-span";
    /// Time of the last failed attempt: Unix time in milliseconds.
    pub(crate) const LAST_FAILED: &str = "x-ganger-last-failed-ms";
    /// The queue or topic that it was read from first. On every copy.
    pub const QUEUE: &str = "x-ganger-queue";

    /// Id of a dead letter, never used again for another.
    pub const DEAD_LETTER_ID: &str = "x-ganger-letter-id";
    /// Name of the message in log records.
    pub(crate) const MESSAGE_NAME: &str = "x-ganger-message-name";
    /// Pool that gave up the message.
    pub(crate) const POOL: &str = "x-ganger-pool";
    /// Kind of failure.
    pub(crate) const REASON: &str = "x-ganger-reason";
    /// Description of the failure, in a sentence.
    pub const ERROR: &str = "x-ganger-error";
    /// Exit code of the worker that died.
    pub(crate) const EXIT_CODE: &str = "x-ganger-exit-code";
    /// Number of the signal that ended the worker.
    pub(crate) const SIGNAL: &str = "x-ganger-signal";
    /// `true` if the kernel killed the worker for lack of memory.
    pub(crate) const OOM: &str = "x-ganger-oom";
    /// Last lines that the worker wrote to stderr, each with its line feed.
    pub const STDERR: &str = "x-ganger-stderr";

    /// Queue of a reply that could not be delivered.
    pub(crate) const REPLY_QUEUE: &str = "x-ganger-reply-queue";
    /// Headers of that reply: a JSON array of pairs.
    pub const REPLY_HEADERS: &str = "x-ganger-reply-headers";
    /// Body of that reply in base64, if it is small.
    pub(crate) const REPLY_BODY: &str = "x-ganger-reply-body";
    /// `true` on a dead letter whose reply is a message of its own.
    pub(crate) const REPLY_APART: &str = "x-ganger-reply-apart";
    /// On that message: the id of its dead letter. Its body is the reply's.
    pub const REPLY_OF: &str = "x-ganger-reply-of";
    /// Among the headers of a reply: number of its headers that were cut.
    pub(crate) const REPLY_HEADERS_CUT: &str = "x-ganger-reply-headers-cut";
    /// Among the headers of a reply: number of bytes that were cut at the end of its body.
    pub const REPLY_CUT: &str = "x-ganger-reply-cut";
}

/// Maximum bytes of a dead letter's own headers, including names.
pub const DEAD_LETTER_BYTES_MAX: usize = 16 << 10;

/// Size of a reply's queue, headers and body, as they are written, above which it is stored apart.
const REPLY_BYTES_MAX: usize = 4 << 10;

/// Maximum bytes of the headers of a reply that is stored apart: they must fit into one frame of AMQP.
const REPLY_HEADERS_BYTES_MAX: usize = 48 << 10;

/// Maximum bytes of a queue's name. No broker has longer ones, but a worker may ask for one.
const QUEUE_BYTES_MAX: usize = 255;

/// Bytes that a header takes beside its name and its value, on the wire of any broker.
const HEADER_BYTES: usize = 8;

/// Maximum bytes of the note that something was cut.
const NOTE_BYTES_MAX: usize = 48;

/// Headers set by ganger.
pub type OwnHeaders = Vec<(&'static str, String)>;

/// History of a message. Every copy of it carries this on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of charged attempts.
    pub attempts: u32,
    /// Number of workers or daemons that it took down.
    pub crashes: u32,
    /// Number of times in a row that a worker asked for it to come again.
    pub requeues: u32,
    /// Time of the first failed attempt, in milliseconds of Unix time.
    pub first_failed_ms: Option<i64>,
    /// The span of the last attempt, if it was recorded.
    pub span: Option<SpanContext>,
}

impl Counters {
    /// Returns them as headers, without those that are zero or unknown.
    pub fn write(&self) -> OwnHeaders {
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

    /// Reads them from a message's headers; one that is missing, or is no number, counts as zero or
    /// unknown.
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

/// A message that is given up, and the reason.
#[derive(Debug, Clone)]
pub struct DeadLetterRecord<'a> {
    /// Id made by [`id`].
    pub id: &'a str,
    /// The pool that gives up the message.
    pub pool: &'a str,
    /// The queue or topic that it was read from first: a retry sends it there.
    pub queue: &'a str,
    /// Name of the message in log records, if its source has one for it.
    pub message_name: Option<String>,
    /// Its history, including the last attempt.
    pub counters: Counters,
    /// Time at which that failed, in milliseconds of Unix time.
    pub now_ms: i64,
    /// The reason.
    pub failure: &'a Failure,
}

/// A dead letter in the form in which it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDeadLetter {
    /// Headers that replace the `x-ganger-` headers of the message's copy.
    pub headers: OwnHeaders,
    /// A reply that is too large for them. It goes to the same place, and must be safe there before the
    /// dead letter is sent.
    pub reply: Option<SeparateReply>,
}

/// A message that holds the reply of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeparateReply {
    /// All its headers.
    pub headers: OwnHeaders,
    /// The reply's body.
    pub body: Bytes,
}

/// Makes an id for a new dead letter: a UUID of version 7, so that later ones sort behind, and with its
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

/// Returns the Unix time at which a dead letter was written, from its id; none if the id is not ours.
pub fn written_ms(id: &str) -> Option<i64> {
    let hex: String = id.split('-').collect();
    let is_ours = hex.len() == 32 && hex.as_bytes()[12] == b'7';
    let bits = u128::from_str_radix(&hex, 16).ok().filter(|_| is_ours)?;
    i64::try_from(bits >> 80).ok()
}

impl DeadLetterRecord<'_> {
    /// Writes the dead letter.
    pub fn write(&self) -> StoredDeadLetter {
        let mut headers = self.facts();
        let mut separate = None;
        match self
            .failure
            .reply
            .as_deref()
            .map(|reply| written_reply(self.id, reply))
        {
            Some(WrittenReply::Within(reply)) => headers.extend(reply),
            Some(WrittenReply::Separate(reply)) => {
                headers.push((header::REPLY_APART, "true".to_owned()));
                separate = Some(reply);
            }
            None => {}
        }
        let names = header::ERROR.len() + header::STDERR.len() + 2 * HEADER_BYTES;
        let room = DEAD_LETTER_BYTES_MAX.saturating_sub(size(&headers) + names);
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
        StoredDeadLetter {
            headers,
            reply: separate,
        }
    }

    /// Returns the headers that are bounded without being cut.
    fn facts(&self) -> OwnHeaders {
        let exit = self.failure.exit.unwrap_or_default();
        let counters = self.counters;
        let first_failed_ms = counters.first_failed_ms.unwrap_or(self.now_ms);
        let mut facts = vec![
            (header::DEAD_LETTER_ID, self.id.to_owned()),
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
    Within(OwnHeaders),
    Separate(SeparateReply),
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
    WrittenReply::Separate(SeparateReply {
        headers,
        body: reply.body.clone(),
    })
}

/// Returns a JSON array of as many pairs as fit, and one pair with the number of those that did not.
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

/// Returns an upper bound of the bytes that headers take on the wire.
fn size(headers: &OwnHeaders) -> usize {
    let each = |(name, value): &(&str, String)| name.len() + value.len() + HEADER_BYTES;
    headers.iter().map(each).sum()
}

/// Returns the text, or as much of its beginning as fits together with a note of the bytes cut.
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

/// Returns the text, or as much of its end as fits below a note of the bytes cut.
fn without_start(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    let kept = bytes_max.saturating_sub(NOTE_BYTES_MAX);
    let cut = text.ceil_char_boundary(text.len() - kept);
    Cow::Owned(format!("({cut} bytes cut) …\n{}", &text[cut..]))
}

/// Reads a dead letter from the headers of a message; the caller fills in the message's own parts:
/// `headers` are those that are not ours. None if the message is no dead letter of ours.
pub fn read(headers: &Headers) -> Option<DeadLetter> {
    let text = |name| find(headers, name).unwrap_or_default().to_owned();
    let time = |name| number(headers, name).map(rfc_3339).unwrap_or_default();
    Some(DeadLetter {
        id: find(headers, header::DEAD_LETTER_ID)?.to_owned(),
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

/// Returns the id of the dead letter whose reply this message holds, and the reply. None for any other
/// message.
pub fn read_separate_reply(headers: &Headers, body: &Bytes) -> Option<(String, DeadReply)> {
    let id = find(headers, header::REPLY_OF)?.to_owned();
    Some((id, reply(headers, body.clone())))
}

/// Returns the key of the message that holds a dead letter's reply, where the dead letter's own key is
/// its id.
pub fn reply_key(id: &str) -> String {
    format!("{id}/reply")
}

/// Returns the id of the dead letter whose reply has this key.
pub fn id_of_reply_key(key: &str) -> Option<&str> {
    key.strip_suffix("/reply")
}

/// Returns whether a dead letter's reply is a message of its own.
pub fn has_separate_reply(headers: &Headers) -> bool {
    find(headers, header::REPLY_APART).is_some()
}

/// Returns the headers that are the message's own.
pub fn not_ours(headers: &Headers) -> Headers {
    let theirs = |name: &str| !name.starts_with(OWN_HEADER_PREFIX);
    headers
        .iter()
        .filter(|(name, _)| theirs(name))
        .cloned()
        .collect()
}

/// Formats Unix time in milliseconds as RFC 3339.
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
