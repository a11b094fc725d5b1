//! Access control. The socket admits the daemon's own user and root; TCP requires the token or a session, on
//! loopback too, where every program of every user could connect. Probes are public, and so are metrics
//! unless a token is configured.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use nix::unistd::Uid;

use super::answer::Problem;
use super::session::{Sessions, hash, is_of};
use ganger_config::model::Secret;

/// Name of the cookie that carries a session.
pub(super) const SESSION_COOKIE: &str = "ganger_session";

/// Interface on which a request arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interface {
    /// The unix socket, from a process of that user.
    Socket {
        /// The user, if the kernel provides it.
        peer: Option<u32>,
    },
    /// `admin.listen`.
    Network,
    /// `telemetry.listen`, which needs no token and serves only a few routes.
    Telemetry,
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket { peer: Some(uid) } => write!(f, "uid {uid} on the socket"),
            Self::Socket { peer: None } => f.write_str("the socket"),
            Self::Network | Self::Telemetry => f.write_str("the network"),
        }
    }
}

/// Scope of the answers to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Everything.
    Full,
    /// Public information only.
    Public,
}

/// Token that requests over TCP bring, and its origin.
#[derive(Debug, Clone)]
pub(super) enum Token {
    /// From the configuration: metrics on the API's address require it too.
    Configured(Secret),
    /// Generated at the start; none if that failed.
    Made(Option<Secret>),
}

/// Admits or refuses requests.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    /// Hash of the token; without one nobody is admitted over TCP.
    token: Option<[u8; 32]>,
    metrics_are_public: bool,
    sessions: Sessions,
    own: u32,
}

impl Guard {
    pub(super) fn new(token: &Token, sessions: Sessions) -> Self {
        let (secret, metrics_are_public) = match token {
            Token::Configured(secret) => (Some(secret), false),
            Token::Made(secret) => (secret.as_ref(), true),
        };
        Self {
            token: secret.map(|secret| hash(secret.expose())),
            metrics_are_public,
            sessions,
            own: Uid::effective().as_raw(),
        }
    }

    fn check(
        &self,
        door: Interface,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Access, Problem> {
        if let Interface::Socket { peer } = door {
            return self.check_peer(peer).map(|()| Access::Full);
        }
        if self.has_token(headers) {
            return Ok(Access::Full);
        }
        if door == Interface::Network && self.has_session(headers) {
            return check_same_origin(method, headers).map(|()| Access::Full);
        }
        match path {
            // Kubelet sends an address as the host, and has no token.
            "/livez" | "/readyz" => Ok(Access::Public),
            _ if door == Interface::Telemetry => Ok(Access::Public),
            "/metrics" if self.metrics_are_public => {
                check_host(headers)?;
                check_origin(headers).map(|()| Access::Public)
            }
            // The code that it brings is looked at there.
            "/ui/login" => Ok(Access::Public),
            _ => Err(Problem::new(StatusCode::UNAUTHORIZED, NEEDS_TOKEN)),
        }
    }

    fn check_peer(&self, peer: Option<u32>) -> Result<(), Problem> {
        if peer.is_some_and(|uid| uid == self.own || uid == 0) {
            return Ok(());
        }
        let why = "the socket is for the daemon's own user and root";
        Err(Problem::new(StatusCode::FORBIDDEN, why))
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(header::AUTHORIZATION);
        let given = given.and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        let token = self.token.as_ref();
        given
            .zip(token)
            .is_some_and(|(given, token)| is_of(given, token))
    }

    fn has_session(&self, headers: &HeaderMap) -> bool {
        let cookies = headers.get_all(header::COOKIE).iter();
        let cookies = cookies.filter_map(|cookies| cookies.to_str().ok());
        let mut pairs = cookies
            .flat_map(|cookies| cookies.split(';'))
            .filter_map(|cookie| cookie.trim().split_once('='));
        pairs.any(|(name, value)| name == SESSION_COOKIE && self.sessions.holds(value))
    }
}

/// Error for a request without a token.
const NEEDS_TOKEN: &str = "send the token of the configuration's [admin], or that of the file beside the \
     daemon's socket, as `Authorization: Bearer TOKEN`; on the socket itself none is needed";

/// Checks that a request that changes something in a session comes from one of our own pages.
fn check_same_origin(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    if method.is_safe() || headers.contains_key(header::ORIGIN) {
        return check_origin(headers);
    }
    let site = headers.get("sec-fetch-site");
    if site.is_some_and(|site| site == "same-origin") {
        return Ok(());
    }
    let why = "a change in a session needs `Origin` or `Sec-Fetch-Site: same-origin`, which a proxy \
               must pass on";
    Err(Problem::new(StatusCode::FORBIDDEN, why))
}

/// Checks the `Host` header. A web page can make a browser on this machine send requests to us, under a name
/// that resolves to it. The name is then not this machine's own.
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
    let why = "requests from other sites' pages are rejected";
    Err(Problem::new(StatusCode::FORBIDDEN, why))
}

fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let loopback = |address: IpAddr| address.is_loopback();
    host.eq_ignore_ascii_case("localhost") || bare.parse().is_ok_and(loopback)
}

