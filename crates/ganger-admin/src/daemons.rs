//! Status of several daemons: this one, and those that `admin.peers` names.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use super::client::{Remote, Target};
use ganger_config::model::AdminPeer;
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
    pub(super) async fn ask(&self, peers: &BTreeMap<String, AdminPeer>) -> Vec<DaemonJson> {
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
