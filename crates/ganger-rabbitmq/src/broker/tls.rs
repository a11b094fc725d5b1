//! TLS: the trusted authorities and the client's certificate.

use std::path::Path;
use std::sync::Arc;
use std::{fmt, fs};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::error::RabbitMqError;
use super::socket::Socket;
use ganger_config::model::{Host, Tls};
use ganger_core::foreign;

/// Parameters that turn a plain connection into an encrypted one.
pub(crate) struct Encryption {
    connector: TlsConnector,
    server_name: Option<String>,
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encryption")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

impl Encryption {
    /// Reads the trusted authorities and the client's certificate.
    pub(crate) fn new(tls: &Tls) -> Result<Self, RabbitMqError> {
        let authorities = match &tls.ca_file {
            Some(path) => authorities_in(path)?,
            None => authorities_of_the_system()?,
        };
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| RabbitMqError::System {
                why: error.to_string(),
            })?
            .with_root_certificates(authorities);
        let config = match &tls.identity {
            None => config.with_no_client_auth(),
            Some(identity) => {
                let chain = certificates_in(&identity.cert_file)?;
                let key = key_in(&identity.key_file)?;
                config
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| unusable(&identity.key_file, &error))?
            }
        };
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            server_name: tls.server_name.clone(),
        })
    }

    /// Encrypts a connection.
    pub(crate) async fn encrypt(
        &self,
        host: &Host,
        stream: TcpStream,
    ) -> Result<Socket, RabbitMqError> {
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

fn key_in(path: &Path) -> Result<PrivateKeyDer<'static>, RabbitMqError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| unusable(path, &error))
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
