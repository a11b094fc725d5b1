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
use super::base_path::BasePath;
use super::browser::{HOME, LOGIN, Site, page_of, sessions};
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
    (status = 409, description = "The API does not listen on an address for browsers, no browser would keep the \
     session, a proxy logs its users in, or the dashboard is off", body = Problem),
))]
pub(super) async fn create(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Login>, Problem> {
    let refused = |why: &str| Err(Problem::new(StatusCode::CONFLICT, why));
    let config = context.daemon.overview.config();
    if !config.admin.ui {
        return refused("the dashboard is off: `ui = false` in [admin]");
    }
    if matches!(caller.identity, Identity::Proxied { .. }) {
        return refused("the proxy logs its users in");
    }
    let base = match (&config.admin.public_url, context.address.get()) {
        (Some(url), _) => url.to_string(),
        (None, Some(address)) if reachable(*address).ip().is_loopback() => {
            format!("http://{}", reachable(*address))
        }
        (None, Some(_)) => {
            return refused(
                "the admin API listens on an address of a network, over which a browser keeps no session without \
                 encryption: set `admin.public_url` to the URL at which browsers reach it",
            );
        }
        (None, None) => {
            return refused(
                "the admin API does not listen on an address: see `admin.listen` and the log",
            );
        }
    };
    let code = context.sessions.issue_code(caller.identity);
    let code = code.map_err(no_random)?;
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
        return Ok(form(
            StatusCode::UNAUTHORIZED,
            &next.unwrap_or_default(),
            why,
        ));
    };
    let config = context.daemon.overview.config();
    let site = Site::new(&headers, config.admin.public_origin());
    let cookie = site.cookie(&session, SESSION_LIFETIME);
    let home = BasePath::of(config.admin.public_url.as_ref()).before(HOME);
    let page = format!(
        "<!doctype html><link rel=icon href=\"data:,\"><meta http-equiv=refresh content=\"0; url={home}\">"
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
    let config = context.daemon.overview.config();
    let site = Site::new(&headers, config.admin.public_origin());
    site.check_page(&Method::POST)?;
    let Form(LoginForm { token, next }) = entered?;
    if let Err(problem) = site.check_encrypted() {
        return Ok(form(StatusCode::FORBIDDEN, &next, problem.detail()));
    }
    let why = match context.credentials.of_token(token.trim()) {
        Ok(Some(caller)) => {
            tracing::info!(by = %caller, "login of a browser");
            let session = context.sessions.begin(caller.identity);
            let session = session.map_err(no_random)?;
            let cookie = site.cookie(&session, SESSION_LIFETIME);
            let next = Redirect::to(&page_of(&next));
            return Ok(([(header::SET_COOKIE, cookie)], next).into_response());
        }
        Ok(None) => "this token is unknown".to_owned(),
        Err(expired) => expired.detail().to_owned(),
    };
    tracing::warn!(why, "login of a browser refused");
    Ok(form(StatusCode::UNAUTHORIZED, &next, &why))
}

/// Ends the session. One that has ended before leads to the login as well.
pub(super) async fn leave(
    State(context): State<Context>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let config = context.daemon.overview.config();
    let site = Site::new(&headers, config.admin.public_origin());
    site.check_page(&Method::POST)?;
    let sessions = sessions(&headers).into_iter();
    sessions.for_each(|session| context.sessions.end(session));
    let cookie = site.cookie("", Duration::ZERO);
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(LOGIN)).into_response())
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
