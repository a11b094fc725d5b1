//! Login of a browser: a command asks for a login, its URL is opened once, and a cookie holds the session
//! from then on. There is no dashboard to show yet.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::answer::Problem;
use super::context::Context;
use super::guard::SESSION_COOKIE;
use super::session::{CODE_LIFETIME, SESSION_LIFETIME};

/// Path at which a code is exchanged.
pub(super) const LOGIN: &str = "/ui/login";
/// Path of the page after the login.
pub(super) const HOME: &str = "/ui";

/// Headers that restrict pages to being read.
const PAGE: [(header::HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
];

/// A login for one browser.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Login {
    /// The URL to open; valid once.
    url: String,
    /// Seconds until the URL expires.
    expires_in: u64,
}

/// Create a login for a browser. It is valid once and for a minute.
#[utoipa::path(post, path = "/v1/logins", tag = "daemon", responses(
    (status = 200, description = "The login", body = Login),
    (status = 409, description = "The API does not listen on an address for browsers", body = Problem),
))]
pub(super) async fn create(State(context): State<Context>) -> Result<Json<Login>, Problem> {
    let Some(address) = context.address.get() else {
        let why = "the admin API does not listen on an address: see `admin.listen` and the log";
        return Err(Problem::new(StatusCode::CONFLICT, why));
    };
    let code = context.sessions.issue_code().map_err(no_random)?;
    Ok(Json(Login {
        url: format!("http://{}{LOGIN}?code={code}", reachable(*address)),
        expires_in: CODE_LIFETIME.as_secs(),
    }))
}

/// Returns an address of this machine in place of the wildcard address.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip().is_unspecified() {
        true => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), address.port()),
        false => address,
    }
}

fn no_random(error: std::io::Error) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

#[derive(Debug, Deserialize)]
pub(super) struct Exchange {
    code: String,
}

/// Exchanges a code for a session. It answers with a page that leads on, not with a redirect: a browser would
/// not send the new cookie with a redirect that began at another site.
pub(super) async fn exchange(
    State(context): State<Context>,
    asked: Result<Query<Exchange>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(Exchange { code }) = asked?;
    let Some(session) = context.sessions.exchange(&code).map_err(no_random)? else {
        let why = "this login was used or has expired: `ganger open` creates another";
        return Err(Problem::new(StatusCode::UNAUTHORIZED, why));
    };
    let age = SESSION_LIFETIME.as_secs();
    let cookie =
        format!("{SESSION_COOKIE}={session}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict");
    let page = format!("<!doctype html><meta http-equiv=refresh content=\"0; url={HOME}\">");
    Ok((PAGE, [(header::SET_COOKIE, cookie)], Html(page)).into_response())
}

/// Shows a browser that it is logged in.
pub(super) async fn home() -> Response {
    let version = env!("CARGO_PKG_VERSION");
    let page = format!(
        "<!doctype html><title>ganger</title><p>ganger {version}: logged in. This version has no \
         dashboard; <a href=\"/v1/status\">status</a>, <a href=\"/openapi.json\">API</a>."
    );
    (PAGE, Html(page)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_is_sent_to_an_address_of_this_machine() {
        let shown = |address: &str| reachable(address.parse().unwrap()).to_string();
        assert_eq!(shown("0.0.0.0:9464"), "127.0.0.1:9464");
        assert_eq!(shown("[::]:9464"), "127.0.0.1:9464");
        assert_eq!(shown("[::1]:9464"), "[::1]:9464");
    }
}
