//! Endpoints for monitoring systems: liveness, readiness, metrics.

use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};

use super::answer::Problem;
use super::caller::Caller;
use super::context::Context;
use crate::exposition::process::Processes;
use crate::exposition::{families, prometheus};

/// Maximum time that a message may wait without a note, if no alerts are configured.
const WAITING: Duration = Duration::from_secs(3600);

/// Health of the daemon.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub(super) struct Health {
    /// True if the daemon is healthy.
    ok: bool,
    /// The problems, a sentence each.
    reasons: Vec<String>,
    /// Notes that do not affect the health, a sentence each: pools in whose queues a message has waited
    /// longer than `alerts.waiting`, or an hour without `[alerts]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

impl Health {
    fn answer(reasons: Vec<String>, notes: Vec<String>) -> Response {
        let ok = reasons.is_empty();
        let status = match ok {
            true => StatusCode::OK,
            false => StatusCode::SERVICE_UNAVAILABLE,
        };
        (status, Json(Self { ok, reasons, notes })).into_response()
    }
}

/// Check liveness: whether every thread is responsive. If not, only a restart helps. Names are included for
/// clients that may see the status.
#[utoipa::path(get, path = "/livez", tag = "health", responses(
    (status = 200, description = "Live", body = Health),
    (status = 503, description = "A thread is stalled", body = Health),
))]
pub(super) async fn livez(
    State(context): State<Context>,
    caller: Option<Extension<Caller>>,
) -> Response {
    let stalled = context.daemon.overview.stalled();
    let reasons = match (caller, stalled.len()) {
        (Some(_), _) | (_, 0) => stalled,
        (None, count) => vec![format!("stalled threads: {count}")],
    };
    Health::answer(reasons, Vec::new())
}

/// Check readiness: whether every pool can work. If not, the reasons are given. Pools are named for clients
/// that may see the status.
#[utoipa::path(get, path = "/readyz", tag = "health", responses(
    (status = 200, description = "Ready", body = Health),
    (status = 503, description = "Not ready, with the reasons", body = Health),
))]
pub(super) async fn readyz(
    State(context): State<Context>,
    caller: Option<Extension<Caller>>,
) -> Response {
    let overview = &context.daemon.overview;
    let (status, config) = (overview.status(), overview.config());
    let alerts = config.alerts.as_ref();
    let limit = alerts.map_or(Some(WAITING), |alerts| alerts.waiting);
    let notes = limit.map_or_else(Vec::new, |limit| status.waits_long(limit));
    match (caller, notes.len()) {
        (Some(_), _) => Health::answer(status.not_ready(), notes),
        (None, 0) => Health::answer(status.not_ready_unnamed(), notes),
        (None, behind) => {
            let notes = vec![format!("pools that are behind: {behind}")];
            Health::answer(status.not_ready_unnamed(), notes)
        }
    }
}

/// Get all metrics, in the Prometheus text format.
#[utoipa::path(get, path = "/metrics", tag = "health", responses(
    (status = 200, description = "The metrics", content_type = "text/plain", body = String),
    (status = 404, description = "`telemetry.prometheus` is false", body = Problem),
))]
pub(super) async fn metrics(State(context): State<Context>) -> Response {
    if !context.telemetry.prometheus {
        let why = "`telemetry.prometheus` is false in the configuration";
        return Problem::new(StatusCode::NOT_FOUND, why).into_response();
    }
    let status = context.daemon.overview.status_now().await;
    let processes = Processes::look(&status);
    let families = families(&status, &processes, context.telemetry.seed_names);
    let text = prometheus::text(&families);
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], text).into_response()
}
