//! Login of a browser, by a code that a command has asked for, or by a token in a form. A cookie holds the session from
//! then on.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::extract::rejection::{FormRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::{Extension, Form, Json};
use maud::html;
use serde::{Deserialize, Serialize};

use super::answer::Problem;
use super::browser::{HOME, LOGIN, check_page, cookie, page_of, sessions};
use super::caller::{Caller, Identity};
use super::context::Context;
use super::session::{CODE_LIFETIME, SESSION_LIFETIME};
use super::ui::{PAGE, bare, text};

/// A login for one browser.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Login {
    /// The URL to open; valid once.
    url: String,
    /// Seconds until the URL expires.
    expires_in: u64,
}

/// Create a login for a browser, with the role of who creates it. It is valid once and for a minute.
#[utoipa::path(post, path = "/v1/logins", tag = "daemon", responses(
    (status = 200, description = "The login", body = Login),
    (status = 409, description = "The API does not listen on an address for browsers, or a proxy logs its users in", body = Problem),
))]
pub(super) async fn create(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Login>, Problem> {
    if matches!(caller.identity, Identity::Proxied { .. }) {
        let why = "the proxy logs its users in";
        return Err(Problem::new(StatusCode::CONFLICT, why));
    }
    let Some(address) = context.address.get() else {
        let why = "the admin API does not listen on an address: see `admin.listen` and the log";
        return Err(Problem::new(StatusCode::CONFLICT, why));
    };
    let code = context.sessions.issue_code(caller.identity);
    let code = code.map_err(no_random)?;
    let config = context.daemon.overview.config();
    let own = || format!("http://{}", reachable(*address));
    let base = config.admin.public_url.clone().unwrap_or_else(own);
    Ok(Json(Login {
        url: format!("{base}{LOGIN}?code={code}"),
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
pub(super) struct LoginQuery {
    code: Option<String>,
    next: Option<String>,
}

/// Exchanges a code for a session, or without a code shows the form for a token. After the exchange it answers with a
/// page that leads on, not with a redirect: a browser would not send the new cookie with a redirect that began at
/// another site.
pub(super) async fn page(
    State(context): State<Context>,
    headers: HeaderMap,
    asked: Result<Query<LoginQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(LoginQuery { code, next }) = asked?;
    let Some(code) = code else {
        return Ok(form(StatusCode::OK, &next.unwrap_or_default(), ""));
    };
    let Some(session) = context.sessions.exchange(&code).map_err(no_random)? else {
        let why = "this login was used or has expired: `ganger open` creates another";
        return Err(Problem::new(StatusCode::UNAUTHORIZED, why));
    };
    let cookie = cookie(&session, SESSION_LIFETIME, &headers);
    let page = format!(
        "<!doctype html><link rel=icon href=\"data:,\"><meta http-equiv=refresh content=\"0; url={HOME}\">"
    );
    Ok((PAGE, [(header::SET_COOKIE, cookie)], Html(page)).into_response())
}

#[derive(Deserialize)]
pub(super) struct LoginForm {
    token: String,
    #[serde(default)]
    next: String,
}

/// Exchanges a token for a session.
pub(super) async fn enter(
    State(context): State<Context>,
    headers: HeaderMap,
    entered: Result<Form<LoginForm>, FormRejection>,
) -> Result<Response, Problem> {
    check_page(&Method::POST, &headers)?;
    let Form(LoginForm { token, next }) = entered?;
    if let Some(wait) = context.sessions.refused_for() {
        let seconds = wait.as_secs() + 1;
        let why = format!("too many logins have failed: try again in {seconds} s");
        let refused = form(StatusCode::TOO_MANY_REQUESTS, &next, &why);
        return Ok(([(header::RETRY_AFTER, seconds.to_string())], refused).into_response());
    }
    let why = match context.credentials.of_token(token.trim()) {
        Ok(Some(caller)) => {
            tracing::info!(by = %caller, "login of a browser");
            let session = context.sessions.begin(caller.identity);
            let session = session.map_err(no_random)?;
            let cookie = cookie(&session, SESSION_LIFETIME, &headers);
            let next = Redirect::to(&page_of(&next));
            return Ok(([(header::SET_COOKIE, cookie)], next).into_response());
        }
        Ok(None) => "this token is unknown".to_owned(),
        Err(expired) => expired.detail().to_owned(),
    };
    context.sessions.note_failure();
    tracing::warn!(why, "login of a browser refused");
    Ok(form(StatusCode::UNAUTHORIZED, &next, &why))
}

/// Ends the session.
pub(super) async fn leave(State(context): State<Context>, headers: HeaderMap) -> Response {
    sessions(&headers).for_each(|session| context.sessions.end(session));
    let cookie = cookie("", Duration::ZERO, &headers);
    ([(header::SET_COOKIE, cookie)], Redirect::to(LOGIN)).into_response()
}

/// Returns the form for a token, with an error if there is one.
fn form(status: StatusCode, next: &str, error: &str) -> Response {
    let body = html! {
        form.login method="post" action=(LOGIN) {
            @if !error.is_empty() { p.error role="alert" { (text(error)) } }
            label {
                "Token "
                input type="password" name="token" autocomplete="current-password" required autofocus;
            }
            input type="hidden" name="next" value=(page_of(next));
            button { "Log in" }
        }
        p.none { "On the daemon's machine " code { "ganger open" } " logs in without a token." }
    };
    (status, PAGE, Html(bare("Log in", &body).into_string())).into_response()
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
