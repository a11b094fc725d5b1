//! The message of what was done, which a form leaves for the next page in a cookie.

use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Redirect, Response};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::shown::started;
use crate::browser::cookies;

/// Longest message in the cookie, in characters.
const DONE_CHARS_MAX: usize = 500;

/// Returns the name of the cookie with the message that the next page shows. A message of another daemon at the same
/// host is not ours.
fn done_cookie() -> String {
    format!("ganger_done_{}", started())
}

/// Returns the message that the last form has left for this page.
pub(super) fn done(headers: &HeaderMap) -> Option<String> {
    let name = done_cookie();
    let mut found = cookies(headers, &name);
    let done = found.find(|value| !value.is_empty())?;
    let done = percent_decode_str(done).decode_utf8().ok()?;
    Some(done.into_owned())
}

/// Leads to a page, which shows what was done.
pub(super) fn leave(done: &str, page: &str) -> Response {
    let done: String = done.chars().take(DONE_CHARS_MAX).collect();
    let done = utf8_percent_encode(&done, NON_ALPHANUMERIC);
    (
        [(header::SET_COOKIE, set(&done.to_string(), 60))],
        Redirect::to(page),
    )
        .into_response()
}

/// Returns the cookie by which a browser forgets the message.
pub(super) fn forgotten() -> String {
    set("", 0)
}

fn set(done: &str, seconds: u32) -> String {
    let name = done_cookie();
    format!("{name}={done}; Path=/ui; Max-Age={seconds}; HttpOnly; SameSite=Strict")
}
