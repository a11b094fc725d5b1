//! Compression of pages, their style and their script. A page has no secret that an attacker could guess by the sizes
//! of pages: forms have no tokens, and a request from another site comes without the cookie of the session.

use std::io::Write;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Maximum size of a body, in bytes: all are in memory already.
const BODY_BYTES_MAX: usize = 64 << 20;

/// Kinds of bodies that are compressed: not event streams, of which each event is sent at once.
const KINDS: [&str; 4] = ["text/html", "text/css", "text/javascript", "text/csv"];

/// Compresses an answer for a browser that accepts that.
pub(crate) async fn compress(request: Request, next: Next) -> Response {
    let accepts = accepts_gzip(request.headers());
    let mut response = next.run(request).await;
    let kind = response.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !KINDS.iter().any(|own| kind.starts_with(own)) {
        return response;
    }
    let varies = HeaderValue::from_static("accept-encoding");
    response.headers_mut().append(header::VARY, varies);
    if !accepts {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let body = to_bytes(body, BODY_BYTES_MAX).await.unwrap_or_default();
    let mut packed = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    let packed = packed.write_all(&body).and_then(|()| packed.finish());
    match packed {
        // An answer to HEAD has no body.
        Ok(packed) if !body.is_empty() => {
            head.headers.remove(header::CONTENT_LENGTH);
            let gzip = HeaderValue::from_static("gzip");
            head.headers.insert(header::CONTENT_ENCODING, gzip);
            Response::from_parts(head, Body::from(packed))
        }
        _ => Response::from_parts(head, Body::from(body)),
    }
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter();
    let accepted = accepted.filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let weight = parts.find_map(|part| part.strip_prefix("q="));
        is_gzip
            && weight.is_none_or(|weight| weight.parse::<f32>().is_ok_and(|weight| weight > 0.0))
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use axum::Router;
    use axum::middleware::from_fn;
    use axum::routing::get;
    use flate2::read::GzDecoder;
    use tower::ServiceExt;

    use super::*;

    /// Asks for a body of that kind with these codings, and returns the head and the body of the answer.
    async fn asked(kind: &'static str, accepted: &'static str) -> (HeaderMap, Vec<u8>) {
        let page = move || async move { ([(header::CONTENT_TYPE, kind)], "<p>".repeat(1000)) };
        let routes = Router::new().route("/", get(page)).layer(from_fn(compress));
        let request = Request::get("/").header(header::ACCEPT_ENCODING, accepted);
        let Ok(answer) = routes.oneshot(request.body(Body::empty()).unwrap()).await;
        let (head, body) = answer.into_parts();
        let body = to_bytes(body, BODY_BYTES_MAX).await.unwrap();
        (head.headers, body.to_vec())
    }

    #[tokio::test]
    async fn documents_are_compressed_where_that_is_accepted() {
        let (headers, body) = asked("text/html; charset=utf-8", "br, gzip;q=0.8").await;
        assert_eq!(headers[header::CONTENT_ENCODING], "gzip");
        assert_eq!(headers[header::VARY], "accept-encoding");
        assert!(body.len() < 100, "{}", body.len());
        let mut plain = String::new();
        GzDecoder::new(&*body).read_to_string(&mut plain).unwrap();
        assert_eq!(plain, "<p>".repeat(1000));
        for accepted in ["", "br", "gzip;q=0", "identity"] {
            let (headers, body) = asked("text/html; charset=utf-8", accepted).await;
            assert_eq!(headers.get(header::CONTENT_ENCODING), None, "{accepted}");
            assert_eq!(headers[header::VARY], "accept-encoding", "{accepted}");
            assert_eq!(body.len(), 3000, "{accepted}");
        }
        for kind in ["text/event-stream", "application/json"] {
            let (headers, body) = asked(kind, "gzip").await;
            assert_eq!(headers.get(header::CONTENT_ENCODING), None, "{kind}");
            assert_eq!(body.len(), 3000, "{kind}");
        }
    }
}
