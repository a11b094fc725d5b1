//! Publishing to any source, optionally waiting for the answer.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::answer::{Problem, bad_gateway};
use super::body;
use super::client::WAIT_MAX;
use super::context::{Context, Sources, at_broker_in};
use ganger_config::model::SourceConfig;
use ganger_core::budget::Hold;
use ganger_queue::client::json::{MessageJson, duration, post};
use ganger_queue::client::shown::ReplyJson;
use ganger_queue::client::{Client, Reply, source_of, source_of_topic, unique_name};
use ganger_queue::delivery::{IfUnsubscribed, Outgoing, Post};
use ganger_queue::fault::FaultKind;

/// Maximum size of a message including its JSON, in bytes.
const MESSAGE_BYTES_MAX: usize = 96 << 20;
/// Headers that carry a trace from the request to the message.
const TRACE_HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// Options of a request to publish.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PublishOptions {
    /// The source; may be omitted if only one has such a queue.
    source: Option<String>,
    /// Time to wait for the answer, such as `30s`; at most five minutes.
    wait: Option<String>,
}

/// Options of a request to publish to a topic.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TopicPublishOptions {
    /// The source; may be omitted if the configuration subscribes a queue to the topic on one source only.
    source: Option<String>,
    /// Drop the message if no queue is subscribed to the topic, which is an error otherwise.
    #[serde(default)]
    drop_unsubscribed: bool,
}

/// Result of publishing.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(super) struct Published {
    /// Number of messages that the broker has confirmed: one, or none if another message has its unique key.
    pub(super) sent: usize,
    /// The row of that other message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kept: Option<i64>,
    /// The source to which the message was sent.
    source: String,
    /// The answer, if it was waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reply: Option<ReplyJson>,
}

/// Publish a message to a queue. The response is sent once the broker has confirmed the message, or with
/// `wait` once a worker has replied. `traceparent` and `tracestate` of the request are passed on with the
/// message.
#[utoipa::path(post, path = "/v1/queues/{queue}/messages", tag = "messages",
    params(("queue" = String, Path, description = "The queue or topic"), PublishOptions),
    request_body = MessageJson,
    responses(
        (status = 200, description = "The broker has confirmed the message", body = Published),
        (status = 400, description = "The message or the request is invalid", body = Problem),
        (status = 404, description = "Unknown queue", body = Problem),
        (status = 502, description = "The broker did not accept the message", body = Problem),
        (status = 504, description = "The message was sent, but no answer arrived in time", body = Problem),
    ),
)]
pub(super) async fn publish(
    State(context): State<Context>,
    queue: Result<Path<String>, PathRejection>,
    wishes: Result<Query<PublishOptions>, QueryRejection>,
    request: Request,
) -> Result<Json<Published>, Problem> {
    let (Path(queue), Query(wishes)) = (queue?, wishes?);
    let wait = wishes.wait.as_deref().map(wait).transpose()?;
    let place = context.broker_place()?;
    let (post, held) = read(&context, queue, request).await?;
    let sources = context.sources();
    let work = move || {
        let _held = held;
        send(&sources, wishes.source.as_deref(), post, wait)
    };
    at_broker_in(place, work).await.map(Json)
}

/// Publish a message to each queue that is subscribed to a topic of a table, all of them or none. The message
/// has the form of one for a queue, without a unique key.
#[utoipa::path(post, path = "/v1/topics/{topic}/messages", tag = "messages",
    params(("topic" = String, Path, description = "The topic"), TopicPublishOptions),
    request_body = MessageJson,
    responses(
        (status = 200, description = "The table has stored the message", body = Published),
        (status = 400, description = "The message or the request is invalid", body = Problem),
        (status = 404, description = "Unknown topic, or no queue is subscribed to it", body = Problem),
        (status = 502, description = "The table did not store the message", body = Problem),
    ),
)]
pub(super) async fn publish_to_topic(
    State(context): State<Context>,
    topic: Result<Path<String>, PathRejection>,
    wishes: Result<Query<TopicPublishOptions>, QueryRejection>,
    request: Request,
) -> Result<Json<Published>, Problem> {
    let (Path(topic), Query(wishes)) = (topic?, wishes?);
    let place = context.broker_place()?;
    let (mut post, held) = read(&context, topic, request).await?;
    if post.unique.is_some() {
        let why = "a message for a topic can't have a `unique_key`";
        return Err(Problem::bad(why));
    }
    post.topic = Some(match wishes.drop_unsubscribed {
        true => IfUnsubscribed::Drop,
        false => IfUnsubscribed::Fail,
    });
    let sources = context.sources();
    let work = move || {
        let _held = held;
        send_to_topic(&sources, wishes.source.as_deref(), &post)
    };
    at_broker_in(place, work).await.map(Json)
}

