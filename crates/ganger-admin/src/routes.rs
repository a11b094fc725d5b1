//! The routes, and the layers that all of them pass through: the guard, a place, a size limit and a timeout.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tower::{Layer, Service, ServiceExt};
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Problem;
use super::at_ledger::AtLedger;
use super::body::BODY_BYTES_MAX;
use super::browser::{LOGIN, LOGOUT};
use super::client::WAIT_MAX;
use super::connections::{Connection, placed};
use super::context::{AT_BROKERS_MAX, Context, Daemon};
use super::credentials::{Credentials, Token};
use super::daemons::Peers;
use super::guard::{Guard, Interface, guard};
use super::jobs::Jobs;
use super::recording::record;
use super::redaction::redact;
use super::session::Sessions;
use super::trends::Trends;
use super::ui::{self, Api};
use super::waits::Waits;
use super::{
    base_path, by_hand, cancel, control, dead, events, explain, health, history, in_force,
    job_routes, ledger, log, login, messages, occurrence_log, occurrences, openapi, pause, pools,
    reload, reports, roles, schedules, silence_routes, sources, waiting,
};
use ganger_config::model::TelemetryConfig;
use ganger_pool::overview::Overview;

/// Timeout for an answer to begin.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Timeout for an answer to a login to begin, its body included.
const LOGIN_WITHIN: Duration = Duration::from_secs(5);
/// Maximum size of the body of a login, in bytes.
const LOGIN_BYTES_MAX: usize = 4 << 10;
/// Timeout for an answer to begin if a broker is asked, or a worker's answer waited for.
const SLOW_ANSWER_WITHIN: Duration = WAIT_MAX.saturating_add(ANSWER_WITHIN);

/// Routes behind each door. Clones share them.
#[derive(Clone)]
pub(super) struct Routes {
    api: Router,
    telemetry: Router,
    context: Context,
}

impl Routes {
    pub(super) fn new(token: &Token, telemetry: &TelemetryConfig, daemon: Daemon) -> Self {
        let sessions = Sessions::default();
        let credentials = Credentials::new(token, daemon.overview.clone());
        let check = Arc::new(Guard::new(credentials.clone(), sessions.clone()));
        let check = from_fn_with_state(check, guard);
        let at_ledger = AtLedger::new(daemon.overview.clone(), daemon.open_ledger);
        let jobs = Jobs::read(daemon.overview.clone(), daemon.connect, daemon.jobs.clone());
        let context = Context {
            daemon,
            telemetry: Arc::new(telemetry.clone()),
            sessions,
            credentials,
            address: Arc::default(),
            at_brokers: Arc::new(Semaphore::new(AT_BROKERS_MAX)),
            ledger: at_ledger,
            waits: Waits::default(),
            trends: Trends::default(),
            peers: Peers::default(),
            jobs,
        };
        let (api, document) = documented();
        let (health, _) = watched().split_for_parts();
        let finish = |router: Router<Context>| {
            router
                .fallback(unknown)
                .method_not_allowed_fallback(wrong_method)
                .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
                .layer(from_fn(without_nul))
                .layer(from_fn(in_time))
                .layer(from_fn(placed))
                .layer(check.clone())
                .with_state(context.clone())
        };
        let overview = context.daemon.overview.clone();
        let api = api.merge(namesakes());
        let api = api
            .layer(from_fn_with_state(overview.clone(), redact))
            .layer(from_fn_with_state(
                (overview.clone(), context.ledger.clone()),
                record,
            ));
        // Pages are for callers that the guard has admitted, who may not ask for all.
        let of_pages = api.clone().layer(from_fn(roles::require));
        let pages = Api::new(of_pages.with_state(context.clone()));
        let pages = ui::routes(pages, overview.clone());
        let api = api
            .merge(openapi::routes(&document))
            .merge(logins().layer(from_fn_with_state(overview.clone(), ui::unless_off)))
            .merge(pages.with_state(()))
            .layer(from_fn(ui::decode));
        Self {
            api: before_routes(overview, finish(api)),
            telemetry: finish(health),
            context,
        }
    }

    /// Returns the service for the requests of a connection through that door.
    pub(super) fn through(
        &self,
        door: Interface,
        connection: Connection,
    ) -> impl Service<
        hyper::Request<Incoming>,
        Response = Response,
        Error = std::convert::Infallible,
        Future: Send,
    > + Clone
    + Send
    + 'static {
        let router = match door {
            Interface::Telemetry => self.telemetry.clone(),
            Interface::Socket { .. } | Interface::Network { .. } => self.api.clone(),
        };
        router.map_request(move |request: hyper::Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(door);
            request.extensions_mut().insert(connection.clone());
            request
        })
    }

    /// Returns the jobs.
    pub(super) fn jobs(&self) -> Jobs {
        self.context.jobs.clone()
    }

    /// Samples the pools for ever.
    pub(super) async fn sample(&self) {
        let Context { trends, daemon, .. } = &self.context;
        trends.follow(&daemon.overview).await;
    }

    /// Stores the network address of the API.
    pub(super) fn listens_at(&self, address: SocketAddr) {
        self.context.address.get_or_init(|| address);
    }
}

/// Returns routes behind the layers that change the address of a request, which do so before a route is looked for, and
/// those around them.
fn before_routes(overview: Overview, routes: Router) -> Router {
    let routes = from_fn_with_state(overview.clone(), ui::as_request).layer(routes);
    let routes = from_fn_with_state(overview, base_path::under).layer(routes);
    Router::new().fallback_service(from_fn(ui::compress).layer(routes))
}

