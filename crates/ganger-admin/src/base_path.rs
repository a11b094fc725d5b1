//! Path of `admin.public_url`, below which a proxy offers the daemon. Nothing else knows it: it is taken off the
//! addresses of requests, whether the proxy has done so or not, and put before those in answers.

use std::borrow::Cow;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::answer::Problem;
use ganger_config::model::PublicUrl;
use ganger_pool::overview::Overview;

/// Maximum size of a page, in bytes: all are in memory already.
const PAGE_BYTES_MAX: usize = 64 << 20;

/// Attributes of pages that hold an address, as they are written. Nothing else in a page looks like that, since
/// quotation marks in texts are escaped.
const ADDRESSES: [&str; 4] = [" href=\"/", " src=\"/", " action=\"/", " formaction=\"/"];

/// Path before all others; empty if there is none.
#[derive(Debug, Clone, Default)]
pub(super) struct BasePath(String);

impl BasePath {
    pub(super) fn of(url: Option<&PublicUrl>) -> Self {
        Self(url.map(|url| url.path.clone()).unwrap_or_default())
    }

    /// Returns an address, below the base path if it is an absolute path.
    pub(super) fn before(&self, address: &str) -> String {
        match address.starts_with('/') && !address.starts_with("//") {
            true => format!("{}{address}", self.0),
            false => address.to_owned(),
        }
    }

    /// Returns a piece of a page, with the base path before the addresses in it.
    pub(super) fn in_page<'a>(&self, page: &'a str) -> Cow<'a, str> {
        if self.0.is_empty() {
            return page.into();
        }
        let mut based = page.to_owned();
        for start in ADDRESSES {
            let attribute = start.trim_end_matches('/');
            based = based.replace(start, &format!("{attribute}{}/", self.0));
        }
        based.into()
    }

    /// Returns the rest of a path below the base path.
    fn rest<'a>(&self, path: &'a str) -> Option<&'a str> {
        match path.strip_prefix(&self.0)? {
            "" => Some("/"),
            rest => rest.starts_with('/').then_some(rest),
        }
    }

    /// Takes the base path off a URI.
    fn off(&self, uri: &Uri) -> Option<Uri> {
        let rest = self.rest(uri.path())?;
        let query = uri.query().map(|query| format!("?{query}"));
        let path = format!("{rest}{}", query.unwrap_or_default());
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
        Uri::from_parts(parts).ok()
    }

    /// Takes the base path off the address of a request, and off that of the page that it comes from.
    fn take_off(&self, request: &mut Request) {
        if let Some(uri) = self.off(request.uri()) {
            *request.uri_mut() = uri;
        }
        let referer = request.headers().get(header::REFERER);
        let referer = referer.and_then(|referer| referer.to_str().ok()?.parse().ok());
        let referer = referer.and_then(|referer| self.off(&referer));
        if let Some(referer) = referer.and_then(|uri| uri.to_string().parse().ok()) {
            request.headers_mut().insert(header::REFERER, referer);
        }
    }

    /// Puts the base path before the addresses in the head of an answer.
    fn put_before(&self, headers: &mut HeaderMap) {
        let location = headers.get(header::LOCATION);
        let location = location.and_then(|location| location.to_str().ok());
        if let Some(location) = location.and_then(|to| self.before(to).parse().ok()) {
            headers.insert(header::LOCATION, location);
        }
        if let header::Entry::Occupied(mut cookies) = headers.entry(header::SET_COOKIE) {
            cookies.iter_mut().for_each(|cookie| self.restrict(cookie));
        }
    }

    /// Restricts a cookie to what is below the base path: there may be other daemons at the host.
    fn restrict(&self, cookie: &mut HeaderValue) {
        let parts = cookie.to_str().unwrap_or_default().split("; ");
        let parts = parts.map(|part| match part.strip_prefix("Path=") {
            Some(path) => format!("Path={}", self.before(path).trim_end_matches('/')),
            None => part.to_owned(),
        });
        if let Ok(restricted) = parts.collect::<Vec<_>>().join("; ").parse() {
            *cookie = restricted;
        }
    }

    /// Puts the base path before the addresses in a page.
    async fn put_in(&self, page: Response) -> Response {
        let (mut head, body) = page.into_parts();
        let body = to_bytes(body, PAGE_BYTES_MAX).await;
        let Some(page) = body
            .ok()
            .and_then(|body| String::from_utf8(body.into()).ok())
        else {
            let why = "the page can't be read, to put the path of `admin.public_url` before its addresses";
            return Problem::new(StatusCode::INTERNAL_SERVER_ERROR, why).into_response();
        };
        let page = self.in_page(&page).into_owned();
        // An answer to HEAD has no body.
        if !page.is_empty() {
            head.headers
                .insert(header::CONTENT_LENGTH, HeaderValue::from(page.len()));
        }
        Response::from_parts(head, Body::from(page))
    }
}

