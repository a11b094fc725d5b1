//! Where the API listens, and each connection on its way in: how many there may be, how long one may
//! take to say what it wants, and who is at the other end.

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, interval};

use super::error::AdminError;
use super::guard::Door;
use super::places::Places;
use super::routes::Routes;
use super::socket::{self, Removal, Socket};
use crate::config::model::{AdminConfig, LISTEN, TelemetryConfig};

/// The most connections at once, by each way in; further ones wait.
const CONNECTIONS_MAX: usize = 128;
/// How long a client may take to send the head of a request.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// How often an address is tried that another has.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// The keys of the addresses.
const API: &str = "admin.listen";
const TELEMETRY: &str = "telemetry.listen";
/// After an accept that failed, as it does when there are no descriptors left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// All ways in.
#[derive(Debug)]
pub(super) struct Listeners {
    socket: Option<Socket>,
    api: Option<Port>,
    telemetry: Option<Port>,
}

/// An address on the network.
#[derive(Debug)]
enum Port {
    Had(StdTcpListener),
    /// Another has it, as the daemon does that this one takes the place of: it may be had later.
    Taken(SocketAddr),
}

impl Listeners {
    /// Opens what is configured, or what the defaults offer.
    pub(super) fn open(
        admin: &AdminConfig,
        telemetry: &TelemetryConfig,
        places: &Places,
    ) -> Result<Self, AdminError> {
        let api = match admin.listen {
            Some(address) => Some(tcp(API, address, address != LISTEN)?),
            None => None,
        };
        let telemetry = match telemetry.listen {
            Some(address) => Some(tcp(TELEMETRY, address, true)?),
            None => None,
        };
        Ok(Self {
            socket: Socket::open(places, admin.socket.is_some())?,
            api,
            telemetry,
        })
    }

    /// What removes the socket when it is dropped.
    pub(super) fn removal(&self) -> Option<Removal> {
        self.socket.as_ref().map(Socket::removal)
    }

    /// Answers on all of them, for ever.
    pub(super) async fn serve(self, routes: Routes) {
        tokio::join!(
            serve_unix(self.socket, &routes),
            serve_tcp(API, self.api, &routes, Door::Network),
            serve_tcp(TELEMETRY, self.telemetry, &routes, Door::Telemetry),
            routes.observe(),
        );
    }
}

fn lost(key: &str, error: &io::Error) {
    tracing::error!(key, %error, "this way to the admin API can't be served");
}

fn tcp(key: &'static str, address: SocketAddr, was_asked_for: bool) -> Result<Port, AdminError> {
    let listener = StdTcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    match listener {
        Ok((listener, address)) => {
            tracing::info!(key, %address, "listening");
            Ok(Port::Had(listener))
        }
        Err(source) if was_asked_for => Err(AdminError::Listen {
            key,
            address,
            source,
        }),
        Err(error) => {
            tracing::warn!(
                key, %address, %error,
                "the default address of the admin API is not to be had yet; its socket is"
            );
            Ok(Port::Taken(address))
        }
    }
}

async fn serve_unix(socket: Option<Socket>, routes: &Routes) {
    let Some(socket) = socket else { return };
    let (mut listener, keeper) = match socket.listen() {
        Ok(both) => both,
        Err(error) => return lost("admin.socket", &error),
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut looks = interval(socket::LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = looks.tick() => {
                listener = keeper.renewed().await.unwrap_or(listener);
                continue;
            }
        };
        match accepted {
            Ok((stream, _)) => {
                let peer = stream.peer_cred().map(|peer| peer.uid()).ok();
                let connection = converse(stream, routes.clone(), Door::Socket { peer });
                tokio::spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Err(error) => not_accepted(&error).await,
        }
    }
}

async fn serve_tcp(key: &str, port: Option<Port>, routes: &Routes, door: Door) {
    let listener = match port {
        Some(Port::Had(listener)) => TcpListener::from_std(listener),
        Some(Port::Taken(address)) => Ok(once_free(key, address).await),
        None => return,
    };
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => return lost(key, &error),
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = converse(stream, routes.clone(), door);
                tokio::spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Err(error) => not_accepted(&error).await,
        }
    }
}

/// Waits until the address can be had.
async fn once_free(key: &str, address: SocketAddr) -> TcpListener {
    let mut tries = interval(TRY_EVERY);
    tries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tries.tick().await;
        if let Ok(listener) = TcpListener::bind(address).await {
            tracing::info!(key, %address, "listening: the address is free now");
            return listener;
        }
    }
}

async fn not_accepted(error: &io::Error) {
    tracing::warn!(%error, "a connection to the admin API was not accepted");
    tokio::time::sleep(ACCEPT_AGAIN).await;
}

/// One connection, to its end.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    routes: Routes,
    door: Door,
) {
    let service = TowerToHyperService::new(routes.through(door));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the admin API ended badly");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_is_had_once_who_has_it_lets_it_go() {
        let holder = StdTcpListener::bind("127.0.0.1:0").unwrap();
        let address = holder.local_addr().unwrap();
        let waits = once_free(API, address);
        tokio::pin!(waits);
        let in_vain = tokio::time::timeout(3 * TRY_EVERY, &mut waits).await;
        assert!(in_vain.is_err());
        drop(holder);
        let listener = waits.await;
        assert_eq!(listener.local_addr().unwrap(), address);
    }
}
