//! Reading of request bodies: a piece at a time, each with a timeout, and all of it counted in the
//! daemon's limit on messages in memory.

use std::time::Duration;

use axum::Json;
use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::answer::Problem;
use super::context::Context;
use ganger_core::budget::{Budget, Hold};

/// Maximum size of the body of a request that publishes nothing, in bytes. The message that a schedule or a run is
/// given has at most 1 MiB; as JSON each of its bytes may take six.
pub(super) const BODY_BYTES_MAX: usize = 8 << 20;
/// Number of bytes of a body that are counted at a time. This many are accepted of each body in any
/// case.
const STEP: usize = 1 << 20;
/// Timeout of the next piece.
const PIECE_WITHIN: Duration = Duration::from_secs(10);
/// Name under which the admin API draws from the budget.
const DRAWN_BY: &str = "the admin API";

/// A body, and its share of the budget while it is in memory.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) bytes: Bytes,
    pub(super) held: Vec<Hold>,
}

/// Reads a body of at most `bytes_max` bytes.
pub(super) async fn read(
    mut body: Body,
    bytes_max: usize,
    budget: &Budget,
) -> Result<Counted, Problem> {
    let too_large = || {
        let why = format!("the body is longer than {bytes_max} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, why)
    };
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > bytes_max {
        return Err(too_large());
    }
    let share = budget.share(DRAWN_BY);
    let (mut bytes, mut held, mut counted) = (BytesMut::new(), Vec::new(), 0);
    loop {
        let next = timeout(PIECE_WITHIN, body.frame())
            .await
            .map_err(|_| late())?;
        let Some(frame) = next else { break };
        let frame =
            frame.map_err(|error| Problem::bad(format!("reading the body failed: {error}")))?;
        let piece = frame.into_data().unwrap_or_default();
        if bytes.len() + piece.len() > bytes_max {
            return Err(too_large());
        }
        while bytes.len() + piece.len() > counted {
            held.push(share.take(STEP).ok_or_else(no_room)?);
            counted += STEP;
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(Counted {
        bytes: bytes.freeze(),
        held,
    })
}

fn late() -> Problem {
    let why = format!("no further part of the body arrived within {PIECE_WITHIN:?}");
    Problem::new(StatusCode::REQUEST_TIMEOUT, why)
}

fn no_room() -> Problem {
    let why = "the daemon holds as many bytes of messages as `daemon.buffered_bytes_max` allows: \
               try again";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, why)
}

/// The JSON body of a request.
#[derive(Debug)]
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Context> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, context: &Context) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let body = read(body, BODY_BYTES_MAX, context.daemon.overview.budget()).await?;
        let request = Request::from_parts(parts, Body::from(body.bytes.clone()));
        let Json(asked) = Json::from_request(request, context).await?;
        Ok(Self(asked))
    }
}

/// The JSON body of a request that may have none.
#[derive(Debug)]
pub(super) struct JsonIfGiven<T>(pub(super) T);

impl<T: DeserializeOwned + Default> FromRequest<Context> for JsonIfGiven<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, context: &Context) -> Result<Self, Problem> {
        if request.body().is_end_stream() {
            return Ok(Self(T::default()));
        }
        let JsonBody(asked): JsonBody<Option<T>> = JsonBody::from_request(request, context).await?;
        Ok(Self(asked.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use futures_util::stream;

    use super::*;

    const MIB: usize = 1 << 20;

    fn pieces(count: usize) -> Body {
        let piece = || Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; MIB / 2]));
        Body::from_stream(stream::iter((0..count).map(move |_| piece())))
    }

    fn status(refused: Result<Counted, Problem>) -> u16 {
        refused.unwrap_err().into_response().status().as_u16()
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_counts_as_long_as_it_is_held() {
        let budget = Budget::new(Some(4 * MIB));
        let first = read(pieces(6), 8 * MIB, &budget).await.unwrap();
        assert_eq!(
            (first.bytes.len(), budget.standing().drawn),
            (3 * MIB, 3 * MIB)
        );
        assert_eq!(status(read(pieces(6), 8 * MIB, &budget).await), 503);
        let small = read(pieces(1), 8 * MIB, &budget).await.unwrap();
        drop((first, small));
        assert_eq!(budget.standing().drawn, 0);
        assert!(budget.standing().waiting.is_empty());
        read(pieces(6), 8 * MIB, &budget).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_neither_too_long_nor_too_late() {
        let budget = Budget::new(Some(MIB));
        assert_eq!(status(read(pieces(3), MIB, &budget).await), 413);
        let announced = Body::from(vec![0; 2 * MIB]);
        assert_eq!(status(read(announced, MIB, &budget).await), 413);
        let silent = stream::pending::<Result<Bytes, std::io::Error>>();
        assert_eq!(
            status(read(Body::from_stream(silent), MIB, &budget).await),
            408
        );
        assert_eq!(budget.standing().drawn, 0);
    }
}
