//! Pools: how they stand, and what may be asked of them.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;

use super::answer::{Done, Problem};
use super::context::Context;
use crate::pool::Steer;
use crate::pool::status::PoolStatus;
use crate::status::Status;
use crate::worker::output::LastLines;

/// How long a pool may take to do what it is asked; it does it all the same.
pub(super) const DONE_WITHIN: Duration = Duration::from_secs(5);

type Named = Result<Path<String>, PathRejection>;
type Doing = Result<Json<Done>, Problem>;

/// How the daemon and its pools stand.
#[utoipa::path(get, path = "/v1/status", tag = "status", responses(
    (status = 200, description = "How everything stands", body = Status),
))]
pub(super) async fn status(State(context): State<Context>) -> Json<Status> {
    Json(context.daemon.overview.status_now().await)
}

/// How the pools stand.
#[utoipa::path(get, path = "/v1/pools", tag = "pools", responses(
    (status = 200, description = "The pools, by name", body = Vec<PoolStatus>),
))]
pub(super) async fn all(State(context): State<Context>) -> Json<Vec<PoolStatus>> {
    Json(context.daemon.overview.status_now().await.pools)
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
    let pools = context.daemon.overview.status_now().await.pools;
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
        (status = 200, description = "It has that target now", body = Done),
        (status = 404, description = "There is no such pool", body = Problem),
        (status = 409, description = "The pool won't", body = Problem),
    ),
)]
pub(super) async fn scale(
    State(context): State<Context>,
    name: Named,
    body: Result<Json<Scale>, JsonRejection>,
) -> Doing {
    let Json(Scale { workers }) = body?;
    let done = match workers {
        Some(workers) => format!("it is to have {workers} worker(s)"),
        None => "it is to have as many workers as are configured".to_owned(),
    };
    steer(&context, name, Steer::Scale(workers), &done).await
}

/// Take nothing in; the workers stay.
#[utoipa::path(post, path = "/v1/pools/{name}/pause", tag = "pools",
    params(("name" = String, Path, description = "The pool")),
    responses(
        (status = 200, description = "It takes nothing in any more", body = Done),
        (status = 404, description = "There is no such pool", body = Problem),
    ),
)]
pub(super) async fn pause(State(context): State<Context>, name: Named) -> Doing {
    steer(&context, name, Steer::Pause, "it takes nothing in").await
}

/// An end to a pause or a drain.
#[utoipa::path(post, path = "/v1/pools/{name}/resume", tag = "pools",
    params(("name" = String, Path, description = "The pool")),
    responses(
        (status = 200, description = "It works again", body = Done),
        (status = 404, description = "There is no such pool", body = Problem),
    ),
)]
pub(super) async fn resume(State(context): State<Context>, name: Named) -> Doing {
    steer(&context, name, Steer::Resume, "it takes messages in again").await
}

/// Replace the workers one by one, new before old.
#[utoipa::path(post, path = "/v1/pools/{name}/restart", tag = "pools",
    params(("name" = String, Path, description = "The pool")),
    responses(
        (status = 200, description = "It has begun to", body = Done),
        (status = 404, description = "There is no such pool", body = Problem),
    ),
)]
pub(super) async fn restart(State(context): State<Context>, name: Named) -> Doing {
    steer(
        &context,
        name,
        Steer::Roll,
        "its workers are being replaced",
    )
    .await
}

/// Take nothing in, and let the workers leave when they have done what they have.
#[utoipa::path(post, path = "/v1/pools/{name}/drain", tag = "pools",
    params(("name" = String, Path, description = "The pool")),
    responses(
        (status = 200, description = "It has begun to", body = Done),
        (status = 404, description = "There is no such pool", body = Problem),
    ),
)]
pub(super) async fn drain(State(context): State<Context>, name: Named) -> Doing {
    let done = "it takes nothing in, and its workers leave when they are done";
    steer(&context, name, Steer::Drain, done).await
}

/// Kill a worker. What it has in hand goes back uncharged; another takes its place.
#[utoipa::path(post, path = "/v1/pools/{name}/workers/{slot}/kill", tag = "pools",
    params(
        ("name" = String, Path, description = "The pool"),
        ("slot" = usize, Path, description = "The worker's place"),
    ),
    responses(
        (status = 200, description = "It is being killed", body = Done),
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
    steer(&context, Ok(Path(name)), Steer::Kill(slot), &done).await
}

/// What a worker has printed last, as far as the daemon has read it.
#[utoipa::path(get, path = "/v1/pools/{name}/workers/{slot}/output", tag = "pools",
    params(
        ("name" = String, Path, description = "The pool"),
        ("slot" = usize, Path, description = "The worker's place"),
    ),
    responses(
        (status = 200, description = "Its last lines", body = LastLines),
        (status = 404, description = "There is no such pool", body = Problem),
        (status = 409, description = "There is no such worker", body = Problem),
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

async fn steer(context: &Context, name: Named, steer: Steer, done: &str) -> Doing {
    let Path(name) = name?;
    let registry = context.daemon.overview.registry();
    registry.steer(&name, steer, DONE_WITHIN).await?;
    Ok(Done::json(format!("pool `{name}`: {done}")))
}
