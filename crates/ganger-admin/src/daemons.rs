//! Status of several daemons: this one, and those that `admin.peers` names.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout};

use super::client::{Remote, Target};
use ganger_config::model::AdminPeer;
use ganger_pool::overview::Status;

/// Time for which a request waits for the answer of a daemon.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// Time after which a daemon that has not answered is asked again.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(5);
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

/// The peers, by name. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Peers(Arc<Mutex<BTreeMap<String, Peer>>>);

/// A peer. Clones share what it has answered.
#[derive(Debug, Clone)]
struct Peer {
    config: AdminPeer,
    asked: watch::Sender<AskedPeer>,
    /// Taken while it is being asked: looking up its name may hold a thread for long.
    turn: Arc<Semaphore>,
}

/// A peer when it was last asked.
#[derive(Debug, Clone, Default)]
struct AskedPeer {
    /// Its last status, and when that was.
    status: Option<(Status, Instant)>,
    problem: Option<String>,
    /// Time of the last answer; none if it was never asked.
    at: Option<Instant>,
}

impl Peers {
    /// Asks all of them at once, but those that were asked a moment ago.
    pub(super) async fn ask(&self, peers: &BTreeMap<String, AdminPeer>) -> Vec<DaemonJson> {
        let known = self.known(peers);
        join_all(known.iter().map(|(name, peer)| peer.ask(name))).await
    }

    fn known(&self, configs: &BTreeMap<String, AdminPeer>) -> BTreeMap<String, Peer> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|name, peer| configs.get(name) == Some(&peer.config));
        for (name, config) in configs {
            known.entry(name.clone()).or_insert_with(|| Peer {
                config: config.clone(),
                asked: watch::Sender::default(),
                turn: Arc::new(Semaphore::new(1)),
            });
        }
        known.clone()
    }
}

impl Peer {
    async fn ask(&self, name: &str) -> DaemonJson {
        let mut answers = self.asked.subscribe();
        let mut asked = answers.borrow_and_update().clone();
        if asked.at.is_none_or(|at| at.elapsed() >= ASKED_EVERY) {
            if let Ok(turn) = self.turn.clone().try_acquire_owned() {
                tokio::spawn(self.clone().refresh(turn));
            }
            match timeout(ANSWERS_WITHIN, answers.changed()).await {
                Ok(_) => asked = answers.borrow().clone(),
                Err(_) => asked.problem = Some(format!("no answer within {ANSWERS_WITHIN:?}")),
            }
        }
        let (status, at) = asked.status.unzip();
        DaemonJson {
            name: name.to_owned(),
            url: Some(self.config.url.to_string()),
            status,
            age_seconds: at.map(|at| at.elapsed().as_secs_f64()),
            problem: asked.problem,
        }
    }

    /// Asks for the status. A peer that does not answer keeps the one that it had.
    async fn refresh(self, _turn: OwnedSemaphorePermit) {
        let remote = Remote::new(Target::There {
            url: self.config.url,
            token: self.config.token,
        });
        let remote = remote.within(GIVEN_UP_AFTER);
        let answer = remote.get::<Status>("/v1/status?usage=false").await;
        let now = Instant::now();
        self.asked.send_modify(|asked| {
            asked.at = Some(now);
            match answer {
                Ok(status) => {
                    asked.status = Some((status, now));
                    asked.problem = None;
                }
                Err(error) => asked.problem = Some(error.to_string()),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_peer_that_does_not_answer_is_asked_once_at_a_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let peer = AdminPeer {
            url: url.parse().unwrap(),
            token: None,
        };
        let configs = BTreeMap::from([("silent".to_owned(), peer)]);
        let peers = Peers::default();
        for _ in 0..2 {
            let asked = join_all([peers.ask(&configs), peers.ask(&configs)]).await;
            for daemon in asked.concat() {
                assert_eq!(daemon.problem.as_deref(), Some("no answer within 1s"));
                assert!(daemon.status.is_none() && daemon.age_seconds.is_none());
            }
        }
        listener.set_nonblocking(true).unwrap();
        let connections = std::iter::from_fn(|| listener.accept().ok());
        assert_eq!(connections.count(), 1);
    }
}
