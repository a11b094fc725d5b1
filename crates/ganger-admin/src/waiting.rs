//! Messages that wait in a queue: the list of the first ones, which is read without taking them.

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;

use super::answer::{Problem, bad_gateway};
use super::context::{Context, Sources};
use super::schedules::limit;
use ganger_queue::client::{WAITING_DEFAULT, WAITING_MAX, WaitingList, source_of};
use ganger_queue::fault::{FaultKind, SourceFault};

/// Options of a list.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WaitingOptions {
    /// The source; may be omitted if only one has such a queue.
    source: Option<String>,
    /// Maximum number of messages, 1 to 500; 50 if omitted.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
}

/// List the first messages that wait in a queue, in the order in which they would be claimed, with the first 4 KiB of
/// each body. Nothing is claimed and no delivery is counted. Messages in flight are left out on a table; on Kafka those
/// after the group's commit are listed, and those that wait for a retry are left out. RabbitMQ's can't be listed.
#[utoipa::path(get, path = "/v1/queues/{queue}/messages", tag = "messages",
    operation_id = "list_waiting_messages",
    params(("queue" = String, Path, description = "The queue or topic"), WaitingOptions),
    responses(
        (status = 200, description = "The messages, none for an unknown queue of a table", body = WaitingList),
        (status = 400, description = "The request is invalid, or the source can't list messages", body = Problem),
        (status = 404, description = "Unknown queue", body = Problem),
        (status = 502, description = "Reading from the broker failed", body = Problem),
    ),
)]
pub(super) async fn list(
    State(context): State<Context>,
    queue: Result<Path<String>, PathRejection>,
    options: Result<Query<WaitingOptions>, QueryRejection>,
) -> Result<Json<WaitingList>, Problem> {
    let (Path(queue), Query(options)) = (queue?, options?);
    let limit = limit(options.limit, WAITING_DEFAULT, WAITING_MAX)?;
    let sources = context.sources();
    let list = move || read(&sources, &queue, options.source.as_deref(), limit as usize);
    context.at_broker(list).await.map(Json)
}

/// Reads the list through a connection of its own. Blocks.
fn read(
    sources: &Sources,
    queue: &str,
    source: Option<&str>,
    limit: usize,
) -> Result<WaitingList, Problem> {
    let (name, _) = source_of(&sources.config, queue, source)
        .map_err(|error| Problem::new(StatusCode::NOT_FOUND, error.to_string()))?;
    let listed = sources.open(name)?.waiting_list(queue, limit);
    listed.map_err(|fault: SourceFault| match fault.kind() {
        FaultKind::NoQueue => Problem::new(StatusCode::NOT_FOUND, fault.to_string()),
        FaultKind::Unsupported => Problem::bad(fault.to_string()),
        _ => bad_gateway(fault),
    })
}
