//! Pages that follow what they show: a browser that asks for a page as an event stream gets the parts of it that
//! change.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde::Serialize;
use tokio::time::sleep;

use super::page::{LOOK_EVERY, Page, Part};
use super::shown::started;

/// Interval at which a page is looked at that should not be followed.
const STILL: Duration = Duration::from_secs(60);

/// Time after which a stream ends.
const FOLLOWED_FOR: Duration = Duration::from_secs(60);

/// A part that has changed.
#[derive(Debug, Serialize)]
struct Patch<'a> {
    id: &'a str,
    html: &'a str,
}

/// Parts of a page as a browser has them.
#[derive(Debug, Default)]
struct SentParts(HashMap<&'static str, String>);

impl SentParts {
    /// Returns the parts that have changed, and takes them as sent.
    fn changed<'a>(&mut self, page: &'a Page) -> Vec<&'a Part> {
        let changed = page.parts.iter();
        let changed = changed.filter(|part| self.0.get(part.id) != Some(&part.body));
        let changed: Vec<&Part> = changed.collect();
        for part in &changed {
            self.0.insert(part.id, part.body.clone());
        }
        changed
    }
}

/// Sends a page as a stream of its changes, if that is asked for.
pub(super) async fn follow(request: Request, next: Next) -> Response {
    if *request.method() != Method::GET || !wants_stream(request.headers()) {
        return next.run(request).await;
    }
    let (parts, _) = request.into_parts();
    let begin = FollowedPage {
        next,
        parts,
        sent: SentParts::default(),
        is_begun: false,
        pace: LOOK_EVERY,
    };
    let events = stream::unfold(begin, |mut following| async {
        let events = following.look().await;
        let events = events.into_iter().map(Ok::<_, Infallible>);
        Some((stream::iter(events.collect::<Vec<_>>()), following))
    });
    // The browser asks anew then: its session may have ended, or its role be another.
    let events = events.flatten().take_until(Box::pin(sleep(FOLLOWED_FOR)));
    Sse::new(events)
        .keep_alive(KeepAlive::new())
        .into_response()
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT);
    accept.is_some_and(|accept| accept == "text/event-stream")
}

struct FollowedPage {
    next: Next,
    parts: http::request::Parts,
    sent: SentParts,
    is_begun: bool,
    pace: Duration,
}

impl FollowedPage {
    /// Waits, and returns what has changed since the last look.
    async fn look(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        match self.is_begun {
            // A browser that finds another daemon loads the page anew.
            false => events.push(Event::default().event("daemon").data(started())),
            true => sleep(self.pace).await,
        }
        self.is_begun = true;
        let request = Request::from_parts(self.parts.clone(), Body::empty());
        let mut response = self.next.clone().run(request).await;
        // What is no page now, as of a pool that is gone, stays as it was.
        if let Some(page) = response.extensions_mut().remove::<Arc<Page>>() {
            self.pace = page.pace.unwrap_or(STILL);
            let patches = self.sent.changed(&page).into_iter().map(|part| Patch {
                id: part.id,
                html: &part.body,
            });
            events.extend(
                patches.filter_map(|patch| Event::default().event("part").json_data(patch).ok()),
            );
        }
        events
    }
}
