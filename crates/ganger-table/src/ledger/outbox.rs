//! Messages that go to other sources, in the transactions of the ledger, and what is reported of them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::change::FENCE;
use super::recorded::{RECORD, RecordRow};
use super::reports::ReportedState;
use super::row::{OutboxCount, OutboxRow};
use super::sql::{InTransaction, LedgerSql};
use super::store::OutboxTransaction;
use super::values::SqlValue;
use crate::table::Fault;
use ganger_queue::delivery::{Outgoing, RecordedEnd};

/// Longest time for which a message is held. One that is held until later was held before the clock was set
/// back.
pub(super) const HELD_MAX: Duration = Duration::from_secs(600);

const SEND_OUT: &str = "
INSERT INTO schedule_outbox (occurrence, source, message) VALUES (?, ?, ?)";

const HOLD: &str = "
UPDATE schedule_outbox SET held_until = ? WHERE occurrence = ?";

const SENT_OUT: &str = "
DELETE FROM schedule_outbox WHERE occurrence = ?";

const PUBLISHED: &str = "
INSERT INTO occurrence_events (occurrence, at, from_state, to_state, attempt, note)
SELECT id, ?, state, state, attempt, ? FROM occurrences WHERE id = ?";

impl<S: LedgerSql> InTransaction<S> {
    /// Returns messages for that source that no daemon holds, and whose runs are not to be cancelled.
    fn free(&mut self, source: &str, most: u32) -> Result<Vec<OutboxRow>, Fault> {
        let now_ms = self.0.now_ms()?;
        let by = self.by("schedule_outbox_due");
        let free = format!(
            "SELECT occurrence, message FROM schedule_outbox{by}
             WHERE source = ? AND (held_until <= ? OR held_until > ?)
               AND NOT EXISTS (SELECT 1 FROM occurrences
                 WHERE id = occurrence AND cancel_request IS NOT NULL AND ended_at IS NULL)
             ORDER BY held_until, occurrence LIMIT ?"
        );
        let until = now_ms.saturating_add(millis(HELD_MAX));
        let values = [source.into(), now_ms.into(), until.into(), most.into()];
        let rows = self.0.query(&free, &values)?;
        let rows = rows.iter().map(|row| OutboxRow {
            occurrence: row.text(0).unwrap_or_default(),
            message: read(&row.text(1).unwrap_or_default()),
        });
        Ok(rows.collect())
    }
}

impl<S: LedgerSql> OutboxTransaction for InTransaction<S> {
    fn send_out(&mut self, messages: &[(String, Outgoing)]) -> Result<(), Fault> {
        let documents: Vec<String> = messages.iter().map(|(_, one)| written(one)).collect();
        let values = messages.iter().zip(&documents);
        let values = values.map(|((source, message), document)| {
            let occurrence = message.message_id.as_deref();
            vec![occurrence.into(), source.into(), document.into()]
        });
        self.0.each(SEND_OUT, &values.collect::<Vec<_>>()).map(drop)
    }

    fn has_outgoing(&mut self, source: &str) -> Result<bool, Fault> {
        Ok(!self.free(source, 1)?.is_empty())
    }

    fn take_out(
        &mut self,
        source: &str,
        most: u32,
        hold: Duration,
    ) -> Result<Vec<OutboxRow>, Fault> {
        let rows = self.free(source, most)?;
        let occurrences: Vec<String> = rows.iter().map(|row| row.occurrence.clone()).collect();
        self.hold_back(&occurrences, hold)?;
        Ok(rows)
    }

    fn hold_back(&mut self, occurrences: &[String], hold: Duration) -> Result<(), Fault> {
        let until = match hold.is_zero() {
            true => 0,
            false => self.0.now_ms()?.saturating_add(millis(hold.min(HELD_MAX))),
        };
        let values = occurrences.iter().map(|id| vec![until.into(), id.into()]);
        self.0.each(HOLD, &values.collect::<Vec<_>>()).map(drop)
    }

    fn sent_out(&mut self, occurrences: &[String], source: &str) -> Result<(), Fault> {
        let now_ms = self.0.now_ms()?;
        let ids = occurrences.iter().map(|id| vec![SqlValue::from(id)]);
        let removed = self.0.each(SENT_OUT, &ids.collect::<Vec<_>>())?;
        let note = format!("published to {source}");
        let removed = occurrences.iter().zip(removed);
        let removed = removed.filter(|(_, rows)| *rows > 0);
        let events = removed.map(|(id, _)| vec![now_ms.into(), (&note).into(), id.into()]);
        self.0
            .each(PUBLISHED, &events.collect::<Vec<_>>())
            .map(drop)
    }

