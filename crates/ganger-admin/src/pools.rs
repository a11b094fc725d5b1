//! Pools: their status and their commands.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::answer::Problem;
use super::body::JsonBody;
use super::context::Context;
use super::daemons::DaemonJson;
use super::trends::TrendsOfPools;
use ganger_core::host;
use ganger_pool::Steer;
use ganger_pool::overview::{Status, measure};
use ganger_pool::status::PoolStatus;
use ganger_pool::worker::output::LastLines;

/// Timeout of a command to a pool, which still carries it out later.
pub(super) const DONE_WITHIN: Duration = Duration::from_secs(5);

pub(super) type PathName = Result<Path<String>, PathRejection>;
pub(super) type SteerResult = Result<Json<Steered>, Problem>;

/// Result of a command to a pool.
#[derive(Debug, Clone, Default, Serialize, utoipa::ToSchema)]
pub(super) struct Steered {
    /// The result in a sentence.
    pub(super) done: String,
    /// The pool.
    pub(super) pool: String,
    /// Target number of workers; absent for the configured number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) workers: Option<usize>,
    /// Slot of the worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) slot: Option<usize>,
    /// Number of daemons on which the command acts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) daemons: Option<u64>,
    /// Number of daemons that work on the pool's table, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) daemons_of_table: Option<u64>,
    /// True if the state survives a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outlasts_restart: Option<bool>,
    /// Number of the rolling restart that the command has started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) roll: Option<u64>,
}

/// Choice of what a status has.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct StatusQuery {
    /// False to leave out the memory and the processor time of workers, which take a while to be read if there are
    /// hundreds; true if omitted.
    usage: Option<bool>,
}

/// Get the status of the daemon and its pools.
#[utoipa::path(get, path = "/v1/status", tag = "status", params(StatusQuery), responses(
    (status = 200, description = "The status", body = Status),
    (status = 400, description = "Unknown field", body = Problem),
))]
pub(super) async fn status(
    State(context): State<Context>,
    query: Result<Query<StatusQuery>, QueryRejection>,
) -> Result<Json<Status>, Problem> {
    let overview = &context.daemon.overview;
    Ok(Json(match query?.usage {
        Some(false) => overview.status_now().await,
        Some(true) | None => overview.status_measured().await,
    }))
}

/// Get figures of the pools over the last hour, in samples of ten seconds.
#[utoipa::path(get, path = "/v1/trends", tag = "status", responses(
    (status = 200, description = "The figures", body = TrendsOfPools),
))]
pub(super) async fn trends(State(context): State<Context>) -> Json<TrendsOfPools> {
    Json(context.trends.all())
}

/// Get the status of this daemon and of those in `admin.peers`, which are asked at once, each for at most a second. One
/// that does not answer is shown as it was when it last did.
#[utoipa::path(get, path = "/v1/daemons", tag = "status", responses(
    (status = 200, description = "The daemons, this one first", body = Vec<DaemonJson>),
))]
pub(super) async fn daemons(State(context): State<Context>) -> Json<Vec<DaemonJson>> {
    let config = context.daemon.overview.config();
    let others = context.peers.ask(&config.admin.peers).await;
    let this = DaemonJson {
        name: host::name(),
        url: None,
        status: Some(context.daemon.overview.status_now().await),
        age_seconds: Some(0.0),
        problem: None,
    };
    Json([vec![this], others].concat())
}

/// Get the status of all pools.
#[utoipa::path(get, path = "/v1/pools", tag = "pools", responses(
    (status = 200, description = "The pools, by name", body = Vec<PoolStatus>),
))]
pub(super) async fn all(State(context): State<Context>) -> Json<Vec<PoolStatus>> {
    Json(context.daemon.overview.status_measured().await.pools)
}

/// Get the status of one pool.
#[utoipa::path(get, path = "/v1/pools/{name}", tag = "pools",
    params(("name" = String, Path, description = "The pool")),
    responses(
        (status = 200, description = "The pool", body = PoolStatus),
        (status = 404, description = "Unknown pool", body = Problem),
    ),
)]
pub(super) async fn one(
    State(context): State<Context>,
    name: PathName,
) -> Result<Json<PoolStatus>, Problem> {
    let Path(name) = name?;
    let mut pools = context.daemon.overview.status_now().await.pools;
    let Some(at) = pools.iter().position(|pool| pool.name == name) else {
        let known: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
        return Err(unknown(&name, &known));
    };
    let mut pool = pools.swap_remove(at);
    measure(&mut pool);
    Ok(Json(pool))
}

