//! HTTP to external servers, plain or encrypted, over one kind of connection: trusted authorities, own
//! certificate, timeout. The content and the meaning of an answer are the caller's.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};

use ganger_core::threads::or_refused;
pub mod trust;

pub use crate::trust::Trust;
use crate::trust::TrustError;

/// Maximum bytes of an answer.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// A client, which connects on first use. Its only timeout is that for connecting.
#[derive(Debug, Clone)]
pub struct Https(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

/// Reason that a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// It was not sent, or no answer came.
    #[error(transparent)]
    Request(#[from] legacy::Error),
    /// No thread could be started to look up the server's name.
    #[error(transparent)]
    NoThread(#[from] std::io::Error),
    /// The answer is broken or too long.
    #[error("{0}")]
    Answer(Box<dyn Error + Send + Sync>),
}

impl RequestError {
    /// Returns whether the server has seen nothing of the request.
    pub fn is_unsent(&self) -> bool {
        match self {
            Self::Request(error) => error.is_connect(),
            Self::NoThread(_) => true,
            Self::Answer(_) => false,
        }
    }
}

impl Https {
    /// Makes a client for the server of that URL. Without encryption no file is read.
    pub fn new(url: &str, trust: Trust<'_>, connect_timeout: Duration) -> Result<Self, TrustError> {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(encryption(url, trust)?)
            .https_or_http()
            .enable_http1();
        let connector = connector.wrap_connector(plain(connect_timeout));
        Ok(Self(Client::builder(TokioExecutor::new()).build(connector)))
    }

    /// Sends a request and reads the whole answer.
    pub async fn ask(&self, request: Request<Bytes>) -> Result<Response<Bytes>, RequestError> {
        let response = or_refused(self.0.request(request.map(Full::new))).await??;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(RequestError::Answer)?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}

/// Makes the TCP connector.
pub fn plain(connect_timeout: Duration) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(connect_timeout));
    connector
}

/// Returns the TLS settings of a connection to that URL. Without encryption no file is read.
pub fn encryption(url: &str, trust: Trust<'_>) -> Result<ClientConfig, TrustError> {
    if url.starts_with("https:") {
        return trust::checking(trust);
    }
    trust::believing(RootCertStore::empty(), Trust::default())
}

/// Returns host and port of a URL, which are no secret.
pub fn shown(url: &str) -> String {
    let url = url::Url::parse(url).ok();
    let host = url.as_ref().and_then(|url| url.host_str());
    let port = url.as_ref().and_then(|url| url.port_or_known_default());
    match (host, port) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        _ => String::new(),
    }
}

/// Returns the name of this machine.
pub fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Formats an error with all its causes, on one line.
pub fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
