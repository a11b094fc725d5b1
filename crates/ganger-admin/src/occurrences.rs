//! Occurrences of schedules: list them, and wait for the end of one.

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::{Deserialize, Serialize};

use super::answer::Problem;
use super::at_ledger::no_occurrence;
use super::context::Context;
use super::messages::wait;
use super::schedules::limit;
use ganger_queue::ledger::shown::{OccurrenceDetailsJson, OccurrenceEventJson, OccurrenceJson};
use ganger_queue::ledger::{OccurrenceFilter, place_in_list, some_occurrences};
use ganger_schedule::occurrence::OccurrenceState;

/// Maximum and default number of occurrences in a list.
pub(super) const OCCURRENCES_MAX: u32 = 1000;
const OCCURRENCES: u32 = 100;

/// Choice of occurrences to list.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OccurrencesQuery {
    /// Only occurrences of this schedule.
    schedule: Option<String>,
    /// Only occurrences in this state, such as `running` or `failed`.
    state: Option<String>,
    /// Only failures and timeouts that nobody has resolved.
    #[serde(default)]
    unresolved: bool,
    /// Only occurrences whose last error has this fingerprint.
    fingerprint: Option<String>,
    /// Only occurrences whose messages have this correlation id.
    correlation_id: Option<String>,
    /// Only the occurrence of this message, or the last if there are several.
    message_id: Option<String>,
    /// Maximum number of occurrences, 1 to 1000; 100 if omitted.
    limit: Option<u32>,
    /// Only occurrences after this place, the `cursor` of the list before.
    cursor: Option<String>,
}

/// A list of occurrences.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(super) struct Occurrences {
    /// The occurrences, the newest first.
    pub(super) occurrences: Vec<OccurrenceJson>,
    /// The place at which the list goes on; none at its end.
    pub(super) cursor: Option<String>,
}

impl OccurrencesQuery {
    fn filter(self) -> Result<OccurrenceFilter, Problem> {
        let state = self.state.map(|state| state.parse::<OccurrenceState>());
        let state = state.transpose();
        let state = state.map_err(|problem| Problem::bad(problem.under("state").to_string()))?;
        self.cursor.as_deref().map(place_in_list).transpose()?;
        if self.unresolved && state.is_some() {
            return Err(Problem::bad("either state or unresolved, not both"));
        }
        Ok(OccurrenceFilter {
            schedule: self.schedule,
            state,
            is_unresolved: self.unresolved,
            fingerprint: self.fingerprint,
            correlation_id: self.correlation_id,
            before: self.cursor,
            limit: limit(self.limit, OCCURRENCES, OCCURRENCES_MAX)?,
        })
    }
}

