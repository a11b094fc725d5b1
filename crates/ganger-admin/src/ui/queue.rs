//! The page of a queue: what waits in it, who reads it, and a form that sends a message to it.

use axum::extract::Path;
use axum::extract::rejection::FormRejection;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Form};
use ganger_pool::overview::Status;
use ganger_pool::status::{BacklogStatus, PoolStatus};
use ganger_queue::client::SourceInfo;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::api::Api;
use super::commands::{command, commands};
use super::dead::READ_EVERY;
use super::done::leave;
use super::edit::refused;
use super::page::{Page, Section};
use super::paths::{SEND, STATUS, dead_path, path, pool_path, queue_path};
use super::query::Fields;
use super::queue_waiting::{ListedQueue, waiting};
use super::shown::{count, rate_of, state, text};
use crate::answer::Problem;

/// A message as it was typed, each field as a text.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TypedMessage {
    body: String,
    /// Lines `name: value`.
    headers: String,
    delay: String,
    priority: String,
    message_id: String,
    correlation_id: String,
    content_type: String,
    key: String,
    /// Present if a body that looks like JSON need not be.
    any: Option<String>,
}

/// A queue of a source.
struct QueuePlace {
    queue: String,
    source: String,
}

impl QueuePlace {
    /// Returns the queue of that name in the source that is named, or in the one that the API finds for it, and the
    /// kind of the source.
    async fn find(
        api: &Api,
        queue: String,
        source: Option<&str>,
    ) -> Result<(Self, String), Problem> {
        let sought = Fields::from([("queue", &*queue), ("source", source.unwrap_or_default())]);
        let sources: Vec<SourceInfo> = api.get(&sought.at("/v1/sources")).await?;
        let source = sources
            .into_iter()
            .next()
            .map(|source| (source.name, source.kind));
        let (source, kind) = source.unwrap_or_default();
        Ok((Self { queue, source }, kind))
    }

    fn path(&self) -> String {
        queue_path(&self.source, &self.queue)
    }
}

/// Returns the queues of a pool: one, or the topics that it reads.
pub(super) fn queues(pool: &PoolStatus) -> impl Iterator<Item = &str> {
    pool.queue.split(", ")
}

/// Shows the queues of a pool, each with a link to its page.
pub(super) fn queue_links(pool: &PoolStatus) -> Markup {
    html! {
        @for (at, queue) in queues(pool).enumerate() {
            @if at > 0 { ", " }
            a href=(queue_path(&pool.source, queue)) { (text(queue)) }
        }
    }
}

/// Returns whether a pool reads a queue, as far as its status tells.
pub(super) fn reads(pool: &PoolStatus, queue: &str) -> bool {
    queues(pool).any(|own| own == queue)
}

/// Shows a queue. It is the one of the source that the query names, `?source=`.
pub(super) async fn page(
    Extension(api): Extension<Api>,
    Path(queue): Path<String>,
    uri: Uri,
) -> Result<Page, Problem> {
    let (place, kind) = QueuePlace::find(&api, queue, Fields::of(&uri).get("source")).await?;
    let status: Status = api.get(STATUS).await?;
    let pools = status.pools.iter();
    let pools = pools.filter(|pool| pool.source == place.source && reads(pool, &place.queue));
    let pools: Vec<&PoolStatus> = pools.collect();
    let unread = status.unread_queues.iter();
    let mut unread = unread.filter(|one| one.source == place.source && one.queue == place.queue);
    let unread = unread.next().map(|one| one.backlog);
    let listed = ListedQueue {
        source: &place.source,
        kind: &kind,
        queue: &place.queue,
        pools: &pools,
    };
    let page = Page::new(Section::Now, format!("Queue {}", place.queue))
        .with("summary", summary(&place, &pools, unread))
        .with("pools", readers(&place, &pools))
        .with_list("waiting", waiting(&api, listed).await)
        .with(
            "send",
            html! { h2 { "Send a message" } (form(&place, &TypedMessage::default(), None)) },
        );
    let page = page.with(
        "commands",
        commands(&as_commands(&place, listed.canceller())),
    );
    Ok(page.every(READ_EVERY))
}

