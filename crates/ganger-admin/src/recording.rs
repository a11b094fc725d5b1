//! Record of the changes that callers make through the API: in the log, and in the ledger if there is one.

use std::borrow::Cow;

use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::answer::Problem;
use super::at_ledger::AtLedger;
use super::caller::Caller;
use super::roles;
use ganger_config::model::Role;
use ganger_pool::overview::Overview;

/// Beginnings of the routes whose changes the ledger records by itself, together with what they change.
const OF_LEDGER: [&str; 2] = ["/v1/schedules", "/v1/occurrences"];

/// Paths at which a POST creates something.
const COLLECTIONS: [&str; 3] = ["alerts/silences", "jobs", "logins"];

/// Path whose answers are secret.
const LOGINS: &str = "/v1/logins";

/// Largest request, and largest answer, that is recorded as it is, in bytes.
const RECORDED_BYTES_MAX: usize = 2 << 10;

/// Records a request that changes something, once it is answered. Only messages are too many to be recorded each.
pub(super) async fn record(
    State((overview, ledger)): State<(Overview, AtLedger)>,
    request: Request,
    next: Next,
) -> Response {
    let caller = request.extensions().get::<Caller>().cloned();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let Some((caller, route)) = caller.zip(route) else {
        return next.run(request).await;
    };
    let (method, route) = (request.method().clone(), route.as_str());
    if method.is_safe() || roles::required(&method, route) == Role::Viewer {
        return next.run(request).await;
    }
    let path = request.uri().path().to_owned();
    if route.ends_with("/messages") {
        let response = next.run(request).await;
        let (by, role, status) = (&caller, caller.role, response.status().as_u16());
        tracing::debug!(%by, %role, %method, path, status, "message sent through the admin API");
        return response;
    }
    let is_of_ledger = OF_LEDGER.iter().any(|start| route.starts_with(start));
    let is_noted = !is_of_ledger && ledger.config().is_ok();
    let (request, asked, before) = match is_noted {
        true => match read(request).await {
            Ok((request, asked)) => (request, asked, state_of(&overview, &path)),
            Err(problem) => return problem.into_response(),
        },
        false => (request, Value::Null, Value::Null),
    };
    let mut response = next.run(request).await;
    let (by, role, status) = (&caller, caller.role, response.status());
    tracing::info!(%by, %role, %method, path, status = status.as_u16(), "change through the admin API");
    if is_noted && status.is_success() {
        let answered = match path == LOGINS {
            true => Value::Null,
            false => answered(&mut response).await,
        };
        let detail = json!({
            "role": caller.role.to_string(), "asked": asked, "before": before, "answered": answered,
        });
        // The change is made: who has asked for it does not wait for a database.
        tokio::spawn(note(ledger, caller, (method, path), detail));
    }
    response
}

/// Reads a small request, and returns it with what is recorded of it. A large one stays unread: who handles it counts
/// its bytes.
async fn read(request: Request) -> Result<(Request, Value), Problem> {
    let size = request.body().size_hint();
    if size
        .upper()
        .is_none_or(|size| size > RECORDED_BYTES_MAX as u64)
    {
        let asked = size.exact().map(bytes);
        return Ok((request, asked.unwrap_or_default()));
    }
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, RECORDED_BYTES_MAX).await;
    let body = body.map_err(|error| Problem::bad(format!("the request can't be read: {error}")))?;
    let asked = shown(&body);
    Ok((Request::from_parts(parts, Body::from(body)), asked))
}

/// Returns the state that a change at this path may replace.
fn state_of(overview: &Overview, path: &str) -> Value {
    if path == "/v1/log-level" {
        return json!(ganger_telemetry::levels());
    }
    let pool = path
        .strip_prefix("/v1/pools/")
        .and_then(|path| path.split('/').next());
    let pool = pool.and_then(|name| percent_decode_str(name).decode_utf8().ok());
    let pools = overview.registry().pools();
    let pool = pools.iter().find(|one| Some(&*one.name) == pool.as_deref());
    pool.map_or(Value::Null, |pool| {
        json!({ "state": pool.state, "workers_wanted": pool.workers_wanted, "scaled": pool.scaled })
    })
}

