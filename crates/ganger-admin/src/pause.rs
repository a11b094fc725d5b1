//! Intake of pools: paused, drained and resumed, here and on all daemons that share a table. The state
//! survives a restart.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use tokio::time::timeout;

use super::answer::Problem;
use super::answer::bad_gateway;
use super::context::Context;
use super::pools::{DONE_WITHIN, PathName, SteerResult, Steered, unknown};
use ganger_config::model::{Options, PoolConfig};
use ganger_pool::{LastingPause, Steer};
use ganger_queue::client::Client;
use ganger_queue::fault::SourceFault;

/// Timeout of counting the daemons: the request itself is done by then.
const COUNTED_WITHIN: Duration = Duration::from_secs(3);

/// Scope of a request among the daemons.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PauseQuery {
    /// Act on all daemons that share the pool's table, including those that start later; each acts at its
    /// next poll of the table (`poll_interval`).
    #[serde(default)]
    all: bool,
}

/// Stop a pool's intake; its workers stay.
#[utoipa::path(post, path = "/v1/pools/{name}/pause", tag = "pools",
    params(("name" = String, Path, description = "The pool"), PauseQuery),
    responses(
        (status = 200, description = "Intake is stopped", body = Steered),
        (status = 400, description = "Only pools on a table can be paused on all daemons", body = Problem),
        (status = 404, description = "Unknown pool", body = Problem),
        (status = 502, description = "Writing to the table failed", body = Problem),
    ),
)]
pub(super) async fn pause(
    State(context): State<Context>,
    name: PathName,
    reach: Result<Query<PauseQuery>, QueryRejection>,
) -> SteerResult {
    let (Path(name), Query(reach)) = (name?, reach?);
    let done = "intake stopped";
    match reach.all {
        true => for_all(&context, &name, true, done).await,
        false => {
            here(
                &context,
                &name,
                Steer::Pause,
                Some(LastingPause::Paused),
                done,
            )
            .await
        }
    }
}

/// Stop a pool's intake, and stop its workers once they are idle.
#[utoipa::path(post, path = "/v1/pools/{name}/drain", tag = "pools",
    params(("name" = String, Path, description = "The pool")),
    responses(
        (status = 200, description = "The request is being carried out", body = Steered),
        (status = 404, description = "Unknown pool", body = Problem),
    ),
)]
pub(super) async fn drain(State(context): State<Context>, name: PathName) -> SteerResult {
    let Path(name) = name?;
    let done = "intake stopped; its workers stop once they are idle";
    here(
        &context,
        &name,
        Steer::Drain,
        Some(LastingPause::Drained),
        done,
    )
    .await
}

/// End a pause or a drain.
#[utoipa::path(post, path = "/v1/pools/{name}/resume", tag = "pools",
    params(("name" = String, Path, description = "The pool"), PauseQuery),
    responses(
        (status = 200, description = "Intake is resumed", body = Steered),
        (status = 400, description = "Only pools on a table can be resumed on all daemons", body = Problem),
        (status = 404, description = "Unknown pool", body = Problem),
        (status = 409, description = "The pool is paused on all daemons", body = Problem),
        (status = 502, description = "Writing to the table failed", body = Problem),
    ),
)]
pub(super) async fn resume(
    State(context): State<Context>,
    name: PathName,
    reach: Result<Query<PauseQuery>, QueryRejection>,
) -> SteerResult {
    let (Path(name), Query(reach)) = (name?, reach?);
    let done = "intake resumed";
    if reach.all {
        drop(for_all(&context, &name, false, done).await?);
    } else if is_paused_for_all(&context, &name) {
        let why = format!(
            "pool `{name}` is paused on all daemons that share its table: resume it on all (`--all`)"
        );
        return Err(Problem::new(StatusCode::CONFLICT, why));
    }
    let mut resumed = here(&context, &name, Steer::Resume, None, done).await?;
    if reach.all {
        let of = resumed.daemons_of_table;
        resumed.daemons = of;
        resumed.done = sentence(&name, done, of, of);
    }
    Ok(resumed)
}

