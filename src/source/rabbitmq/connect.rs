//! Connecting: which host, over TCP or TLS, as whom. The socket is ours, so that each failure has
//! its own words and a connection that hangs can be cut. What a connection is used for is decided
//! elsewhere.

use std::fmt;
use std::fs;
use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_rs::Runtime;
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{AsyncTcpStream, Channel, Connection, ConnectionProperties};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::error::{RabbitMqError, words};
use super::wire::{self, Kit, Socket};
use crate::config::model::{Host, Identity, RabbitMqSource, Tls};

/// How long a broker may take to say good-bye.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// A connection to a broker. Dropped, it is cut.
pub(super) struct Broker {
    connection: Connection,
    _hangup: Hangup,
    host: String,
    /// How long an answer may take.
    patience: Duration,
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
        self.answer(self.connection.create_channel()).await
    }

    /// Asks the broker something, and does not wait for ever.
    pub(super) async fn ask<T>(
        &self,
        question: impl Future<Output = lapin::Result<T>>,
    ) -> Result<lapin::Result<T>, RabbitMqError> {
        timeout(self.patience, question)
            .await
            .map_err(|_| RabbitMqError::Silent {
                host: self.host.clone(),
                within: self.patience,
            })
    }

    /// Likewise, where any other answer than the one hoped for is the end of the connection.
    pub(super) async fn answer<T>(
        &self,
        question: impl Future<Output = lapin::Result<T>>,
    ) -> Result<T, RabbitMqError> {
        let answered = self.ask(question).await?;
        answered.map_err(|error| RabbitMqError::lost(&error))
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

/// Ends a channel in order, as far as the broker answers. One that is only dropped would be closed
/// by the library at a moment of its own, and spoil the end of the connection.
pub(super) async fn close(channel: &Channel) {
    if !channel.status().connected() {
        return;
    }
    match timeout(CLOSE_WITHIN, channel.close(200, "OK".into())).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(error = words(&error), "the channel was gone"),
        Err(_) => tracing::debug!("the broker did not close the channel"),
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
    let tls = config.tls.as_ref().map(tls_connector).transpose()?;
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
    tls: Option<&TlsConnector>,
) -> Result<Broker, RabbitMqError> {
    let shown = host.to_string();
    let (stream, hangup) = reach(host).await?;
    let socket = match (tls, &config.tls) {
        (Some(connector), Some(tls)) => encrypt(connector, tls, host, stream).await?,
        _ => Socket::from(stream),
    };
    // The library asks for a socket by a function that it may call again; we never let it.
    let ready = Mutex::new(Some(AsyncTcpStream::Plain(socket)));
    let hand_over = async move |_: AMQPUri, _: Runtime<Kit>| {
        let socket = ready.lock().ok().and_then(|mut ready| ready.take());
        socket.ok_or_else(|| lapin::Error::from(io::Error::from(io::ErrorKind::NotConnected)))
    };
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let runtime = wire::runtime();
    let connected = Connection::connector(uri(config, host), runtime, hand_over, properties).await;
    let who = (config.username.as_str(), config.vhost.as_str());
    let connection = connected.map_err(|error| RabbitMqError::handshake(&shown, who, &error))?;
    Ok(Broker {
        connection,
        _hangup: hangup,
        host: shown,
        patience: config.connect_timeout,
    })
}

/// Tries each address of a host.
async fn reach(host: &Host) -> Result<(TcpStream, Hangup), RabbitMqError> {
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
        let tried = TcpStream::connect(address).await.and_then(|stream| {
            stream.set_nodelay(true)?;
            let twin = stream.as_fd().try_clone_to_owned()?;
            Ok((stream, Hangup(twin.into())))
        });
        match tried {
            Ok(reached) => return Ok(reached),
            Err(error) => last = RabbitMqError::unreachable(&shown, &error),
        }
    }
    Err(last)
}

async fn encrypt(
    connector: &TlsConnector,
    tls: &Tls,
    host: &Host,
    stream: TcpStream,
) -> Result<Socket, RabbitMqError> {
    let shown = host.to_string();
    let wanted = tls.server_name.as_ref().unwrap_or(&host.name);
    let name = ServerName::try_from(wanted.clone()).map_err(|error| RabbitMqError::Tls {
        host: shown.clone(),
        why: format!("`{wanted}` can't be in a certificate: {error}"),
    })?;
    let encrypted = connector.connect(name, stream).await;
    let encrypted = encrypted.map_err(|error| RabbitMqError::tls(&shown, &error))?;
    Ok(Socket::from(encrypted))
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
fn tls_connector(tls: &Tls) -> Result<TlsConnector, RabbitMqError> {
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
    Ok(TlsConnector::from(Arc::new(config)))
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