/// Returns a small answer as it is recorded, and leaves it in its place.
async fn answered(response: &mut Response) -> Value {
    let size = response.body().size_hint().upper();
    if size.is_none_or(|size| size > RECORDED_BYTES_MAX as u64) {
        return Value::Null;
    }
    let body = std::mem::take(response.body_mut());
    let body = to_bytes(body, RECORDED_BYTES_MAX).await.unwrap_or_default();
    let answered = shown(&body);
    *response.body_mut() = Body::from(body);
    answered
}

async fn note(ledger: AtLedger, caller: Caller, (method, path): (Method, String), detail: Value) {
    let (action, subject) = named(&method, &path);
    let noted = ledger
        .by(&caller, move |ledger| {
            ledger.note(&action, &subject, &detail)
        })
        .await;
    if let Err(problem) = noted {
        let problem = problem.detail();
        tracing::warn!(path, problem, "recording a change in the ledger failed");
    }
}

/// Returns the action and the subject of a change: of `POST /v1/pools/a/pause`, `pause` and `pools/a`.
fn named(method: &Method, path: &str) -> (String, String) {
    let path = path.strip_prefix("/v1/").unwrap_or(path);
    let (subject, action) = match (method, path.rsplit_once('/')) {
        (&Method::DELETE, _) => (path, "delete"),
        _ if COLLECTIONS.contains(&path) => (path, "create"),
        (_, Some(parts)) => parts,
        (_, None) => ("daemon", path),
    };
    let decoded = |text| -> Cow<'_, str> { percent_decode_str(text).decode_utf8_lossy() };
    (decoded(action).into_owned(), decoded(subject).into_owned())
}

/// Returns a request or an answer as it is recorded: without bodies of messages, of which the size is told.
fn shown(body: &[u8]) -> Value {
    let mut shown: Value = serde_json::from_slice(body).unwrap_or_default();
    for name in ["body", "body_base64"] {
        if let Some(Value::String(body)) = shown.get_mut(name).map(Value::take) {
            shown[name] = bytes(body.len() as u64);
        }
    }
    shown
}

fn bytes(size: u64) -> Value {
    json!(format!("({size} bytes)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_named_by_its_path() {
        for (method, path, expected) in [
            (
                Method::POST,
                "/v1/pools/a%20b/pause",
                ("pause", "pools/a b"),
            ),
            (
                Method::POST,
                "/v1/pools/a/workers/3/kill",
                ("kill", "pools/a/workers/3"),
            ),
            (Method::POST, "/v1/dead/main/retry", ("retry", "dead/main")),
            (Method::DELETE, "/v1/dead/main", ("delete", "dead/main")),
            (Method::POST, "/v1/reload", ("reload", "daemon")),
            (Method::POST, "/v1/jobs", ("create", "jobs")),
        ] {
            let (action, subject) = named(&method, path);
            assert_eq!((&*action, &*subject), expected, "{path}");
        }
    }

    #[tokio::test]
    async fn bodies_of_messages_are_not_recorded() {
        let of = async |asked: &str| {
            let request = Request::new(Body::from(asked.to_owned()));
            let (request, recorded) = read(request).await.unwrap();
            let passed = to_bytes(request.into_body(), 10_000).await.unwrap();
            assert_eq!(passed, asked);
            recorded
        };
        assert_eq!(of(r#"{"workers": 2}"#).await, json!({ "workers": 2 }));
        let edited = of(r#"{"ids": ["1"], "body": "secret"}"#).await;
        assert_eq!(edited, json!({ "ids": ["1"], "body": "(6 bytes)" }));
        assert_eq!(of("").await, Value::Null);
        assert_eq!(of(&"x".repeat(3000)).await, json!("(3000 bytes)"));
    }
}
