//! Pages that follow what they show: a browser that asks for a page as an event stream gets the parts of it that
//! change.

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::page::{LOOK_EVERY, Page, Part};
use super::shown::started;
use crate::answer::ToldProblem;
use crate::base_path::BasePath;

/// Interval at which a page is looked at that should not be followed.
const STILL: Duration = Duration::from_secs(60);

/// Time after which a stream ends. The browser asks anew then: its session may have ended, or its role be another.
const FOLLOWED_FOR: Duration = Duration::from_secs(60);

/// Mark of a request by which a page is looked at that a browser has already. Parts that are left out stay as they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Followed;

/// Part of the time that looks for all browsers together may take: one of so many. So pages that are left open, however
/// many and however costly, don't slow what they show.
const SHARE: u32 = 50;
/// Maximum multiple of its own interval at which a page is looked at: one slow look must not make it old.
const SLOWED_MAX: u32 = 10;

/// Number of pages that are followed. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct FollowedPages(Arc<AtomicU32>);

impl FollowedPages {
    /// Adds a page until what is returned is dropped.
    fn enter(&self) -> FollowedPlace {
        self.0.fetch_add(1, Ordering::Relaxed);
        FollowedPlace(self.clone())
    }

    /// Returns the interval at which a page may be looked at if a look takes that long.
    fn pace(&self, look: Duration) -> Duration {
        look.saturating_mul(SHARE.saturating_mul(self.0.load(Ordering::Relaxed)))
    }
}

/// A page among those that are followed.
#[derive(Debug)]
struct FollowedPlace(FollowedPages);

impl Drop for FollowedPlace {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A part that has changed.
#[derive(Debug, Serialize)]
struct Patch<'a> {
    id: &'a str,
    html: Cow<'a, str>,
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
pub(super) async fn follow(
    State(followed): State<FollowedPages>,
    request: Request,
    next: Next,
) -> Response {
    if *request.method() != Method::GET || !wants_stream(request.headers()) {
        return next.run(request).await;
    }
    let (mut parts, _) = request.into_parts();
    let base = parts.extensions.get().cloned().unwrap_or_default();
    parts.extensions.insert(Followed);
    let begin = FollowedPage {
        next,
        parts,
        sent: SentParts::default(),
        begun: None,
        problem: None,
        pace: LOOK_EVERY,
        base,
        place: followed.enter(),
    };
    let events = stream::unfold(begin, |mut following| async {
        let events = following.look().await?;
        let events = events.into_iter().map(Ok::<_, Infallible>);
        Some((stream::iter(events.collect::<Vec<_>>()), following))
    });
    Sse::new(events.flatten())
        .keep_alive(KeepAlive::new())
        .into_response()
}

/// Returns whether a request is for a stream of what changes in a page.
pub(crate) fn wants_stream(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT);
    accept.is_some_and(|accept| accept == "text/event-stream")
}

struct FollowedPage {
    next: Next,
    parts: http::request::Parts,
    sent: SentParts,
    /// Time of the first look; none before it.
    begun: Option<Instant>,
    /// Problem of the last look.
    problem: Option<ToldProblem>,
    pace: Duration,
    base: BasePath,
    place: FollowedPlace,
}

