//! The message of what was done, which a form leaves for the next page in a cookie.

use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Redirect, Response};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Name of the cookie with the message that the next page shows.
pub(super) const DONE_COOKIE: &str = "ganger_done";

/// Longest message in the cookie, in characters.
const DONE_CHARS_MAX: usize = 500;

/// Returns the message that the last form has left for this page.
pub(super) fn done(headers: &HeaderMap) -> Option<String> {
    let cookies = headers.get_all(header::COOKIE).iter();
    let cookies = cookies.filter_map(|cookies| cookies.to_str().ok());
    let mut pairs = cookies
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='));
    let (_, done) = pairs.find(|(name, value)| *name == DONE_COOKIE && !value.is_empty())?;
    let done = percent_decode_str(done).decode_utf8().ok()?;
    Some(done.into_owned())
}

/// Leads to a page, which shows what was done.
pub(super) fn leave(done: &str, page: &str) -> Response {
    let done: String = done.chars().take(DONE_CHARS_MAX).collect();
    let done = utf8_percent_encode(&done, NON_ALPHANUMERIC);
    let cookie = format!("{DONE_COOKIE}={done}; Path=/ui; Max-Age=60; HttpOnly; SameSite=Strict");
    ([(header::SET_COOKIE, cookie)], Redirect::to(page)).into_response()
}
