//! The way to a collector: gRPC or HTTP, in the clear or encrypted, over one kind of connection.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;
use tonic::transport::Channel;

use super::settings::Endpoint;

/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Why there is no way to a collector.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransportError {
    /// A file can't be read.
    #[error("`{path}` can't be read: {why}")]
    File {
        /// The file.
        path: String,
        /// What the operating system or the parser says.
        why: String,
    },
    /// What the files hold is of no use.
    #[error("no encrypted connection can be made: {0}")]
    Tls(#[from] rustls::Error),
    /// It is no address for gRPC.
    #[error("no gRPC connection can be made: {0}")]
    Address(#[from] tonic::transport::Error),
}

/// A channel for gRPC, which connects when it is used, and again whenever it has to.
pub(crate) fn channel(endpoint: &Endpoint) -> Result<Channel, TransportError> {
    let address = tonic::transport::Endpoint::from_shared(endpoint.url.clone())?;
    let address = address
        .timeout(endpoint.timeout)
        .connect_timeout(endpoint.timeout);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(encryption(endpoint)?)
        .https_or_http()
        .enable_http2();
    let connector = connector.wrap_connector(plain(endpoint.timeout));
    Ok(address.connect_with_connector_lazy(connector))
}

/// A client for HTTP.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    timeout: Duration,
}

impl Http {
    /// Connects when it is used.
    pub(crate) fn new(endpoint: &Endpoint) -> Result<Self, TransportError> {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(encryption(endpoint)?)
            .https_or_http()
            .enable_http1();
        let connector = connector.wrap_connector(plain(endpoint.timeout));
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            timeout: endpoint.timeout,
        })
    }

    async fn ask(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let response = self.client.request(request.map(Full::new)).await?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}

#[async_trait]
impl HttpClient for Http {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        timeout(self.timeout, self.ask(request)).await?
    }
}

fn plain(timeout: Duration) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(timeout));
    connector
}

/// Whom to trust and what to show. For what is not encrypted nothing is read.
fn encryption(endpoint: &Endpoint) -> Result<ClientConfig, TransportError> {
    let is_used = endpoint.url.starts_with("https:");
    let authorities = match &endpoint.ca_file {
        _ if !is_used => RootCertStore::empty(),
        Some(path) => authorities_in(path)?,
        None => authorities_of_the_system(),
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(authorities);
    match &endpoint.identity {
        Some((certificate, key)) if is_used => {
            let key = PrivateKeyDer::from_pem_slice(&content(key)?);
            let key = key.map_err(|error| unreadable(certificate, error))?;
            Ok(config.with_client_auth_cert(certificates(certificate)?, key)?)
        }
        Some(_) | None => Ok(config.with_no_client_auth()),
    }
}

/// What can't be used of it is passed over: a store has hundreds.
fn authorities_of_the_system() -> RootCertStore {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    store
}

fn authorities_in(path: &str) -> Result<RootCertStore, TransportError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store.add(certificate)?;
    }
    Ok(store)
}

fn certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, TransportError> {
    let all = content(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&all).collect();
    match all {
        Ok(all) if all.is_empty() => Err(unreadable(path, "it holds no certificate")),
        Ok(all) => Ok(all),
        Err(error) => Err(unreadable(path, error)),
    }
}

fn content(path: &str) -> Result<Vec<u8>, TransportError> {
    fs::read(Path::new(path)).map_err(|error| unreadable(path, error))
}

fn unreadable(path: &str, why: impl ToString) -> TransportError {
    TransportError::File {
        path: path.to_owned(),
        why: why.to_string(),
    }
}
