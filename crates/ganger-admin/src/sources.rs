//! Sources: the list of them and the one for a message; and the subscriptions of tables.

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;

use super::answer::bad_gateway;
use super::answer::{Done, Problem};
use super::context::Context;
use ganger_queue::client::shown::SubscriptionJson;
use ganger_queue::client::{self, SourceInfo, source_of, source_of_topic};

/// Selection of a source; all sources if empty.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SourceQuery {
    /// The source for messages to this queue.
    queue: Option<String>,
    /// The source for messages to this topic.
    topic: Option<String>,
    /// The source of this name.
    source: Option<String>,
}

/// List the configured sources with the pools that read from them, or get one of them.
#[utoipa::path(get, path = "/v1/sources", tag = "sources",
    params(SourceQuery),
    responses(
        (status = 200, description = "The sources, by name", body = Vec<SourceInfo>),
        (status = 404, description = "Unknown source, or it must be named", body = Problem),
    ),
)]
pub(super) async fn sources(
    State(context): State<Context>,
    sought: Result<Query<SourceQuery>, QueryRejection>,
) -> Result<Json<Vec<SourceInfo>>, Problem> {
    let Query(sought) = sought?;
    let config = context.daemon.overview.config();
    let name = sought.source.as_deref();
    let found = match (sought.queue, sought.topic) {
        (None, None) if name.is_none() => return Ok(Json(SourceInfo::all(&config))),
        (Some(_), Some(_)) => return Err(Problem::bad("either queue or topic, not both")),
        (None, Some(topic)) => source_of_topic(&config, &topic, name),
        (queue, None) => source_of(&config, &queue.unwrap_or_default(), name),
    };
    let unknown =
        |error: client::UnknownSource| Problem::new(StatusCode::NOT_FOUND, error.to_string());
    let (name, source) = found.map_err(unknown)?;
    Ok(Json(vec![SourceInfo::of(&config, name, source)]))
}

/// List the subscriptions of all tables, including those of other configurations.
#[utoipa::path(get, path = "/v1/subscriptions", tag = "subscriptions", responses(
    (status = 200, description = "The subscriptions, by source and topic", body = Vec<SubscriptionJson>),
    (status = 502, description = "Reading from a table failed", body = Problem),
))]
pub(super) async fn subscriptions(
    State(context): State<Context>,
) -> Result<Json<Vec<SubscriptionJson>>, Problem> {
    let sources = context.sources();
    let list = move || sources.subscriptions();
    context.at_broker(list).await.map(Json)
}

/// Remove a subscription; messages in the queue stay. A configured subscription is added again when a daemon
/// starts or reloads.
#[utoipa::path(delete, path = "/v1/subscriptions/{source}/{topic}/{queue}", tag = "subscriptions",
    params(
        ("source" = String, Path, description = "The table"),
        ("topic" = String, Path, description = "The topic"),
        ("queue" = String, Path, description = "The queue"),
    ),
    responses(
        (status = 200, description = "The subscription is removed", body = Done),
        (status = 404, description = "Unknown source or subscription", body = Problem),
        (status = 502, description = "Writing to the table failed", body = Problem),
    ),
)]
pub(super) async fn unsubscribe(
    State(context): State<Context>,
    place: Result<Path<(String, String, String)>, PathRejection>,
) -> Result<Json<Done>, Problem> {
    let Path((source, topic, queue)) = place?;
    let sources = context.sources();
    let end = move || {
        let mut client = sources.open(&source)?;
        let was_there = client.unsubscribe(&topic, &queue).map_err(bad_gateway)?;
        match was_there {
            true => Ok(Done::json(format!(
                "queue `{queue}` is no longer subscribed to topic `{topic}`"
            ))),
            false => Err(Problem::new(
                StatusCode::NOT_FOUND,
                format!("queue `{queue}` is not subscribed to topic `{topic}`"),
            )),
        }
    };
    context.at_broker(end).await
}