/// Takes a message as it was typed, and sends it. If that fails it is shown again.
pub(super) async fn send(
    Extension(api): Extension<Api>,
    Path(queue): Path<String>,
    uri: Uri,
    typed: Result<Form<TypedMessage>, FormRejection>,
) -> Result<Response, Problem> {
    let Form(typed) = typed?;
    let source = Fields::of(&uri).get("source").map(str::to_owned);
    let place = QueuePlace {
        queue,
        source: source.unwrap_or_default(),
    };
    let path = path("/v1/queues/{queue}/messages", &[&place.queue]);
    let path = Fields::from([("source", &*place.source)]).at(&path);
    let sent = match typed.message() {
        Ok(message) => api.ask(&path, &message).await,
        Err(why) => Err(Problem::bad(why)),
    };
    Ok(match sent {
        Ok(answer) => leave(&sent_what(&answer), &place.path()),
        Err(problem) => Page::new(Section::Now, format!("Send to queue {}", place.queue))
            .with("send", form(&place, &typed, Some(problem.detail())))
            .still()
            .into_response(),
    })
}

fn sent_what(answer: &Value) -> String {
    match answer["kept"].as_i64() {
        Some(row) => format!("not sent: message {row} has this unique key"),
        None => "the message was sent, and the source has stored it".to_owned(),
    }
}

impl TypedMessage {
    /// Returns the message as the API takes it.
    fn message(&self) -> Result<Value, String> {
        let body = self.body.replace("\r\n", "\n");
        let looks_like_json =
            self.content_type.contains("json") || body.trim_start().starts_with(['{', '[']);
        if looks_like_json && self.any.is_none() {
            let read = serde_json::from_str::<Value>(&body);
            read.map_err(|error| format!("the body is not JSON: {error}"))?;
        }
        let mut message = Map::new();
        message.insert("body".to_owned(), body.into());
        for (name, value) in [
            ("delay", &self.delay),
            ("message_id", &self.message_id),
            ("correlation_id", &self.correlation_id),
            ("content_type", &self.content_type),
            ("key", &self.key),
        ] {
            let value = value.trim();
            if !value.is_empty() {
                message.insert(name.to_owned(), value.into());
            }
        }
        let priority = self.priority.trim();
        if !priority.is_empty() {
            let priority: i32 = priority
                .parse()
                .map_err(|_| format!("the priority must be a whole number: `{priority}`"))?;
            message.insert("priority".to_owned(), priority.into());
        }
        message.insert("headers".to_owned(), self.headers()?.into());
        Ok(json!(message))
    }

    fn headers(&self) -> Result<Map<String, Value>, String> {
        let mut headers = Map::new();
        for line in self
            .headers
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            let pair = line
                .split_once(':')
                .filter(|(name, _)| !name.trim().is_empty());
            let (name, value) =
                pair.ok_or_else(|| format!("a header is `name: value`: `{line}`"))?;
            let (name, value) = (name.trim(), value.trim());
            if headers.insert(name.to_owned(), value.into()).is_some() {
                return Err(format!("the header `{name}` is there twice"));
            }
        }
        Ok(headers)
    }
}

fn summary(place: &QueuePlace, pools: &[&PoolStatus], unread: Option<BacklogStatus>) -> Markup {
    let backlogs = pools.iter().filter_map(|pool| pool.backlog).chain(unread);
    let backlog = backlogs.max_by_key(|backlog| backlog.depth);
    let in_hand: usize = pools.iter().map(|pool| pool.out).sum();
    let is_paused = pools.iter().any(|pool| pool.paused_for_all);
    html! {
        p.lead {
            @match backlog {
                None => "How many messages are ready is not known",
                Some(backlog) if backlog.depth == 0 => "No message is ready for a worker",
                Some(backlog) => {
                    (count(backlog.depth)) @if backlog.at_least { "+" }
                    @if backlog.depth == 1 { " message is" } @else { " messages are" } " ready for a worker"
                    @if let Some(age) = backlog.oldest_age() { ", the oldest for " (age) }
                },
            }
            @if in_hand > 0 { "; " (count(in_hand as u64)) " in hand" }
            "."
        }
        p { "In " strong { (text(&place.source)) } ". " a href=(dead_path(&place.source)) { "Dead letters of the source" } " · " a href="#send" { "Send a message" } }
        @if is_paused { p { span.state.warn { "◐ Paused for all daemons that share the table." } } }
        @if pools.is_empty() { p { span.state.warn { "▲ No pool of this daemon reads it." } } }
        @for pool in pools {
            @if let Some(problem) = &pool.source_problem { p.error { (text(problem)) } }
        }
    }
}

