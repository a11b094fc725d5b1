//! The context that joins spans of different programs into one trace, as W3C writes it into a
//! message's headers, and the record of a traced attempt. It does not decide what is recorded, nor
//! know where spans go.

use std::fmt;
use std::time::SystemTime;

use tokio::time::Instant;

use crate::names::{TRACEPARENT, TRACESTATE};

/// Length of a `traceparent`: version, trace, span and flags, with hyphens between them.
pub const TRACEPARENT_BYTES: usize = 55;

/// Flag of a recorded trace.
const SAMPLED: u8 = 1;

/// Identifies a span and its trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanContext {
    /// Trace id; not all zero.
    pub trace_id: [u8; 16],
    /// Span id; not all zero.
    pub span_id: [u8; 8],
    /// W3C's flags.
    pub flags: u8,
}

impl SpanContext {
    /// Parses a `traceparent`; `None` if W3C's rules do not allow it.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let head = bytes.get(..TRACEPARENT_BYTES)?;
        let (version, rest) = (hex(&head[..2])?, &bytes[TRACEPARENT_BYTES..]);
        // A later version may have more fields, behind another hyphen.
        let known_end = rest.is_empty() || version > 0 && rest[0] == b'-';
        let hyphens = [2, 35, 52].iter().all(|at| head[*at] == b'-');
        if version == 0xff || !known_end || !hyphens {
            return None;
        }
        let context = Self {
            trace_id: hex(&head[3..35])?.to_be_bytes(),
            span_id: u64::try_from(hex(&head[36..52])?).ok()?.to_be_bytes(),
            flags: u8::try_from(hex(&head[53..55])?).ok()?,
        };
        (context.trace_id != [0; 16] && context.span_id != [0; 8]).then_some(context)
    }

    /// Returns whether its trace is recorded.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Creates a recorded span of the same trace.
    pub fn child(&self) -> Self {
        Self {
            span_id: some_id(),
            flags: self.flags | SAMPLED,
            ..*self
        }
    }

    /// Creates a recorded span of that trace.
    pub fn in_trace(trace_id: u128) -> Self {
        Self {
            trace_id: trace_id.to_be_bytes(),
            span_id: some_id(),
            flags: SAMPLED,
        }
    }

    /// Returns it as a `traceparent`, without allocating.
    pub fn write(&self) -> TraceParent {
        let mut text = *b"00-................................-................-..";
        digits(&mut text[3..35], &self.trace_id);
        digits(&mut text[36..52], &self.span_id);
        digits(&mut text[53..55], &[self.flags]);
        TraceParent(text)
    }
}

impl fmt::Display for SpanContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.write().as_str())
    }
}

impl fmt::Debug for SpanContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A `traceparent`.
#[derive(Debug, Clone, Copy)]
pub struct TraceParent([u8; TRACEPARENT_BYTES]);

impl TraceParent {
    /// Returns the ids of the trace and of the span.
    pub fn ids(&self) -> (&str, &str) {
        (&self.as_str()[3..35], &self.as_str()[36..52])
    }

    /// Returns its text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("hexadecimal digits and hyphens are ASCII")
    }
}

/// Parses lower-case hexadecimal digits; W3C allows no others.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

fn digits(out: &mut [u8], bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in out.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 0xf)];
    }
}

fn some_id() -> [u8; 8] {
    fastrand::u64(1..).to_be_bytes()
}

/// Returns the value of a header, whatever the case of its name.
fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = headers.iter().find(|(other, _)| is(other, name));
    found.map(|(_, value)| value.as_str())
}

/// Returns whether a header's name is this one, whatever its case.
pub fn is(name: &str, wanted: &str) -> bool {
    name.eq_ignore_ascii_case(wanted)
}

/// Returns the context that a message came with, if it has one that can be read.
pub fn incoming(headers: &[(String, String)]) -> Option<SpanContext> {
    SpanContext::parse(find(headers, TRACEPARENT)?.trim())
}

