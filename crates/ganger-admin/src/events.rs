//! Events as a stream of server-sent events. A client that reconnects continues where it was, and is told
//! which events it has missed.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as Sse, KeepAlive};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use tokio::sync::watch;

use super::answer::Problem;
use super::context::Context;
use super::schedules::limit;
use ganger_pool::events::{EventFeed, FeedEntry, PoolEvent};

/// Interval of the signs of life on a silent stream.
const ALIVE_EVERY: Duration = Duration::from_secs(15);
/// Maximum and default number of events in a list.
const EVENTS_MAX: u32 = 1000;
const EVENTS: u32 = 100;

/// Stream events as server-sent events. Each has its `id`, its kind as `event`, and as data a JSON object
/// with both, `at` (seconds since 1970) and the fields of its kind. With `Last-Event-ID` the stream continues
/// after that event; `0` begins with the oldest one kept. An event `missed` reports events that are missing
/// because they are no longer kept or because another daemon wrote them.
#[utoipa::path(get, path = "/v1/events", tag = "status",
    params(("Last-Event-ID" = Option<String>, Header, description = "The `id` of the last one seen")),
    responses(
        (status = 200, description = "An endless stream", body = PoolEvent, content_type = "text/event-stream"),
        (status = 400, description = "Invalid id", body = Problem),
    ),
)]
pub(super) async fn events(
    State(context): State<Context>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let feed = context.daemon.overview.feed().clone();
    let id = headers.get("last-event-id").map(|id| id.to_str());
    let (seen, missed) = match id {
        None => (feed.last(), None),
        Some(id) => begin(&feed, id.unwrap_or("not text").trim())?,
    };
    let listening = Listening {
        listen: feed.listen(),
        feed,
        seen,
        missed,
    };
    let keep_alive = KeepAlive::new().interval(ALIVE_EVERY);
    let events = stream::unfold(listening, next);
    Ok(axum::response::Sse::new(events)
        .keep_alive(keep_alive)
        .into_response())
}

/// Selection of kept events.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RecentEvents {
    /// Only events of this pool.
    pool: Option<String>,
    /// Only events of this kind, such as `worker_ended`.
    event: Option<String>,
    /// Only events before the one with this id, the last one of the list before.
    before: Option<String>,
    /// Maximum number of events, 1 to 1000; 100 if omitted.
    limit: Option<u32>,
}

/// List the last events, the newest first. The daemon keeps the last 4096 since its start. Each has the form of those in
/// the stream.
#[utoipa::path(get, path = "/v1/events/recent", tag = "status",
    params(RecentEvents),
    responses(
        (status = 200, description = "The events", body = Vec<PoolEvent>),
        (status = 400, description = "Invalid limit", body = Problem),
        (status = 404, description = "The event in `before` is one of another daemon", body = Problem),
    ),
)]
pub(super) async fn recent(
    State(context): State<Context>,
    wanted: Result<Query<RecentEvents>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(wanted) = wanted?;
    let feed = context.daemon.overview.feed();
    let limit = limit(wanted.limit, EVENTS, EVENTS_MAX)?;
    let before = match &wanted.before {
        None => u64::MAX,
        Some(id) => feed.number(id).ok_or_else(|| {
            let why = format!("the event `{id}` is not one of this daemon since its start");
            Problem::new(StatusCode::NOT_FOUND, why)
        })?,
    };
    let is = |wanted: &Option<String>, value: Option<&str>| {
        wanted.is_none() || wanted.as_deref() == value
    };
    let newest = feed.newest(before, limit as usize, |event| {
        is(&wanted.pool, event.pool()) && is(&wanted.event, Some(event.name()))
    });
    let newest: Vec<&FeedEntry> = newest.iter().map(|entry| &**entry).collect();
    Ok(Json(newest).into_response())
}

/// Returns the number after which to continue, and the event to send first.
fn begin(feed: &EventFeed, id: &str) -> Result<(u64, Option<Arc<FeedEntry>>), Problem> {
    if id == "0" {
        return Ok((feed.before_oldest(), None));
    }
    if let Some(number) = feed.number(id) {
        return Ok((number, None));
    }
    let is_id = |id: &str| id.split('-').all(|part| part.parse::<u128>().is_ok());
    match is_id(id) {
        true => {
            let missed = feed.after_another();
            Ok((missed.number, Some(missed)))
        }
        false => Err(Problem::bad(format!(
            "Last-Event-ID must be the id of an event, or 0: `{id}`"
        ))),
    }
}

struct Listening {
    feed: EventFeed,
    listen: watch::Receiver<u64>,
    /// Number of the last event sent.
    seen: u64,
    /// Event to send first.
    missed: Option<Arc<FeedEntry>>,
}

async fn next(mut state: Listening) -> Option<(Result<Sse, Infallible>, Listening)> {
    loop {
        state.listen.borrow_and_update();
        let entry = state.missed.take().or_else(|| state.feed.after(state.seen));
        if let Some(entry) = entry {
            state.seen = entry.number;
            let shown = Sse::default().id(&entry.id).event(entry.event.name());
            let shown = shown.json_data(&*entry).unwrap_or_default();
            return Some((Ok(shown), state));
        }
        state.listen.changed().await.ok()?;
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn ended(pool: &str) -> PoolEvent {
        PoolEvent::PoolEnded { pool: pool.into() }
    }

    fn feed(events: usize) -> EventFeed {
        let feed = EventFeed::new(SystemTime::now());
        (0..events).for_each(|_| feed.push(ended("p")));
        feed
    }

    fn listening(feed: &EventFeed, id: &str) -> Listening {
        let (seen, missed) = begin(feed, id).unwrap();
        Listening {
            listen: feed.listen(),
            feed: feed.clone(),
            seen,
            missed,
        }
    }

    #[tokio::test]
    async fn a_listener_that_was_away_goes_on_where_it_was() {
        let feed = feed(3);
        let id = feed.after(0).unwrap().id.clone();
        let mut state = listening(&feed, &id);
        for number in [2, 3] {
            state = next(state).await.unwrap().1;
            assert_eq!(state.seen, number);
        }
        let waiting = tokio::spawn(next(state));
        feed.push(ended("q"));
        let (_, state) = waiting.await.unwrap().unwrap();
        assert_eq!(state.seen, 4);
    }

    #[tokio::test]
    async fn a_listener_of_another_daemon_is_told_so_and_misses_nothing_of_this_one() {
        let feed = feed(3);
        for other in ["1-2", "2"] {
            let state = listening(&feed, other);
            let missed = state.missed.as_ref().unwrap();
            assert_eq!(missed.event, PoolEvent::Missed { count: None });
            let (_, state) = next(state).await.unwrap();
            assert_eq!(state.seen, 0);
            let (_, state) = next(state).await.unwrap();
            assert_eq!(state.seen, 1);
        }
        assert!(begin(&feed, "0").unwrap().1.is_none());
        assert!(begin(&feed, "last").is_err());
    }
}
