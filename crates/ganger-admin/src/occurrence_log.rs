//! The log of an occurrence, at once or as a stream of server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event as Sse, KeepAlive};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::answer::Problem;
use super::at_ledger::{AtLedger, OpenedLedger, no_occurrence};
use super::context::Context;
use super::schedules::limit;
use ganger_queue::ledger::shown::{LogLineJson, OccurrenceLogJson};
use ganger_queue::ledger::{LOG_LINES_MAX, LedgerError, LogPlace};

/// Interval at which a log is read that is followed.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Interval of the signs of life on a silent stream.
const ALIVE_EVERY: Duration = Duration::from_secs(15);

/// Choice of lines.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LogQuery {
    /// Only lines after this one, the `line` of the last one seen.
    after: Option<u32>,
    /// Maximum number of lines, 1 to 1000; 1000 if omitted.
    limit: Option<u32>,
    /// Stream the lines as server-sent events, until the occurrence has ended.
    #[param(value_type = Option<bool>)]
    follow: Option<String>,
}

impl LogQuery {
    fn is_followed(&self) -> Result<bool, Problem> {
        match self.follow.as_deref() {
            None | Some("false") => Ok(false),
            Some("" | "true") => Ok(true),
            Some(other) => {
                let other: String = other.chars().take(40).collect();
                let why = format!("follow must be true or false: `{}`", other.escape_debug());
                Err(Problem::bad(why))
            }
        }
    }
}

/// The end of a stream.
#[derive(Debug, Serialize)]
struct StreamEnd<'a> {
    state: &'a str,
    ended_at: &'a Option<String>,
    dropped: u64,
}

/// Get lines of the log of an occurrence, the oldest first. If there are as many as `limit`, there may be more: repeat the
/// request with the last one's `line` as `after`. With `follow` the answer is a stream of server-sent events: `line` with
/// a line as data and its number as `id`, also while the run goes on, and `end` once it has ended, with its `state`,
/// `ended_at` and `dropped` as data. With `Last-Event-ID` the stream continues after that line.
#[utoipa::path(get, path = "/v1/occurrences/{id}/log", tag = "schedules", operation_id = "occurrence_log",
    params(
        ("id" = String, Path, description = "The id of the occurrence, which is also that of its message"), LogQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "With `follow`, the `id` of the last line seen"),
    ),
    responses(
        (status = 200, description = "The lines", content(
            (OccurrenceLogJson = "application/json"),
            (LogLineJson = "text/event-stream"),
        )),
        (status = 400, description = "Invalid limit, or invalid line to begin after", body = Problem),
        (status = 404, description = "Unknown occurrence", body = Problem),
        (status = 409, description = "The daemon has no ledger", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn log(
    State(context): State<Context>,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<LogQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (Path(id), Query(query)) = (id?, query?);
    let most = limit(query.limit, LOG_LINES_MAX, LOG_LINES_MAX)?;
    let is_followed = query.is_followed()?;
    let after = match headers.get("last-event-id").filter(|_| is_followed) {
        Some(seen) => Some(line_number(seen.to_str().unwrap_or("not text"))?),
        None => query.after,
    };
    let mut following = Following {
        ledger: context.ledger,
        opened: None,
        id,
        most,
        place: LogPlace::after_line(after.map(i64::from)),
        lines: VecDeque::new(),
        end: None,
    };
    let log = following.read().await?;
    let Some(log) = log else {
        return Err(no_occurrence(&following.id));
    };
    if !is_followed {
        return Ok(Json(log).into_response());
    }
    following.take(log);
    let keep_alive = KeepAlive::new().interval(ALIVE_EVERY);
    let events = stream::unfold(Some(following), next);
    Ok(axum::response::Sse::new(events)
        .keep_alive(keep_alive)
        .into_response())
}

fn line_number(id: &str) -> Result<u32, Problem> {
    id.trim().parse().map_err(|_| {
        let id: String = id.chars().take(40).collect();
        Problem::bad(format!(
            "Last-Event-ID must be the number of a line: `{}`",
            id.escape_debug()
        ))
    })
}

/// A log that is followed.
struct Following {
    ledger: AtLedger,
    /// It is kept open between looks.
    opened: Option<OpenedLedger>,
    id: String,
    most: u32,
    place: LogPlace,
    /// Lines that are not sent yet.
    lines: VecDeque<LogLineJson>,
    /// The last answer, if no line follows.
    end: Option<OccurrenceLogJson>,
}

impl Following {
    /// Reads lines; none if there is no such occurrence any more.
    async fn read(&mut self) -> Result<Option<OccurrenceLogJson>, Problem> {
        let (config, open) = (self.ledger.config()?, self.ledger.open);
        let kept = self.opened.take();
        let (id, after, most) = (self.id.clone(), self.place.after(), self.most);
        let work = move || -> Result<_, LedgerError> {
            let mut opened = OpenedLedger::keep_or_open(kept, config, open)?;
            let log = opened.client.log(&id, after, most)?;
            Ok((opened, log))
        };
        let (opened, log) = self.ledger.in_place(work).await??;
        self.opened = Some(opened);
        Ok(log)
    }

    fn take(&mut self, mut log: OccurrenceLogJson) {
        let is_over = self.place.read(&log);
        self.lines.extend(log.lines.drain(..));
        self.end = is_over.then_some(log);
    }
}

/// Returns the next event. A ledger that can't be used is tried again.
async fn next(
    following: Option<Following>,
) -> Option<(Result<Sse, Infallible>, Option<Following>)> {
    let mut following = following?;
    loop {
        if let Some(line) = following.lines.pop_front() {
            let shown = Sse::default().id(line.line.to_string()).event("line");
            let shown = shown.json_data(&line).unwrap_or_default();
            return Some((Ok(shown), Some(following)));
        }
        if let Some(end) = &following.end {
            let data = StreamEnd {
                state: &end.state,
                ended_at: &end.ended_at,
                dropped: end.dropped,
            };
            let shown = Sse::default().event("end");
            let shown = shown.json_data(data).unwrap_or_default();
            return Some((Ok(shown), None));
        }
        sleep(LOOK_EVERY).await;
        match following.read().await {
            Ok(Some(log)) => following.take(log),
            // It has expired.
            Ok(None) => return None,
            Err(_) => {}
        }
    }
}
