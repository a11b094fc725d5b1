//! Connecting: which host, over TCP or TLS, as whom. The socket is ours, so that each failure has
//! its own words and a connection that hangs can be cut. What a connection is used for is decided
//! elsewhere.

use std::fmt;
use std::fs;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_rs::traits::Reactor;
use async_rs::{Runtime, TokioRuntime};
use lapin::tcp::RustlsConnector;
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{AsyncTcpStream, Channel, Connection, ConnectionProperties};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;

use super::error::{RabbitMqError, words};
use crate::config::model::{Host, Identity, RabbitMqSource, Tls};

/// How long a broker may take to say good-bye.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// A connection to a broker. Dropped, it is cut.
pub(super) struct Broker {
    connection: Connection,
    _hangup: Hangup,
    host: String,
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").field("host", &self.host).finish()
    }
}

impl Broker {
    /// The host and the port that answered.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// The connection itself.
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Opens a channel.
    pub(super) async fn channel(&self) -> Result<Channel, RabbitMqError> {
        let opened = self.connection.create_channel().await;
        opened.map_err(|error| RabbitMqError::lost(&error))
    }

    /// Ends the connection in order, as far as the broker answers.
    pub(super) async fn close(self) {
        let goodbye = self.connection.close(200, "OK".into());
        match timeout(CLOSE_WITHIN, goodbye).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(error = words(&error), "the connection was gone"),
            Err(_) => tracing::debug!("the broker did not say good-bye; the connection is cut"),
        }
    }
}

/// A second handle on a connection's socket. Dropped, it ends the connection, whatever state the
/// library believes it to be in: its thread would else wait for a broker that hangs.
struct Hangup(std::net::TcpStream);

impl Drop for Hangup {
    fn drop(&mut self) {
        // It may be closed already.
        drop(self.0.shutdown(Shutdown::Both));
    }
}

/// Connects to the first host that will have us. `name` is what the broker lists us as.
///
/// # Errors
/// What is wrong with each host, if none of them will do.
pub(super) async fn connect(config: &RabbitMqSource, name: &str) -> Result<Broker, RabbitMqError> {
    let tls = config.tls.as_ref().map(tls_config).transpose()?;
    let mut refused = Vec::new();
    for host in &config.hosts {
        let tried = timeout(
            config.connect_timeout,
            connect_to(config, host, name, tls.as_ref()),
        );
        match tried.await {
            Ok(Ok(broker)) => return Ok(broker),
            Ok(Err(error)) => refused.push(error),
            Err(_) => refused.push(RabbitMqError::Silent {
                host: host.to_string(),
                within: config.connect_timeout,
            }),
        }
    }
    Err(match refused.len() {
        1 => refused.swap_remove(0),
        _ => RabbitMqError::Hosts(refused),
    })
}

async fn connect_to(
    config: &RabbitMqSource,
    host: &Host,
    name: &str,
    tls: Option<&RustlsConnector>,
) -> Result<Broker, RabbitMqError> {
    let shown = host.to_string();
    let runtime = Runtime::tokio_current();
    let socket = reach(&runtime, host).await?;
    let hangup = Hangup(socket.twin);
    let stream = match tls {
        None => AsyncTcpStream::Plain(socket.stream),
        Some(connector) => {
            let wanted = config.tls.as_ref().and_then(|tls| tls.server_name.as_ref());
            let plain = AsyncTcpStream::Plain(socket.stream);
            let encrypted = plain.into_rustls(connector, wanted.unwrap_or(&host.name));
            encrypted
                .await
                .map_err(|error| RabbitMqError::tls(&shown, &error))?
        }
    };
    // The library asks for a socket by a function that it may call again; we never let it.
    let ready = Mutex::new(Some(stream));
    let hand_over = async move |_: AMQPUri, _: TokioRuntime| {
        let stream = ready.lock().ok().and_then(|mut ready| ready.take());
        stream.ok_or_else(|| lapin::Error::from(io::Error::from(io::ErrorKind::NotConnected)))
    };
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let connected = Connection::connector(uri(config, host), runtime, hand_over, properties).await;
    let who = (config.username.as_str(), config.vhost.as_str());
    let connection = connected.map_err(|error| RabbitMqError::handshake(&shown, who, &error))?;
    Ok(Broker {
        connection,
        _hangup: hangup,
        host: shown,
    })
}

