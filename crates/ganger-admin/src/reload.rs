//! Reload of the configuration on request.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::answer::Problem;
use super::context::{Context, on_disk};
use ganger_config as config;
use ganger_config::changed::ChangedKeys;
use ganger_pool::request::{ReloadStatus, Request};

/// Timeout of opening new sources, after which the answer is that the reload continues.
const DONE_WITHIN: Duration = Duration::from_secs(20);

/// A reload that was carried out.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Reload {
    /// The result in a sentence.
    done: String,
    /// Number of reloads carried out since the start: a pool whose `reload` is as high runs by it.
    number: u64,
    #[serde(flatten)]
    keys: ChangedKeys,
}

impl Reload {
    fn of(ReloadStatus { number, keys, .. }: ReloadStatus) -> Self {
        let changes = match keys.count() {
            1 => "1 change".to_owned(),
            count => format!("{count} changes"),
        };
        let waiting = match keys.restart_needed.len() {
            0 => String::new(),
            count => format!("; {count} setting(s) need a restart of the daemon"),
        };
        Self {
            done: format!("reloaded: {changes}{waiting}"),
            number,
            keys,
        }
    }
}

/// Reload the configuration. One that is invalid, or can't be applied, changes nothing.
#[utoipa::path(post, path = "/v1/reload", tag = "daemon", responses(
    (status = 200, description = "The configuration is in effect, except for keys that need a restart", body = Reload),
    (status = 409, description = "A pool can't be started with it; nothing has changed", body = Problem),
    (status = 422, description = "The configuration is invalid; nothing has changed", body = Problem),
    (status = 504, description = "New sources are still being opened", body = Problem),
))]
pub(super) async fn reload(State(context): State<Context>) -> Result<Json<Reload>, Problem> {
    let load = context.daemon.load.clone();
    let read = on_disk(move || load()).await?;
    let config = read.map_err(|problems| {
        let each = problems.messages().iter().map(config::Problem::one_line);
        let why = "the configuration is invalid; nothing has changed";
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, why).with(each.collect())
    })?;
    let (tell, told) = oneshot::channel();
    let request = Request::Reload(Box::new(config), Some(tell));
    let sent = context.daemon.requests.send(request).await;
    sent.map_err(|_| internal("the daemon has ended"))?;
    match timeout(DONE_WITHIN, told).await {
        Ok(Ok(Ok(reload))) => Ok(Json(Reload::of(reload))),
        Ok(Ok(Err(why))) => Err(Problem::new(StatusCode::CONFLICT, why)),
        Ok(Err(_)) => Err(internal("the daemon has ended")),
        Err(_) => {
            let why = "new sources are still being opened; the reload continues";
            Err(Problem::new(StatusCode::GATEWAY_TIMEOUT, why))
        }
    }
}

fn internal(why: &str) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, why)
}