/// Serves a request as if the daemon had no base path.
pub(super) async fn under(
    State(overview): State<Overview>,
    mut request: Request,
    next: Next,
) -> Response {
    let base = BasePath::of(overview.config().admin.public_url.as_ref());
    if base.0.is_empty() {
        return next.run(request).await;
    }
    base.take_off(&mut request);
    request.extensions_mut().insert(base.clone());
    let mut response = next.run(request).await;
    base.put_before(response.headers_mut());
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_page = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    match is_page {
        true => base.put_in(response).await,
        false => response,
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::middleware::from_fn_with_state;
    use axum::response::{Html, Redirect};
    use axum::routing::get;
    use maud::html;
    use tower::{Layer, ServiceExt};

    use super::*;

    fn base() -> BasePath {
        BasePath("/tools/ganger".to_owned())
    }

    #[test]
    fn the_base_path_is_taken_off_whole_segments_only() {
        for (uri, rest) in [
            ("/tools/ganger", Some("/")),
            ("/tools/ganger/", Some("/")),
            ("/tools/ganger?a=b", Some("/?a=b")),
            (
                "/tools/ganger/ui/pools/a%2Fb?x=1",
                Some("/ui/pools/a%2Fb?x=1"),
            ),
            (
                "https://ganger.example/tools/ganger/ui?x",
                Some("https://ganger.example/ui?x"),
            ),
            ("/tools/gangers/ui", None),
            ("/ui", None),
            ("/", None),
        ] {
            let off = base().off(&uri.parse().unwrap());
            assert_eq!(off.map(|uri| uri.to_string()).as_deref(), rest, "{uri}");
        }
    }

    #[test]
    fn the_base_path_is_put_before_addresses_and_into_no_text() {
        let hostile = "<a href=\"/x\"> href=\"/y";
        let page = html! {
            a href="/ui" title=" href=/ui" { (hostile) }
            a href="#here" {} a href="https://elsewhere.example/ui" {} a href="data:," {}
            form action="/ui/do/post/v1/reload" { input value="/ui/pools"; button formaction="/ui/x" {} }
            script src="/ui/assets/a.js" {}
        };
        let page = page.into_string();
        let based = base().in_page(&page).into_owned();
        let expected = page
            .replace("<a href=\"/ui\"", "<a href=\"/tools/ganger/ui\"")
            .replace(" action=\"/ui", " action=\"/tools/ganger/ui")
            .replace(" formaction=\"/ui", " formaction=\"/tools/ganger/ui")
            .replace(" src=\"/ui", " src=\"/tools/ganger/ui");
        assert_eq!(based, expected);
        assert_eq!(based.matches("/tools/ganger").count(), 4, "{based}");
        assert_eq!(BasePath::default().in_page(&page), page);
    }

    #[tokio::test]
    async fn requests_with_and_without_the_base_path_are_served() {
        let text = "[admin]\npublic_url = \"https://ganger.example/tools/ganger/\"";
        let overview = crate::context::tests::daemon_with(text).overview;
        let routes = Router::new()
            .route("/ui", get(|| async { Html("<a href=\"/ui/x\">") }))
            .route("/", get(|| async { Redirect::to("/ui") }));
        let service = from_fn_with_state(overview, under).layer(routes);
        for path in ["/ui", "/tools/ganger/ui"] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let response = service.clone().oneshot(request).await.unwrap();
            let length = response.headers().get(header::CONTENT_LENGTH).cloned();
            let body = to_bytes(response.into_body(), 1024).await.unwrap();
            assert_eq!(body, "<a href=\"/tools/ganger/ui/x\">");
            assert_eq!(length, Some(HeaderValue::from(body.len())));
        }
        for (path, below) in [("/", "/tools/ganger"), ("/ui", "/tools/ganger/ui")] {
            let cookie = |path| format!("a=b; Path={path}; Max-Age=1");
            let mut headers = HeaderMap::new();
            headers.append(header::SET_COOKIE, cookie("/x").parse().unwrap());
            headers.append(header::SET_COOKIE, cookie(path).parse().unwrap());
            base().put_before(&mut headers);
            let cookies: Vec<_> = headers.get_all(header::SET_COOKIE).iter().collect();
            assert_eq!(cookies, [&cookie("/tools/ganger/x"), &cookie(below)]);
        }
        let request = Request::get("/tools/ganger").body(Body::empty()).unwrap();
        let response = service.oneshot(request).await.unwrap();
        assert_eq!(response.headers()[header::LOCATION], "/tools/ganger/ui");
    }
}
