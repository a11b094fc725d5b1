//! Requests of pages to the API, in this process.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Builder;
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::ServiceExt;

use crate::answer::Problem;
use crate::caller::Caller;

/// Maximum size of an answer that a page reads, in bytes.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// The routes of the API, for pages. Their guard has admitted the caller already; each checks the role once more.
#[derive(Clone)]
pub(crate) struct Api {
    routes: Router,
    caller: Option<Caller>,
}

impl Api {
    pub(crate) fn new(routes: Router) -> Self {
        Self {
            routes,
            caller: None,
        }
    }

    /// Returns what the API has at a path with a query.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Problem> {
        self.send(path, Request::builder().method(Method::GET), Body::empty())
            .await
    }

    /// Returns the answer of an operation that takes a body.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        asked: &Value,
    ) -> Result<T, Problem> {
        let request = Request::builder().method(Method::POST);
        let request = request.header(header::CONTENT_TYPE, "application/json");
        self.send(path, request, Body::from(asked.to_string()))
            .await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        path: &str,
        request: Builder,
        body: Body,
    ) -> Result<T, Problem> {
        let mut request = request.uri(path);
        if let Some(caller) = &self.caller {
            request = request.extension(caller.clone());
        }
        let request = request.body(body);
        let request = request.map_err(|error| broken(path, &error))?;
        let Ok(response) = self.routes.clone().oneshot(request).await;
        let status = response.status();
        let body = to_bytes(response.into_body(), ANSWER_BYTES_MAX).await;
        let body = body.map_err(|error| broken(path, &error))?;
        if !status.is_success() {
            let problem = serde_json::from_slice(&body);
            return Err(problem.unwrap_or_else(|_| Problem::new(status, "no reason given")));
        }
        serde_json::from_slice(&body).map_err(|error| broken(path, &error))
    }
}

fn broken(path: &str, error: &dyn std::fmt::Display) -> Problem {
    let why = format!("{path}: {error}");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, why)
}

/// Gives pages the API as their caller uses it.
pub(super) async fn with_caller(
    State(api): State<Api>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = request.extensions().get::<Caller>().cloned();
    request.extensions_mut().insert(Api { caller, ..api });
    next.run(request).await
}
