//! Slots that an operator takes out before they are due, or runs after they have passed.

use axum::extract::State;
use axum::{Extension, Json};
use serde::Deserialize;

use super::answer::Problem;
use super::body::{JsonBody, JsonIfGiven};
use super::caller::Caller;
use super::context::Context;
use super::schedules::ScheduleName;
use ganger_queue::ledger::shown::{BackfillJson, SkippedJson};
use ganger_queue::ledger::{BackfillRequest, SkipRequest};

/// A slot to skip.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SkipSlot {
    /// The slot: `2027-01-31T08:00:00` by the zone of the schedule, or with `Z`, an offset or `[Europe/Berlin]` at its
    /// end; the next one if omitted.
    slot: Option<String>,
    /// Let the slot run after all; the first of those that are skipped if `slot` is omitted.
    #[serde(default)]
    undo: bool,
    /// Reason, which the record of changes shows.
    reason: Option<String>,
}

/// Skip a slot that is yet to come. When it would have been due, it is recorded as skipped, with the reason `operator`.
#[utoipa::path(post, path = "/v1/schedules/{name}/skip", tag = "schedules", operation_id = "skip_slot",
    params(("name" = String, Path, description = "The schedule")),
    request_body = Option<SkipSlot>,
    responses(
        (status = 200, description = "The slot is skipped", body = SkippedJson),
        (status = 400, description = "The reason is empty or too long, or has a NUL", body = Problem),
        (status = 404, description = "Unknown schedule", body = Problem),
        (status = 409, description = "The schedule is broken, or the daemon has no ledger", body = Problem),
        (status = 422, description = "There is no such slot, or it is decided already", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn skip(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    ScheduleName(name): ScheduleName,
    JsonIfGiven(SkipSlot { slot, undo, reason }): JsonIfGiven<SkipSlot>,
) -> Result<Json<SkippedJson>, Problem> {
    let named = name.clone();
    let request = SkipRequest {
        slot,
        is_undone: undo,
        reason,
    };
    let skip = context
        .ledger
        .by(&caller, move |ledger| ledger.skip(&named, &request));
    let skipped = skip.await?;
    let slot = &skipped.slot;
    tracing::info!(schedule = name, slot, undo, by = %caller, "slot skipped by an operator");
    Ok(Json(skipped))
}

/// A range of slots to run.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BackfillSchedule {
    /// First instant of the range: `2027-01-31T08:00:00` by the zone of the schedule, or with `Z`, an offset or
    /// `[Europe/Berlin]` at its end.
    from: String,
    /// Last instant of the range, which belongs to it, written as `from`.
    to: String,
    /// Only return the slots that would run.
    #[serde(default)]
    dry_run: bool,
    /// Reason, which the record of changes shows.
    reason: Option<String>,
}

/// Run the slots of a range of the past that have not run: those that were skipped, and those without an occurrence,
/// also if it was deleted or is older than `ledger.keep`. At most 1000 slots; their messages are sent at once, whatever
/// `overlap` is.
#[utoipa::path(post, path = "/v1/schedules/{name}/backfill", tag = "schedules", operation_id = "backfill_schedule",
    params(("name" = String, Path, description = "The schedule")),
    request_body = BackfillSchedule,
    responses(
        (status = 200, description = "The slots", body = BackfillJson),
        (status = 400, description = "The reason is empty or too long, or has a NUL", body = Problem),
        (status = 404, description = "Unknown schedule", body = Problem),
        (status = 409, description = "The schedule is broken, or the daemon has no ledger", body = Problem),
        (status = 422, description = "The range is invalid, not in the past, or has too many slots", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn backfill(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    ScheduleName(name): ScheduleName,
    JsonBody(wanted): JsonBody<BackfillSchedule>,
) -> Result<Json<BackfillJson>, Problem> {
    let BackfillSchedule {
        from,
        to,
        dry_run,
        reason,
    } = wanted;
    let (named, range) = (name.clone(), (from.clone(), to.clone()));
    let request = BackfillRequest {
        from,
        to,
        is_dry_run: dry_run,
        reason,
    };
    let backfill = context
        .ledger
        .by(&caller, move |ledger| ledger.backfill(&named, &request));
    let filled = backfill.await?;
    let slots = filled.slots.len();
    if !dry_run && slots > 0 {
        let (from, to) = range;
        tracing::info!(schedule = name, from, to, slots, by = %caller, "slots of the past run by an operator");
    }
    Ok(Json(filled))
}