    fn outgoing(&mut self) -> Result<Vec<OutboxCount>, Fault> {
        let by = self.by("schedule_outbox_due");
        let count = format!(
            "SELECT source, count(*), min(occurrence) FROM schedule_outbox{by} GROUP BY source"
        );
        let rows = self.0.query(&count, &[])?;
        let counts = rows.iter().map(|row| OutboxCount {
            source: row.text(0).unwrap_or_default(),
            messages: row.number(1).unwrap_or(0).max(0).unsigned_abs(),
            oldest: row.text(2).as_deref().and_then(made_at),
        });
        Ok(counts.collect())
    }

    fn record(&mut self, ends: &[RecordedEnd]) -> Result<(), Fault> {
        if ends.is_empty() {
            return Ok(());
        }
        let now_ms = self.0.now_ms()?;
        // Those that were tried before may be there: the answer to a commit can be lost.
        let tried = ends.iter().filter_map(|end| end.id.get());
        let tried: Vec<_> = tried.map(|id| vec![SqlValue::from(id)]).collect();
        self.0
            .each("DELETE FROM occurrences WHERE id = ?", &tried)?;
        let rows: Vec<_> = ends.iter().map(|end| RecordRow::new(end, now_ms)).collect();
        let values = rows.iter().map(RecordRow::values);
        self.0.each(RECORD, &values.collect::<Vec<_>>()).map(drop)
    }

    fn report(&mut self, states: &[ReportedState]) -> Result<(), Fault> {
        if states.is_empty() {
            return Ok(());
        }
        let now_ms = self.0.now_ms()?;
        let changes: Vec<_> = states.iter().map(ReportedState::change).collect();
        let fences = states.iter().zip(&changes);
        let fences = fences.map(|(state, change)| state.fence(change, now_ms));
        let fences: Vec<_> = fences.collect();
        let events = changes.iter().zip(&fences);
        let events = events.map(|(change, fence)| fenced(change.event(now_ms), fence));
        let events: Vec<_> = events.collect();
        let changed = changes.iter().zip(&fences);
        let changed = changed.map(|(change, fence)| fenced(change.change(now_ms), fence));
        self.change_where(FENCE, &events, &changed.collect::<Vec<_>>())
    }
}

fn fenced<'a>(values: Vec<SqlValue<'a>>, fence: &[i64; 4]) -> Vec<SqlValue<'a>> {
    let fence = fence.iter().map(|value| SqlValue::from(*value));
    values.into_iter().chain(fence).collect()
}

/// A message as the table holds it.
#[derive(Debug, Serialize, Deserialize)]
struct Document {
    queue: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    exchange: Option<String>,
    body: String,
    headers: BTreeMap<String, String>,
    correlation_id: String,
    message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default)]
    priority: i32,
}

fn written(message: &Outgoing) -> String {
    let document = Document {
        queue: message.queue.clone(),
        exchange: message.exchange.clone(),
        // The body of a schedule is text.
        body: String::from_utf8_lossy(&message.body).into_owned(),
        headers: message.headers.iter().cloned().collect(),
        correlation_id: message.correlation_id.clone(),
        message_id: message.message_id.clone(),
        content_type: message.content_type.clone(),
        key: message.key.clone(),
        priority: message.priority,
    };
    serde_json::json!(document).to_string()
}

fn read(document: &str) -> Result<Outgoing, String> {
    let document: Document = serde_json::from_str(document)
        .map_err(|error| format!("its message in schedule_outbox can't be read: {error}"))?;
    Ok(Outgoing {
        queue: document.queue,
        exchange: document.exchange,
        body: document.body.into(),
        headers: document.headers.into_iter().collect(),
        correlation_id: document.correlation_id,
        message_id: document.message_id,
        content_type: document.content_type,
        key: document.key,
        priority: document.priority,
        ..Outgoing::default()
    })
}

/// Returns the time at which the id of an occurrence was made.
fn made_at(id: &str) -> Option<SystemTime> {
    let (seconds, nanos) = Uuid::parse_str(id).ok()?.get_timestamp()?.to_unix();
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let message = Outgoing {
            queue: "daily".to_owned(),
            exchange: Some("events".to_owned()),
            body: "\u{0}\"ä".into(),
            headers: vec![("a".to_owned(), "1".to_owned())],
            correlation_id: "id".to_owned(),
            message_id: Some("id".to_owned()),
            content_type: Some("text/plain".to_owned()),
            key: Some("k".to_owned()),
            priority: 7,
            ..Outgoing::default()
        };
        assert_eq!(read(&written(&message)), Ok(message));
        let problem = read("{}").unwrap_err();
        assert!(problem.contains("missing field `queue`"), "{problem}");
    }
}