/// Returns all routes of the API, with their description.
fn documented() -> (Router<Context>, OpenApi) {
    let router = OpenApiRouter::with_openapi(openapi::head())
        .merge(watched())
        .routes(routes!(pools::status))
        .routes(routes!(pools::trends))
        .routes(routes!(pools::daemons))
        .routes(routes!(pools::all))
        .routes(routes!(pools::one))
        .routes(routes!(pools::scale))
        .routes(routes!(pause::pause))
        .routes(routes!(pause::resume))
        .routes(routes!(pools::restart))
        .routes(routes!(pause::drain))
        .routes(routes!(pools::kill))
        .routes(routes!(pools::last_lines))
        .routes(routes!(cancel::cancel))
        .routes(routes!(reload::reload))
        .routes(routes!(in_force::in_force))
        .routes(routes!(log::levels, log::set_level))
        .routes(routes!(login::create))
        .routes(routes!(waiting::list, messages::publish))
        .routes(routes!(messages::publish_to_topic))
        .routes(routes!(sources::sources))
        .routes(routes!(sources::subscriptions))
        .routes(routes!(sources::unsubscribe))
        .routes(routes!(dead::list, dead::discard))
        .routes(routes!(dead::groups))
        .routes(routes!(dead::show))
        .routes(routes!(dead::retry))
        .routes(routes!(job_routes::list, job_routes::start))
        .routes(routes!(job_routes::show))
        .routes(routes!(job_routes::cancel))
        .routes(routes!(silence_routes::list, silence_routes::silence))
        .routes(routes!(silence_routes::end))
        .routes(routes!(ledger::ledger))
        .routes(routes!(schedules::list))
        .routes(routes!(
            schedules::show,
            schedules::enter,
            schedules::change,
            schedules::remove
        ))
        .routes(routes!(explain::next))
        .routes(routes!(explain::upcoming))
        .routes(routes!(reports::report))
        .routes(routes!(schedules::pause))
        .routes(routes!(schedules::resume))
        .routes(routes!(schedules::trigger))
        .routes(routes!(history::versions))
        .routes(routes!(history::roll_back))
        .routes(routes!(history::audit))
        .routes(routes!(by_hand::skip))
        .routes(routes!(by_hand::backfill))
        .routes(routes!(explain::explain_schedule))
        .routes(routes!(schedules::pause_all))
        .routes(routes!(schedules::resume_all))
        .routes(routes!(explain::explain))
        .routes(routes!(occurrences::list))
        .routes(routes!(occurrences::show, control::delete))
        .routes(routes!(control::cancel))
        .routes(routes!(control::retry))
        .routes(routes!(control::resolve))
        .routes(routes!(occurrences::events))
        .routes(routes!(occurrence_log::log))
        .routes(routes!(events::events))
        .routes(routes!(events::recent));
    let (router, document) = router.split_for_parts();
    (router, openapi::with_problems(document))
}

/// Returns the routes of schedules that are called like an operation on all of them.
fn namesakes() -> Router<Context> {
    let of_one = || {
        get(schedules::show)
            .put(schedules::enter)
            .patch(schedules::change)
            .delete(schedules::remove)
    };
    Router::new()
        .route("/v1/schedules/explain", of_one())
        .route("/v1/schedules/pause", of_one())
        .route("/v1/schedules/resume", of_one())
}

/// Returns the routes by which browsers log in and out.
fn logins() -> Router<Context> {
    Router::new()
        .route(LOGIN, get(login::page).post(login::enter))
        .route(LOGOUT, post(login::leave))
        .layer(DefaultBodyLimit::max(LOGIN_BYTES_MAX))
}

/// Returns the routes for monitoring systems.
fn watched() -> OpenApiRouter<Context> {
    OpenApiRouter::new()
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
}

/// Returns the whole description of the API, as JSON.
pub fn document() -> String {
    let (_, document) = documented();
    document.to_pretty_json().unwrap_or_default()
}

async fn in_time(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let asks_broker = [
        "/v1/queues/",
        "/v1/topics/",
        "/v1/dead/",
        "/v1/subscriptions",
        "/v1/occurrences/",
        "/ui/dead",
        "/ui/queues/",
        "/ui/occurrences/",
    ];
    let asks_broker = asks_broker.iter().any(|start| path.starts_with(start));
    let within = match asks_broker {
        true => SLOW_ANSWER_WITHIN,
        false if path == LOGIN => LOGIN_WITHIN,
        false => ANSWER_WITHIN,
    };
    match tokio::time::timeout(within, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let why = format!("no answer within {within:?}");
            Problem::new(StatusCode::GATEWAY_TIMEOUT, why).into_response()
        }
    }
}

/// Refuses a path or a query with a NUL: no name has one, and not every database takes it.
async fn without_nul(request: Request, next: Next) -> Response {
    let uri = request.uri();
    let parts = [Some(uri.path()), uri.query()];
    if parts.into_iter().flatten().any(|part| part.contains("%00")) {
        let why = "the path and the query must not have a NUL (`%00`)";
        return Problem::bad(why).into_response();
    }
    next.run(request).await
}

async fn unknown(request: Request) -> Problem {
    let path = request.uri().path();
    let why = format!("there is nothing at `{path}`; GET /openapi.json lists what there is");
    Problem::new(StatusCode::NOT_FOUND, why)
}

async fn wrong_method(request: Request) -> Problem {
    let (method, path) = (request.method(), request.uri().path());
    let why = format!("`{path}` does not support {method}; see GET /openapi.json");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, why)
}
