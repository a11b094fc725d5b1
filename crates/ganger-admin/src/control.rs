//! Operations on single runs: cancel, send back, resolve.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};

use super::answer::{Done, Problem};
use super::body::{JsonBody, JsonIfGiven};
use super::caller::Caller;
use super::context::Context;
use ganger_queue::ledger::Cancelled;

/// Reason to cancel a run.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelOccurrence {
    /// Reason, which the history of the occurrence shows.
    reason: Option<String>,
}

/// Result of cancelling a run.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = OccurrenceCancelled)]
pub(super) struct CancelledJson {
    /// Id of the occurrence.
    occurrence: String,
    /// True if it has ended; false if the daemon that has its message is asked to cancel it.
    ended: bool,
}

/// Cancel a run: at once while it waits; if a worker has its message, the worker is asked to stop, and killed if it
/// has not answered within `timeout_grace`. `GET …?wait` tells when it has ended.
#[utoipa::path(post, path = "/v1/occurrences/{id}/cancel", tag = "schedules", operation_id = "cancel_occurrence",
    params(("id" = String, Path, description = "The id of the occurrence")),
    request_body = Option<CancelOccurrence>,
    responses(
        (status = 200, description = "It is cancelled, or is being cancelled", body = CancelledJson),
        (status = 400, description = "The reason is empty or too long, or has a NUL", body = Problem),
        (status = 404, description = "Unknown occurrence", body = Problem),
        (status = 409, description = "It has ended already, or the daemon has no ledger", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn cancel(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    id: Result<Path<String>, PathRejection>,
    JsonIfGiven(wanted): JsonIfGiven<CancelOccurrence>,
) -> Result<Json<CancelledJson>, Problem> {
    let Path(occurrence) = id?;
    let (id, reason) = (occurrence.clone(), wanted.reason.clone());
    let cancel = context
        .ledger
        .by(&caller, move |ledger| ledger.cancel(&id, reason.as_deref()));
    let ended = cancel.await? == Cancelled::Ended;
    let reason = wanted.reason;
    tracing::info!(occurrence, reason, ended, by = %caller, "run cancelled by an operator");
    Ok(Json(CancelledJson { occurrence, ended }))
}

/// Change of what is sent back.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RetryOccurrence {
    /// Send this body instead.
    body: Option<String>,
}

/// Send the dead letter of a run back that failed, timed out or was cancelled: the run goes on.
#[utoipa::path(post, path = "/v1/occurrences/{id}/retry", tag = "schedules", operation_id = "retry_occurrence",
    params(("id" = String, Path, description = "The id of the occurrence")),
    request_body = Option<RetryOccurrence>,
    responses(
        (status = 200, description = "Its message is in its queue again", body = Done),
        (status = 404, description = "Unknown occurrence", body = Problem),
        (status = 409, description = "It has not failed, its dead letter is gone, or the daemon has no ledger", body = Problem),
        (status = 503, description = "The ledger or the source can't be used now", body = Problem),
    ),
)]
pub(super) async fn retry(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    id: Result<Path<String>, PathRejection>,
    JsonIfGiven(RetryOccurrence { body }): JsonIfGiven<RetryOccurrence>,
) -> Result<Json<Done>, Problem> {
    let Path(occurrence) = id?;
    let (config, open) = (context.ledger.config()?, context.ledger.open);
    let (sources, id, actor) = (context.sources(), occurrence.clone(), caller.to_string());
    let retry = move || {
        let mut connect = |name: &str| sources.connect(name);
        let mut ledger = open(&config)?;
        ledger.set_actor(&actor);
        let retried = ledger.retry(&id, body.as_deref(), &mut connect);
        retried.map_err(Problem::from)
    };
    context.at_broker(retry).await?;
    tracing::info!(occurrence, by = %caller, "run sent back by an operator");
    Ok(Done::json(format!(
        "occurrence `{occurrence}` is sent back"
    )))
}

/// A note on a failure.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResolveOccurrence {
    /// The cause, or the remedy.
    note: String,
}

/// Store a note on a run that failed or timed out. It is no longer listed with `unresolved`.
#[utoipa::path(post, path = "/v1/occurrences/{id}/resolve", tag = "schedules", operation_id = "resolve_occurrence",
    params(("id" = String, Path, description = "The id of the occurrence")),
    request_body = ResolveOccurrence,
    responses(
        (status = 200, description = "The note is stored", body = Done),
        (status = 400, description = "The note is empty or too long, or has a NUL", body = Problem),
        (status = 404, description = "Unknown occurrence", body = Problem),
        (status = 409, description = "It has not failed, or the daemon has no ledger", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn resolve(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    id: Result<Path<String>, PathRejection>,
    JsonBody(ResolveOccurrence { note }): JsonBody<ResolveOccurrence>,
) -> Result<Json<Done>, Problem> {
    let Path(occurrence) = id?;
    let (id, text) = (occurrence.clone(), note.clone());
    let resolve = context
        .ledger
        .by(&caller, move |ledger| ledger.resolve(&id, &text));
    resolve.await?;
    tracing::info!(occurrence, note, by = %caller, "failure resolved by an operator");
    Ok(Done::json(format!("occurrence `{occurrence}` is resolved")))
}

/// Delete an occurrence that has ended, with its events and its log. Its slot runs again only in a backfill.
#[utoipa::path(delete, path = "/v1/occurrences/{id}", tag = "schedules", operation_id = "delete_occurrence",
    params(("id" = String, Path, description = "The id of the occurrence")),
    responses(
        (status = 200, description = "It is deleted", body = Done),
        (status = 404, description = "Unknown occurrence", body = Problem),
        (status = 409, description = "It has not ended, or the daemon has no ledger", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn delete(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Done>, Problem> {
    let Path(occurrence) = id?;
    let id = occurrence.clone();
    let delete = context.ledger.by(&caller, move |ledger| ledger.delete(&id));
    delete.await?;
    tracing::info!(occurrence, by = %caller, "occurrence deleted by an operator");
    Ok(Done::json(format!("occurrence `{occurrence}` is deleted")))
}

impl CancelledJson {
    /// Returns the result that it tells of.
    pub(super) fn result(&self) -> Cancelled {
        match self.ended {
            true => Cancelled::Ended,
            false => Cancelled::Requested,
        }
    }
}