/// List occurrences, the newest first.
#[utoipa::path(get, path = "/v1/occurrences", tag = "schedules", operation_id = "list_occurrences",
    params(OccurrencesQuery),
    responses(
        (status = 200, description = "The occurrences", body = Occurrences),
        (status = 400, description = "Invalid state, limit or cursor", body = Problem),
        (status = 404, description = "There is neither an occurrence nor a schedule of that name", body = Problem),
        (status = 409, description = "The daemon has no ledger", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn list(
    State(context): State<Context>,
    query: Result<Query<OccurrencesQuery>, QueryRejection>,
) -> Result<Json<Occurrences>, Problem> {
    let Query(mut query) = query?;
    let message_id = query.message_id.take();
    let filter = query.filter()?;
    let list = context.ledger.with(move |ledger| {
        let (occurrences, has_more) = match message_id {
            None => some_occurrences(ledger, &filter)?,
            Some(id) => {
                let found = ledger.occurrence(&id)?.map(|found| found.occurrence);
                (
                    found.filter(|one| fits(one, &filter)).into_iter().collect(),
                    false,
                )
            }
        };
        let last = occurrences.last().filter(|_| has_more);
        Ok(Occurrences {
            cursor: last.map(|last| last.id.clone()),
            occurrences,
        })
    });
    list.await.map(Json)
}

fn fits(one: &OccurrenceJson, filter: &OccurrenceFilter) -> bool {
    let is = |wanted: &Option<String>, value: &Option<String>| wanted.is_none() || wanted == value;
    let is_in = |state: OccurrenceState| state.as_str() == one.state;
    let is_before = |cursor: &String| one.id < *cursor;
    let is_failure = ["failed", "timed_out"].contains(&one.state.as_str());
    let is_unresolved = is_failure && one.resolved.is_none();
    is(&filter.schedule, &one.schedule)
        && is(&filter.fingerprint, &one.fingerprint)
        && is(&filter.correlation_id, &one.correlation_id)
        && (is_unresolved || !filter.is_unresolved)
        && filter.state.is_none_or(is_in)
        && filter.before.as_ref().is_none_or(is_before)
}

/// Time to wait.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OccurrenceQuery {
    /// Time to wait for its end, such as `30s`; at most five minutes.
    wait: Option<String>,
}

/// Get an occurrence with the changes of its state. With `wait` the answer comes once it has ended, or with its state at
/// the end of that time: `ended_at` tells which. An occurrence that is not there is waited for as well, since that of a
/// message of no schedule is recorded when the message ends.
#[utoipa::path(get, path = "/v1/occurrences/{id}", tag = "schedules", operation_id = "show_occurrence",
    params(("id" = String, Path, description = "The id of the occurrence, or of its message"), OccurrenceQuery),
    responses(
        (status = 200, description = "The occurrence", body = OccurrenceDetailsJson),
        (status = 400, description = "Invalid time to wait", body = Problem),
        (status = 404, description = "Unknown occurrence", body = Problem),
        (status = 409, description = "The daemon has no ledger", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn show(
    State(context): State<Context>,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<OccurrenceQuery>, QueryRejection>,
) -> Result<Json<OccurrenceDetailsJson>, Problem> {
    let (Path(id), Query(query)) = (id?, query?);
    let wait = query.wait.as_deref().map(wait).transpose()?;
    let mut found = read(&context, &id).await?;
    let has_ended = |found: &OccurrenceDetailsJson| found.occurrence.ended_at.is_some();
    if let Some(wait) = wait
        && !found.as_ref().is_some_and(has_ended)
    {
        let ended = context.waits.end_of(&context.ledger, &id, wait).await?;
        found = match ended {
            Some(ended) => Some(ended),
            None => read(&context, &id).await?,
        };
    }
    found.map(Json).ok_or_else(|| no_occurrence(&id))
}

/// Get the changes of the state of an occurrence, the oldest first.
#[utoipa::path(get, path = "/v1/occurrences/{id}/events", tag = "schedules", operation_id = "occurrence_events",
    params(("id" = String, Path, description = "The id of the occurrence, or of its message")),
    responses(
        (status = 200, description = "The changes", body = Vec<OccurrenceEventJson>),
        (status = 404, description = "Unknown occurrence", body = Problem),
        (status = 409, description = "The daemon has no ledger", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn events(
    State(context): State<Context>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Vec<OccurrenceEventJson>>, Problem> {
    let Path(id) = id?;
    let found = read(&context, &id).await?;
    let events = found.map(|found| Json(found.events));
    events.ok_or_else(|| no_occurrence(&id))
}

async fn read(context: &Context, id: &str) -> Result<Option<OccurrenceDetailsJson>, Problem> {
    let wanted = id.to_owned();
    let read = context
        .ledger
        .with(move |ledger| ledger.occurrence(&wanted));
    read.await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_an_id() {
        let query = |cursor: &str, state: &str| OccurrencesQuery {
            cursor: Some(cursor.to_owned()),
            state: Some(state.to_owned()),
            ..OccurrencesQuery::default()
        };
        let id = "0193d5a2-7c1e-7abc-8def-0123456789ab";
        let filter = query(id, "timed_out").filter().unwrap();
        assert_eq!(filter.before.as_deref(), Some(id));
        assert_eq!(filter.state, Some(OccurrenceState::TimedOut));
        assert!(query("1", "failed").filter().is_err());
        assert!(query(id, "done").filter().is_err());
    }
}
