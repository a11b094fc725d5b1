//! Who may ask. On the socket the daemon's own user and root; on the network whoever brings the
//! token, or without one, programs on this machine that are no web page of others.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use nix::unistd::Uid;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::answer::Problem;
use crate::config::model::Secret;

/// The way that a request came in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// The unix socket, from a process of that user.
    Socket {
        /// The user, if the kernel tells.
        peer: Option<u32>,
    },
    /// `admin.listen`.
    Network,
    /// `telemetry.listen`, which needs no token and has little behind it.
    Telemetry,
}

/// Lets requests in, or not.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    /// Of the token: comparing hashes tells nothing of how much of it was right.
    hash: Option<[u8; 32]>,
    own: u32,
}

impl Guard {
    pub(super) fn new(token: Option<&Secret>) -> Self {
        Self {
            hash: token.map(|token| hash(token.expose())),
            own: Uid::effective().as_raw(),
        }
    }

    fn check(&self, door: Door, headers: &HeaderMap) -> Result<(), Problem> {
        match door {
            Door::Telemetry => Ok(()),
            Door::Socket { peer } => self.check_peer(peer),
            Door::Network => match self.hash {
                Some(expected) => check_token(expected, headers),
                None => check_host(headers).and_then(|()| check_origin(headers)),
            },
        }
    }

    fn check_peer(&self, peer: Option<u32>) -> Result<(), Problem> {
        if peer.is_some_and(|uid| uid == self.own || uid == 0) {
            return Ok(());
        }
        let why = "the socket is for the daemon's own user and root";
        Err(Problem::new(StatusCode::FORBIDDEN, why))
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn check_token(expected: [u8; 32], headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(header::AUTHORIZATION);
    let given = given.and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let right = given.is_some_and(|token| bool::from(hash(token).ct_eq(&expected)));
    if right {
        return Ok(());
    }
    let why = "send the token of the configuration's [admin] as `Authorization: Bearer TOKEN`";
    Err(Problem::new(StatusCode::UNAUTHORIZED, why))
}

/// A web page can make a browser on this machine ask us, under a name that leads here. The name is
/// then not this machine's own.
fn check_host(headers: &HeaderMap) -> Result<(), Problem> {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let host = host.and_then(|host| host.parse::<Authority>().ok());
    if host.is_some_and(|host| is_this_machine(host.host())) {
        return Ok(());
    }
    let why = "without a token, Host must be localhost or a loopback address";
    Err(Problem::new(StatusCode::FORBIDDEN, why))
}

fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(origin) = headers.get(header::ORIGIN) else {
        return Ok(());
    };
    let authority = |origin: &str| origin.split_once("://")?.1.parse::<Authority>().ok();
    let origin = origin.to_str().ok().and_then(authority);
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    if origin.is_some_and(|origin| Some(origin.as_str()) == host) {
        return Ok(());
    }
    let why = "requests of other sites' pages are not answered";
    Err(Problem::new(StatusCode::FORBIDDEN, why))
}

fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let loopback = |address: IpAddr| address.is_loopback();
    host.eq_ignore_ascii_case("localhost") || bare.parse().is_ok_and(loopback)
}

/// Whether it asks how the daemon is, which anybody may: kubelet sends an address as the host, and
/// has no token.
fn is_health(path: &str) -> bool {
    matches!(path, "/livez" | "/readyz")
}

/// The layer that all requests go through.
pub(super) async fn guard(
    State(guard): State<Arc<Guard>>,
    request: Request,
    next: Next,
) -> Response {
    let door = request.extensions().get::<Door>().copied();
    let allowed = match door {
        Some(_) if is_health(request.uri().path()) => Ok(()),
        Some(door) => guard.check(door, request.headers()),
        None => Err(Problem::new(
            StatusCode::FORBIDDEN,
            "nobody knows where this came from",
        )),
    };
    match allowed {
        Ok(()) => next.run(request).await,
        Err(problem) => {
            let path = request.uri().path();
            tracing::warn!(path, problem = ?problem, "a request to the admin API was refused");
            let mut response = problem.into_response();
            if response.status() == StatusCode::UNAUTHORIZED {
                let scheme = header::HeaderValue::from_static("Bearer");
                response
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, scheme);
            }
            response
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        let pair =
            |(name, value): &(header::HeaderName, &str)| (name.clone(), value.parse().unwrap());
        pairs.iter().map(pair).collect()
    }

    fn status(guard: &Guard, door: Door, pairs: &[(header::HeaderName, &str)]) -> u16 {
        match guard.check(door, &headers(pairs)) {
            Ok(()) => 200,
            Err(problem) => problem.into_response().status().as_u16(),
        }
    }

    #[test]
    fn the_token_opens_the_network_and_nothing_else_does() {
        let guard = Guard::new(Some(&Secret::new("s3cret")));
        let bearer = |text| [(header::AUTHORIZATION, text)];
        let table = [
            ("Bearer s3cret", 200),
            ("bearer  s3cret", 200),
            ("Bearer s3cre", 401),
            ("Bearer s3crett", 401),
            ("Basic s3cret", 401),
            ("s3cret", 401),
        ];
        for (text, expected) in table {
            assert_eq!(
                status(&guard, Door::Network, &bearer(text)),
                expected,
                "{text}"
            );
        }
        let local = [(header::HOST, "localhost")];
        assert_eq!(status(&guard, Door::Network, &local), 401);
        assert_eq!(status(&guard, Door::Telemetry, &[]), 200);
    }

    #[test]
    fn without_a_token_only_this_machine_asks_and_no_page_of_others() {
        let guard = Guard::new(None);
        let hosts = [
            ("localhost:9464", 200),
            ("127.0.0.1:9464", 200),
            ("[::1]:9464", 200),
            ("127.0.0.2", 200),
            ("evil.example", 403),
            ("localhost.evil.example", 403),
            ("10.1.2.3:9464", 403),
        ];
        for (host, expected) in hosts {
            let pairs = [(header::HOST, host)];
            assert_eq!(status(&guard, Door::Network, &pairs), expected, "{host}");
        }
        assert_eq!(status(&guard, Door::Network, &[]), 403);
        let host = (header::HOST, "localhost:9464");
        for (origin, expected) in [
            ("http://localhost:9464", 200),
            ("http://localhost:1234", 403),
            ("https://evil.example", 403),
            ("null", 403),
        ] {
            let pairs = [host.clone(), (header::ORIGIN, origin)];
            assert_eq!(status(&guard, Door::Network, &pairs), expected, "{origin}");
        }
    }

    #[test]
    fn the_socket_is_for_its_owner_and_root() {
        let guard = Guard {
            hash: Some(hash("not asked for here")),
            own: 7,
        };
        for (peer, expected) in [(Some(7), 200), (Some(0), 200), (Some(8), 403), (None, 403)] {
            assert_eq!(
                status(&guard, Door::Socket { peer }, &[]),
                expected,
                "{peer:?}"
            );
        }
    }
}
