//! Pools: how they stand, and what may be asked of them.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::answer::Problem;
use super::body::Asked;
use super::context::Context;
use ganger_pool::Steer;
use ganger_pool::overview::Status;
use ganger_pool::status::PoolStatus;
use ganger_pool::worker::output::LastLines;

/// How long a pool may take to do what it is asked; it does it all the same.
pub(super) const DONE_WITHIN: Duration = Duration::from_secs(5);

pub(super) type Named = Result<Path<String>, PathRejection>;
pub(super) type Doing = Result<Json<Steered>, Problem>;

/// What was done with a pool.
#[derive(Debug, Clone, Default, Serialize, utoipa::ToSchema)]
pub(super) struct Steered {
    /// What was done, in a sentence.
    pub(super) done: String,
    /// The pool.
    pub(super) pool: String,
    /// How many workers it is to have; none for as many as are configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) workers: Option<usize>,
    /// The worker's place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) slot: Option<usize>,
    /// On how many daemons it acts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) daemons: Option<u64>,
    /// How many daemons work on the pool's table, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) daemons_of_table: Option<u64>,
    /// Whether it holds on over a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outlasts_restart: Option<bool>,
    /// Number of the rolling restart that it has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) roll: Option<u64>,
}

/// How the daemon and its pools stand.
#[utoipa::path(get, path = "/v1/status", tag = "status", responses(
    (status = 200, description = "How everything stands", body = Status),
))]
pub(super) async fn status(State(context): State<Context>) -> Json<Status> {
    Json(context.daemon.overview.status_measured().await)
}

/// How the pools stand.
#[utoipa::path(get, path = "/v1/pools", tag = "pools", responses(
    (status = 200, description = "The pools, by name", body = Vec<PoolStatus>),
))]
pub(super) async fn all(State(context): State<Context>) -> Json<Vec<PoolStatus>> {
    Json(context.daemon.overview.status_measured().await.pools)
}

/// How one pool stands.
#[utoipa::path(get, path = "/v1/pools/{name}", tag = "pools",
    params(("name" = String, Path, description = "The pool")),
    responses(
        (status = 200, description = "The pool", body = PoolStatus),
        (status = 404, description = "There is no such pool", body = Problem),
    ),
)]
pub(super) async fn one(
    State(context): State<Context>,
    name: Named,
) -> Result<Json<PoolStatus>, Problem> {
    let Path(name) = name?;
    let pools = context.daemon.overview.status_measured().await.pools;
    let known = pools
        .iter()
        .map(|pool| pool.name.as_str())
        .collect::<Vec<_>>();
    let found = pools.iter().find(|pool| pool.name == name);
    let found = found.cloned().map(Json);
    found.ok_or_else(|| unknown(&name, &known))
}

/// There is no such pool.
pub(super) fn unknown(name: &str, known: &[&str]) -> Problem {
    let known = known.join(", ");
    let why = format!("there is no pool `{name}`; the pools are: {known}");
    Problem::new(StatusCode::NOT_FOUND, why)
}

/// How many workers a pool is to have.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Scale {
    /// So many, or `null` for what the configuration says.
    #[serde(deserialize_with = "given")]
    workers: Option<usize>,
}

/// A field that must be there, though it may be null.
fn given<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<usize>, D::Error> {
    Option::deserialize(d)
}

/// Give a pool another number of workers than is configured. It holds until it is taken back, until
/// the configured number changes, or until the daemon ends.
#[utoipa::path(post, path = "/v1/pools/{name}/scale", tag = "pools",
    params(("name" = String, Path, description = "The pool")),
    request_body = Scale,
    responses(
        (status = 200, description = "It has that target now", body = Steered),
        (status = 404, description = "There is no such pool", body = Problem),
        (status = 409, description = "The pool won't", body = Problem),
    ),
)]
pub(super) async fn scale(
    State(context): State<Context>,
    name: Named,
    Asked(Scale { workers }): Asked<Scale>,
) -> Doing {
    let done = match workers {
        Some(workers) => format!("it is to have {workers} worker(s)"),
        None => "it is to have as many workers as are configured".to_owned(),
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
        (status = 200, description = "It has begun to", body = Steered),
        (status = 404, description = "There is no such pool", body = Problem),
    ),
)]
pub(super) async fn restart(State(context): State<Context>, name: Named) -> Doing {
    let done = "its workers are being replaced";
    steer(&context, name, Steer::Roll, done, Steered::default()).await
}

/// Kill a worker. What it has in hand goes back uncharged; another takes its place.
#[utoipa::path(post, path = "/v1/pools/{name}/workers/{slot}/kill", tag = "pools",
    params(
        ("name" = String, Path, description = "The pool"),
        ("slot" = usize, Path, description = "The worker's place"),
    ),
    responses(
        (status = 200, description = "It is being killed", body = Steered),
        (status = 404, description = "There is no such pool", body = Problem),
        (status = 409, description = "There is no such worker", body = Problem),
    ),
)]
pub(super) async fn kill(
    State(context): State<Context>,
    place: Result<Path<(String, usize)>, PathRejection>,
) -> Doing {
    let Path((name, slot)) = place?;
    let done = format!("the worker in slot {slot} is killed");
    let steered = Steered {
        slot: Some(slot),
        ..Steered::default()
    };
    steer(&context, Ok(Path(name)), Steer::Kill(slot), &done, steered).await
}

/// Last lines that a worker has printed, as far as the daemon has read them; those of the last one in
/// that place where none runs.
#[utoipa::path(get, path = "/v1/pools/{name}/workers/{slot}/output", tag = "pools",
    params(
        ("name" = String, Path, description = "The pool"),
        ("slot" = usize, Path, description = "The worker's place"),
    ),
    responses(
        (status = 200, description = "Its last lines", body = LastLines),
        (status = 404, description = "There is no such pool", body = Problem),
        (status = 409, description = "No worker runs there, nor has one ended there lately", body = Problem),
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
    name: Named,
    steer: Steer,
    done: &str,
    steered: Steered,
) -> Doing {
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
