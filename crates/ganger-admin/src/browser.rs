//! Rules for requests of browsers: the pages that may send them, the cookie of a session, and the way to the login.

use std::time::Duration;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use super::answer::Problem;
use ganger_config::model::is_loopback;

/// Path of the first page.
pub(super) const HOME: &str = "/ui";
/// Path of the login.
pub(super) const LOGIN: &str = "/ui/login";
/// Path of the logout.
pub(super) const LOGOUT: &str = "/ui/logout";

/// Beginning of the name of the cookie that carries a session. The port of the daemon follows, since browsers share
/// the cookies of a host among its ports.
const SESSION_COOKIE: &str = "ganger_session";

/// Header in which a browser says whether a page of the same site has sent the request.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Longest value of a header that is shown, in characters.
const SHOWN_CHARS_MAX: usize = 100;

/// Returns the values of the cookies of that name.
pub(super) fn cookies<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    let cookies = headers.get_all(header::COOKIE).iter();
    let cookies = cookies.filter_map(|cookies| cookies.to_str().ok());
    let pairs = cookies
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='));
    pairs.filter_map(move |(own, value)| (own == name).then_some(value))
}

/// Returns the sessions that a request brings.
pub(super) fn sessions(headers: &HeaderMap) -> Vec<&str> {
    cookies(headers, &session_cookie(headers)).collect()
}

fn session_cookie(headers: &HeaderMap) -> String {
    let port = authority(headers).and_then(|host| host.port_u16());
    port.map_or_else(
        || SESSION_COOKIE.to_owned(),
        |port| format!("{SESSION_COOKIE}_{port}"),
    )
}

/// Daemon as browsers reach it: under the address that a request names, or under `admin.public_url`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Site<'a> {
    headers: &'a HeaderMap,
    public_url: Option<&'a str>,
}

impl<'a> Site<'a> {
    pub(super) fn new(headers: &'a HeaderMap, public_url: Option<&'a str>) -> Self {
        Self {
            headers,
            public_url,
        }
    }

    /// Returns the cookie of a session. A browser sends it over an encrypted connection only, unless the daemon is on
    /// its own machine, or the configuration says that people reach it without encryption.
    pub(super) fn cookie(&self, session: &str, lifetime: Duration) -> String {
        let (name, age) = (session_cookie(self.headers), lifetime.as_secs());
        let secure = if self.is_encrypted() { "; Secure" } else { "" };
        format!("{name}={session}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}")
    }

    /// Returns whether a browser must reach the daemon over an encrypted connection.
    fn is_encrypted(&self) -> bool {
        let is_plain = self.is_public()
            && self
                .public_url
                .is_some_and(|url| url.starts_with("http://"));
        let is_of_encrypted_page = self
            .origin()
            .is_some_and(|origin| origin.starts_with("https://"));
        is_of_encrypted_page || !(is_plain || is_for_this_machine(self.headers))
    }

    /// Checks that the browser will keep the session of a login.
    pub(super) fn check_encrypted(&self) -> Result<(), Problem> {
        let is_plain = self
            .origin()
            .is_some_and(|origin| origin.starts_with("http://"));
        match is_plain && self.is_encrypted() {
            true => Err(Problem::new(StatusCode::FORBIDDEN, NOT_ENCRYPTED)),
            false => Ok(()),
        }
    }

    /// Checks that a request comes through the proxy. Else a page of a foreign name that resolves to the proxy could
    /// send requests through it.
    pub(super) fn check_proxied(&self) -> Result<(), Problem> {
        if self.is_public() || is_for_this_machine(self.headers) {
            return Ok(());
        }
        let host = host(self.headers).unwrap_or_default();
        let shown: String = host.chars().take(SHOWN_CHARS_MAX).collect();
        let why = format!(
            "Host is `{}`: through the proxy of admin.proxy_auth it must be that of admin.public_url, `{}`",
            shown.escape_debug(),
            self.public_url.unwrap_or_default()
        );
        Err(Problem::new(StatusCode::FORBIDDEN, why))
    }

    /// Checks that a request of a browser comes from one of our own pages, if it changes something.
    pub(super) fn check_page(&self, method: &Method) -> Result<(), Problem> {
        let is_named = self.headers.contains_key(header::ORIGIN) || is_same_origin(self.headers);
        match method.is_safe() || is_named {
            true => self.check_origin(),
            false => Err(foreign_page(self.headers)),
        }
    }

    /// Checks that no page of another site has sent a request.
    pub(super) fn check_origin(&self) -> Result<(), Problem> {
        if !self.headers.contains_key(header::ORIGIN) || is_same_origin(self.headers) {
            return Ok(());
        }
        let is_ours = self.origin().is_some_and(|origin| {
            let of_host = host(self.headers).is_some_and(|host| authority_of(origin) == Some(host));
            of_host
                || self
                    .public_url
                    .is_some_and(|url| url.eq_ignore_ascii_case(origin))
        });
        match is_ours {
            true => Ok(()),
            false => Err(foreign_page(self.headers)),
        }
    }

