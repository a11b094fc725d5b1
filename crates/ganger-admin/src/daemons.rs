//! Status of several daemons: this one, and those that `admin.peers` names.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use super::client::{Remote, Target};
use super::context::Context;
use ganger_config::model::AdminPeer;
use ganger_core::host;
use ganger_pool::overview::Status;

/// Time that a daemon has to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// A daemon.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = Daemon)]
pub(super) struct DaemonJson {
    /// Its name: that of the host for this daemon, else that of `admin.peers`.
    pub(super) name: String,
    /// URL of its admin API; null for this daemon.
    pub(super) url: Option<String>,
    /// Its last known status; null if it has never answered.
    pub(super) status: Option<Status>,
    /// Age of the status, in seconds; null if there is none.
    pub(super) age_seconds: Option<f64>,
    /// Reason for which it did not answer; null if it did.
    pub(super) problem: Option<String>,
}

/// The last known status of each peer, by name. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Peers(Arc<Mutex<BTreeMap<String, KnownStatus>>>);

#[derive(Debug, Clone)]
struct KnownStatus {
    url: String,
    status: Status,
    at: Instant,
}

impl Peers {
    /// Asks all of them at once.
    async fn ask(&self, peers: &BTreeMap<String, AdminPeer>) -> Vec<DaemonJson> {
        self.lock().retain(|name, known| {
            let peer = peers.get(name);
            peer.is_some_and(|peer| peer.url.as_str() == known.url)
        });
        join_all(peers.iter().map(|(name, peer)| self.ask_one(name, peer))).await
    }

    async fn ask_one(&self, name: &str, peer: &AdminPeer) -> DaemonJson {
        let remote = Remote::new(Target::There {
            url: peer.url.clone(),
            token: peer.token.clone(),
        });
        let answer = timeout(ANSWERS_WITHIN, remote.get::<Status>("/v1/status")).await;
        let problem = match answer {
            Ok(Ok(status)) => {
                let known = KnownStatus {
                    url: peer.url.to_string(),
                    status,
                    at: Instant::now(),
                };
                self.lock().insert(name.to_owned(), known);
                None
            }
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {ANSWERS_WITHIN:?}")),
        };
        let known = self.lock().get(name).cloned();
        DaemonJson {
            name: name.to_owned(),
            url: Some(peer.url.to_string()),
            age_seconds: known.as_ref().map(|known| known.at.elapsed().as_secs_f64()),
            status: known.map(|known| known.status),
            problem,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, KnownStatus>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Get the status of this daemon and of those in `admin.peers`, which are asked at once, each for at most a second. One
/// that does not answer is shown as it was when it last did.
#[utoipa::path(get, path = "/v1/daemons", tag = "status", responses(
    (status = 200, description = "The daemons, this one first", body = Vec<DaemonJson>),
))]
pub(super) async fn daemons(State(context): State<Context>) -> Json<Vec<DaemonJson>> {
    let config = context.daemon.overview.config();
    let others = context.peers.ask(&config.admin.peers).await;
    let this = DaemonJson {
        name: host::name(),
        url: None,
        status: Some(context.daemon.overview.status_measured().await),
        age_seconds: Some(0.0),
        problem: None,
    };
    Json([vec![this], others].concat())
}
