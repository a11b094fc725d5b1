//! Conversion of claimed rows to deliveries. Rows are read leniently, since any program may have written
//! them: only headers that are not a JSON object are an error. No statement is run here.

use std::sync::Arc;

use bytes::Bytes;
use tokio_postgres::{Error, Row};

use crate::table::{Claim, Claimed, headers};
use ganger_core::budget::Hold;
use ganger_core::trace_context::SpanContext;
use ganger_queue::attempts;
use ganger_queue::attempts::LAPSES_SUSPECT;
use ganger_queue::attempts::Limits;
use ganger_queue::dead_letter::Counters;
use ganger_queue::delivery::{Failure, History, Message, Property, Reason};

/// Returns a counter, clamped to its range.
pub(crate) fn count(value: i64) -> u32 {
    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
}

/// Returns a text column; none if it is NULL or empty.
pub(crate) fn text(row: &Row, column: &str) -> Result<Option<String>, Error> {
    let text: Option<String> = row.try_get(column)?;
    Ok(text.filter(|text| !text.is_empty()))
}

/// Returns a body, from the column that has it.
pub(crate) fn body(row: &Row, text: &str, bytes: &str) -> Result<Option<Bytes>, Error> {
    let text: Option<&str> = row.try_get(text)?;
    let bytes: Option<&[u8]> = row.try_get(bytes)?;
    let body = text.map(str::as_bytes).or(bytes);
    Ok(body.map(Bytes::copy_from_slice))
}

/// Returns the bytes of a row that count against the memory budget.
pub(super) fn size(row: &Row) -> Result<usize, Error> {
    let text: Option<&str> = row.try_get("body")?;
    let bytes: Option<&[u8]> = row.try_get("body_bytes")?;
    let headers: &str = row.try_get("headers")?;
    Ok(text.map_or(0, str::len) + bytes.map_or(0, <[u8]>::len) + headers.len())
}

/// Returns a row's claim.
pub(super) fn claim(row: &Row) -> Result<Claim, Error> {
    Ok(Claim {
        row: row.try_get("id")?,
        token: row.try_get("claim")?,
    })
}

/// Returns a row as a delivery, or the failure for which it is dead-lettered.
pub(super) fn read(
    row: &Row,
    hold: Hold,
    queue: &Arc<str>,
    limits: Limits,
) -> Result<Result<Claimed, Failure>, Error> {
    let (counters, lapses) = counts(row)?;
    if let Some(failure) = attempts::dead(counters.crashes, lapses, limits) {
        return Ok(Err(failure));
    }
    let headers = match headers::parse(row.try_get("headers")?) {
        Ok(headers) => headers,
        Err(error) => return Ok(Err(Failure::new(Reason::Undeliverable, error))),
    };
    let occurrence = headers::occurrence(&headers);
    let suspect = lapses >= LAPSES_SUSPECT;
    let runs_alone = suspect || row.try_get::<_, i16>("suspect")? != 0;
    let history = History {
        step: headers::step(&headers),
        attempts_max: headers::attempts_max(&headers),
        ..attempts::history(counters, runs_alone)
    };
    Ok(Ok(Claimed {
        claim: claim(row)?,
        suspect,
        hold,
        message: Message {
            queue: Arc::clone(queue),
            body: body(row, "body", "body_bytes")?.unwrap_or_default(),
            headers: headers::not_ours(headers),
            correlation_id: text(row, "correlation_id")?.unwrap_or_default(),
            reply_to: text(row, "reply_to")?,
            properties: properties(row, history.attempt)?,
            occurrence: None,
        },
        history,
        occurrence,
    }))
}

/// Returns the counters of a row before this claim, and the number of owners in a row that vanished over
/// it.
fn counts(row: &Row) -> Result<(Counters, u32), Error> {
    let number = |column| row.try_get::<_, i64>(column).map(count);
    let span: Option<&str> = row.try_get("span")?;
    let counters = Counters {
        attempts: number("attempts")?.saturating_sub(1),
        crashes: number("crashes")?,
        requeues: number("requeues")?,
        first_failed_ms: None,
        span: span.and_then(SpanContext::parse),
    };
    Ok((counters, number("lapses")?))
}

/// Returns the properties that workers of protocol version 2 get beside the message.
fn properties(row: &Row, attempt: u32) -> Result<Vec<(&'static str, Property)>, Error> {
    let priority: i32 = row.try_get("priority")?;
    let mut properties = vec![
        ("row_id", Property::Integer(row.try_get("id")?)),
        ("priority", Property::Integer(priority.into())),
        ("timestamp", Property::Integer(row.try_get("created_at")?)),
        ("redelivered", Property::Boolean(attempt > 1)),
    ];
    for name in ["message_id", "content_type", "key"] {
        if let Some(text) = text(row, name)? {
            properties.push((name, Property::Text(text)));
        }
    }
    Ok(properties)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_out_of_range_are_bounded() {
        assert_eq!((count(-5), count(7), count(1 << 40)), (0, 7, u32::MAX));
    }
}
