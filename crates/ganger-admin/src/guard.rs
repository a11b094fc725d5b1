//! Access control: who a request is from, and whether they may send it. The socket admits the daemon's own user and
//! root; TCP requires a token, a session or a trusted proxy, on loopback too, where every program of every user could
//! connect. Probes are public, and so are metrics unless a token is configured.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use nix::unistd::Uid;

use super::answer::Problem;
use super::browser::{LOGIN, LOGOUT, Site, check_host, sessions, to_login, wants_page};
use super::caller::{Caller, Identity};
use super::credentials::Credentials;
use super::roles::{self, PROBES};
use super::session::{Sessions, hash};
use super::ui::{self, ASSETS, wants_stream};
use ganger_config::model::Role;

/// Interface on which a request arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interface {
    /// The unix socket, from a process of that user.
    Socket {
        /// The user, if the kernel provides it.
        peer: Option<u32>,
    },
    /// `admin.listen`.
    Network {
        /// Address of the other side.
        peer: IpAddr,
    },
    /// `telemetry.listen`, which needs no token and serves only a few routes.
    Telemetry,
}

/// Admits or refuses requests.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    credentials: Credentials,
    sessions: Sessions,
    own: u32,
}

impl Guard {
    pub(super) fn new(credentials: Credentials, sessions: Sessions) -> Self {
        Self {
            credentials,
            sessions,
            own: Uid::effective().as_raw(),
        }
    }

    /// Admits a request to a route; none as its caller if it is public.
    fn check(
        &self,
        door: Interface,
        (method, path, route): (&Method, &str, Option<&str>),
        headers: &HeaderMap,
    ) -> Result<Option<Caller>, Problem> {
        if let Interface::Socket { peer } = door {
            return self.check_peer(peer).map(Some);
        }
        let config = self.credentials.config();
        let site = Site::new(headers, config.admin.public_origin());
        let caller = self.caller(door, method, (headers, site));
        if let Ok(Some(caller)) = caller {
            roles::check(&caller, method, route)?;
            return Ok(Some(caller));
        }
        match path {
            // Kubelet sends an address as the host, and has no token.
            path if PROBES.contains(&path) => Ok(None),
            _ if door == Interface::Telemetry => Ok(None),
            "/metrics" if !self.credentials.are_configured() => {
                check_host(headers)?;
                site.check_origin().map(|()| None)
            }
            // The code, the token or the session that it brings is looked at there.
            LOGIN | LOGOUT => Ok(None),
            path if path.starts_with(ASSETS) => Ok(None),
            _ => {
                let needs_token = || Problem::new(StatusCode::UNAUTHORIZED, NEEDS_TOKEN);
                Err(caller.err().unwrap_or_else(needs_token))
            }
        }
    }

    /// Returns the caller of a request over TCP; none if it proves no identity.
    fn caller(
        &self,
        door: Interface,
        method: &Method,
        (headers, site): (&HeaderMap, Site<'_>),
    ) -> Result<Option<Caller>, Problem> {
        let by_token = bearer(headers).map(|token| self.credentials.of_token(token));
        if let Some(caller) = by_token.transpose()?.flatten() {
            return Ok(Some(caller));
        }
        let Interface::Network { peer } = door else {
            return Ok(None);
        };
        // What a page does by itself, such as following what it shows, keeps no session.
        let is_use = *method != Method::HEAD && !wants_stream(headers);
        let mut sessions = sessions(headers).into_iter();
        let by_session = sessions.find_map(|session| self.in_session(session, is_use));
        let caller = match by_session {
            Some(caller) => Some(caller),
            None => self.credentials.of_proxy(peer, headers)?,
        };
        // A browser sends these by itself, whatever page has made it ask.
        if caller.is_some() {
            site.check_page(method)?;
        }
        Ok(caller)
    }

    fn check_peer(&self, peer: Option<u32>) -> Result<Caller, Problem> {
        match peer.filter(|uid| *uid == self.own || *uid == 0) {
            Some(uid) => Ok(Caller::new(Identity::Socket { uid }, Role::Admin)),
            None => {
                let why = "the socket is for the daemon's own user and root";
                Err(Problem::new(StatusCode::FORBIDDEN, why))
            }
        }
    }

    fn in_session(&self, session: &str, is_use: bool) -> Option<Caller> {
        let identity = self.sessions.owner(session, is_use)?;
        let role = self.credentials.role(&identity)?;
        let session = Some(hash(session));
        Some(Caller {
            session,
            ..Caller::new(identity, role)
        })
    }

    /// Waits until the caller is no longer admitted: by the configuration, or since the session has ended.
    async fn revoked(&self, caller: &Caller) {
        let ended = async {
            match &caller.session {
                Some(session) => self.sessions.ended(session).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = ended => {}
            () = self.credentials.revoked(&caller.identity) => {}
        }
    }
}

/// Returns whether an answer goes on until one side ends it.
fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind == "text/event-stream")
}

