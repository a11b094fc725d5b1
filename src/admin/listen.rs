//! Where the API listens, and each connection on its way in: how many there may be, how long one may
//! take to say what it wants, and who is at the other end.

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

use super::error::AdminError;
use super::guard::Door;
use super::places;
use super::places::Places;
use super::routes::Routes;
use crate::config::model::{AdminConfig, LISTEN, TelemetryConfig};

/// The most connections at once, by each way in; further ones wait.
const CONNECTIONS_MAX: usize = 128;
/// How long a client may take to send the head of a request.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// After an accept that failed, as it does when there are no descriptors left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The file of a socket. Dropped, it is removed, unless another daemon has put its own there.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = std::fs::metadata(&self.path).is_ok_and(|file| file.ino() == self.inode);
        if ours {
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// All ways in.
#[derive(Debug)]
pub(super) struct Listeners {
    socket: Option<(StdUnixListener, Option<SocketFile>)>,
    api: Option<StdTcpListener>,
    telemetry: Option<StdTcpListener>,
}

impl Listeners {
    /// Opens what is configured, or what the defaults offer.
    pub(super) fn open(
        admin: &AdminConfig,
        telemetry: &TelemetryConfig,
        places: &Places,
    ) -> Result<Self, AdminError> {
        let api = match admin.listen {
            Some(address) => tcp("admin.listen", address, address != LISTEN)?,
            None => None,
        };
        let telemetry = match telemetry.listen {
            Some(address) => tcp("telemetry.listen", address, true)?,
            None => None,
        };
        Ok(Self {
            socket: unix(places, admin.socket.is_some())?,
            api,
            telemetry,
        })
    }

    pub(super) fn take_socket_file(&mut self) -> Option<SocketFile> {
        self.socket.as_mut()?.1.take()
    }

    /// Answers on all of them, for ever.
    pub(super) async fn serve(self, routes: Routes) {
        let socket = self.socket.and_then(|(listener, _)| {
            let listener = UnixListener::from_std(listener);
            listener.map_err(|error| lost("admin.socket", &error)).ok()
        });
        let unlost = |key, listener: Option<StdTcpListener>| {
            let listener = TcpListener::from_std(listener?);
            listener.map_err(|error| lost(key, &error)).ok()
        };
        let api = unlost("admin.listen", self.api);
        let telemetry = unlost("telemetry.listen", self.telemetry);
        tokio::join!(
            serve_unix(socket, &routes),
            serve_tcp(api, &routes, Door::Network),
            serve_tcp(telemetry, &routes, Door::Telemetry),
            routes.observe(),
        );
    }
}

fn lost(key: &str, error: &io::Error) {
    tracing::error!(key, %error, "this way to the admin API can't be served");
}

fn tcp(
    key: &'static str,
    address: SocketAddr,
    was_asked_for: bool,
) -> Result<Option<StdTcpListener>, AdminError> {
    let listener = StdTcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    match listener {
        Ok((listener, address)) => {
            tracing::info!(key, %address, "listening");
            Ok(Some(listener))
        }
        Err(source) if was_asked_for => Err(AdminError::Listen {
            key,
            address,
            source,
        }),
        Err(error) => {
            tracing::warn!(
                key, %address, %error,
                "the default address of the admin API is not to be had; its socket is"
            );
            Ok(None)
        }
    }
}

type Socket = (StdUnixListener, Option<SocketFile>);

fn unix(places: &Places, was_asked_for: bool) -> Result<Option<Socket>, AdminError> {
    let mut problems = Vec::new();
    for path in places.all() {
        match bind(path) {
            Ok(socket) => {
                tracing::info!(key = "admin.socket", path = %path.display(), "listening");
                return Ok(Some(socket));
            }
            Err(source) if was_asked_for => {
                let path = path.display().to_string();
                return Err(AdminError::Socket { path, source });
            }
            Err(error) => problems.push(format!("{}: {error}", path.display())),
        }
    }
    let problems = problems.join("; ");
    tracing::warn!(problems, "no socket for the admin API can be made");
    Ok(None)
}

/// A socket that only its owner may open from the first moment on. One of a daemon that was killed
/// is replaced; so is that of a daemon that is on its way out, which goes on without.
fn bind(path: &Path) -> io::Result<Socket> {
    if let Some(directory) = path.parent() {
        places::check(directory)?;
    }
    match std::fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => {
            return Err(io::Error::other(
                "there is a file of that name that is no socket",
            ));
        }
        Ok(_) if StdUnixStream::connect(path).is_ok() => {
            tracing::warn!(path = %path.display(), "another daemon's admin socket is taken over");
        }
        Ok(_) | Err(_) => {}
    }
    // Made under another name and moved, so that it is never open to others, nor missing.
    let new = path.with_extension(format!("{}.new", std::process::id()));
    drop(std::fs::remove_file(&new));
    let listener = StdUnixListener::bind(&new)?;
    let placed = std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600))
        .and_then(|()| listener.set_nonblocking(true))
        .and_then(|()| std::fs::rename(&new, path))
        .and_then(|()| std::fs::metadata(path));
    let file = placed.inspect_err(|_| drop(std::fs::remove_file(&new)))?;
    let file = SocketFile {
        path: path.to_owned(),
        inode: file.ino(),
    };
    Ok((listener, Some(file)))
}

async fn serve_unix(listener: Option<UnixListener>, routes: &Routes) {
    let Some(listener) = listener else { return };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
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

async fn serve_tcp(listener: Option<TcpListener>, routes: &Routes, door: Door) {
    let Some(listener) = listener else { return };
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
