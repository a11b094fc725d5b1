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
/// Time for which an answer is good for all who ask.
const ASKED_EVERY: Duration = Duration::from_secs(2);

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

/// The peers as they were last asked, by name. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Peers(Arc<Mutex<BTreeMap<String, AskedPeer>>>);

/// A peer when it was last asked.
#[derive(Debug, Clone)]
struct AskedPeer {
    url: String,
    /// Its last status, and when that was.
    status: Option<(Status, Instant)>,
    problem: Option<String>,
    at: Instant,
}

impl Peers {
    /// Asks all of them at once, but those that were asked a moment ago.
    pub(super) async fn ask(&self, peers: &BTreeMap<String, AdminPeer>) -> Vec<DaemonJson> {
        self.lock().retain(|name, asked| {
            let peer = peers.get(name);
            peer.is_some_and(|peer| peer.url.as_str() == asked.url)
        });
        join_all(peers.iter().map(|(name, peer)| self.ask_one(name, peer))).await
    }

    async fn ask_one(&self, name: &str, peer: &AdminPeer) -> DaemonJson {
        let before = self.lock().get(name).cloned();
        let asked = match before {
            Some(asked) if asked.at.elapsed() < ASKED_EVERY => asked,
            before => {
                let asked = asked(peer, before.and_then(|before| before.status)).await;
                self.lock().insert(name.to_owned(), asked.clone());
                asked
            }
        };
        let (status, at) = asked.status.unzip();
        DaemonJson {
            name: name.to_owned(),
            url: Some(asked.url),
            status,
            age_seconds: at.map(|at| at.elapsed().as_secs_f64()),
            problem: asked.problem,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, AskedPeer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks a peer. One that does not answer keeps the status that it had.
async fn asked(peer: &AdminPeer, before: Option<(Status, Instant)>) -> AskedPeer {
    let remote = Remote::new(Target::There {
        url: peer.url.clone(),
        token: peer.token.clone(),
    });
    let answer = timeout(ANSWERS_WITHIN, remote.get::<Status>("/v1/status")).await;
    let at = Instant::now();
    let (status, problem) = match answer {
        Ok(Ok(status)) => (Some((status, at)), None),
        Ok(Err(error)) => (before, Some(error.to_string())),
        Err(_) => (before, Some(format!("no answer within {ANSWERS_WITHIN:?}"))),
    };
    AskedPeer {
        url: peer.url.to_string(),
        status,
        problem,
        at,
    }
}