/// Layer that all requests pass through.
pub(super) async fn guard(
    State(guard): State<Arc<Guard>>,
    mut request: Request,
    next: Next,
) -> Response {
    let door = request.extensions().get::<Interface>().copied();
    let path = request.uri().path();
    let allowed = match door {
        Some(door) => guard.check(door, request.method(), path, request.headers()),
        None => Err(Problem::new(
            StatusCode::FORBIDDEN,
            "the origin of the request is unknown",
        )),
    };
    match allowed {
        Ok(access) => {
            request.extensions_mut().insert(access);
            next.run(request).await
        }
        Err(problem) => {
            tracing::warn!(path, problem = ?problem, "request to the admin API refused");
            let mut response = problem.into_response();
            let close = header::HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
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

    type Headers<'a> = &'a [(header::HeaderName, &'a str)];

    fn headers(pairs: Headers<'_>) -> HeaderMap {
        let pair =
            |(name, value): &(header::HeaderName, &str)| (name.clone(), value.parse().unwrap());
        pairs.iter().map(pair).collect()
    }

    fn status(guard: &Guard, door: Interface, asked: (&str, &str), pairs: Headers<'_>) -> u16 {
        let (method, path) = asked;
        let method = method.parse().unwrap();
        match guard.check(door, &method, path, &headers(pairs)) {
            Ok(_) => 200,
            Err(problem) => problem.into_response().status().as_u16(),
        }
    }

    fn guard_with(token: Token) -> Guard {
        Guard::new(&token, Sessions::default())
    }

    fn made() -> Guard {
        guard_with(Token::Made(Some(Secret::new("s3cret"))))
    }

    const STATUS: (&str, &str) = ("GET", "/v1/status");

    #[test]
    fn the_token_opens_the_network_and_nothing_else_does() {
        let configured = guard_with(Token::Configured(Secret::new("s3cret")));
        let table = [
            ("Bearer s3cret", 200),
            ("bearer  s3cret", 200),
            ("Bearer s3cre", 401),
            ("Bearer s3crett", 401),
            ("Basic s3cret", 401),
            ("s3cret", 401),
        ];
        for guard in [&configured, &made()] {
            for (text, expected) in table {
                let bearer = [(header::AUTHORIZATION, text)];
                let got = status(guard, Interface::Network, STATUS, &bearer);
                assert_eq!(got, expected, "{text}");
            }
            let local = [(header::HOST, "localhost")];
            assert_eq!(status(guard, Interface::Network, STATUS, &local), 401);
        }
        let none = guard_with(Token::Made(None));
        let empty = [(header::AUTHORIZATION, "Bearer ")];
        assert_eq!(status(&none, Interface::Network, STATUS, &empty), 401);
    }

    #[test]
    fn without_a_token_there_are_probes_and_metrics() {
        let configured = guard_with(Token::Configured(Secret::new("s3cret")));
        let host = [(header::HOST, "127.0.0.1:9464")];
        let table = [
            ("/livez", 200, 200),
            ("/readyz", 200, 200),
            ("/metrics", 200, 401),
            ("/v1/status", 401, 401),
            ("/v1/events", 401, 401),
            ("/openapi.json", 401, 401),
            ("/ui", 401, 401),
            ("/nowhere", 401, 401),
        ];
        for (path, by_made, by_configured) in table {
            let of = |guard: &Guard| status(guard, Interface::Network, ("GET", path), &host);
            assert_eq!(
                (of(&made()), of(&configured)),
                (by_made, by_configured),
                "{path}"
            );
            let telemetry = status(&configured, Interface::Telemetry, ("GET", path), &[]);
            assert_eq!(telemetry, 200, "{path}: there is little behind it");
        }
    }

    #[test]
    fn metrics_are_for_this_machine_and_no_page_of_others() {
        let guard = made();
        let metrics = ("GET", "/metrics");
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
            let got = status(&guard, Interface::Network, metrics, &pairs);
            assert_eq!(got, expected, "{host}");
        }
        assert_eq!(status(&guard, Interface::Network, metrics, &[]), 403);
        let host = (header::HOST, "localhost:9464");
        for (origin, expected) in [
            ("http://localhost:9464", 200),
            ("http://localhost:1234", 403),
            ("https://evil.example", 403),
            ("null", 403),
        ] {
            let pairs = [host.clone(), (header::ORIGIN, origin)];
            let got = status(&guard, Interface::Network, metrics, &pairs);
            assert_eq!(got, expected, "{origin}");
        }
    }

    #[tokio::test]
    async fn a_session_changes_things_from_our_own_pages_only() {
        let guard = made();
        let code = guard.sessions.issue_code().unwrap();
        let session = guard.sessions.exchange(&code).unwrap().unwrap();
        let cookie = format!("other=1; {SESSION_COOKIE}={session}");
        let with = |more: Headers<'_>, asked| {
            let base = [(header::HOST, "127.0.0.1:9464"), (header::COOKIE, &cookie)];
            status(
                &guard,
                Interface::Network,
                asked,
                &[&base[..], more].concat(),
            )
        };
        let pause = ("POST", "/v1/pools/p/pause");
        let fetch = |site| [(header::HeaderName::from_static("sec-fetch-site"), site)];
        assert_eq!(with(&[], STATUS), 200);
        assert_eq!(
            with(&[(header::ORIGIN, "http://127.0.0.1:8000")], STATUS),
            403
        );
        assert_eq!(with(&[], pause), 403);
        assert_eq!(with(&fetch("same-site"), pause), 403);
        assert_eq!(with(&fetch("same-origin"), pause), 200);
        assert_eq!(
            with(&[(header::ORIGIN, "http://127.0.0.1:9464")], pause),
            200
        );
        let forged = format!("{SESSION_COOKIE}={code}");
        let forged = [(header::COOKIE, forged.as_str())];
        assert_eq!(status(&guard, Interface::Network, STATUS, &forged), 401);
    }

    #[test]
    fn the_socket_is_for_its_owner_and_root() {
        let guard = Guard { own: 7, ..made() };
        for (peer, expected) in [(Some(7), 200), (Some(0), 200), (Some(8), 403), (None, 403)] {
            let got = status(&guard, Interface::Socket { peer }, STATUS, &[]);
            assert_eq!(got, expected, "{peer:?}");
        }
    }
}