/// Returns the problem of an unknown pool.
pub(super) fn unknown(name: &str, known: &[&str]) -> Problem {
    let known = known.join(", ");
    let why = format!("there is no pool `{name}`; the pools are: {known}");
    Problem::new(StatusCode::NOT_FOUND, why)
}

/// Target number of workers of a pool.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Scale {
    /// Number of workers, or `null` for the configured number.
    #[serde(deserialize_with = "given")]
    workers: Option<usize>,
}

/// Reads a field that must be present, though it may be null.
fn given<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<usize>, D::Error> {
    Option::deserialize(d)
}

/// Set the number of workers of a pool. It holds until it is reset, until the configured number changes, or
/// until the daemon ends.
#[utoipa::path(post, path = "/v1/pools/{name}/scale", tag = "pools",
    params(("name" = String, Path, description = "The pool")),
    request_body = Scale,
    responses(
        (status = 200, description = "The target is set", body = Steered),
        (status = 404, description = "Unknown pool", body = Problem),
        (status = 409, description = "The pool is stopping", body = Problem),
    ),
)]
pub(super) async fn scale(
    State(context): State<Context>,
    name: PathName,
    JsonBody(Scale { workers }): JsonBody<Scale>,
) -> SteerResult {
    let done = match workers {
        Some(1) => "target set to 1 worker".to_owned(),
        Some(workers) => format!("target set to {workers} workers"),
        None => "target set to the configured number of workers".to_owned(),
    };
    let steered = Steered {
        workers,
        ..Steered::default()
    };
    steer(&context, name, Steer::Scale(workers), &done, steered).await
}

/// Replace the workers one by one, new before old.
#[utoipa::path(post, path = "/v1/pools/{name}/restart", tag = "pools",
    params(("name" = String, Path, description = "The pool")),
    responses(
        (status = 200, description = "The request is being carried out", body = Steered),
        (status = 404, description = "Unknown pool", body = Problem),
    ),
)]
pub(super) async fn restart(State(context): State<Context>, name: PathName) -> SteerResult {
    let done = "its workers are being replaced";
    steer(&context, name, Steer::Roll, done, Steered::default()).await
}

/// Kill a worker. Its messages in flight are redelivered without a charged attempt; another worker takes its
/// place.
#[utoipa::path(post, path = "/v1/pools/{name}/workers/{slot}/kill", tag = "pools",
    params(
        ("name" = String, Path, description = "The pool"),
        ("slot" = usize, Path, description = "The worker's slot"),
    ),
    responses(
        (status = 200, description = "The worker is being killed", body = Steered),
        (status = 404, description = "Unknown pool", body = Problem),
        (status = 409, description = "No such worker", body = Problem),
    ),
)]
pub(super) async fn kill(
    State(context): State<Context>,
    place: Result<Path<(String, usize)>, PathRejection>,
) -> SteerResult {
    let Path((name, slot)) = place?;
    let done = format!("killing the worker in slot {slot}");
    let steered = Steered {
        slot: Some(slot),
        ..Steered::default()
    };
    steer(&context, Ok(Path(name)), Steer::Kill(slot), &done, steered).await
}

/// Get the last lines that a worker has printed, as far as the daemon has read them. If the slot has no
/// worker, they are those of its last one.
#[utoipa::path(get, path = "/v1/pools/{name}/workers/{slot}/output", tag = "pools",
    params(
        ("name" = String, Path, description = "The pool"),
        ("slot" = usize, Path, description = "The worker's slot"),
    ),
    responses(
        (status = 200, description = "The worker's last lines", body = LastLines),
        (status = 404, description = "Unknown pool", body = Problem),
        (status = 409, description = "No worker runs in the slot, nor has one ended in it recently", body = Problem),
    ),
)]
pub(super) async fn last_lines(
    State(context): State<Context>,
    place: Result<Path<(String, usize)>, PathRejection>,
) -> Result<Json<LastLines>, Problem> {
    let Path((name, slot)) = place?;
    let registry = context.daemon.overview.registry();
    Ok(Json(registry.last_lines(&name, slot, DONE_WITHIN).await?))
}

async fn steer(
    context: &Context,
    name: PathName,
    steer: Steer,
    done: &str,
    steered: Steered,
) -> SteerResult {
    let Path(name) = name?;
    let registry = context.daemon.overview.registry();
    let is_roll = matches!(steer, Steer::Roll);
    let number = registry.steer(&name, steer, DONE_WITHIN).await?;
    Ok(Json(Steered {
        roll: is_roll.then_some(number),
        done: format!("pool `{name}`: {done}"),
        pool: name,
        ..steered
    }))
}
