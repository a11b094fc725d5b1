//! Transport to a collector: gRPC or HTTP, over the same connections as to any external server.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use hyper_rustls::HttpsConnectorBuilder;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use tokio::time::timeout;
use tonic::transport::Channel;

use super::settings::Endpoint;
use ganger_https as https;
use ganger_https::trust::TrustError;
use ganger_https::{Https, Trust};

/// Reason that there is no transport to a collector.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransportError {
    /// The connection can't be set up.
    #[error(transparent)]
    Https(#[from] TrustError),
    /// The URL is no valid address for gRPC.
    #[error("setting up a gRPC connection failed: {0}")]
    Address(#[from] tonic::transport::Error),
}

/// Makes a channel for gRPC, which connects on first use and reconnects as needed.
pub(crate) fn channel(endpoint: &Endpoint) -> Result<Channel, TransportError> {
    let address = tonic::transport::Endpoint::from_shared(endpoint.url.clone())?;
    let address = address
        .timeout(endpoint.timeout)
        .connect_timeout(endpoint.timeout);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(https::encryption(&endpoint.url, trust(endpoint))?)
        .https_or_http()
        .enable_http2();
    let connector = connector.wrap_connector(https::plain(endpoint.timeout));
    Ok(address.connect_with_connector_lazy(connector))
}

/// A client for HTTP.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: Https,
    timeout: Duration,
}

impl Http {
    /// Makes a client, which connects on first use.
    pub(crate) fn new(endpoint: &Endpoint) -> Result<Self, TransportError> {
        Ok(Self {
            client: Https::new(&endpoint.url, trust(endpoint), endpoint.timeout)?,
            timeout: endpoint.timeout,
        })
    }
}

#[async_trait]
impl HttpClient for Http {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        Ok(timeout(self.timeout, self.client.ask(request)).await??)
    }
}

fn trust(endpoint: &Endpoint) -> Trust<'_> {
    let identity = endpoint.identity.as_ref();
    Trust {
        ca_file: endpoint.ca_file.as_deref().map(Path::new),
        identity: identity.map(|(certificate, key)| (Path::new(certificate), Path::new(key))),
    }
}
