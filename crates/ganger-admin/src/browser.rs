//! Rules for requests of browsers: the pages that may send them, the cookie of a session, and the way to the login.

use std::net::IpAddr;
use std::time::Duration;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use super::answer::Problem;

/// Path of the first page.
pub(super) const HOME: &str = "/ui";
/// Path of the login.
pub(super) const LOGIN: &str = "/ui/login";
/// Path of the logout.
pub(super) const LOGOUT: &str = "/ui/logout";

/// Name of the cookie that carries a session.
const SESSION_COOKIE: &str = "ganger_session";

/// Header in which a browser says whether a page of the same site has sent the request.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Longest value of a header that is shown, in characters.
const SHOWN_CHARS_MAX: usize = 100;

/// Returns the sessions that a request brings.
pub(super) fn sessions(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let cookies = headers.get_all(header::COOKIE).iter();
    let cookies = cookies.filter_map(|cookies| cookies.to_str().ok());
    let pairs = cookies
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='));
    pairs.filter_map(|(name, value)| (name == SESSION_COOKIE).then_some(value))
}

/// Returns the cookie of a session. A browser sends it over an encrypted connection only, or to its own machine.
pub(super) fn cookie(session: &str, lifetime: Duration, headers: &HeaderMap) -> String {
    let age = lifetime.as_secs();
    let secure = if is_for_this_machine(headers) {
        ""
    } else {
        "; Secure"
    };
    format!("{SESSION_COOKIE}={session}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}")
}

/// Checks that a request of a browser comes from one of our own pages, if it changes something.
pub(super) fn check_page(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let is_named = headers.contains_key(header::ORIGIN) || is_same_origin(headers);
    match method.is_safe() || is_named {
        true => check_origin(headers),
        false => Err(foreign_page(headers)),
    }
}

/// Checks that no page of another site has sent a request.
pub(super) fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(origin) = headers.get(header::ORIGIN) else {
        return Ok(());
    };
    let authority = |origin: &str| origin.split_once("://")?.1.parse::<Authority>().ok();
    let origin = origin.to_str().ok().and_then(authority);
    let host = host(headers);
    let matches = origin.is_some_and(|origin| Some(origin.as_str()) == host);
    match matches || is_same_origin(headers) {
        true => Ok(()),
        false => Err(foreign_page(headers)),
    }
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

fn is_for_this_machine(headers: &HeaderMap) -> bool {
    let host = host(headers).and_then(|host| host.parse::<Authority>().ok());
    host.is_some_and(|host| is_this_machine(host.host()))
}

fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let loopback = |address: IpAddr| address.is_loopback();
    host.eq_ignore_ascii_case("localhost") || bare.parse().is_ok_and(loopback)
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

/// Returns whether a request is for a page that a person wants to see.
pub(super) fn wants_page(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(header::ACCEPT).iter();
    let mut accepts = accepts.filter_map(|accept| accept.to_str().ok());
    let is_page = |path: &str| path == HOME || path.starts_with("/ui/");
    *method == Method::GET
        && is_page(uri.path())
        && accepts.any(|accept| accept.contains("text/html"))
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

    #[test]
    fn the_cookie_is_sent_over_encrypted_connections_or_to_this_machine() {
        for (host, is_secure) in [
            ("localhost:9464", false),
            ("127.0.0.1:9464", false),
            ("[::1]:9464", false),
            ("ganger.example", true),
            ("10.0.0.7:9464", true),
            ("localhost.evil.example", true),
        ] {
            let headers = HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
            let cookie = cookie("s", Duration::from_secs(5), &headers);
            assert_eq!(cookie.contains("; Secure"), is_secure, "{host}");
            assert!(
                cookie
                    .starts_with("ganger_session=s; Path=/; Max-Age=5; HttpOnly; SameSite=Strict")
            );
        }
        assert!(cookie("s", Duration::ZERO, &HeaderMap::new()).contains("; Secure"));
    }
}
