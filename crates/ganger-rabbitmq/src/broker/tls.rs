//! TLS: the trusted authorities, our certificate, and telling from a server's behaviour what it lacks.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, fs};

use rustls::client::{ResolvesClientCert, WantsClientCert};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::error::{RabbitMqError, rustls_error};
use super::socket::Socket;
use ganger_config::model::{Host, Identity, Tls};
use ganger_core::foreign;

/// Timeout for a server to show whether it speaks TLS.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// Parameters that turn a plain connection into an encrypted one.
pub(crate) struct Encryption {
    connector: TlsConnector,
    server_name: Option<String>,
    client_identity: Arc<ClientIdentity>,
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encryption")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

impl Encryption {
    /// Reads the trusted authorities and our certificate.
    pub(crate) fn new(tls: &Tls) -> Result<Self, RabbitMqError> {
        let authorities = match &tls.ca_file {
            Some(path) => authorities_in(path)?,
            None => authorities_of_the_system()?,
        };
        let provider = Arc::new(ring::default_provider());
        let identity = tls.identity.as_ref();
        let client_identity = Arc::new(ClientIdentity {
            key: identity
                .map(|identity| read_identity(identity, &provider))
                .transpose()?,
            requested: AtomicBool::new(false),
        });
        let config = trusting(provider, authorities)?
            .with_client_cert_resolver(Arc::clone(&client_identity) as Arc<dyn ResolvesClientCert>);
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            server_name: tls.server_name.clone(),
            client_identity,
        })
    }

    /// Encrypts a connection.
    pub(crate) async fn encrypt(
        &self,
        host: &Host,
        stream: TcpStream,
    ) -> Result<Socket, RabbitMqError> {
        self.client_identity
            .requested
            .store(false, Ordering::Relaxed);
        let shown = host.to_string();
        let wanted = self.server_name.as_ref().unwrap_or(&host.name);
        let name = ServerName::try_from(wanted.clone()).map_err(|error| RabbitMqError::Tls {
            host: shown.clone(),
            why: format!("`{wanted}` can't be in a certificate: {error}"),
        })?;
        let encrypted = self.connector.connect(name, stream).await;
        let encrypted = encrypted.map_err(|error| RabbitMqError::tls(&shown, &error))?;
        Ok(Socket::from(encrypted))
    }

    /// Returns whether the server asked for a client certificate, the last time. One that does not
    /// accept the answer hangs up after the handshake, and its reason can be lost on the way.
    pub(crate) fn certificate_was_requested(&self) -> bool {
        self.client_identity.requested.load(Ordering::Relaxed)
    }

    /// Returns whether the server asked for a client certificate, and we had none.
    pub(crate) fn lacked_certificate(&self) -> bool {
        self.certificate_was_requested() && self.client_identity.key.is_none()
    }
}

/// Shows our certificate, if we have one, and records that it was asked for.
#[derive(Debug)]
struct ClientIdentity {
    key: Option<Arc<CertifiedKey>>,
    requested: AtomicBool,
}

impl ResolvesClientCert for ClientIdentity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.requested.store(true, Ordering::Relaxed);
        self.key.clone()
    }

    fn has_certs(&self) -> bool {
        self.key.is_some()
    }
}

/// Returns whether a server that hung up on an unencrypted connection speaks TLS.
pub(crate) async fn speaks_tls(host: &Host) -> bool {
    let provider = Arc::new(ring::default_provider());
    let Ok(trusts_nobody) = trusting(provider, RootCertStore::empty()) else {
        return false;
    };
    let connector = TlsConnector::from(Arc::new(trusts_nobody.with_no_client_auth()));
    let asking = async {
        let stream = TcpStream::connect((host.name.as_str(), host.port)).await?;
        let name = ServerName::try_from(host.name.clone()).map_err(std::io::Error::other)?;
        connector.connect(name, stream).await
    };
    match timeout(ANSWERS_WITHIN, asking).await {
        Ok(Err(error)) => matches!(
            rustls_error(&error),
            Some(rustls::Error::InvalidCertificate(_) | rustls::Error::AlertReceived(_))
        ),
        Ok(Ok(_)) => true,
        Err(_) => false,
    }
}

fn trusting(
    provider: Arc<CryptoProvider>,
    authorities: RootCertStore,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, RabbitMqError> {
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| RabbitMqError::System {
            why: error.to_string(),
        })?;
    Ok(builder.with_root_certificates(authorities))
}

fn authorities_in(path: &Path) -> Result<RootCertStore, RabbitMqError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates_in(path)? {
        store
            .add(certificate)
            .map_err(|error| unusable(path, &error))?;
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
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, RabbitMqError> {
    let chain = certificates_in(&identity.cert_file)?;
    let pem = read(&identity.key_file)?;
    let unusable = |error: &dyn fmt::Display| unusable(&identity.key_file, error);
    let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| unusable(&error))?;
    let certified =
        CertifiedKey::from_der(chain, key, provider).map_err(|error| unusable(&error))?;
    Ok(Arc::new(certified))
}

fn certificates_in(path: &Path) -> Result<Vec<CertificateDer<'static>>, RabbitMqError> {
    let pem = read(path)?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(path, &error))?;
    if certificates.is_empty() {
        return Err(unusable(path, &"it holds no certificate"));
    }
    Ok(certificates)
}

fn read(path: &Path) -> Result<Vec<u8>, RabbitMqError> {
    let bytes = fs::read(path).map_err(|error| unusable(path, &error))?;
    Ok(foreign::without_mark(&bytes).to_vec())
}

fn unusable(path: &Path, why: &dyn fmt::Display) -> RabbitMqError {
    RabbitMqError::TlsFile {
        path: path.to_owned(),
        why: why.to_string(),
    }
}
