//! The frame of all pages: head, navigation, search, who is logged in. A problem is a page as well.

use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use super::assets::{SCRIPT, STYLE};
use super::done;
use super::page::{Page, Section};
use super::paths::{NOW, SEARCH};
use super::shown::{started, text};
use crate::answer::Problem;
use crate::browser::LOGOUT;
use crate::caller::Caller;

/// Headers of all pages: they load nothing from elsewhere, and run no script but ours.
pub(crate) const PAGE: [(header::HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Maximum size of a problem, in bytes.
const PROBLEM_BYTES_MAX: usize = 1 << 20;

/// Sends pages, and problems of pages, as documents.
pub(super) async fn dress(request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>().cloned();
    let done = done::done(request.headers());
    let mut response = next.run(request).await;
    if let Some(page) = response.extensions().get::<Arc<Page>>() {
        let page = Arc::clone(page);
        let shown = document(&page, caller.as_ref(), done.as_deref());
        let mut dressed = (PAGE, Html(shown.into_string())).into_response();
        dressed.extensions_mut().insert(page);
        forget(&mut dressed, done.is_some());
        return dressed;
    }
    if response.status().is_client_error() || response.status().is_server_error() {
        let status = response.status();
        let body = std::mem::take(response.body_mut());
        let body = to_bytes(body, PROBLEM_BYTES_MAX).await.unwrap_or_default();
        let problem = serde_json::from_slice(&body);
        let problem =
            problem.unwrap_or_else(|_| Problem::new(status, String::from_utf8_lossy(&body)));
        return problem_page(status, &problem, caller.as_ref());
    }
    response
}

/// Deletes the cookie with the message that a page has shown.
fn forget(response: &mut Response, was_shown: bool) {
    if was_shown && let Ok(cookie) = done::forgotten().parse() {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

/// Returns a problem as a page.
pub(super) fn problem_page(
    status: StatusCode,
    problem: &Problem,
    caller: Option<&Caller>,
) -> Response {
    let title = status.canonical_reason().unwrap_or("Problem");
    let body = html! {
        p.lead { (text(problem.detail())) }
        @if !problem.errors().is_empty() {
            ul { @for error in problem.errors() { li { (text(error)) } } }
        }
        p { a href=(NOW) { "Back to Now" } }
    };
    let page = Page::new(Section::Now, title).with("problem", body).still();
    let shown = document(&page, caller, None);
    (status, PAGE, Html(shown.into_string())).into_response()
}

/// Returns whether a browser wants a document, and not JSON.
pub(super) fn wants_document(headers: &HeaderMap) -> bool {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// Returns a page for readers who are not logged in.
pub(crate) fn bare(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(title))
            body { main { h1 { "ganger" } h2 { (title) } (body) } }
        }
    }
}

fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) " – ganger" }
            link rel="icon" href="data:,";
            link rel="stylesheet" href=(STYLE.path());
            script src=(SCRIPT.path()) type="module" {}
        }
    }
}

fn document(page: &Page, caller: Option<&Caller>, done: Option<&str>) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" data-daemon=(started()) {
            (head(&page.title))
            body data-role=[caller.map(|caller| caller.role.to_string())] {
                a.skip href="#main" { "Skip to the content" }
                header.top {
                    a.brand href=(NOW) { "ganger" }
                    nav aria-label="Pages" {
                        @for (section, path, name, key) in Section::ALL {
                            a href=(path) data-key=(key) aria-current=[(section == page.section).then_some("page")] {
                                (name)
                            }
                        }
                    }
                    form.search action=(SEARCH) role="search" {
                        input type="search" name="q" placeholder="Search: id, name, error" aria-label="Search" maxlength="200" autocomplete="off" list="completions";
                        datalist #completions {}
                    }
                    @if let Some(caller) = caller {
                        form.who method="post" action=(LOGOUT) {
                            span title="Who you are, and your role" { (text(&caller.to_string())) ", " (caller.role) }
                            " " button.quiet { "Log out" }
                        }
                    }
                }
                p #state role="status" aria-live="polite" hidden {}
                @if let Some(done) = done { p.done role="status" { (text(done)) } }
                main #main {
                    h1 { (text(&page.title)) }
                    @for part in &page.parts {
                        section id=(part.id) data-part[page.pace.is_some()] data-held[part.is_held] { (maud::PreEscaped(&part.body)) }
                    }
                }
                dialog #keys aria-label="Keys" {
                    h2 { "Keys" }
                    dl {
                        dt { kbd { "/" } } dd { "Search" }
                        @for (_, _, name, key) in Section::ALL {
                            dt { kbd { "g" } " " kbd { (key) } } dd { (name) }
                        }
                        dt { kbd { "?" } } dd { "These keys" }
                    }
                    form method="dialog" { button { "Close" } }
                }
            }
        }
    }
}
