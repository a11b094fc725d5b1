//! Requests about silences of alerts.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::alerts::kinds;
use super::answer::{Done, Problem};
use super::body::JsonBody;
use super::caller::Caller;
use super::context::{Context, on_disk};
use super::silences::Silence;
use ganger_core::units;
use ganger_queue::client::unique_name;

/// Longest text of a request, in bytes.
const TEXT_BYTES_MAX: usize = 1024;
/// Longest silence.
const LONGEST: SignedDuration = SignedDuration::from_hours(30 * 24);

/// A silence that is to be made.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewSilence {
    /// Kind of the alerts: `pool_degraded`, `source_down` and so on.
    kind: String,
    /// Subject of the alert, as the status names it; all alerts of the kind if omitted.
    of: Option<String>,
    /// Time at which it ends, RFC 3339, at most 30 days ahead; either this or `for`.
    until: Option<String>,
    /// Its duration, such as `2h` or `7d`, at most 30 days.
    #[serde(rename = "for")]
    lasting: Option<String>,
    /// Reason, which is shown with the alert.
    reason: String,
}

/// Result of a silence.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Silenced {
    /// The result in a sentence.
    done: String,
    silence: Silence,
    /// True if the next daemon knows it; false if the file of silences can't be written.
    outlasts_restart: bool,
}

impl NewSilence {
    fn end(&self, now: Timestamp) -> Result<Timestamp, Problem> {
        let until = match (&self.until, &self.lasting) {
            (Some(until), None) => until.parse().map_err(|_| {
                let why = "until must be a time such as 2027-01-31T08:00:00Z";
                Problem::bad(format!("{why}: `{until}`"))
            })?,
            (None, Some(lasting)) => {
                let read =
                    units::duration(lasting).and_then(|it| SignedDuration::try_from(it).ok());
                let end = read.and_then(|it| now.checked_add(it.min(LONGEST * 2)).ok());
                end.ok_or_else(|| {
                    Problem::bad(format!(
                        "for must be a duration such as 2h or 7d: `{lasting}`"
                    ))
                })?
            }
            _ => return Err(Problem::bad("give either `until` or `for`")),
        };
        let ahead = until.duration_since(now);
        match ahead > SignedDuration::ZERO && ahead <= LONGEST {
            true => Ok(until),
            false => Err(Problem::bad(
                "a silence must end in the future, and within 30 days",
            )),
        }
    }

    fn silence(self, by: &Caller) -> Result<Silence, Problem> {
        let now = Timestamp::now();
        let until = self.end(now)?.to_string();
        if !kinds().any(|kind| kind == self.kind) {
            let known: Vec<&str> = kinds().collect();
            let why = format!(
                "there is no kind of alert `{}`; there is {}",
                self.kind,
                known.join(", ")
            );
            return Err(Problem::bad(why));
        }
        if self.reason.trim().is_empty() {
            return Err(Problem::bad("reason must not be empty"));
        }
        for (name, text) in [("of", self.of.as_ref()), ("reason", Some(&self.reason))] {
            if let Some(length) = text.map(String::len).filter(|it| *it > TEXT_BYTES_MAX) {
                let why = format!("{name} must have at most {TEXT_BYTES_MAX} bytes: {length}");
                return Err(Problem::bad(why));
            }
        }
        let id = unique_name()
            .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        Ok(Silence {
            id,
            kind: self.kind,
            of: self.of,
            until,
            reason: self.reason,
            by: by.to_string(),
            created_at: now.to_string(),
        })
    }
}

/// List the silences of alerts.
#[utoipa::path(get, path = "/v1/alerts/silences", tag = "alerts", operation_id = "list_silences",
    responses((status = 200, description = "The silences that have not ended", body = Vec<Silence>)),
)]
pub(super) async fn list(State(context): State<Context>) -> Result<Json<Vec<Silence>>, Problem> {
    let silences = context.daemon.silences;
    let listed = on_disk(move || silences.list(Timestamp::now()));
    listed.await.map(Json)
}

/// Silence an alert, or all of a kind: webhooks are not told of it until the silence ends.
#[utoipa::path(post, path = "/v1/alerts/silences", tag = "alerts", operation_id = "silence_alerts",
    request_body = NewSilence,
    responses(
        (status = 200, description = "The alerts are silenced, in place of an earlier silence of the same", body = Silenced),
        (status = 400, description = "Unknown kind, no reason, or an end that is past or too far ahead", body = Problem),
        (status = 409, description = "The configuration has no `[alerts]`, or there are too many silences", body = Problem),
    ),
)]
pub(super) async fn silence(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    JsonBody(wanted): JsonBody<NewSilence>,
) -> Result<Json<Silenced>, Problem> {
    let conflict = |why: &str| Problem::new(StatusCode::CONFLICT, why);
    if context.daemon.overview.config().alerts.is_none() {
        return Err(conflict("the configuration has no [alerts]: none is sent"));
    }
    let silence = wanted.silence(&caller)?;
    let (silences, added) = (context.daemon.silences, silence.clone());
    let kept = on_disk(move || silences.add(added)).await?;
    let outlasts_restart =
        kept.ok_or_else(|| conflict("there are too many silences: end one first"))?;
    let what = match &silence.of {
        Some(of) => format!("{} of {of}", silence.kind),
        None => format!("all alerts of the kind {}", silence.kind),
    };
    let mut done = format!("{what} silenced until {}", silence.until);
    if !outlasts_restart {
        done += "; that does not outlast a restart of the daemon";
    }
    Ok(Json(Silenced {
        done,
        silence,
        outlasts_restart,
    }))
}

/// End a silence: if the problem lasts, webhooks are told of it.
#[utoipa::path(delete, path = "/v1/alerts/silences/{id}", tag = "alerts", operation_id = "end_silence",
    params(("id" = String, Path, description = "The silence")),
    responses(
        (status = 200, description = "The silence has ended", body = Done),
        (status = 404, description = "Unknown silence", body = Problem),
    ),
)]
pub(super) async fn end(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Done>, Problem> {
    let Path(id) = id?;
    let (silences, asked, by) = (context.daemon.silences, id.clone(), caller.to_string());
    match on_disk(move || silences.remove(&asked, &by)).await? {
        Some(silence) => Ok(Done::json(format!("silence of {} ended", silence.kind))),
        None => {
            let why = format!("there is no silence `{id}` (any more)");
            Err(Problem::new(StatusCode::NOT_FOUND, why))
        }
    }
}
