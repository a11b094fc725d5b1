//! Cancelling messages: those in flight in a pool, and on a table also pending ones.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::answer::Problem;
use super::answer::bad_gateway;
use super::body::JsonBody;
use super::context::Context;
use super::pools::{DONE_WITHIN, unknown};
use ganger_config::model::{Options, PoolConfig};

/// The messages to cancel.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Cancel {
    /// A correlation id, a message id, or the name that ganger gives to a message: `orders:17` for
    /// row 17 of a table's queue, `orders:3:170` for partition 3, offset 170 of a topic.
    id: String,
}

/// Result of a cancellation.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct CancelDone {
    /// The result in a sentence.
    done: String,
    /// The pool.
    pool: String,
    /// Number of messages in flight whose workers are asked to stop.
    in_hand: usize,
    /// Number of pending messages, which are dead letters now.
    waiting: usize,
}

/// Numbers of messages that were cancelled.
#[derive(Debug, Clone, Copy)]
struct Cancelled {
    in_hand: usize,
    waiting: usize,
}

/// Cancel a message. If a worker has it, the worker is asked to stop (version 2: `__cancel__`), and
/// killed if it has not answered within `timeout_grace`. On a table a pending message is cancelled
/// as well. A message that is not done by then becomes a dead letter, with the reason `cancelled`.
#[utoipa::path(post, path = "/v1/pools/{name}/cancel", tag = "pools",
    params(("name" = String, Path, description = "The pool")),
    request_body = Cancel,
    responses(
        (status = 200, description = "Running messages were asked to stop; pending ones are dead letters", body = CancelDone),
        (status = 404, description = "Unknown pool or message", body = Problem),
        (status = 502, description = "Writing to the table failed", body = Problem),
    ),
)]
pub(super) async fn cancel(
    State(context): State<Context>,
    name: Result<Path<String>, PathRejection>,
    JsonBody(Cancel { id }): JsonBody<Cancel>,
) -> Result<Json<CancelDone>, Problem> {
    let Path(name) = name?;
    if id.is_empty() {
        return Err(Problem::bad("id must not be empty"));
    }
    let config = context.daemon.overview.config();
    let found = config.pools.iter().find(|pool| pool.name == name);
    let pool = found.ok_or_else(|| {
        let known = config.pools.iter().map(|pool| pool.name.as_str());
        unknown(&name, &known.collect::<Vec<_>>())
    })?;
    let mut cancelled = once(&context, pool, &id).await?;
    if (cancelled.in_hand, cancelled.waiting) == (0, 0) {
        // It may have been on its way from the table to the pool, or back.
        cancelled = once(&context, pool, &id).await?;
    }
    cancel_done(cancelled, pool, &id)
}

async fn once(context: &Context, pool: &Arc<PoolConfig>, id: &str) -> Result<Cancelled, Problem> {
    let registry = context.daemon.overview.registry();
    let in_hand = registry.cancel(&pool.name, id, DONE_WITHIN).await?;
    let waiting = match pool.options {
        Options::Table => {
            let (sources, pool, id) = (context.sources(), pool.clone(), id.to_owned());
            let cancel = move || {
                let mut client = sources.open(&pool.source)?;
                let cancelled = client.cancel_waiting(&pool.name, &pool.queue, &id);
                cancelled.map_err(bad_gateway)
            };
            context.at_broker(cancel).await?
        }
        // Nothing can be picked from the middle of their queues.
        Options::RabbitMq(_) | Options::Kafka(_) => 0,
    };
    Ok(Cancelled { in_hand, waiting })
}

fn cancel_done(
    cancelled: Cancelled,
    pool: &PoolConfig,
    id: &str,
) -> Result<Json<CancelDone>, Problem> {
    let name = &pool.name;
    match cancelled {
        Cancelled {
            in_hand: 0,
            waiting: 0,
        } => {
            let elsewhere = match pool.options {
                Options::Table => ", nor is one pending in its queue; another daemon may have it",
                Options::RabbitMq(_) | Options::Kafka(_) => {
                    "; messages pending at the broker can't be cancelled"
                }
            };
            let why = format!("pool `{name}` has no message `{id}` in hand{elsewhere}");
            Err(Problem::new(StatusCode::NOT_FOUND, why))
        }
        Cancelled { in_hand, waiting } => Ok(Json(CancelDone {
            done: format!(
                "pool `{name}`: {in_hand} message(s) in hand and {waiting} waiting are cancelled"
            ),
            pool: name.clone(),
            in_hand,
            waiting,
        })),
    }
}