/// Ends an answer that is a stream once who reads it is no longer admitted.
fn end_with(guard: Arc<Guard>, caller: Caller, response: Response) -> Response {
    let (parts, body) = response.into_parts();
    let revoked = Box::pin(async move { guard.revoked(&caller).await });
    let body = body.into_data_stream().take_until(revoked);
    Response::from_parts(parts, Body::from_stream(body))
}

/// Returns the token that a request brings.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = given.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Error for a request without a token.
const NEEDS_TOKEN: &str = "send the token of the configuration's [admin], or that of the file beside the \
     daemon's socket, as `Authorization: Bearer TOKEN`; on the socket itself none is needed";

/// Error for a form of a session that has ended.
const LOGGED_OUT: &str =
    "your session has ended: log in in another tab, then go back to the form and send it again";

/// Layer that all requests pass through.
pub(super) async fn guard(
    State(guard): State<Arc<Guard>>,
    mut request: Request,
    next: Next,
) -> Response {
    let door = request.extensions().get::<Interface>().copied();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map(MatchedPath::as_str);
    let (method, uri) = (request.method(), request.uri());
    let allowed = match door {
        Some(door) => guard.check(door, (method, uri.path(), route), request.headers()),
        None => Err(Problem::new(
            StatusCode::FORBIDDEN,
            "the origin of the request is unknown",
        )),
    };
    match allowed {
        Ok(caller) => {
            let Some(caller) = caller else {
                return next.run(request).await;
            };
            request.extensions_mut().insert(caller.clone());
            let response = next.run(request).await;
            match is_stream(&response) {
                true => end_with(guard, caller, response),
                false => response,
            }
        }
        Err(mut problem) => {
            tracing::warn!(path = uri.path(), problem = ?problem, "request to the admin API refused");
            let is_page = wants_page(uri, request.headers());
            let is_form = ui::is_form(&request) || is_page && *method == Method::POST;
            match problem.is(StatusCode::UNAUTHORIZED) {
                true if is_page && *method == Method::GET => return to_login(uri),
                true if is_form => problem = Problem::new(StatusCode::UNAUTHORIZED, LOGGED_OUT),
                _ => {}
            }
            refused(match is_page {
                true => ui::refusal(&problem),
                false => problem.into_response(),
            })
        }
    }
}