impl FollowedPage {
    /// Waits, and returns what has changed since the last look; none at the end of the stream. One that is looked at
    /// seldom, since that is costly, ends before a look: the next stream begins with one.
    async fn look(&mut self) -> Option<Vec<Event>> {
        let mut events = Vec::new();
        match self.begun {
            None => {
                self.begun = Some(Instant::now());
                // A browser that finds another daemon loads the page anew.
                events.push(Event::default().event("daemon").data(started()));
            }
            Some(begun) => {
                sleep(self.pace).await;
                if begun.elapsed() >= FOLLOWED_FOR {
                    return None;
                }
            }
        }
        let request = Request::from_parts(self.parts.clone(), Body::empty());
        let looked = Instant::now();
        let mut response = self.next.clone().run(request).await;
        // What is no page now, as of a pool that is gone, stays as it was, and the browser says so.
        let problem = response.extensions_mut().remove::<ToldProblem>();
        if problem != self.problem {
            let text = problem.as_ref().map_or("", |ToldProblem(text)| text);
            events.extend(Event::default().event("problem").json_data(text).ok());
            self.problem = problem;
        }
        if let Some(page) = response.extensions_mut().remove::<Arc<Page>>() {
            let least = self.place.0.pace(looked.elapsed());
            let own = page.pace.unwrap_or(STILL);
            self.pace = least.clamp(own, own.saturating_mul(SLOWED_MAX));
            let patches = self.sent.changed(&page).into_iter().map(|part| Patch {
                id: part.id,
                html: self.base.in_page(&part.body),
            });
            events.extend(
                patches.filter_map(|patch| Event::default().event("part").json_data(patch).ok()),
            );
        }
        Some(events)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::body::to_bytes;
    use axum::handler::Handler;
    use axum::http::StatusCode;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use futures_util::future::join;
    use maud::html;
    use tower::ServiceExt;

    use super::*;
    use crate::answer::Problem;
    use crate::ui::page::Section;

    /// Follows a page to the end of its stream, and returns that and how often it was looked at.
    async fn followed(pace: Duration) -> (String, usize) {
        followed_among(&FollowedPages::default(), pace, Duration::ZERO).await
    }

    /// Follows a page among others. To look at it takes some time.
    async fn followed_among(
        others: &FollowedPages,
        pace: Duration,
        takes: Duration,
    ) -> (String, usize) {
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looks);
        let page = move || async move {
            sleep(takes).await;
            let look = counted.fetch_add(1, Ordering::Relaxed);
            let page = Page::new(Section::Now, "A page").every(pace);
            page.with("same", html! { "same" })
                .with("new", html! { "look " (look) })
        };
        let body = stream_of(page, others).await;
        (body, looks.load(Ordering::Relaxed))
    }

    async fn stream_of<H: Handler<T, ()>, T: 'static>(page: H, others: &FollowedPages) -> String {
        let routes = Router::new().route("/", get(page));
        let routes = routes.layer(from_fn_with_state(others.clone(), follow));
        let request = Request::get("/").header(header::ACCEPT, "text/event-stream");
        let Ok(answer) = routes.oneshot(request.body(Body::empty()).unwrap()).await;
        let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn parts_are_sent_when_they_change() {
        let (body, looks) = followed(Duration::from_secs(1)).await;
        assert_eq!(looks, 60);
        assert_eq!(body.matches(r#""id":"new""#).count(), 60);
        assert_eq!(body.matches(r#""id":"same""#).count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn looks_for_all_browsers_together_take_a_share_of_the_time() {
        let (others, takes) = (FollowedPages::default(), Duration::from_millis(100));
        let follow = || followed_among(&others, LOOK_EVERY, takes);
        let (_, alone) = follow().await;
        // A look takes a tenth of a second, and the next one follows five seconds later.
        assert_eq!(alone, 12);
        let ((_, one), (_, other)) = join(follow(), follow()).await;
        assert_eq!((one, other), (6, 6));
        assert_eq!(others.pace(takes), Duration::ZERO, "nobody is left");
        // After a look of a second it is ten times its interval, and not fifty seconds.
        let (_, slow) = followed_among(&others, LOOK_EVERY, Duration::from_secs(1)).await;
        assert_eq!(slow, 6);
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_is_gone_is_told_once() {
        let looks = Arc::new(AtomicUsize::new(0));
        let page = move || async move {
            if looks.fetch_add(1, Ordering::Relaxed) < 3 {
                return Page::new(Section::Now, "A page").into_response();
            }
            Problem::new(StatusCode::NOT_FOUND, "there is no pool `a`").into_response()
        };
        let body = stream_of(page, &FollowedPages::default()).await;
        let told = "event: problem\ndata: \"there is no pool `a`\"";
        assert_eq!(body.matches(told).count(), 1, "{body}");
        assert_eq!(body.matches("event: problem").count(), 1, "{body}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_costly_page_is_looked_at_at_its_own_pace() {
        let began = Instant::now();
        let (_, looks) = followed(Duration::from_secs(300)).await;
        assert_eq!(looks, 1);
        assert_eq!(began.elapsed().as_secs(), 300);
    }
}