    /// Returns whether the request names the host of `admin.public_url`.
    fn is_public(&self) -> bool {
        let public = self.public_url.and_then(authority_of);
        let host = host(self.headers);
        public
            .zip(host)
            .is_some_and(|(public, host)| public.eq_ignore_ascii_case(host))
    }

    fn origin(&self) -> Option<&'a str> {
        self.headers.get(header::ORIGIN)?.to_str().ok()
    }
}

/// Reason for which a login is refused over a connection without encryption.
const NOT_ENCRYPTED: &str = "this page was sent without encryption, and a browser would keep no session: reach the daemon \
     over https:// (through a proxy), or on its own machine; in a trusted network, admin.public_url may be the \
     http:// URL of this page";

/// Returns the host and port of an origin.
fn authority_of(origin: &str) -> Option<&str> {
    origin.split_once("://").map(|(_, authority)| authority)
}

/// Checks the `Host` header. A web page can make a browser on this machine send requests to us, under a name
/// that resolves to it. The name is then not this machine's own.
pub(super) fn check_host(headers: &HeaderMap) -> Result<(), Problem> {
    if is_for_this_machine(headers) {
        return Ok(());
    }
    let why = "without a token, Host must be localhost or a loopback address";
    Err(Problem::new(StatusCode::FORBIDDEN, why))
}

/// Returns whether the browser itself says that the page is ours. A page can't set that header.
fn is_same_origin(headers: &HeaderMap) -> bool {
    headers.get(SITE).is_some_and(|site| site == "same-origin")
}

fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::HOST)?.to_str().ok()
}

fn authority(headers: &HeaderMap) -> Option<Authority> {
    host(headers)?.parse().ok()
}

fn is_for_this_machine(headers: &HeaderMap) -> bool {
    authority(headers).is_some_and(|host| is_loopback(host.host()))
}

fn foreign_page(headers: &HeaderMap) -> Problem {
    let said = [header::ORIGIN, header::HOST, SITE].map(|name| {
        let value = headers.get(&name).map(|value| value.to_str());
        match value {
            None => format!("{name} is missing"),
            Some(value) => {
                let value = value.unwrap_or("not text").chars().take(SHOWN_CHARS_MAX);
                format!("{name} is {}", value.collect::<String>().escape_debug())
            }
        }
    });
    let why = format!(
        "not from a page of this daemon: {}. A proxy must pass on Host, Origin and Sec-Fetch-Site as the browser \
         sends them",
        said.join(", ")
    );
    Problem::new(StatusCode::FORBIDDEN, why)
}

/// Returns whether a request is for a page that a person wants to see, or a form of one.
pub(super) fn wants_page(uri: &Uri, headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(header::ACCEPT).iter();
    let mut accepts = accepts.filter_map(|accept| accept.to_str().ok());
    let is_page = |path: &str| path == "/" || path == HOME || path.starts_with("/ui/");
    is_page(uri.path()) && accepts.any(|accept| accept.contains("text/html"))
}

/// Sends a browser to the login, and from there to the page that it wanted.
pub(super) fn to_login(uri: &Uri) -> Response {
    let wanted = uri.path_and_query().map_or(HOME, |wanted| wanted.as_str());
    let next = utf8_percent_encode(wanted, NON_ALPHANUMERIC);
    Redirect::to(&format!("{LOGIN}?next={next}")).into_response()
}

