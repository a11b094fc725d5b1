//! Queries for lists of occurrences, and the rows of occurrences. A list that no single index has is of several parts.

use super::row::{Occurrence, OccurrenceFilter};
use super::values::{SqlRow, SqlValue};
use ganger_schedule::occurrence::OccurrenceState;

/// Query for occurrences, without a condition.
pub(super) const OCCURRENCE: &str = "
SELECT id, schedule, version, slot, last_slot, queue, state, reason, attempt, queued_at, started_at,
  ended_at, error, missed, result, source, message_id, cancel_request, resolved, progress, heard_at,
  log_lines, log_dropped, worker, trace_id, fingerprint, exit_code, \"signal\", correlation_id
FROM occurrences";

/// A query, and its values.
type ListQuery<'a> = (String, Vec<SqlValue<'a>>);

/// Source of the words that have a table read by an index.
type ByIndex<'a> = dyn Fn(&str) -> String + 'a;

/// Returns the queries for the parts of a list, each for the newest ones.
pub(super) fn queries<'a>(
    filter: &'a OccurrenceFilter,
    by_index: &ByIndex<'_>,
) -> Vec<ListQuery<'a>> {
    let states = match filter.is_unresolved && filter.state.is_none() {
        true => vec![
            Some(OccurrenceState::Failed),
            Some(OccurrenceState::TimedOut),
        ],
        false => vec![filter.state],
    };
    // The message of a run has its id for a correlation id; that of a record is stored.
    let correlated = match filter.correlation_id {
        Some(_) => vec!["correlation_id", "id"],
        None => vec![""],
    };
    let parts = states
        .iter()
        .flat_map(|state| correlated.iter().map(|column| (*state, *column)));
    parts.map(|part| query(filter, part, by_index)).collect()
}

/// Returns the query for a part of a list: occurrences in that state, if there is one, that have the correlation id in
/// that column.
fn query<'a>(
    filter: &'a OccurrenceFilter,
    (state, correlated): (Option<OccurrenceState>, &str),
    by_index: &ByIndex<'_>,
) -> ListQuery<'a> {
    let mut values = Vec::new();
    let mut conditions = Vec::new();
    let (mut by, mut order) = (String::new(), "id DESC");
    if let Some(state) = state {
        // In the text, since PostgreSQL knows how many are in a state only if it sees which.
        conditions.push(format!("state = {}", state.code()));
        // Most have completed; those in another state are found by indexes of theirs.
        if !state.is_end() {
            by = by_index("occurrences_open");
            conditions.push("ended_at IS NULL".to_owned());
            // In an order that no other index has.
            order = "coalesce(ended_at, 0), id DESC";
        } else if state == OccurrenceState::Completed {
            // A schedule has fewer runs than have completed.
            by = filter
                .schedule
                .as_ref()
                .map_or_else(String::new, |_| by_index("occurrences_of_schedule"));
        } else {
            by = by_index(match filter.schedule {
                Some(_) => "occurrences_of_schedule_not_completed",
                None => "occurrences_not_completed",
            });
            conditions.push("ended_at IS NOT NULL AND state <> 2".to_owned());
        }
    }
    if filter.is_unresolved {
        conditions.push("resolved IS NULL".to_owned());
    }
    for (column, value) in [
        ("schedule", &filter.schedule),
        ("fingerprint", &filter.fingerprint),
        (correlated, &filter.correlation_id),
    ] {
        if let Some(value) = value {
            conditions.push(format!("{column} = ?"));
            values.push(SqlValue::from(value));
        }
    }
    // An index of few occurrences goes before that of a state.
    if filter.fingerprint.is_some() {
        (by, order) = (by_index("occurrences_fingerprint"), "id DESC");
    }
    match correlated {
        "correlation_id" => (by, order) = (by_index("occurrences_correlation_id"), "id DESC"),
        "id" => {
            (by, order) = (String::new(), "id DESC");
            conditions.push("schedule <> ''".to_owned());
        }
        _ => {}
    }
    if let Some(before) = &filter.before {
        conditions.push("id < ?".to_owned());
        values.push(SqlValue::from(before));
    }
    let all = if conditions.is_empty() { "" } else { "WHERE " };
    let conditions = conditions.join(" AND ");
    values.push(filter.limit.into());
    let chosen = format!("{OCCURRENCE}{by} {all}{conditions} ORDER BY {order} LIMIT ?");
    (chosen, values)
}

/// Reads a row of [`OCCURRENCE`].
pub(super) fn occurrence(row: &SqlRow) -> Occurrence {
    Occurrence {
        id: row.name(0),
        schedule: row.name(1),
        version: row.number(2).unwrap_or(0),
        slot: row.maybe_time(3),
        last_slot: row.maybe_time(4),
        queue: row.name(5),
        state: row.state(6),
        reason: row.text(7),
        attempt: row.small(8),
        queued_at: row.time(9),
        started_at: row.maybe_time(10),
        ended_at: row.maybe_time(11),
        error: row.text(12),
        missed: row.count(13),
        result: row.text(14),
        source: row.text(15),
        message_id: row.text(16),
        cancel_request: row.text(17),
        resolved: row.text(18),
        progress: row.text(19),
        heard_at: row.maybe_time(20),
        log_lines: row.count(21),
        log_dropped: row.count(22),
        worker: row.text(23),
        trace_id: row.text(24),
        fingerprint: row.text(25),
        exit_code: row.number(26),
        signal: row.number(27),
        correlation_id: row.text(28),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the indexes by which the parts of a list are read.
    fn indexes(filter: &OccurrenceFilter) -> Vec<String> {
        let by = |index: &str| format!(" BY {index}");
        let queries = queries(filter, &by).into_iter();
        let index = |(text, _): (String, _)| {
            let by = text.split_once(" BY ");
            let index = by.and_then(|(_, rest)| rest.split_whitespace().next());
            index.unwrap_or_default().to_owned()
        };
        queries.map(index).collect()
    }

    #[test]
    fn the_index_with_the_fewest_occurrences_is_read() {
        let of = |schedule: Option<&str>, state| OccurrenceFilter {
            schedule: schedule.map(str::to_owned),
            state,
            ..OccurrenceFilter::default()
        };
        let failed = Some(OccurrenceState::Failed);
        assert_eq!(indexes(&of(None, failed)), ["occurrences_not_completed"]);
        assert_eq!(
            indexes(&of(Some("s"), failed)),
            ["occurrences_of_schedule_not_completed"]
        );
        let completed = Some(OccurrenceState::Completed);
        assert_eq!(
            indexes(&of(Some("s"), completed)),
            ["occurrences_of_schedule"]
        );
        let running = Some(OccurrenceState::Running);
        assert_eq!(indexes(&of(Some("s"), running)), ["occurrences_open"]);
        let unresolved = OccurrenceFilter {
            is_unresolved: true,
            ..of(Some("s"), None)
        };
        assert_eq!(
            indexes(&unresolved),
            ["occurrences_of_schedule_not_completed"; 2]
        );
    }
}
