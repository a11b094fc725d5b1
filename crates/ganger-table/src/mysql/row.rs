//! Conversion of claimed rows to deliveries. Rows are read leniently, since any program may have written
//! them: only headers that are not a JSON object are an error. No statement is run here.

use std::sync::Arc;

use mysql_async::prelude::{ColumnIndex, FromValue};

use super::error::CallError;
use crate::ledger::values::SqlCell;
use crate::table::{Claim, Claimed, headers};
use ganger_core::budget::Hold;
use ganger_core::trace_context::SpanContext;
use ganger_queue::attempts;
use ganger_queue::attempts::LAPSES_SUSPECT;
use ganger_queue::attempts::Limits;
use ganger_queue::dead_letter::Counters;
use ganger_queue::delivery::{Failure, History, Message, Property, Reason};

/// A row of a result.
#[derive(Debug)]
pub(crate) struct Row(mysql_async::Row);

impl From<mysql_async::Row> for Row {
    fn from(row: mysql_async::Row) -> Self {
        Self(row)
    }
}

impl Row {
    /// Returns a column's value.
    pub(crate) fn get<T: FromValue>(&self, column: impl ColumnIndex) -> Result<T, CallError> {
        found(self.0.get_opt(column))
    }

    /// Moves a column's value out, without a copy; it can't be read again.
    pub(crate) fn take<T: FromValue>(&mut self, column: impl ColumnIndex) -> Result<T, CallError> {
        found(self.0.take_opt(column))
    }

    /// Returns the values of all columns, whatever they hold.
    pub(super) fn cells(&self) -> Result<Vec<SqlCell>, CallError> {
        let columns = self.0.columns_ref().iter().enumerate();
        let cells = columns.map(|(at, column)| {
            if column.column_type().is_numeric_type() {
                let number: Option<i64> = self.get(at)?;
                return Ok(number.map_or(SqlCell::Null, SqlCell::Number));
            }
            let text: Option<Vec<u8>> = self.get(at)?;
            let text = text.map(|text| String::from_utf8_lossy(&text).into_owned());
            Ok(text.map_or(SqlCell::Null, SqlCell::Text))
        });
        cells.collect()
    }

    /// Returns a text column; none if it is NULL or empty.
    pub(crate) fn text(&self, column: &str) -> Result<Option<String>, CallError> {
        let text: Option<String> = self.get(column)?;
        Ok(text.filter(|text| !text.is_empty()))
    }
}

fn found<T>(value: Option<Result<T, mysql_async::FromValueError>>) -> Result<T, CallError> {
    match value {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => Err(CallError::Unexpected(error.to_string())),
        None => Err(CallError::Unexpected("too few columns".to_owned())),
    }
}

/// Returns a counter, clamped to its range.
pub(crate) fn count(value: i64) -> u32 {
    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
}

/// Returns a row as a delivery without its body, or the failure for which it is dead-lettered.
pub(super) fn read(
    row: &mut Row,
    claim: Claim,
    hold: Hold,
    queue: &Arc<str>,
    limits: Limits,
) -> Result<Result<Claimed, Failure>, CallError> {
    let (counters, lapses) = counts(row)?;
    if let Some(failure) = attempts::dead(counters.crashes, lapses, limits) {
        return Ok(Err(failure));
    }
    let headers = match headers::parse(&row.get::<String>("headers")?) {
        Ok(headers) => headers,
        Err(error) => return Ok(Err(Failure::new(Reason::Undeliverable, error))),
    };
    let occurrence = headers::occurrence(&headers);
    let suspect = lapses >= LAPSES_SUSPECT;
    let runs_alone = suspect || row.get::<i64>("suspect")? != 0;
    let history = History {
        step: headers::step(&headers),
        attempts_max: headers::attempts_max(&headers),
        ..attempts::history(counters, runs_alone)
    };
    Ok(Ok(Claimed {
        claim,
        suspect,
        hold,
        message: Message {
            queue: Arc::clone(queue),
            body: bytes::Bytes::new(),
            headers: headers::not_ours(headers),
            correlation_id: row.text("correlation_id")?.unwrap_or_default(),
            reply_to: row.text("reply_to")?,
            properties: properties(row, claim.row, history.attempt)?,
            occurrence: None,
        },
        history,
        occurrence,
    }))
}

/// Returns the counters of a row before this claim, and the number of owners in a row that vanished over
/// it.
fn counts(row: &Row) -> Result<(Counters, u32), CallError> {
    let number = |column| row.get::<i64>(column).map(count);
    let span: Option<String> = row.get("span")?;
    let counters = Counters {
        attempts: number("attempts")?.min(u32::MAX - 1),
        crashes: number("crashes")?,
        requeues: number("requeues")?,
        first_failed_ms: None,
        span: span.as_deref().and_then(SpanContext::parse),
    };
    Ok((counters, number("lapses")?))
}

/// Returns the properties that workers of protocol version 2 get beside the message.
fn properties(
    row: &Row,
    id: i64,
    attempt: u32,
) -> Result<Vec<(&'static str, Property)>, CallError> {
    let mut properties = vec![
        ("row_id", Property::Integer(id)),
        ("priority", Property::Integer(row.get("priority")?)),
        ("timestamp", Property::Integer(row.get("created_at")?)),
        ("redelivered", Property::Boolean(attempt > 1)),
    ];
    for name in ["message_id", "content_type", "key"] {
        if let Some(text) = row.text(name)? {
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
