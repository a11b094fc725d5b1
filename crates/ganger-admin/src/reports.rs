//! Reports on the runs of schedules and on recorded messages.

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;

use super::answer::Problem;
use super::context::Context;
use super::explain::{instant, zone_of};
use super::schedules::limit;
use super::within::within;
use ganger_queue::ledger::shown::{ReportJson, ReportOrder};
use ganger_queue::ledger::{REPORT_MAX, REPORT_RUNS_MAX, ReportRange};
use ganger_schedule::zone::Zone;

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
    /// `day` for a row for each day, which has the field `day`; otherwise all days are counted together.
    by: Option<String>,
    /// Time zone of the days, by its IANA name; UTC if omitted.
    zone: Option<String>,
    /// Maximum number of runs that are counted, 1 to 1000000, the newest; 1000000 if omitted.
    runs: Option<u32>,
    /// Maximum number of rows, 1 to 10000; 100 if omitted.
    limit: Option<u32>,
    /// Time to count for, such as `1s`, at most a minute; 10 seconds if omitted. The newest runs are counted first.
    within: Option<String>,
}

/// Get the counts and durations of the runs of a time, by schedule and queue, and by day if that is asked for. They are
/// counted from the occurrences that the ledger still has; of more than `runs`, or than can be counted in time, the newest
/// are counted.
#[utoipa::path(get, path = "/v1/reports/{order}", tag = "schedules", operation_id = "report",
    params(
        ("order" = String, Path, description = "What is first: `failures` (the most failures and timeouts), `lateness` (the \
            latest starts, p95), `durations` (the longest runs, p95) or `slow` (the slowest single run)"),
        ReportQuery,
    ),
    responses(
        (status = 200, description = "The report", body = ReportJson),
        (status = 400, description = "Invalid time or limit, or unknown zone", body = Problem),
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
        by_day: by_day(query.by.as_deref(), query.zone.as_deref())?,
        runs: query.runs.map(runs).transpose()?,
        limit: limit(query.limit, ROWS, REPORT_MAX)?,
        within: within(query.within.as_deref())?,
    };
    let report = context.ledger.with(move |ledger| ledger.report(&range));
    report.await.map(Json)
}

/// Returns the zone of the days by which runs are counted, if they are.
fn by_day(by: Option<&str>, zone: Option<&str>) -> Result<Option<Zone>, Problem> {
    match by {
        Some("day") => {
            let zone = zone_of(zone.unwrap_or("UTC"))?;
            Ok(Some(zone))
        }
        Some(other) => {
            let other = other.escape_debug();
            Err(Problem::bad(format!("by must be `day`: `{other}`")))
        }
        None if zone.is_some() => Err(Problem::bad("zone is that of days: add by=day")),
        None => Ok(None),
    }
}

fn runs(given: u32) -> Result<u32, Problem> {
    match (1..=REPORT_RUNS_MAX).contains(&given) {
        true => Ok(given),
        false => Err(Problem::bad(format!(
            "runs must be within 1..={REPORT_RUNS_MAX}: `{given}`"
        ))),
    }
}
