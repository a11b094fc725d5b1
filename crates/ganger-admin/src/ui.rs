//! The dashboard: pages for browsers under `/ui`. It is a client of the API: a page asks the routes of the API for what
//! it shows, and a form is a request to them in another encoding. So there is nothing that only the dashboard can do.

mod api;
mod assets;
mod form;
mod layout;
mod live;
mod page;
mod shown;

mod audit;
mod now;
mod pool;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;

pub(super) use api::Api;
pub(super) use assets::ASSETS;
pub(super) use form::{as_request, decode};
pub(super) use layout::{PAGE, bare};
pub(super) use shown::text;

/// Returns the pages. They ask these routes, which are those of the API without its guard.
pub(super) fn routes(api: Api) -> Router {
    Router::new()
        .route("/ui", get(now::page))
        .route("/ui/pools/{name}", get(pool::page))
        .route("/ui/audit", get(audit::page))
        .layer(from_fn_with_state(api.clone(), api::with_caller))
        .layer(from_fn(live::follow))
        .layer(from_fn(layout::dress))
        .route(&format!("{ASSETS}{{name}}"), get(assets::asset))
}
