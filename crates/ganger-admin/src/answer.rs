//! Answers to requests: JSON, or a problem document (RFC 9457) with the error and its remedy.

use axum::Json;
use axum::extract::rejection::{FormRejection, JsonRejection, PathRejection, QueryRejection};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use ganger_pool::registry::SteerError;

/// Result of a request that changes something.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub(super) struct Done {
    /// The result in a sentence.
    pub(super) done: String,
    /// Number of the rolling restart that the request has started, if any: `rolls` in the pool's
    /// status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) roll: Option<u64>,
}

impl Done {
    pub(super) fn json(done: impl Into<String>) -> Json<Self> {
        Json(Self {
            done: done.into(),
            roll: None,
        })
    }
}

/// Problem document: why a request failed.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub(super) struct Problem {
    /// The HTTP status in words.
    title: String,
    /// The HTTP status.
    status: u16,
    /// The error and its remedy.
    detail: String,
    /// The single errors, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    errors: Vec<String>,
    /// Number of dead letters that were changed despite the error, if the request was about dead
    /// letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    changed: Option<usize>,
    /// Number of dead letters that stay because another message has their unique key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held: Option<usize>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            title: status.canonical_reason().unwrap_or("Problem").to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            errors: Vec::new(),
            changed: None,
            held: None,
        }
    }

    pub(super) fn with(self, errors: Vec<String>) -> Self {
        Self { errors, ..self }
    }

    /// Adds the number of dead letters that were changed, and of those that are held back.
    pub(super) fn after(self, changed: usize, held: usize) -> Self {
        Self {
            changed: Some(changed),
            held: (held > 0).then_some(held),
            ..self
        }
    }

    /// Returns the HTTP status.
    pub(super) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub(super) fn is(&self, status: StatusCode) -> bool {
        self.status == status.as_u16()
    }

    /// Returns the error and its remedy.
    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns the single errors.
    pub(super) fn errors(&self) -> &[String] {
        &self.errors
    }

    /// Returns a problem for a bad request.
    pub(super) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }
}

/// Text of a problem that an answer is, for the layers around.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToldProblem(pub(crate) String);

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status();
        let told = ToldProblem(self.detail.clone());
        let mut response = (status, Json(self)).into_response();
        response.extensions_mut().insert(told);
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

impl From<SteerError> for Problem {
    fn from(error: SteerError) -> Self {
        let status = match &error {
            SteerError::Unknown { .. } => StatusCode::NOT_FOUND,
            SteerError::Refused(_) => StatusCode::CONFLICT,
            SteerError::Busy(_) => StatusCode::GATEWAY_TIMEOUT,
        };
        Self::new(status, error.to_string())
    }
}

impl From<FormRejection> for Problem {
    fn from(rejection: FormRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

pub(super) fn bad_gateway(error: impl std::fmt::Display) -> Problem {
    Problem::new(StatusCode::BAD_GATEWAY, error.to_string())
}