/// Reads the message in a request for that queue or topic, with its share of the budget.
async fn read(
    context: &Context,
    queue: String,
    request: Request,
) -> Result<(Post, Vec<Hold>), Problem> {
    let headers = request.headers().clone();
    let budget = context.daemon.overview.budget();
    let body = body::read(request.into_body(), MESSAGE_BYTES_MAX, budget).await?;
    let mut post = post(&body.bytes).map_err(|why| Problem::bad(format!("the message: {why}")))?;
    post.message.queue = queue;
    carry_trace(&headers, &mut post.message);
    Ok((post, body.held))
}

/// Reads the time that a request waits.
pub(super) fn wait(text: &str) -> Result<Duration, Problem> {
    let wait = duration(text).map_err(|why| Problem::bad(format!("wait: {why}: `{text}`")))?;
    match wait <= WAIT_MAX {
        true => Ok(wait),
        false => Err(Problem::bad(format!(
            "wait must be at most {WAIT_MAX:?}: `{text}`"
        ))),
    }
}

fn carry_trace(headers: &HeaderMap, message: &mut Outgoing) {
    for name in TRACE_HEADERS {
        let has = message
            .headers
            .iter()
            .any(|(other, _)| other.eq_ignore_ascii_case(name));
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(value) = value.filter(|_| !has) {
            message.headers.push((name.to_owned(), value.to_owned()));
        }
    }
}

/// Sends the message through a connection of its own. Blocks.
fn send(
    sources: &Sources,
    source: Option<&str>,
    mut post: Post,
    wait: Option<Duration>,
) -> Result<Published, Problem> {
    if wait.is_some() && post.unique.is_some() {
        let why = "with `wait` the message can't have a `unique_key`: it may be dropped";
        return Err(Problem::bad(why));
    }
    let message = &mut post.message;
    let (name, _) = source_of(&sources.config, &message.queue, source)
        .map_err(|error| Problem::new(StatusCode::NOT_FOUND, error.to_string()))?;
    let mut client = sources.open(name)?;
    let asked = match wait {
        Some(wait) => Some((address(&mut client, message)?, wait)),
        None => None,
    };
    let kept = client.post(std::slice::from_ref(&post));
    let kept = kept.map_err(|halted| match halted.error.kind() {
        FaultKind::NoQueue => Problem::new(StatusCode::NOT_FOUND, halted.to_string()),
        _ => bad_gateway(halted),
    })?;
    let reply = match asked {
        Some((place, wait)) => Some(take(
            &mut client,
            &place,
            &post.message.correlation_id,
            wait,
        )?),
        None => None,
    };
    let kept = kept.into_iter().flatten().next();
    Ok(Published {
        sent: usize::from(kept.is_none()),
        kept,
        source: name.to_owned(),
        reply: reply.as_ref().map(ReplyJson::from),
    })
}

/// Sends the message to each queue that is subscribed. Blocks.
fn send_to_topic(
    sources: &Sources,
    source: Option<&str>,
    post: &Post,
) -> Result<Published, Problem> {
    let topic = &post.message.queue;
    let not_found = |why: String| Problem::new(StatusCode::NOT_FOUND, why);
    let (name, source) = source_of_topic(&sources.config, topic, source)
        .map_err(|error| not_found(error.to_string()))?;
    if !matches!(source, SourceConfig::Table(_)) {
        return Err(Problem::bad(format!(
            "source `{name}` has no topics: it is not a table"
        )));
    }
    let mut client = sources.open(name)?;
    if let Err(error) = client.post(std::slice::from_ref(post)) {
        let subscribed = client.subscriptions().map_err(bad_gateway)?;
        return Err(match subscribed.iter().any(|one| one.topic == *topic) {
            true => bad_gateway(error),
            false => not_found(format!("no queue is subscribed to topic `{topic}`")),
        });
    }
    Ok(Published {
        sent: 1,
        kept: None,
        source: name.to_owned(),
        reply: None,
    })
}

/// Adds a reply address to the message.
fn address(client: &mut Client, message: &mut Outgoing) -> Result<String, Problem> {
    if message.reply_to.is_some() {
        return Err(Problem::bad(
            "with `wait` the message can't have a `reply_to` of its own",
        ));
    }
    let unique = unique_name().map_err(bad_gateway)?;
    let place = client.reply_to(&unique).map_err(bad_gateway)?;
    message.reply_to = Some(place.clone());
    if message.correlation_id.is_empty() {
        message.correlation_id = unique;
    }
    Ok(place)
}

fn take(client: &mut Client, place: &str, id: &str, wait: Duration) -> Result<Reply, Problem> {
    let deadline = Instant::now() + wait;
    loop {
        if let Some(reply) = client.take_reply(place, id).map_err(bad_gateway)? {
            return Ok(reply);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let why =
                format!("the message was sent, but no answer to `{id}` arrived within {wait:?}");
            return Err(Problem::new(StatusCode::GATEWAY_TIMEOUT, why));
        }
        client.wait_for_change(left);
    }
}
