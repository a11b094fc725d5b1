//! Roles that requests require, in one table.

use axum::extract::{MatchedPath, Request};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::answer::Problem;
use super::caller::Caller;
use ganger_config::model::Role::{self, Admin, Operator, Viewer};

/// Paths that everybody may read.
pub(super) const PROBES: [&str; 2] = ["/livez", "/readyz"];

/// Operations, each with its role. One that is missing here requires [`Viewer`] if it reads, and [`Admin`] otherwise.
const ROLES: [(&str, &str, Role); 40] = [
    // Not every secret in a command or a variable can be recognized.
    ("GET", "/v1/config", Admin),
    ("POST", "/ui/login", Viewer),
    ("POST", "/ui/logout", Viewer),
    ("POST", "/ui/queues/{name}/send", Operator),
    ("POST", "/ui/dead/{source}/{id}/edit", Operator),
    ("POST", "/v1/schedules/explain", Viewer),
    ("POST", "/v1/queues/{queue}/messages", Operator),
    ("POST", "/v1/topics/{topic}/messages", Operator),
    ("POST", "/v1/dead/{source}/retry", Operator),
    ("DELETE", "/v1/dead/{source}", Operator),
    ("POST", "/v1/jobs", Operator),
    ("POST", "/v1/jobs/{id}/cancel", Operator),
    ("POST", "/v1/alerts/silences", Operator),
    ("DELETE", "/v1/alerts/silences/{id}", Operator),
    ("POST", "/v1/pools/{name}/scale", Operator),
    ("POST", "/v1/pools/{name}/pause", Operator),
    ("POST", "/v1/pools/{name}/resume", Operator),
    ("POST", "/v1/pools/{name}/restart", Operator),
    ("POST", "/v1/pools/{name}/drain", Operator),
    ("POST", "/v1/pools/{name}/cancel", Operator),
    ("POST", "/v1/pools/{name}/workers/{slot}/kill", Operator),
    ("POST", "/v1/schedules/pause", Operator),
    ("POST", "/v1/schedules/resume", Operator),
    ("POST", "/v1/schedules/{name}/pause", Operator),
    ("POST", "/v1/schedules/{name}/resume", Operator),
    ("POST", "/v1/schedules/{name}/trigger", Operator),
    ("POST", "/v1/schedules/{name}/skip", Operator),
    ("POST", "/v1/schedules/{name}/backfill", Operator),
    ("POST", "/v1/occurrences/{id}/cancel", Operator),
    ("POST", "/v1/occurrences/{id}/retry", Operator),
    ("POST", "/v1/occurrences/{id}/resolve", Operator),
    ("DELETE", "/v1/occurrences/{id}", Operator),
    ("PUT", "/v1/schedules/{name}", Admin),
    ("PATCH", "/v1/schedules/{name}", Admin),
    ("DELETE", "/v1/schedules/{name}", Admin),
    ("POST", "/v1/schedules/{name}/rollback", Admin),
    (
        "DELETE",
        "/v1/subscriptions/{source}/{topic}/{queue}",
        Admin,
    ),
    ("POST", "/v1/reload", Admin),
    ("POST", "/v1/log-level", Admin),
    ("POST", "/v1/logins", Admin),
];

/// Returns the role that a request requires. The path is that of its route.
pub(super) fn required(method: &Method, route: &str) -> Role {
    let of = match *method {
        Method::HEAD => "GET",
        _ => method.as_str(),
    };
    let mut roles = ROLES.iter();
    let found = roles.find(|(method, path, _)| *method == of && *path == route);
    let unlisted = if method.is_safe() { Viewer } else { Admin };
    found.map_or(unlisted, |(_, _, role)| *role)
}

/// Checks the role of the caller whom the guard has admitted.
pub(super) async fn require(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>();
    let checked = match request.extensions().get::<Caller>() {
        Some(caller) => check(caller, request.method(), route.map(MatchedPath::as_str)),
        None => Err(Problem::new(StatusCode::FORBIDDEN, "the caller is unknown")),
    };
    match checked {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Checks that a caller has the role that a request requires. An unknown path requires none.
pub(super) fn check(caller: &Caller, method: &Method, route: Option<&str>) -> Result<(), Problem> {
    let required = route.map_or(Viewer, |route| required(method, route));
    if caller.role >= required {
        return Ok(());
    }
    let own = match caller.role {
        Viewer => "a viewer",
        Operator => "an operator",
        Admin => "an admin",
    };
    let why = format!("{caller} is {own}; this needs {required}");
    Err(Problem::new(StatusCode::FORBIDDEN, why))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn;
    use axum::routing::get;
    use serde_json::Value;
    use tower::ServiceExt;

    use super::*;
    use crate::caller::Identity;

    #[test]
    fn each_operation_that_changes_something_has_a_role() {
        let document: Value = serde_json::from_str(&crate::document()).unwrap();
        let mut described = BTreeSet::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let method: Method = method.to_uppercase().parse().unwrap();
                let role = match PROBES.contains(&path.as_str()) {
                    true => "none".to_owned(),
                    false => required(&method, path).to_string(),
                };
                assert_eq!(operation["x-role"], role, "{method} {path}");
                if !method.is_safe() {
                    described.insert((method.to_string(), path.clone()));
                }
            }
        }
        let listed = ROLES
            .iter()
            .filter(|(method, path, _)| *method != "GET" && path.starts_with("/v1/"));
        let listed = listed.map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned()));
        assert_eq!(listed.collect::<BTreeSet<_>>(), described);
    }

    #[tokio::test]
    async fn a_route_is_the_same_however_its_path_is_written() {
        let route = get(|| async { "secret" });
        let routes = Router::new().route("/v1/config", route);
        let routes = routes.layer(from_fn(require));
        let ask = async |path: &str, role: Option<Role>| {
            let identity = Identity::Socket { uid: 0 };
            let caller = role.map(|role| Caller::new(identity, role));
            let mut request = Request::get(path).body(Body::empty()).unwrap();
            if let Some(caller) = caller {
                request.extensions_mut().insert(caller);
            }
            routes.clone().oneshot(request).await.unwrap().status()
        };
        for path in ["/v1/config", "/v1/config?a=/v1/status"] {
            assert_eq!(ask(path, Some(Admin)).await, StatusCode::OK, "{path}");
            assert_eq!(
                ask(path, Some(Viewer)).await,
                StatusCode::FORBIDDEN,
                "{path}"
            );
            assert_eq!(ask(path, None).await, StatusCode::FORBIDDEN, "{path}");
        }
    }

    #[test]
    fn what_is_not_listed_is_for_admins() {
        let of = |method: Method| required(&method, "/v1/unlisted");
        assert_eq!(of(Method::GET), Viewer);
        assert_eq!(of(Method::HEAD), Viewer);
        assert_eq!(of(Method::POST), Admin);
        assert_eq!(required(&Method::GET, "/v1/config"), Admin);
        assert_eq!(required(&Method::HEAD, "/v1/config"), Admin);
        assert_eq!(required(&Method::PUT, "/v1/schedules/pause"), Admin);
    }
}