fn refused(mut response: Response) -> Response {
    let close = header::HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    if response.status() == StatusCode::UNAUTHORIZED {
        let scheme = header::HeaderValue::from_static("Bearer");
        let headers = response.headers_mut();
        headers.insert(header::WWW_AUTHENTICATE, scheme);
    }
    response
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::credentials::Token;
    use super::*;
    use ganger_config::model::{Config, Secret};
    use ganger_config::{Environment, parse};
    use ganger_core::budget::Budget;
    use ganger_pool::overview::Overview;

    type Headers<'a> = &'a [(header::HeaderName, &'a str)];

    fn headers(pairs: Headers<'_>) -> HeaderMap {
        let pair =
            |(name, value): &(header::HeaderName, &str)| (name.clone(), value.parse().unwrap());
        pairs.iter().map(pair).collect()
    }

    const NETWORK: Interface = Interface::Network {
        peer: IpAddr::V4(Ipv4Addr::LOCALHOST),
    };

    /// Checks a request to a route without parameters.
    fn check(
        guard: &Guard,
        door: Interface,
        (method, path): (&str, &str),
        pairs: Headers<'_>,
    ) -> Result<Option<Caller>, Problem> {
        let method = method.parse().unwrap();
        guard.check(door, (&method, path, Some(path)), &headers(pairs))
    }

    fn status(guard: &Guard, door: Interface, asked: (&str, &str), pairs: Headers<'_>) -> u16 {
        match check(guard, door, asked, pairs) {
            Ok(_) => 200,
            Err(problem) => problem.into_response().status().as_u16(),
        }
    }

    fn config(lines: &str) -> Config {
        let text = format!(
            "[sources.main]\nkind = \"table\"\nurl = \"sqlite:a.db\"\n[[pools]]\nname = \"p\"\nqueue = \
             \"q\"\ncommand = \"true\"\n{lines}"
        );
        parse(&text, "test.toml", &Environment::new()).unwrap()
    }

    /// Returns a guard, and the daemon whose configuration it looks at.
    fn guard_by(token: &Token, lines: &str) -> (Guard, Overview) {
        let overview = Overview::new(Budget::new(Some(1 << 20)), &config(lines));
        let credentials = Credentials::new(token, overview.clone());
        (Guard::new(credentials, Sessions::default()), overview)
    }

    fn guard_with(token: Token) -> Guard {
        guard_by(&token, "").0
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
                let got = status(guard, NETWORK, STATUS, &bearer);
                assert_eq!(got, expected, "{text}");
            }
            let local = [(header::HOST, "localhost")];
            assert_eq!(status(guard, NETWORK, STATUS, &local), 401);
        }
        let none = guard_with(Token::Made(None));
        let empty = [(header::AUTHORIZATION, "Bearer ")];
        assert_eq!(status(&none, NETWORK, STATUS, &empty), 401);
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
            let of = |guard: &Guard| status(guard, NETWORK, ("GET", path), &host);
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
            let got = status(&guard, NETWORK, metrics, &pairs);
            assert_eq!(got, expected, "{host}");
        }
        assert_eq!(status(&guard, NETWORK, metrics, &[]), 403);
        let host = (header::HOST, "localhost:9464");
        for (origin, expected) in [
            ("http://localhost:9464", 200),
            ("http://localhost:1234", 403),
            ("https://evil.example", 403),
            ("null", 403),
        ] {
            let pairs = [host.clone(), (header::ORIGIN, origin)];
            let got = status(&guard, NETWORK, metrics, &pairs);
            assert_eq!(got, expected, "{origin}");
        }
    }

    const PAUSE: (&str, &str) = ("POST", "/v1/schedules/pause");
    const SITE: header::HeaderName = header::HeaderName::from_static("sec-fetch-site");

    #[tokio::test]
    async fn a_session_changes_things_from_our_own_pages_only() {
        let guard = made();
        let code = guard.sessions.issue_code(Identity::Token).unwrap();
        let session = guard.sessions.exchange(&code).unwrap().unwrap();
        let cookie = format!("other=1; ganger_session_9464={session}");
        let with = |more: Headers<'_>, asked| {
            let base = [(header::HOST, "127.0.0.1:9464"), (header::COOKIE, &cookie)];
            check(&guard, NETWORK, asked, &[&base[..], more].concat())
        };
        let own = (header::ORIGIN, "http://127.0.0.1:9464");
        let other = (header::ORIGIN, "http://127.0.0.1:8000");
        let table: [(Headers<'_>, (&str, &str), bool); 8] = [
            (&[], STATUS, true),
            (std::slice::from_ref(&other), STATUS, false),
            (&[], PAUSE, false),
            (&[(SITE, "same-site")], PAUSE, false),
            (&[(SITE, "same-origin")], PAUSE, true),
            (std::slice::from_ref(&own), PAUSE, true),
            (std::slice::from_ref(&other), PAUSE, false),
            (
                &[(header::ORIGIN, "null"), (SITE, "same-origin")],
                PAUSE,
                true,
            ),
        ];
        for (more, asked, is_admitted) in table {
            let admitted = with(more, asked);
            assert_eq!(admitted.is_ok(), is_admitted, "{more:?} {asked:?}");
        }
        let refused = with(&[other, (SITE, "cross-site")], PAUSE).unwrap_err();
        assert_eq!(
            refused.detail(),
            "not from a page of this daemon: origin is http://127.0.0.1:8000, host is 127.0.0.1:9464, \
             sec-fetch-site is cross-site. A proxy must pass on Host, Origin and Sec-Fetch-Site as the browser \
             sends them"
        );
        let forged = format!("ganger_session={code}");
        let forged = [(header::COOKIE, forged.as_str())];
        assert_eq!(status(&guard, NETWORK, STATUS, &forged), 401);
    }

    /// Returns the section of a token of that name, which is also the token itself.
    fn section(name: &str, role: &str, more: &str) -> String {
        let sha256 = hash(name).map(|byte| format!("{byte:02x}")).concat();
        format!(
            "[[admin.tokens]]\nname = \"{name}\"\nrole = \"{role}\"\nsha256 = \"{sha256}\"\n{more}\n"
        )
    }

    fn with_token(guard: &Guard, asked: (&str, &str), token: &str) -> Result<String, String> {
        let bearer = format!("Bearer {token}");
        let admitted = check(guard, NETWORK, asked, &[(header::AUTHORIZATION, &bearer)]);
        let shown = |caller: Option<Caller>| caller.unwrap().to_string();
        admitted
            .map(shown)
            .map_err(|problem| problem.detail().to_owned())
    }

    #[tokio::test]
    async fn a_named_token_does_what_its_role_allows_until_it_is_removed() {
        let all = section("grafana", "viewer", "")
            + &section("ops", "operator", "")
            + &section("root", "admin", "expires = \"2999-01-01T00:00:00Z\"")
            + &section("old", "admin", "expires = \"2001-01-01T00:00:00Z\"");
        let (guard, overview) = guard_by(&Token::Made(Some(Secret::new("s3cret"))), &all);
        let reload = ("POST", "/v1/reload");
        for (token, of_status, of_pause, of_reload) in [
            ("grafana", true, false, false),
            ("ops", true, true, false),
            ("root", true, true, true),
        ] {
            for (asked, allowed) in [(STATUS, of_status), (PAUSE, of_pause), (reload, of_reload)] {
                let told = with_token(&guard, asked, token);
                assert_eq!(told.is_ok(), allowed, "{token} {asked:?}: {told:?}");
                let named = told.unwrap_or_else(|why| why);
                assert!(named.starts_with(&format!("token {token}")), "{named}");
            }
        }
        let told = with_token(&guard, PAUSE, "grafana").unwrap_err();
        assert_eq!(told, "token grafana is a viewer; this needs operator");
        let told = with_token(&guard, reload, "ops").unwrap_err();
        assert_eq!(told, "token ops is an operator; this needs admin");
        let told = with_token(&guard, STATUS, "old").unwrap_err();
        assert_eq!(told, "token old has expired, at 2001-01-01T00:00:00Z");
        let probe = [(header::AUTHORIZATION, "Bearer old")];
        assert_eq!(status(&guard, NETWORK, ("GET", "/livez"), &probe), 200);
        let made = with_token(&guard, STATUS, "s3cret");
        assert!(made.is_err(), "generated for as long as there is none");
        let host = [(header::HOST, "localhost")];
        assert_eq!(status(&guard, NETWORK, ("GET", "/metrics"), &host), 401);

        let ops = check(
            &guard,
            NETWORK,
            STATUS,
            &[(header::AUTHORIZATION, "Bearer ops")],
        );
        let identity = ops.unwrap().unwrap().identity;
        let session = guard.sessions.begin(identity.clone()).unwrap();
        assert_eq!(
            guard.in_session(&session, true).unwrap().role,
            Role::Operator
        );
        overview.set_config(&config(&section("ops", "viewer", "")));
        assert_eq!(guard.in_session(&session, true).unwrap().role, Role::Viewer);
        let credentials = guard.credentials.clone();
        let stream = tokio::spawn(async move { credentials.revoked(&identity).await });
        let other = section("other", "operator", "").replace("\"other\"", "\"ops\"");
        overview.set_config(&config(&other));
        assert!(with_token(&guard, STATUS, "ops").is_err());
        assert!(
            guard.in_session(&session, true).is_none(),
            "another of that name"
        );
        stream.await.unwrap();
        overview.set_config(&config(""));
        assert_eq!(with_token(&guard, reload, "s3cret").unwrap(), "token");
    }

    #[test]
    fn a_trusted_proxy_names_the_user() {
        let proxy = "[admin]\npublic_url = \"https://ganger.example\"\nproxy_auth = { header = \"X-User\", from = [\"10.0.0.0/8\", \"::1\"], role = \
                     \"operator\", role_header = \"X-Role\" }";
        let (guard, _) = guard_by(&Token::Made(None), proxy);
        let user = (header::HeaderName::from_static("x-user"), "ann");
        let role = |role| (header::HeaderName::from_static("x-role"), role);
        let same = (SITE, "same-origin");
        let told_at = |host: &str, peer: &str, asked, pairs: Headers<'_>| {
            let peer = peer.parse().unwrap();
            let pairs: Vec<_> = [&[(header::HOST, host)], pairs].concat();
            match check(&guard, Interface::Network { peer }, asked, &pairs) {
                Ok(caller) => caller.unwrap().to_string(),
                Err(problem) => problem.detail().to_owned(),
            }
        };
        let told =
            |peer: &str, asked, pairs: Headers<'_>| told_at("ganger.example", peer, asked, pairs);
        let ann = "user ann of the proxy";
        for (host, is_ours) in [
            ("localhost:9464", true),
            ("evil.example", false),
            ("", false),
        ] {
            let told = told_at(host, "10.1.2.3", STATUS, std::slice::from_ref(&user));
            assert_eq!(told == ann, is_ours, "{told}");
            assert_eq!(
                told.contains("must be that of admin.public_url"),
                !is_ours,
                "{told}"
            );
        }
        for peer in ["10.1.2.3", "::ffff:10.1.2.3", "::1"] {
            assert_eq!(told(peer, STATUS, std::slice::from_ref(&user)), ann);
        }
        for peer in ["11.1.2.3", "127.0.0.1", "::2"] {
            assert_eq!(told(peer, STATUS, std::slice::from_ref(&user)), NEEDS_TOKEN);
        }
        let from = "10.1.2.3";
        assert_eq!(told(from, PAUSE, &[user.clone(), same.clone()]), ann);
        let told_of = |pairs: Headers<'_>, expected: &str| {
            let said = told(from, PAUSE, pairs);
            assert!(said.contains(expected), "{said}");
        };
        told_of(std::slice::from_ref(&user), "not from a page");
        told_of(std::slice::from_ref(&same), NEEDS_TOKEN);
        let viewer = [user.clone(), role("viewer"), same.clone()];
        told_of(
            &viewer,
            "user ann of the proxy is a viewer; this needs operator",
        );
        told_of(
            &[user.clone(), role("root")],
            "must be viewer, operator or admin: `root`",
        );
        let mut twice = headers(&[user]);
        twice.append("x-user", "root".parse().unwrap());
        let refused = guard.credentials.of_proxy(from.parse().unwrap(), &twice);
        assert!(refused.unwrap_err().detail().contains("given twice"));
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