fn is_paused_for_all(context: &Context, name: &str) -> bool {
    let pools = context.daemon.overview.status().pools;
    let found = pools.iter().find(|pool| pool.name == name);
    found.is_some_and(|pool| pool.paused_for_all)
}

/// Steers the pool of this daemon, and stores the state that the next daemon inherits.
async fn here(
    context: &Context,
    name: &str,
    steer: Steer,
    held: Option<LastingPause>,
    done: &str,
) -> SteerResult {
    let overview = &context.daemon.overview;
    overview.registry().steer(name, steer, DONE_WITHIN).await?;
    let kept = overview.pauses().set(name, held);
    let of = daemons(context, name).await;
    let mut done = sentence(name, done, Some(1), of);
    if let Err(error) = &kept {
        tracing::warn!(pool = name, %error, "writing the file of paused pools failed");
        done += &format!("; that does not outlast a restart of the daemon: {error}");
    }
    Ok(Json(Steered {
        done,
        pool: name.to_owned(),
        daemons: Some(1),
        daemons_of_table: of,
        outlasts_restart: Some(kept.is_ok()),
        ..Steered::default()
    }))
}

/// Pauses or resumes the pool's queue on all daemons.
async fn for_all(context: &Context, name: &str, paused: bool, done: &str) -> SteerResult {
    let pool = on_a_table(context, name)?;
    let change = move |client: &mut Client, pool: &PoolConfig| {
        client.pause_for_all(&pool.queue, paused)?;
        client.daemons()
    };
    let of = at_table(context, pool, change).await?;
    Ok(Json(Steered {
        done: sentence(name, done, of, of),
        pool: name.to_owned(),
        daemons: of,
        daemons_of_table: of,
        outlasts_restart: Some(true),
        ..Steered::default()
    }))
}

fn sentence(name: &str, done: &str, on: Option<u64>, of: Option<u64>) -> String {
    let on = on.unwrap_or_default();
    match of {
        Some(of) => {
            format!("pool `{name}`: {done}, on {on} of {of} daemon(s) that share its table")
        }
        None => format!("pool `{name}`: {done}, on this daemon"),
    }
}

/// Returns the pool of that name, if daemons can share its source.
fn on_a_table(context: &Context, name: &str) -> Result<Arc<PoolConfig>, Problem> {
    let config = context.daemon.overview.config();
    let pool = config.pools.iter().find(|pool| pool.name == name);
    let Some(pool) = pool else {
        let known = config.pools.iter().map(|pool| pool.name.as_str());
        return Err(unknown(name, &known.collect::<Vec<_>>()));
    };
    match pool.options {
        Options::Table => Ok(pool.clone()),
        Options::RabbitMq(_) | Options::Kafka(_) => Err(Problem::bad(format!(
            "pool `{name}` is not on a table, through which other daemons would be notified: ask \
             each daemon"
        ))),
    }
}

/// Returns the number of daemons that work on the pool's table; none if it has no table, or it is unknown.
async fn daemons(context: &Context, name: &str) -> Option<u64> {
    let pool = on_a_table(context, name).ok()?;
    let count = |client: &mut Client, _: &PoolConfig| client.daemons();
    let counted = timeout(COUNTED_WITHIN, at_table(context, pool, count));
    counted.await.ok()?.ok()?
}

async fn at_table<T: Send + 'static>(
    context: &Context,
    pool: Arc<PoolConfig>,
    work: impl FnOnce(&mut Client, &PoolConfig) -> Result<T, SourceFault> + Send + 'static,
) -> Result<T, Problem> {
    let sources = context.sources();
    let work = move || {
        let mut client = sources.open(&pool.source)?;
        work(&mut client, &pool).map_err(bad_gateway)
    };
    context.at_broker(work).await
}
