//! The list of messages that wait in a queue, on its page.

use std::time::Duration;

use ganger_core::units::show_size;
use ganger_pool::status::PoolStatus;
use ganger_queue::client::shown::bytes;
use ganger_queue::client::{WaitingList, WaitingMessage};
use maud::{Markup, html};
use tokio::time::timeout;

use super::api::Api;
use super::content::content;
use super::dead_letter::headers;
use super::paths::{form, path, pool_api, queue_path};
use super::query::Fields;
use super::shown::{first, text, time_of};
use crate::answer::Problem;

/// Time for which a page waits for the list.
const READ_WITHIN: Duration = Duration::from_secs(2);
/// Longest parts of an error and of a body in a row, in characters.
const ERROR_CHARS: usize = 110;
const BODY_CHARS: usize = 60;

/// Queue whose messages are listed.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListedQueue<'a> {
    pub(super) source: &'a str,
    /// Kind of the source.
    pub(super) kind: &'a str,
    pub(super) queue: &'a str,
    /// Pools that read it.
    pub(super) pools: &'a [&'a PoolStatus],
}

impl ListedQueue<'_> {
    /// Returns the pool through which messages that wait can be cancelled.
    pub(super) fn canceller(&self) -> Option<&str> {
        let pool = self.pools.first().filter(|_| self.kind == "table");
        pool.map(|pool| pool.name.as_str())
    }

    /// Returns the reason why its messages are not read, if there is one.
    fn unreadable(&self) -> Option<&'static str> {
        if self.kind == "rabbitmq" {
            return Some(
                "Messages that wait in RabbitMQ can't be listed: one is read there only by taking it, which counts as \
                 a delivery, and a quorum queue gives up a message that was delivered too often.",
            );
        }
        let is_down = self.pools.iter().any(|pool| pool.source_problem.is_some());
        is_down.then_some("They are not read while the source can't be used.")
    }
}

/// Reads the first messages of a queue, and shows them.
pub(super) async fn waiting(api: &Api, of: ListedQueue<'_>) -> Markup {
    html! {
        h2 { "Waiting" }
        @match of.unreadable() {
            Some(why) => p.none { (why) },
            None => @match read(api, of).await {
                Ok(list) => (listed(&list, of)),
                Err(problem) => p.error { (text(problem.detail())) },
            },
        }
    }
}

async fn read(api: &Api, of: ListedQueue<'_>) -> Result<WaitingList, Problem> {
    let path = path("/v1/queues/{queue}/messages", &[of.queue]);
    let path = Fields::from([("source", of.source)]).at(&path);
    let read = timeout(READ_WITHIN, api.get(&path)).await;
    read.unwrap_or_else(|_| {
        let why = format!(
            "source `{}` has not answered within {READ_WITHIN:?}",
            of.source
        );
        Err(Problem::bad(why))
    })
}

fn listed(list: &WaitingList, of: ListedQueue<'_>) -> Markup {
    html! {
        @if list.messages.is_empty() {
            p.none { "No message can be claimed, and none is delayed." }
        } @else {
            div.wide tabindex="0" {
                table.cards {
                    thead { tr {
                        th scope="col" { "Message" } th scope="col" { "Since" } th.number scope="col" { "Priority" }
                        th scope="col" { "Attempts" } th scope="col" { "Body" }
                        @if of.canceller().is_some() { th scope="col" { "Action" } }
                    } }
                    tbody { @for message in &list.messages { (row(message, of)) } }
                }
            }
            @if list.more { p.none { "More messages wait. These are the first " (list.messages.len()) "." } }
        }
    }
}

fn row(message: &WaitingMessage, of: ListedQueue<'_>) -> Markup {
    let name = message
        .message_id
        .as_ref()
        .or(message.correlation_id.as_ref());
    html! {
        tr {
            th.cut scope="row" {
                (text(&message.id))
                @if let Some(name) = name { br; span.of { (text(&first(name, BODY_CHARS))) } }
            }
            td {
                @if let Some(at) = &message.created_at { (time_of(at)) }
                @if let Some(at) = &message.available_at { br; span.of { "delayed until " (time_of(at)) } }
            }
            td.number data-label="Priority" { (message.priority) }
            td.cut data-label="Attempts" {
                (message.attempts)
                @if let Some(error) = &message.last_error { br; span.error { (text(&first(error, ERROR_CHARS))) } }
            }
            td.cut.main { (contents(message)) }
            @if let Some(pool) = of.canceller() { td { (cancel(message, pool, of)) } }
        }
    }
}

