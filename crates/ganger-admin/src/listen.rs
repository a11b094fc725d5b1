//! Listeners of the API, and each connection to them: timeouts for sending the request and reading
//! the answer, and the peer's identity.

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::time::{MissedTickBehavior, interval};
use tokio_io_timeout::TimeoutWriter;

use super::connections::Connections;
use super::error::AdminError;
use super::guard::Interface;
use super::places::Places;
use super::routes::Routes;
use super::socket::{self, Removal, Socket};
use ganger_config::model::{AdminConfig, LISTEN, Secret, TelemetryConfig};

/// Timeout for a client to send the head of a request, its first or its next.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// Maximum size of the head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Timeout for a client to read any part of the answer.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// Interval of attempts to bind an address that is in use.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// Configuration keys of the addresses.
const API: &str = "admin.listen";
const TELEMETRY: &str = "telemetry.listen";
/// Pause after an accept that failed, for example without free descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// All listeners.
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
    /// In use, for example by the daemon that this one replaces: it may become free later.
    Taken(SocketAddr),
}

impl Listeners {
    /// Opens the configured listeners, or the default ones.
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
        let has_token = admin.token.is_some() || !admin.tokens.is_empty();
        let needs_token = api.is_some() && !has_token;
        Ok(Self {
            socket: Socket::open(places, admin.socket.is_some(), needs_token)?,
            api,
            telemetry,
        })
    }

    /// Returns the generated token, if one was needed and could be generated.
    pub(super) fn token(&self) -> Option<Secret> {
        self.socket.as_ref().and_then(Socket::token)
    }

    /// Returns the guard that removes the socket on drop.
    pub(super) fn removal(&self) -> Option<Removal> {
        self.socket.as_ref().map(Socket::removal)
    }

    /// Serves requests on all listeners, for ever.
    pub(super) async fn serve(self, routes: Routes) {
        tokio::join!(
            serve_unix(self.socket, &routes),
            serve_tcp(API, self.api, &routes),
            serve_tcp(TELEMETRY, self.telemetry, &routes),
            routes.sample(),
        );
    }
}

fn lost(key: &str, error: &io::Error) {
    tracing::error!(key, %error, "admin listener failed");
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
                "the default address of the admin API is in use; its socket is available"
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
    let connections = Connections::default();
    let mut looks = interval(socket::LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
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
                spawn_connection(stream, routes, Interface::Socket { peer }, &connections);
            }
            Err(error) => not_accepted(&error).await,
        }
    }
}

async fn serve_tcp(key: &str, port: Option<Port>, routes: &Routes) {
    let listener = match port {
        Some(Port::Had(listener)) => TcpListener::from_std(listener),
        Some(Port::Taken(address)) => Ok(bind_when_free(key, address).await),
        None => return,
    };
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => return lost(key, &error),
    };
    if key == API
        && let Ok(address) = listener.local_addr()
    {
        routes.listens_at(address);
    }
    let connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let door = match key {
                    API => Interface::Network { peer: peer.ip() },
                    _ => Interface::Telemetry,
                };
                spawn_connection(stream, routes, door, &connections);
            }
            Err(error) => not_accepted(&error).await,
        }
    }
}

/// Waits until the address is free.
async fn bind_when_free(key: &str, address: SocketAddr) -> TcpListener {
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
    tracing::warn!(%error, "accepting a connection to the admin API failed");
    tokio::time::sleep(ACCEPT_AGAIN).await;
}

/// Starts a connection, which then runs by itself.
fn spawn_connection(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    routes: &Routes,
    door: Interface,
    connections: &Connections,
) {
    let connection = connections.enter();
    let service = TowerToHyperService::new(routes.through(door, connection.clone()));
    let mut stream = TimeoutWriter::new(stream);
    stream.set_timeout(Some(READ_WITHIN));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    tokio::spawn(async move {
        tokio::select! {
            ended = served => if let Err(error) = ended {
                tracing::debug!(%error, "a connection to the admin API failed");
            },
            () = connection.closed() => {
                tracing::debug!("an idle connection to the admin API was closed for a new one");
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::Instant;

    use super::super::context;
    use super::super::credentials::Token;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_is_had_once_who_has_it_lets_it_go() {
        let holder = StdTcpListener::bind("127.0.0.1:0").unwrap();
        let address = holder.local_addr().unwrap();
        let waits = bind_when_free(API, address);
        tokio::pin!(waits);
        let in_vain = tokio::time::timeout(3 * TRY_EVERY, &mut waits).await;
        assert!(in_vain.is_err());
        drop(holder);
        let listener = waits.await;
        assert_eq!(listener.local_addr().unwrap(), address);
    }

    /// Peer of a connection whose buffer is small.
    fn connection() -> DuplexStream {
        let daemon = context::tests::daemon();
        let routes = Routes::new(&Token::Made(None), &TelemetryConfig::default(), daemon);
        let (ours, theirs) = duplex(1024);
        let peer = Some(nix::unistd::Uid::effective().as_raw());
        spawn_connection(
            theirs,
            &routes,
            Interface::Socket { peer },
            &Connections::default(),
        );
        ours
    }

    const LIVEZ: &[u8] = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";

    /// Returns the time until the other side closes, and what it has sent.
    async fn to_the_end(stream: &mut DuplexStream) -> (Duration, String) {
        let (begun, mut said) = (Instant::now(), String::new());
        stream.read_to_string(&mut said).await.unwrap();
        (begun.elapsed(), said)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_says_nothing_is_closed() {
        let mut silent = connection();
        assert_eq!(to_the_end(&mut silent).await.0.as_secs(), 10);
        let mut half = connection();
        half.write_all(&LIVEZ[..20]).await.unwrap();
        assert_eq!(to_the_end(&mut half).await.0.as_secs(), 10);
        let mut idle = connection();
        idle.write_all(LIVEZ).await.unwrap();
        let (time, said) = to_the_end(&mut idle).await;
        assert_eq!(time.as_secs(), 10, "after its first request");
        assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_does_not_read_is_closed() {
        let mut deaf = connection();
        let request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
        deaf.write_all(request).await.unwrap();
        tokio::time::sleep(READ_WITHIN + Duration::from_secs(1)).await;
        let (time, said) = to_the_end(&mut deaf).await;
        assert_eq!(time, Duration::ZERO, "it was closed before");
        assert_eq!(said.len(), 1024);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_has_a_last_request() {
        let mut busy = connection();
        let mut said = [0; 4096];
        for _ in 0..99 {
            busy.write_all(LIVEZ).await.unwrap();
            let count = busy.read(&mut said).await.unwrap();
            assert!(!String::from_utf8_lossy(&said[..count]).contains("connection: close"));
        }
        busy.write_all(LIVEZ).await.unwrap();
        let (time, said) = to_the_end(&mut busy).await;
        assert!(said.contains("connection: close"), "{said}");
        assert_eq!(time, Duration::ZERO);
    }
}
