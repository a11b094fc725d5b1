//! Connections of one listener. There are never more than [`CONNECTIONS_MAX`]: a new one closes the
//! one that has been idle for longest. Requests take a place of their kind, except probes; as there
//! are fewer places than connections, one is always idle, and a probe always gets in.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{self, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::answer::Problem;
use super::browser::LOGIN;

/// Maximum number of connections of a listener.
const CONNECTIONS_MAX: usize = 128;
/// Maximum number of requests on one connection, after which it is closed.
const REQUESTS_MAX: usize = 100;

/// The kinds of requests that take a place, each with its name and number of places.
const KINDS: [(&str, usize); 5] = [
    ("scrapes", 8),
    ("event streams", 32),
    ("requests", 64),
    ("waits", 16),
    // These are of whoever can connect.
    ("logins", 4),
];

/// Returns the index in [`KINDS`] of a request; none for a probe, which needs no place.
fn kind_of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<usize> {
    let wants_stream = headers
        .get(header::ACCEPT)
        .is_some_and(|accept| accept == "text/event-stream");
    match uri.path() {
        "/livez" | "/readyz" => None,
        "/metrics" => Some(0),
        "/v1/events" => Some(1),
        LOGIN if method == Method::POST => Some(4),
        path if path.starts_with("/ui") && wants_stream => Some(1),
        path if path.starts_with("/v1/occurrences/") && path.ends_with("/log") => {
            let mut asked = uri.query().unwrap_or_default().split('&');
            let is_stream = asked.any(|one| one.starts_with("follow") && one != "follow=false");
            Some(if is_stream { 1 } else { 2 })
        }
        path if path.starts_with("/v1/occurrences/") && uri.query().is_some() => Some(3),
        _ => Some(2),
    }
}

/// Connections of one listener. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Connections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    open: Mutex<Open>,
    places: [Arc<Semaphore>; KINDS.len()],
}

#[derive(Debug, Default)]
struct Open {
    /// Number of the next event, by which connections are told apart and idle ones ordered.
    next: u64,
    entries: HashMap<u64, OpenConnection>,
}

#[derive(Debug)]
struct OpenConnection {
    /// Number of the event by which it became idle; none while a request holds a place.
    idle_since: Option<u64>,
    closed: Arc<Notify>,
}