/// A recorded attempt: it goes along with its delivery.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// Span of the whole attempt.
    pub task: SpanContext,
    /// Span of the worker's part, which the worker receives.
    pub worker: SpanContext,
    /// Span that the message came from.
    pub parent: Option<SpanContext>,
    /// Span of the attempt before this one.
    pub earlier: Option<SpanContext>,
    /// The message's `tracestate`.
    pub state: Option<String>,
    /// Time at which the pool took the message.
    pub taken: Instant,
    /// The same time, by the wall clock.
    pub taken_at: SystemTime,
    /// True once its frame was put into a worker's pipe.
    pub was_given: bool,
    /// Time since which it was the worker's turn.
    pub begun: Option<Instant>,
    /// Time of the worker's answer.
    pub answered: Option<Instant>,
}

impl Recording {
    /// Creates the record of an attempt that begins now in that span.
    pub fn begin(
        task: SpanContext,
        headers: &[(String, String)],
        parent: Option<SpanContext>,
        earlier: Option<SpanContext>,
    ) -> Self {
        Self {
            task,
            worker: task.child(),
            parent,
            earlier,
            state: parent.and_then(|_| Some(find(headers, TRACESTATE)?.to_owned())),
            taken: Instant::now(),
            taken_at: SystemTime::now(),
            was_given: false,
            begun: None,
            answered: None,
        }
    }

    /// Converts a time to the wall clock.
    pub fn wall(&self, at: Instant) -> SystemTime {
        self.taken_at + at.saturating_duration_since(self.taken)
    }

    /// Puts the worker's span on a message published for this one, unless the worker has put one of
    /// its own there: anything else there was copied from the message.
    pub fn carry_on(&self, message: &[(String, String)], headers: &mut Vec<(String, String)>) {
        let there = find(headers, TRACEPARENT);
        if there.is_some() && there != find(message, TRACEPARENT) {
            return;
        }
        headers.retain(|(name, _)| !is(name, TRACEPARENT));
        headers.push((TRACEPARENT.into(), self.worker.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXAMPLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn reads_what_w3c_allows_and_nothing_else() {
        let context = SpanContext::parse(EXAMPLE).unwrap();
        let trace_id = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128;
        assert_eq!(context.trace_id, trace_id.to_be_bytes());
        assert_eq!(context.span_id, 0xb7ad_6b71_6920_3331_u64.to_be_bytes());
        assert!(context.is_sampled());
        let later = format!("cc{}-what-the-future-will-be-like", &EXAMPLE[2..]);
        assert_eq!(SpanContext::parse(&later), Some(context));
        for wrong in [
            "",
            "00",
            &EXAMPLE[..54],
            &format!("{EXAMPLE}0"),
            &format!("{EXAMPLE}-more"),
            &format!("cc{}.", &EXAMPLE[2..]),
            &EXAMPLE.to_uppercase(),
            &EXAMPLE.replacen("00", "ff", 1),
            &EXAMPLE.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &EXAMPLE.replace("b7ad6b7169203331", &"0".repeat(16)),
            &EXAMPLE.replace('-', "_"),
            &"ü".repeat(28),
        ] {
            assert_eq!(SpanContext::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_published_hangs_below_the_worker_unless_it_says_otherwise() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let message = vec![pair("Traceparent", EXAMPLE), pair("tracestate", "a=b")];
        let parent = incoming(&message).unwrap();
        let recording = Recording::begin(parent.child(), &message, Some(parent), None);
        assert_eq!(recording.state.as_deref(), Some("a=b"));
        let own = pair(TRACEPARENT, &recording.worker.to_string());
        for (before, after) in [
            (vec![], vec![own.clone()]),
            (message.clone(), vec![message[1].clone(), own.clone()]),
            (vec![own.clone()], vec![own.clone()]),
            (
                vec![pair("traceparent", "its own")],
                vec![pair("traceparent", "its own")],
            ),
        ] {
            let mut headers = before.clone();
            recording.carry_on(&message, &mut headers);
            assert_eq!(headers, after, "{before:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            trace_id in 1u128..,
            span_id in 1u64..,
            flags in any::<u8>(),
        ) {
            let (trace_id, span_id) = (trace_id.to_be_bytes(), span_id.to_be_bytes());
            let context = SpanContext { trace_id, span_id, flags };
            prop_assert_eq!(SpanContext::parse(context.write().as_str()), Some(context));
        }

        #[test]
        fn whatever_comes_is_read_without_a_panic(text in "\\PC{0,80}") {
            let read = SpanContext::parse(&text).map(|context| context.to_string());
            prop_assert!(read.is_none_or(|read| read.len() == TRACEPARENT_BYTES));
        }
    }
}
