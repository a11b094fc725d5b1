//! Versions of schedules, and the record of what operators have changed.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::{Extension, Json};
use serde::Deserialize;

use super::answer::Problem;
use super::body::JsonBody;
use super::caller::Caller;
use super::context::Context;
use super::schedules::{ScheduleEntered, ScheduleName, limit};
use ganger_queue::ledger::shown::{AuditJson, VersionJson};
use ganger_queue::ledger::{AUDIT_MAX, AuditFilter, Entered};

/// Default number of changes.
const CHANGES: u32 = 100;

/// List the versions of a schedule that are kept, the newest first, also of one that was removed. At most 100 are kept.
#[utoipa::path(get, path = "/v1/schedules/{name}/versions", tag = "schedules", operation_id = "list_versions",
    params(("name" = String, Path, description = "The schedule")),
    responses(
        (status = 200, description = "The versions", body = Vec<VersionJson>),
        (status = 404, description = "Unknown schedule", body = Problem),
        (status = 409, description = "The daemon has no ledger", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn versions(
    State(context): State<Context>,
    ScheduleName(name): ScheduleName,
) -> Result<Json<Vec<VersionJson>>, Problem> {
    let versions = context.ledger.with(move |ledger| ledger.versions(&name));
    versions.await.map(Json)
}

/// Version to which a schedule is taken back.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RollBackSchedule {
    /// Number of the version.
    version: i64,
}

/// Enter the definition of an earlier version again, as a new one. A schedule of a configuration or of SQL can't be
/// rolled back.
#[utoipa::path(post, path = "/v1/schedules/{name}/rollback", tag = "schedules", operation_id = "roll_back_schedule",
    params(("name" = String, Path, description = "The schedule")),
    request_body = RollBackSchedule,
    responses(
        (status = 200, description = "The schedule has that definition", body = ScheduleEntered),
        (status = 404, description = "Unknown schedule", body = Problem),
        (status = 409, description = "The schedule is of a configuration or of SQL, or the daemon has no ledger", body = Problem),
        (status = 422, description = "There is no such version, or it would never run", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn roll_back(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    ScheduleName(name): ScheduleName,
    JsonBody(RollBackSchedule { version }): JsonBody<RollBackSchedule>,
) -> Result<Json<ScheduleEntered>, Problem> {
    let named = name.clone();
    let roll_back = context
        .ledger
        .by(&caller, move |ledger| ledger.roll_back(&named, version));
    let entered = roll_back.await?;
    if entered != Entered::Unchanged {
        tracing::info!(schedule = name, version, by = %caller, "schedule rolled back by an operator");
    }
    Ok(Json(ScheduleEntered::new(&name, entered)))
}

/// Choice of changes.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditQuery {
    /// Only changes of this schedule or occurrence, `*` for those of all schedules together, or of what a path names,
    /// such as `pools/work`, `dead/main` or `daemon`.
    subject: Option<String>,
    /// Only changes before the one with this number, the last one of the list before.
    before: Option<i64>,
    /// Maximum number of changes, 1 to 1000; 100 if omitted.
    limit: Option<u32>,
}

/// List what operators have changed, the newest first: schedules and occurrences, by commands and by requests, and all
/// else by requests, but messages sent. They are kept for `ledger.keep`.
#[utoipa::path(get, path = "/v1/audit", tag = "schedules", operation_id = "list_changes",
    params(AuditQuery),
    responses(
        (status = 200, description = "The changes", body = Vec<AuditJson>),
        (status = 400, description = "Invalid number", body = Problem),
        (status = 409, description = "The daemon has no ledger", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn audit(
    State(context): State<Context>,
    query: Result<Query<AuditQuery>, QueryRejection>,
) -> Result<Json<Vec<AuditJson>>, Problem> {
    let Query(AuditQuery {
        subject,
        before,
        limit: given,
    }) = query?;
    let filter = AuditFilter {
        subject,
        before,
        limit: limit(given, CHANGES, AUDIT_MAX)?,
    };
    let audit = context.ledger.with(move |ledger| ledger.audit(&filter));
    audit.await.map(Json)
}