impl Open {
    fn count(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn close_idlest(&mut self) {
        let idle = self.entries.iter();
        let idle = idle.filter_map(|(id, entry)| Some((entry.idle_since?, *id)));
        let entry = idle.min().and_then(|(_, id)| self.entries.remove(&id));
        if let Some(entry) = entry {
            entry.closed.notify_one();
        }
    }
}

impl Default for Connections {
    fn default() -> Self {
        Self(Arc::new(Shared {
            open: Mutex::default(),
            places: KINDS.map(|(_, places)| Arc::new(Semaphore::new(places))),
        }))
    }
}

impl Connections {
    /// Adds a new connection, in place of the one that has been idle for longest if the maximum is
    /// reached.
    pub(super) fn enter(&self) -> Connection {
        let mut open = self.open();
        while open.entries.len() >= CONNECTIONS_MAX {
            open.close_idlest();
        }
        let (id, closed) = (open.count(), Arc::new(Notify::new()));
        let entry = OpenConnection {
            idle_since: Some(id),
            closed: Arc::clone(&closed),
        };
        open.entries.insert(id, entry);
        Connection(Arc::new(Own {
            connections: self.clone(),
            id,
            closed,
            requests: AtomicUsize::new(0),
        }))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection. Clones share it; the last one dropped removes it.
#[derive(Debug, Clone)]
pub(super) struct Connection(Arc<Own>);

#[derive(Debug)]
struct Own {
    connections: Connections,
    id: u64,
    closed: Arc<Notify>,
    requests: AtomicUsize,
}

impl Drop for Own {
    fn drop(&mut self) {
        self.connections.open().entries.remove(&self.id);
    }
}

impl Connection {
    /// Waits until the connection has to make room for another.
    pub(super) async fn closed(&self) {
        self.0.closed.notified().await;
    }

    /// Counts a request. Returns whether it is the last one that is answered.
    fn is_last_request(&self) -> bool {
        self.0.requests.fetch_add(1, Ordering::Relaxed) + 1 >= REQUESTS_MAX
    }

    /// Takes a place of that kind. Until it is dropped the connection is not idle.
    fn place(&self, kind: usize) -> Option<Place> {
        let places = &self.0.connections.0.places[kind];
        let permit = places.clone().try_acquire_owned().ok()?;
        self.set_idle_since(|_| None);
        Some(Place {
            connection: self.clone(),
            _permit: permit,
        })
    }

    fn set_idle_since(&self, when: impl FnOnce(&mut Open) -> Option<u64>) {
        let mut open = self.0.connections.open();
        let since = when(&mut open);
        if let Some(entry) = open.entries.get_mut(&self.0.id) {
            entry.idle_since = since;
        }
    }
}

/// Place of a request, from its head to the end of its answer.
#[derive(Debug)]
struct Place {
    connection: Connection,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connection.set_idle_since(|open| Some(open.count()));
    }
}

/// Layer that assigns places to requests, or refuses them.
pub(super) async fn placed(request: Request, next: Next) -> Response {
    let Some(connection) = request.extensions().get::<Connection>().cloned() else {
        return Problem::new(StatusCode::FORBIDDEN, "unknown connection").into_response();
    };
    let mut response = match kind_of(request.method(), request.uri(), request.headers()) {
        None => next.run(request).await,
        Some(kind) => match connection.place(kind) {
            Some(place) => next.run(request).await.map(|body| {
                Body::new(CountedBody {
                    body,
                    _place: place,
                })
            }),
            None => {
                let (kind, places) = KINDS[kind];
                let why = format!("this listener serves {places} {kind} at a time: try again");
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, why).into_response()
            }
        },
    };
    if connection.is_last_request() {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

/// A body that keeps its place until it is written or dropped.
struct CountedBody {
    body: Body,
    _place: Place,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn is_closed(connection: &Connection) -> bool {
        connection.closed().now_or_never().is_some()
    }

    #[test]
    fn the_one_idle_for_longest_makes_room() {
        let connections = Connections::default();
        let mut open: Vec<Connection> = (0..CONNECTIONS_MAX).map(|_| connections.enter()).collect();
        let place = open[0].place(2).unwrap();
        let again = open[1].place(2).unwrap();
        drop(again);
        open.push(connections.enter());
        assert!(is_closed(&open[2]));
        let closed = open.iter().filter(|one| is_closed(one)).count();
        assert_eq!(closed, 0, "a notice is read once");
        assert_eq!(connections.open().entries.len(), CONNECTIONS_MAX);
        drop(place);
        drop(open);
        assert!(connections.open().entries.is_empty());
    }

    #[test]
    fn there_are_always_more_connections_than_places() {
        let places: usize = KINDS.iter().map(|(_, places)| places).sum();
        assert!(places < CONNECTIONS_MAX);
        let connections = Connections::default();
        let busy: Vec<_> = KINDS
            .iter()
            .enumerate()
            .flat_map(|(kind, (_, places))| vec![kind; *places])
            .map(|kind| {
                let connection = connections.enter();
                connection.place(kind).unwrap()
            })
            .collect();
        for (kind, _) in KINDS.iter().enumerate() {
            assert!(connections.enter().place(kind).is_none());
        }
        let later: Vec<_> = (0..3 * CONNECTIONS_MAX)
            .map(|_| connections.enter())
            .collect();
        assert!(busy.iter().all(|place| !is_closed(&place.connection)));
        assert!(!is_closed(later.last().unwrap()));
    }

    #[test]
    fn a_request_that_is_never_answered_in_full_takes_a_place_of_its_kind() {
        for (path, kind) in [
            ("/v1/occurrences/x/log?after=1", "requests"),
            ("/v1/occurrences/x/log?follow=false", "requests"),
            ("/v1/occurrences/x/log?after=1&follow", "event streams"),
            ("/v1/occurrences/x?wait=1s", "waits"),
            ("/v1/occurrences?limit=1", "requests"),
        ] {
            let uri = path.parse().unwrap();
            let found = kind_of(&Method::GET, &uri, &HeaderMap::new());
            assert_eq!(found.map(|kind| KINDS[kind].0), Some(kind), "{path}");
        }
        let login = Uri::from_static("/ui/login?next=x");
        for (method, kind) in [(Method::POST, "logins"), (Method::GET, "requests")] {
            let found = kind_of(&method, &login, &HeaderMap::new());
            assert_eq!(found.map(|kind| KINDS[kind].0), Some(kind));
        }
        let stream = [(
            header::ACCEPT,
            HeaderValue::from_static("text/event-stream"),
        )];
        let followed = kind_of(
            &Method::GET,
            &Uri::from_static("/ui"),
            &HeaderMap::from_iter(stream),
        );
        assert_eq!(followed.map(|kind| KINDS[kind].0), Some("event streams"));
    }

    #[test]
    fn the_last_request_of_a_connection_is_known() {
        let connection = Connections::default().enter();
        let last = (0..REQUESTS_MAX).filter(|_| connection.is_last_request());
        assert_eq!(last.count(), 1);
    }
}