fn readers(place: &QueuePlace, pools: &[&PoolStatus]) -> Markup {
    html! {
        @if !pools.is_empty() {
            h2 { "Read by" }
            div.wide tabindex="0" {
                table {
                    thead { tr {
                        th scope="col" { "Pool" } th scope="col" { "State" } th.number scope="col" { "Workers" }
                        th.number scope="col" { "Done/s" } th.number scope="col" { "Dead letters" }
                    } }
                    tbody {
                        @for pool in pools {
                            @let dead = Fields::from([("pool", &*pool.name)]).at(&dead_path(&place.source));
                            tr {
                                th scope="row" { a href=(pool_path(&pool.name)) { (text(&pool.name)) } }
                                td { (state(pool.state.as_str())) }
                                td.number { (pool.workers.len()) "/" (pool.workers_wanted) }
                                td.number { (rate_of(pool.done_per_second)) }
                                td.number { a href=(dead) { (count(pool.counts.dead)) " since the start" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn form(place: &QueuePlace, typed: &TypedMessage, problem: Option<&str>) -> Markup {
    let action = path(SEND, &[&place.queue]);
    let action = Fields::from([("source", &*place.source)]).at(&action);
    let fields = [
        ("message_id", "Message id", &typed.message_id, ""),
        (
            "correlation_id",
            "Correlation id",
            &typed.correlation_id,
            "",
        ),
        (
            "content_type",
            "Content type",
            &typed.content_type,
            "application/json",
        ),
        ("key", "Key", &typed.key, ""),
        ("delay", "Delay", &typed.delay, "30s"),
        ("priority", "Priority", &typed.priority, "0"),
    ];
    html! {
        @if let Some(problem) = problem { (refused(problem)) }
        form method="post" action=(action) {
            label.above for="message-body" { "Body" }
            textarea #message-body name="body" spellcheck="false" { "\n" (typed.body) }
            label.above for="message-headers" { "Headers, one a line, such as tenant: blue" }
            textarea.low #message-headers name="headers" spellcheck="false" { "\n" (typed.headers) }
            div.filters {
                @for (name, label, value, example) in fields {
                    label { (label) " " input name=(name) value=(value) placeholder=(example); }
                }
            }
            label { input type="checkbox" name="any" checked[typed.any.is_some()]; " Send a body that looks like JSON and is not" }
            div.actions {
                button { "Send" }
                @if problem.is_some() { a.button href=(place.path()) { "Back to the queue" } }
            }
        }
    }
}

fn as_commands(place: &QueuePlace, canceller: Option<&str>) -> Vec<String> {
    let QueuePlace { queue, source } = place;
    let cancel = canceller.map(|pool| command(&["cancel", pool, "ID"]));
    let first = [
        command(&["waiting", queue, "--source", source]),
        command(&["send", queue, "BODY", "--source", source]),
    ];
    let last = command(&["dead", "list", "--source", source]);
    first.into_iter().chain(cancel).chain([last]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(body: &str, headers: &str) -> TypedMessage {
        TypedMessage {
            body: body.to_owned(),
            headers: headers.to_owned(),
            ..TypedMessage::default()
        }
    }

    #[test]
    fn each_topic_of_a_pool_has_a_link() {
        let pool = PoolStatus {
            source: "main".to_owned(),
            queue: "mail, a&b".to_owned(),
            ..PoolStatus::default()
        };
        let links = queue_links(&pool).into_string();
        for queue in ["mail", "a&b"] {
            let to = queue_path("main", queue).replace('&', "&amp;");
            assert!(links.contains(&format!("href=\"{to}\"")), "{links}");
        }
        assert_eq!(links.matches("<a ").count(), 2, "{links}");
    }

    #[test]
    fn a_message_is_what_was_typed() {
        let message = TypedMessage {
            priority: " 3 ".to_owned(),
            delay: "30s".to_owned(),
            ..typed("a\r\nb", "tenant: blue\r\n\r\nurl: http://a:1\r\n")
        };
        let expected = json!({
            "body": "a\nb", "delay": "30s", "priority": 3, "headers": { "tenant": "blue", "url": "http://a:1" },
        });
        assert_eq!(message.message().unwrap(), expected);
    }

    #[test]
    fn a_wrong_message_says_what_is_wrong() {
        for (message, why) in [
            (typed("{", ""), "not JSON"),
            (typed("", "no header"), "`name: value`"),
            (typed("", "a: 1\na: 2"), "twice"),
            (
                TypedMessage {
                    priority: "high".to_owned(),
                    ..TypedMessage::default()
                },
                "whole number",
            ),
        ] {
            let error = message.message().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let any = TypedMessage {
            any: Some("on".to_owned()),
            ..typed("{", "")
        };
        assert!(any.message().is_ok());
    }
}
