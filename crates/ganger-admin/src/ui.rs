//! The dashboard: pages for browsers under `/ui`. It is a client of the API: a page asks the routes of the API for what
//! it shows, and a form is a request to them in another encoding. So there is nothing that only the dashboard can do.

mod api;
mod assets;
mod commands;
mod completion;
mod compressed;
mod done;
mod form;
mod layout;
mod live;
mod page;
mod paths;
mod shown;

mod audit;
mod daemons;
mod now;
mod pool;
mod problems;

mod content;
mod difference;
mod query;

mod alerts;
mod config;
mod dead;
mod dead_changes;
mod dead_letter;
mod edit;
mod events;
mod jobs;
mod queue;
mod queue_waiting;
mod search;
mod search_words;
mod silences;

mod occurrence;
mod occurrence_actions;
mod occurrence_log;
mod occurrences;
mod report_rows;
mod reports;
mod run_counts;
mod runs;
mod schedule;
mod schedule_actions;
mod schedule_new;
mod schedule_versions;
mod schedules;
mod upcoming;
mod year;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use ganger_pool::overview::Overview;

use crate::answer::Problem;
use crate::browser::HOME;
pub(super) use api::Api;
pub(super) use assets::ASSETS;
pub(super) use compressed::compress;
pub(super) use form::{as_request, decode, is_form};
pub(super) use layout::{PAGE, bare};
pub(super) use live::wants_stream;
pub(super) use paths::{pool_path, schedule_path};
pub(super) use shown::text;

/// Returns that there is nothing, if the configuration has the dashboard off.
pub(super) async fn unless_off(
    State(overview): State<Overview>,
    request: Request,
    next: Next,
) -> Response {
    match overview.config().admin.ui {
        true => next.run(request).await,
        false => {
            let why = "the dashboard is off: `ui = false` in [admin]";
            Problem::new(StatusCode::NOT_FOUND, why).into_response()
        }
    }
}

/// Returns the page of a request that was refused before it came to the pages.
pub(super) fn refusal(problem: &Problem) -> Response {
    layout::problem_page(problem.status(), problem, None)
}

/// Leads to the first page.
async fn first() -> Redirect {
    Redirect::to(HOME)
}

/// Returns the pages. They ask these routes, which are those of the API without its guard.
pub(super) fn routes(api: Api, overview: Overview) -> Router {
    Router::new()
        .route("/", get(first))
        .route("/ui/", get(first))
        .route(paths::NOW, get(now::page))
        .route(paths::POOL, get(pool::page))
        .route(paths::AUDIT, get(audit::page))
        .route(paths::DAEMONS, get(daemons::page))
        .route(paths::ALERTS, get(alerts::page))
        .route(paths::CONFIG, get(config::page))
        .route(paths::DEAD, get(dead::overview))
        .route(paths::DEAD_OF, get(dead::of_one))
        .route(paths::RETRY_ALL, get(dead_changes::retry_all))
        .route(paths::DROP_ALL, get(dead_changes::drop_all))
        .route(paths::DEAD_LETTER, get(dead_letter::page))
        .route(paths::EDIT, get(edit::form).post(edit::enter))
        .route(paths::JOBS, get(jobs::list))
        .route(paths::JOB, get(jobs::page))
        .route(paths::EVENTS, get(events::page))
        .route(paths::QUEUE, get(queue::page))
        .route(paths::SEND, get(queue::page).post(queue::send))
        .route(paths::SEARCH, get(search::page))
        .route(paths::COMPLETIONS, get(completion::complete))
        .route(paths::SCHEDULES, get(schedules::page))
        .route(paths::NEW_SCHEDULE, get(schedule_new::page))
        .route(paths::SCHEDULE, get(schedule::page))
        .route(paths::RUNS, get(occurrences::page))
        .route(paths::RUN, get(occurrence::page))
        .route(paths::UPCOMING, get(upcoming::page))
        .route(paths::REPORTS, get(reports::page))
        .route(paths::REPORTS_CSV, get(reports::table))
        .layer(from_fn_with_state(api.clone(), api::with_caller))
        .layer(from_fn_with_state(
            live::FollowedPages::default(),
            live::follow,
        ))
        .layer(from_fn(layout::dress))
        .layer(from_fn_with_state(overview, unless_off))
        .route(&format!("{ASSETS}{{name}}"), get(assets::asset))
}