/// Shows the beginning of the body, with the rest of the message folded.
fn contents(message: &WaitingMessage) -> Markup {
    let body = bytes(message.body.clone(), message.body_base64.clone());
    let body = body.ok().flatten().unwrap_or_default();
    let start = first(&String::from_utf8_lossy(&body), BODY_CHARS);
    let facts = [
        ("Message id", &message.message_id),
        ("Correlation id", &message.correlation_id),
        ("Content type", &message.content_type),
        ("Key", &message.key),
        ("Reply to", &message.reply_to),
        ("Last error", &message.last_error),
    ];
    let of_message = message.headers.clone().into_iter().collect();
    html! {
        details {
            summary { @if start.is_empty() { "empty" } @else { code { (text(&start)) } } }
            dl.facts {
                @for (label, value) in facts {
                    @if let Some(value) = value { dt { (label) } dd { (text(value)) } }
                }
            }
            (content(&body))
            @if let Some(bytes) = message.body_cut {
                p.none { "The first " (show_size(body.len() as u64)) " of " (show_size(bytes as u64)) "." }
            }
            @if !message.headers.is_empty() { (headers(&of_message)) }
        }
    }
}

fn cancel(message: &WaitingMessage, pool: &str, of: ListedQueue<'_>) -> Markup {
    let action = form("post", &format!("{}/cancel", pool_api(pool)));
    html! {
        details.ask {
            summary { "Cancel…" }
            form method="post" action=(action) {
                input type="hidden" name="id" value=(message.id);
                input type="hidden" name="back" value=(queue_path(of.source, of.queue));
                p {
                    "The message becomes a dead letter of pool " (text(pool)) ", which can be dropped or sent back from there."
                }
                button.danger { "Cancel" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hostile() -> WaitingMessage {
        let headers = vec![("constructor".to_owned(), "<h>".to_owned())];
        let message = WaitingMessage {
            id: "<id>:1".to_owned(),
            last_error: Some("<error>\u{202e}".to_owned()),
            message_id: Some("<mid>".to_owned()),
            correlation_id: Some("<cid>".to_owned()),
            key: Some("<key>".to_owned()),
            ..WaitingMessage::default()
        };
        message.with_headers(headers).with_body(b"<body>", 10 << 20)
    }

    fn of<'a>(kind: &'a str, pools: &'a [&'a PoolStatus]) -> ListedQueue<'a> {
        ListedQueue {
            source: "<s>",
            kind,
            queue: "<q>",
            pools,
        }
    }

    #[test]
    fn all_of_a_hostile_message_is_text() {
        let list = WaitingList {
            messages: vec![hostile()],
            more: true,
        };
        let pool = PoolStatus {
            name: "<pool>".to_owned(),
            ..PoolStatus::default()
        };
        let shown = listed(&list, of("table", &[&pool])).into_string();
        for tag in [
            "<id>", "<error>", "<mid>", "<cid>", "<key>", "<h>", "<body>", "<pool>", "\u{202e}",
        ] {
            assert!(!shown.contains(tag), "{tag}");
        }
        for part in [
            "constructor",
            "The first 6B of 10MiB",
            "More messages wait",
            "name=\"id\"",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn what_can_not_be_cancelled_has_no_button() {
        let pool = PoolStatus::default();
        for of in [of("kafka", &[&pool]), of("table", &[])] {
            assert!(!row(&hostile(), of).into_string().contains("Cancel"));
        }
    }

    #[test]
    fn a_source_that_can_not_show_messages_is_not_read() {
        let down = PoolStatus {
            source_problem: Some("it is down".to_owned()),
            ..PoolStatus::default()
        };
        assert!(
            of("rabbitmq", &[])
                .unreadable()
                .unwrap()
                .contains("RabbitMQ")
        );
        assert!(of("table", &[&down]).unreadable().is_some());
        assert!(of("kafka", &[]).unreadable().is_none());
    }
}