/// A socket and a second handle on it.
struct Socket<S> {
    stream: S,
    twin: std::net::TcpStream,
}

/// Tries each address of a host.
async fn reach(
    runtime: &TokioRuntime,
    host: &Host,
) -> Result<Socket<<TokioRuntime as Reactor>::TcpStream>, RabbitMqError> {
    let shown = host.to_string();
    let unresolved = |why| RabbitMqError::Unresolved {
        host: shown.clone(),
        why,
    };
    let addresses = tokio::net::lookup_host((host.name.as_str(), host.port))
        .await
        .map_err(|error| unresolved(error.to_string()))?;
    let mut last = unresolved("it has no address".to_owned());
    for address in addresses {
        let tried = runtime.tcp_connect_addr(address).await.and_then(|stream| {
            let twin = stream.get_ref().as_fd().try_clone_to_owned()?.into();
            Ok(Socket { stream, twin })
        });
        match tried {
            Ok(socket) => return Ok(socket),
            Err(error) => last = RabbitMqError::unreachable(&shown, &error),
        }
    }
    Err(last)
}

/// What the library wants to know, in the form in which it wants it.
fn uri(config: &RabbitMqSource, host: &Host) -> AMQPUri {
    let heartbeat = u16::try_from(config.heartbeat.as_secs()).unwrap_or(u16::MAX);
    AMQPUri {
        scheme: match config.tls {
            Some(_) => AMQPScheme::AMQPS,
            None => AMQPScheme::AMQP,
        },
        authority: AMQPAuthority {
            userinfo: AMQPUserInfo {
                username: config.username.clone(),
                password: config.password.expose().to_owned(),
            },
            host: host.name.clone(),
            port: host.port,
        },
        vhost: config.vhost.clone(),
        query: AMQPQueryString {
            heartbeat: Some(heartbeat.max(1)),
            ..AMQPQueryString::default()
        },
    }
}

/// Reads whom to trust and what to show.
fn tls_config(tls: &Tls) -> Result<RustlsConnector, RabbitMqError> {
    let authorities = match &tls.ca_file {
        Some(path) => authorities_in(path)?,
        None => authorities_of_the_system()?,
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| RabbitMqError::System {
            why: error.to_string(),
        })?
        .with_root_certificates(authorities);
    let config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = read_identity(identity)?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| unfit(&identity.key_file, &error))?
        }
    };
    Ok(config.into())
}

fn authorities_in(path: &Path) -> Result<RootCertStore, RabbitMqError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates_in(path)? {
        store
            .add(certificate)
            .map_err(|error| unfit(path, &error))?;
    }
    Ok(store)
}

fn authorities_of_the_system() -> Result<RootCertStore, RabbitMqError> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        let why = match found.errors.first() {
            Some(error) => error.to_string(),
            None => "the system has none".to_owned(),
        };
        return Err(RabbitMqError::NoAuthorities { why });
    }
    Ok(store)
}

fn read_identity(
    identity: &Identity,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), RabbitMqError> {
    let chain = certificates_in(&identity.cert_file)?;
    let pem = read(&identity.key_file)?;
    let key =
        PrivateKeyDer::from_pem_slice(&pem).map_err(|error| unfit(&identity.key_file, &error))?;
    Ok((chain, key))
}

fn certificates_in(path: &Path) -> Result<Vec<CertificateDer<'static>>, RabbitMqError> {
    let pem = read(path)?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| unfit(path, &error))?;
    if certificates.is_empty() {
        return Err(unfit(path, &"it holds no certificate"));
    }
    Ok(certificates)
}

fn read(path: &Path) -> Result<Vec<u8>, RabbitMqError> {
    fs::read(path).map_err(|error| unfit(path, &error))
}

fn unfit(path: &Path, why: &dyn fmt::Display) -> RabbitMqError {
    RabbitMqError::TlsFile {
        path: path.to_owned(),
        why: why.to_string(),
    }
}
