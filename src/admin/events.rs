//! The events as a stream of server-sent events. Who was away for a moment goes on where it was.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event as Sse, KeepAlive};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::watch;

use super::answer::Problem;
use super::context::Context;
use super::feed::{Feed, Numbered};

/// How often a silent stream shows that it lives.
const ALIVE_EVERY: Duration = Duration::from_secs(15);

/// What happens, as it happens, as server-sent events: each has its number as `id` and its kind as
/// `event`. With `Last-Event-ID` it goes on after that one; `0` begins with the oldest that is kept.
#[utoipa::path(get, path = "/v1/events", tag = "status",
    params(("Last-Event-ID" = Option<u64>, Header, description = "The number of the last one seen")),
    responses(
        (status = 200, description = "A stream without end", body = Numbered, content_type = "text/event-stream"),
        (status = 400, description = "The number is none", body = Problem),
    ),
)]
pub(super) async fn events(State(context): State<Context>, headers: HeaderMap) -> Response {
    let seen = match headers.get("last-event-id").map(|id| id.to_str()) {
        None => Ok(context.feed.last()),
        Some(Ok(id)) => id.trim().parse().map_err(|_| id.to_owned()),
        Some(Err(_)) => Err("not text".to_owned()),
    };
    let mut seen: u64 = match seen {
        Ok(seen) => seen,
        Err(id) => {
            let why = format!("Last-Event-ID must be a whole number: `{id}`");
            return Problem::bad(why).into_response();
        }
    };
    if seen > context.feed.last() {
        // Of a daemon before this one, which counted for itself.
        seen = 0;
    }
    let listen = context.feed.listen();
    let events = stream::unfold((context.feed, listen, seen), next);
    let keep_alive = KeepAlive::new().interval(ALIVE_EVERY);
    axum::response::Sse::new(events)
        .keep_alive(keep_alive)
        .into_response()
}

type Listening = (Feed, watch::Receiver<u64>, u64);

async fn next((feed, mut listen, seen): Listening) -> Option<(Result<Sse, Infallible>, Listening)> {
    loop {
        listen.borrow_and_update();
        if let Some(event) = feed.after(seen) {
            let shown = Sse::default()
                .id(event.id.to_string())
                .event(event.event.name());
            let shown = shown.json_data(&*event).unwrap_or_default();
            return Some((Ok(shown), (feed, listen, event.id)));
        }
        listen.changed().await.ok()?;
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::Event;
    use super::*;

    fn ended(pool: &str) -> Event {
        Event::PoolEnded { pool: pool.into() }
    }

    #[tokio::test]
    async fn a_listener_that_was_away_goes_on_where_it_was() {
        let feed = Feed::default();
        for _ in 0..3 {
            feed.push(ended("p"));
        }
        let mut state = (feed.clone(), feed.listen(), 1);
        for id in [2, 3] {
            let (_, listening) = next(state).await.unwrap();
            assert_eq!(listening.2, id);
            state = listening;
        }
        let waiting = tokio::spawn(next(state));
        feed.push(ended("q"));
        let (_, listening) = waiting.await.unwrap().unwrap();
        assert_eq!(listening.2, 4);
    }
}
