//! Requests about jobs: begun, listed, cancelled.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::answer::Problem;
use super::body::JsonBody;
use super::caller::Caller;
use super::context::{Context, on_disk};
use super::dead::time;
use super::jobs::{Job, JobChange, JobRefusal, JobState};
use ganger_queue::client::unique_name;

/// Longest text of a criterion, in bytes.
const TEXT_BYTES_MAX: usize = 2048;
/// Maximum rate, in dead letters per second.
const RATE_MAX: u32 = 1_000_000;

/// A change of many dead letters that is to be made in the background.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewJob {
    change: JobChange,
    /// Name of the source.
    source: String,
    /// Only dead letters of this pool.
    pool: Option<String>,
    /// Only dead letters whose error contains this text.
    error: Option<String>,
    /// Only dead letters with this reason, such as `failed`, `rejected` or `crashed`.
    reason: Option<String>,
    /// Only the dead letters of the message with this id; of one without an id, with this correlation id.
    message_id: Option<String>,
    /// Only dead letters that last failed at or after this time: RFC 3339, or such as `2h` for so long ago.
    since: Option<String>,
    /// Only dead letters that last failed before this time, in the same forms; at the latest that of the request, which
    /// it is if omitted.
    before: Option<String>,
    /// Maximum number of dead letters per second, 1 to 1000000; as many as the source takes if omitted.
    rate: Option<u32>,
    /// Number of dead letters that a preview has found, from which the number of those left is derived.
    expected: Option<u64>,
}

impl NewJob {
    fn job(self, by: &Caller) -> Result<Job, Problem> {
        let texts = [
            ("source", Some(&self.source)),
            ("pool", self.pool.as_ref()),
            ("error", self.error.as_ref()),
            ("reason", self.reason.as_ref()),
            ("message_id", self.message_id.as_ref()),
        ];
        for (name, text) in texts {
            if let Some(length) = text.map(String::len).filter(|it| *it > TEXT_BYTES_MAX) {
                let why = format!("{name} must have at most {TEXT_BYTES_MAX} bytes: {length}");
                return Err(Problem::bad(why));
            }
        }
        if let Some(rate) = self.rate.filter(|rate| !(1..=RATE_MAX).contains(rate)) {
            let why = format!("rate must be within 1..={RATE_MAX}: `{rate}`");
            return Err(Problem::bad(why));
        }
        let since = time("since", self.since.as_deref())?;
        let (before, now) = (time("before", self.before.as_deref())?, Timestamp::now());
        let id = unique_name()
            .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        Ok(Job {
            id,
            change: self.change,
            source: self.source,
            pool: self.pool,
            error: self.error,
            reason: self.reason,
            message_id: self.message_id,
            since: since.map(|since| since.to_string()),
            before: before.map_or(now, |before| before.min(now)).to_string(),
            rate: self.rate,
            state: JobState::Queued,
            by: by.to_string(),
            started_at: now.to_string(),
            ended_at: None,
            cancelled_by: None,
            expected: self.expected,
            changed: 0,
            held: 0,
            failed: 0,
            left: self.expected,
            last_error: None,
            outlasts_restart: true,
        })
    }
}

/// Retry or delete all dead letters of a source that match, in the background. The job goes on after a restart.
#[utoipa::path(post, path = "/v1/jobs", tag = "dead letters", operation_id = "start_job",
    request_body = NewJob,
    responses(
        (status = 202, description = "The job is accepted; `Location` is its path", body = Job),
        (status = 400, description = "Invalid criteria or rate", body = Problem),
        (status = 404, description = "Unknown source", body = Problem),
        (status = 409, description = "A job that has not ended does the same, or too many have not ended", body = Problem),
    ),
)]
pub(super) async fn start(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    JsonBody(wanted): JsonBody<NewJob>,
) -> Result<Response, Problem> {
    let sources = &context.daemon.overview.config().sources;
    if !sources.contains_key(&wanted.source) {
        let known: Vec<&str> = sources.keys().map(String::as_str).collect();
        let why = format!(
            "there is no source `{}`; there is {}",
            wanted.source,
            known.join(", ")
        );
        return Err(Problem::new(StatusCode::NOT_FOUND, why));
    }
    let job = wanted.job(&caller)?;
    let job = on_disk(move || context.jobs.add(job)).await?;
    let job = job.map_err(|refusal| {
        let why = match refusal {
            JobRefusal::Same(id) => format!("the job `{id}` does the same, and has not ended"),
            JobRefusal::TooMany => {
                "too many jobs have not ended: cancel one, or wait until one ends".to_owned()
            }
        };
        Problem::new(StatusCode::CONFLICT, why)
    })?;
    let path = format!("/v1/jobs/{}", job.id);
    let mut response = (StatusCode::ACCEPTED, Json(job)).into_response();
    if let Ok(path) = HeaderValue::from_str(&path) {
        response.headers_mut().insert(header::LOCATION, path);
    }
    Ok(response)
}

/// List the jobs, the newest first. The last 50 are remembered.
#[utoipa::path(get, path = "/v1/jobs", tag = "dead letters", operation_id = "list_jobs",
    responses((status = 200, description = "The jobs", body = Vec<Job>)),
)]
pub(super) async fn list(State(context): State<Context>) -> Result<Json<Vec<Job>>, Problem> {
    on_disk(move || context.jobs.list()).await.map(Json)
}

/// Get one job.
#[utoipa::path(get, path = "/v1/jobs/{id}", tag = "dead letters", operation_id = "get_job",
    params(("id" = String, Path, description = "The job")),
    responses(
        (status = 200, description = "The job", body = Job),
        (status = 404, description = "Unknown job", body = Problem),
    ),
)]
pub(super) async fn show(
    State(context): State<Context>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Job>, Problem> {
    let Path(id) = id?;
    let asked = id.clone();
    let found = on_disk(move || context.jobs.get(&asked)).await?;
    found.map(Json).ok_or_else(|| missing(&id))
}

fn missing(id: &str) -> Problem {
    let why = format!("there is no job `{id}` (any more)");
    Problem::new(StatusCode::NOT_FOUND, why)
}

/// Result of the cancellation of a job.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct CancelledJob {
    /// The result in a sentence.
    done: String,
    job: Job,
}

/// Cancel a job: the dead letters that it has not changed yet stay.
#[utoipa::path(post, path = "/v1/jobs/{id}/cancel", tag = "dead letters", operation_id = "cancel_job",
    params(("id" = String, Path, description = "The job")),
    responses(
        (status = 200, description = "No further step of the job begins", body = CancelledJob),
        (status = 404, description = "Unknown job", body = Problem),
        (status = 409, description = "The job has ended", body = Problem),
    ),
)]
pub(super) async fn cancel(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<CancelledJob>, Problem> {
    let Path(id) = id?;
    let (asked, by) = (id.clone(), caller.to_string());
    let cancelled = on_disk(move || context.jobs.cancel(&asked, &by)).await?;
    let (job, was_live) = cancelled.ok_or_else(|| missing(&id))?;
    if !was_live {
        let why = format!("the job has ended: it is {}", job.state.as_str());
        return Err(Problem::new(StatusCode::CONFLICT, why));
    }
    let done = format!("job cancelled after {} dead letter(s)", job.changed);
    Ok(Json(CancelledJob { done, job }))
}