/// Returns the page of ours to which a text leads, as a browser would understand it; the first page if it leads
/// elsewhere.
pub(super) fn page_of(next: &str) -> String {
    let base = Url::parse("http://localhost/").ok();
    let url = base.as_ref().and_then(|base| base.join(next).ok());
    let is_ours = |url: &Url| {
        let path = url.path();
        let is_here = base
            .as_ref()
            .is_some_and(|base| base.origin() == url.origin());
        is_here && url.username().is_empty() && (path == HOME || path.starts_with("/ui/"))
    };
    let local = |url: Url| match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    url.filter(is_ours).map_or_else(|| HOME.to_owned(), local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_pages_of_ours_only() {
        for (next, expected) in [
            ("/ui", "/ui"),
            (
                "/ui/pools/a%20b?state=dead&x=%22",
                "/ui/pools/a%20b?state=dead&x=%22",
            ),
            ("/ui/a\"><script>", "/ui/a%22%3E%3Cscript%3E"),
            ("/ui/a?\"><'", "/ui/a?%22%3E%3C%27"),
            ("/ui#fragment", "/ui"),
            ("", "/ui"),
            ("/", "/ui"),
            ("/uix", "/ui"),
            ("/v1/status", "/ui"),
            ("//evil", "/ui"),
            ("//evil/ui", "/ui"),
            ("///evil/ui/", "/ui"),
            ("https://evil", "/ui"),
            ("https://evil/ui/", "/ui"),
            ("http:evil/ui/", "/ui"),
            ("http://x@localhost/ui/", "/ui"),
            ("javascript:alert(1)", "/ui"),
            ("\\\\evil/ui/", "/ui"),
            ("/\\evil/ui/", "/ui"),
            ("/\t/evil/ui/", "/ui"),
            ("/ui/../v1/status", "/ui"),
            ("/ui/%2e%2e/v1/status", "/ui"),
            ("/ui/..\\v1", "/ui"),
            ("/ui/\r\nset-cookie:a", "/ui/set-cookie:a"),
        ] {
            assert_eq!(page_of(next), expected, "{next:?}");
        }
    }

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let pair = |(name, value): &(HeaderName, &str)| (name.clone(), value.parse().unwrap());
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn the_cookie_is_sent_over_encrypted_connections_or_to_this_machine() {
        let (https, http) = ("https://ganger.example", "http://10.0.0.7:9464");
        for (host, origin, public, is_secure, name) in [
            ("localhost:9464", None, None, false, "ganger_session_9464"),
            ("127.0.0.1:9465", None, None, false, "ganger_session_9465"),
            ("[::1]:9464", None, None, false, "ganger_session_9464"),
            ("ganger.example", None, None, true, "ganger_session"),
            ("10.0.0.7:9464", None, None, true, "ganger_session_9464"),
            (
                "10.0.0.7:9464",
                None,
                Some(http),
                false,
                "ganger_session_9464",
            ),
            (
                "10.0.0.8:9464",
                None,
                Some(http),
                true,
                "ganger_session_9464",
            ),
            (
                "GANGER.example",
                None,
                Some("http://ganger.example"),
                false,
                "ganger_session",
            ),
            ("ganger.example", None, Some(https), true, "ganger_session"),
            ("localhost", Some(https), None, true, "ganger_session"),
            ("localhost.evil.example", None, None, true, "ganger_session"),
        ] {
            let mut sent = vec![(header::HOST, host)];
            sent.extend(origin.map(|origin| (header::ORIGIN, origin)));
            let sent = headers(&sent);
            let cookie = Site::new(&sent, public).cookie("s", Duration::from_secs(5));
            assert_eq!(cookie.contains("; Secure"), is_secure, "{host} {public:?}");
            let start = format!("{name}=s; Path=/; Max-Age=5; HttpOnly; SameSite=Strict");
            assert!(cookie.starts_with(&start), "{cookie}");
        }
        let cookie = Site::new(&HeaderMap::new(), None).cookie("s", Duration::ZERO);
        assert!(cookie.contains("; Secure"));
    }

    #[test]
    fn a_session_is_that_of_the_port() {
        let cookie = (
            header::COOKIE,
            "ganger_session_1=one; ganger_session_2=two; ganger_session=three",
        );
        for (host, expected) in [("a:1", "one"), ("a:2", "two"), ("a", "three")] {
            let sent = headers(&[(header::HOST, host), cookie.clone()]);
            assert_eq!(sessions(&sent), [expected], "{host}");
        }
    }

    #[test]
    fn a_login_is_refused_if_the_browser_would_keep_no_session() {
        let public = "http://10.0.0.7:9464";
        for (host, origin, url, is_kept) in [
            ("10.0.0.7:9464", Some("http://10.0.0.7:9464"), None, false),
            (
                "10.0.0.7:9464",
                Some("http://10.0.0.7:9464"),
                Some(public),
                true,
            ),
            (
                "ganger.example",
                Some("http://ganger.example"),
                Some(public),
                false,
            ),
            ("ganger.example", Some("https://ganger.example"), None, true),
            ("localhost:1", Some("http://localhost:1"), None, true),
            ("ganger.example", Some("null"), None, true),
            ("ganger.example", None, None, true),
        ] {
            let mut sent = vec![(header::HOST, host)];
            sent.extend(origin.map(|origin| (header::ORIGIN, origin)));
            let sent = headers(&sent);
            let checked = Site::new(&sent, url).check_encrypted();
            assert_eq!(checked.is_ok(), is_kept, "{host} {origin:?} {url:?}");
        }
    }

    #[test]
    fn a_page_at_the_public_url_is_ours() {
        let public = Some("https://ganger.example");
        let of = |host, origin, public| {
            let sent = headers(&[(header::HOST, host), (header::ORIGIN, origin)]);
            Site::new(&sent, public).check_page(&Method::POST).is_ok()
        };
        assert!(of("10.0.0.7:9464", "https://ganger.example", public));
        assert!(!of("10.0.0.7:9464", "http://ganger.example", public));
        assert!(!of("10.0.0.7:9464", "https://ganger.example", None));
        assert!(of("ganger.example", "https://ganger.example", None));
        assert!(!of("ganger.example", "https://ganger.example.evil", public));
    }
}
