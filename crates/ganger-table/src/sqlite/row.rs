//! Conversion between rows and messages. Rows are read leniently, since any program may have written
//! them: only headers that are not a JSON object are an error. No statement is run here.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::types::{ToSqlOutput, ValueRef};

use crate::table::headers;
use ganger_core::trace_context::SpanContext;
use ganger_queue::dead_letter::header;
use ganger_queue::delivery::Headers;

/// Returns a body for storage: as text where possible, so that people can read and edit it.
pub(crate) fn body_value(body: &[u8]) -> ToSqlOutput<'_> {
    // Many clients end a text at a NUL.
    let text = !body.contains(&0) && std::str::from_utf8(body).is_ok();
    ToSqlOutput::Borrowed(if text {
        ValueRef::Text(body)
    } else {
        ValueRef::Blob(body)
    })
}

/// Returns a stored body, whatever its type.
pub(crate) fn body_bytes(value: ValueRef<'_>) -> Bytes {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Bytes::copy_from_slice(bytes),
        ValueRef::Integer(number) => number.to_string().into(),
        ValueRef::Real(number) => number.to_string().into(),
        ValueRef::Null => Bytes::new(),
    }
}

/// Returns the bytes that a value takes in memory, without copying it.
pub(crate) fn size(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
        ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Null => 8,
    }
}

/// Returns a text column; none if it is NULL or empty.
pub(crate) fn text(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            (!text.is_empty()).then(|| text.into_owned())
        }
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Null => None,
    }
}

/// Returns a counter, clamped to its range.
pub(crate) fn count(value: i64) -> u32 {
    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
}

/// Headers of a row.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct RowHeaders {
    /// Headers for a worker: each value in its text form, without ganger's own.
    pub(crate) headers: Headers,
    /// The span of the last attempt.
    pub(crate) span: Option<SpanContext>,
    /// Step of a long task.
    pub(crate) step: u32,
    /// Number of attempts that the message has; none for that of its pool.
    pub(crate) attempts_max: Option<u32>,
    /// Id of the occurrence in the ledger.
    pub(crate) occurrence: Option<Arc<str>>,
}

/// Reads the headers.
///
/// # Errors
/// A description of the problem, if they are no JSON object.
pub(crate) fn headers(value: ValueRef<'_>) -> Result<RowHeaders, String> {
    let headers = all_headers(value)?;
    let find = |name| headers.iter().find(|(other, _)| other == name);
    let span = find(header::SPAN).and_then(|(_, value)| SpanContext::parse(value));
    Ok(RowHeaders {
        span,
        step: headers::step(&headers),
        attempts_max: headers::attempts_max(&headers),
        occurrence: headers::occurrence(&headers),
        headers: headers::not_ours(headers),
    })
}

/// Returns the stored headers, including ganger's own.
pub(crate) fn all_headers(value: ValueRef<'_>) -> Result<Headers, String> {
    let json = match value {
        ValueRef::Text(b"{}") | ValueRef::Null => return Ok(Headers::new()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => String::from_utf8_lossy(bytes),
        ValueRef::Integer(_) | ValueRef::Real(_) => Cow::Borrowed("a number"),
    };
    headers::parse(&json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_other_types_are_told_or_none() {
        headers(ValueRef::Integer(7)).unwrap_err();
        assert_eq!(headers(ValueRef::Null).unwrap(), RowHeaders::default());
    }

    #[test]
    fn text_stays_text_and_bytes_stay_bytes() {
        let is_text = |body| matches!(body_value(body), ToSqlOutput::Borrowed(ValueRef::Text(_)));
        assert!(is_text("grüß".as_bytes()) && is_text(b""));
        assert!(!is_text(b"\xff") && !is_text(b"a\0b"));
        assert_eq!(body_bytes(ValueRef::Integer(42)), "42");
        assert_eq!(
            body_bytes(ValueRef::Text(b"\xff")),
            Bytes::from_static(b"\xff")
        );
    }

    #[test]
    fn counters_out_of_range_are_bounded() {
        assert_eq!((count(-5), count(7), count(1 << 40)), (0, 7, u32::MAX));
    }
}
