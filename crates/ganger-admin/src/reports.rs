//! Reports on the runs of schedules and on recorded messages.

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;

use super::answer::Problem;
use super::context::Context;
use super::explain::instant;
use super::schedules::limit;
use ganger_queue::ledger::shown::{ReportJson, ReportOrder};
use ganger_queue::ledger::{REPORT_MAX, ReportRange};

/// Number of rows, unless another number is asked for.
const ROWS: u32 = 100;

/// Range of a report, and the runs that it counts.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ReportQuery {
    /// Only runs that were entered at this time or later, in RFC 3339. The default is a day before `to`.
    from: Option<String>,
    /// Only runs that were entered before this time, in RFC 3339. The default is now.
    to: Option<String>,
    /// Only those of this schedule.
    schedule: Option<String>,
    /// Only those of this queue.
    queue: Option<String>,
    /// Only those of schedules that have this tag.
    tag: Option<String>,
    /// Maximum number of rows, 1 to 10000; 100 if omitted.
    limit: Option<u32>,
}

/// Get the counts and durations of the runs of a time, by schedule and queue. They are counted from the occurrences that
/// the ledger still has; of more than a million the newest are counted.
#[utoipa::path(get, path = "/v1/reports/{order}", tag = "schedules", operation_id = "report",
    params(
        ("order" = String, Path, description = "What is first: `failures` (the most failures and timeouts), `lateness` (the \
            latest starts, p95), `durations` (the longest runs, p95) or `slow` (the slowest single run)"),
        ReportQuery,
    ),
    responses(
        (status = 200, description = "The report", body = ReportJson),
        (status = 400, description = "Invalid time or limit", body = Problem),
        (status = 404, description = "Unknown order", body = Problem),
        (status = 409, description = "The daemon has no ledger", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn report(
    State(context): State<Context>,
    order: Result<Path<String>, PathRejection>,
    query: Result<Query<ReportQuery>, QueryRejection>,
) -> Result<Json<ReportJson>, Problem> {
    let (Path(order), Query(query)) = (order?, query?);
    let order = ReportOrder::of(&order).ok_or_else(|| {
        let words = ReportOrder::WORDS.join("`, `");
        let why = format!("there is no report `{order}`: the reports are `{words}`");
        Problem::new(StatusCode::NOT_FOUND, why)
    })?;
    let range = ReportRange {
        from: instant("from", query.from.as_deref())?,
        to: instant("to", query.to.as_deref())?,
        schedule: query.schedule,
        queue: query.queue,
        tag: query.tag,
        order,
        limit: limit(query.limit, ROWS, REPORT_MAX)?,
    };
    let report = context.ledger.with(move |ledger| ledger.report(&range));
    report.await.map(Json)
}
