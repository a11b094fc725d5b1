//! Client of a running daemon for commands: on this machine through its socket, elsewhere through
//! its address and token. All commands that inspect or steer a daemon use it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use url::Url;

use super::places::{self, Places};
use ganger_config::model::Secret;

/// Timeout of connecting.
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);
/// Timeout of an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// Maximum time that the daemon waits for a worker's answer.
pub const WAIT_MAX: Duration = Duration::from_secs(300);
/// Maximum size of an answer, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Address of the daemon.
#[derive(Debug, Clone)]
pub enum Target {
    /// On this machine: its socket is in one of these places.
    Here(Places),
    /// At that address.
    There {
        /// URL: `http://HOST:PORT`.
        url: Url,
        /// Token that it requires.
        token: Option<Secret>,
    },
}

/// Error of a request to the daemon.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No socket in these places answers.
    #[error("no daemon answers at {}", .0.join(" or "))]
    NotHere(Vec<String>),
    /// It can't be reached.
    #[error("connecting to {at} failed: {cause}")]
    Unreachable {
        /// The address.
        at: String,
        /// The cause, which the text contains.
        cause: io::Error,
    },
    /// The connection broke.
    #[error("the daemon did not answer: {0}")]
    Broken(String),
    /// The daemon refused the request.
    #[error("{detail}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The error and its remedy.
        detail: String,
        /// Number of dead letters that were changed despite the error.
        changed: Option<usize>,
        /// Number of dead letters that another message's unique key holds back.
        held: usize,
    },
}

/// A client of a daemon.
#[derive(Debug, Clone)]
pub struct Remote {
    target: Target,
    answer_within: Duration,
}

impl Remote {
    /// Returns a client of that daemon. Nothing is opened yet.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            answer_within: ANSWER_WITHIN,
        }
    }

    /// Extends the timeout to that of an answer for which a broker or a worker is asked.
    #[must_use]
    pub fn patient(self) -> Self {
        Self {
            answer_within: WAIT_MAX + ANSWER_WITHIN,
            ..self
        }
    }

    /// Sets the timeout of an answer.
    #[must_use]
    pub(super) fn within(self, answer_within: Duration) -> Self {
        Self {
            answer_within,
            ..self
        }
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// If the daemon can't be reached, refuses, or its answer can't be read.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let body = self.ask(Method::GET, path, None).await?;
        serde_json::from_slice(&body).map_err(|error| {
            ClientError::Broken(format!(
                "its answer is unreadable: {error}; is it another version?"
            ))
        })
    }

    /// Sends a POST request, and returns its result.
    ///
    /// # Errors
    /// As [`Remote::get`].
    pub async fn post(&self, path: &str, body: Option<&Value>) -> Result<Value, ClientError> {
        let body = self.ask(Method::POST, path, body).await?;
        serde_json::from_slice(&body).map_err(|error| ClientError::Broken(error.to_string()))
    }

    /// Sends a request, and returns the answer's body.
    ///
    /// # Errors
    /// As [`Remote::get`].
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Bytes, ClientError> {
        self.ask_if(method, path, body, None).await
    }

    /// Sends a request with a condition, a header, and returns the answer's body.
    ///
    /// # Errors
    /// As [`Remote::get`].
    pub(super) async fn ask_if(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        condition: Option<(header::HeaderName, String)>,
    ) -> Result<Bytes, ClientError> {
        let mut request = self.request(method, path, body)?;
        if let Some((name, value)) = condition {
            let value = header::HeaderValue::try_from(value);
            let value = value.map_err(|error| ClientError::Broken(error.to_string()))?;
            request.headers_mut().insert(name, value);
        }
        match &self.target {
            Target::Here(places) => answer(here(places).await?, request, self.answer_within).await,
            Target::There { url, .. } => {
                answer(there(url).await?, request, self.answer_within).await
            }
        }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::builder().method(method).uri(path);
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let host = match &self.target {
            Target::Here(_) => "localhost".to_owned(),
            Target::There { url, .. } => authority(url),
        };
        request = request.header(header::HOST, host);
        if let Target::There {
            token: Some(token), ..
        } = &self.target
        {
            let bearer = format!("Bearer {}", token.expose());
            request = request.header(header::AUTHORIZATION, bearer);
        }
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let request = request.body(Full::new(body));
        request.map_err(|error| ClientError::Broken(error.to_string()))
    }
}

async fn here(places: &Places) -> Result<UnixStream, ClientError> {
    let mut tried = Vec::new();
    for path in places.all() {
        match open(path.clone()).await {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let at = path.display().to_string();
                return Err(ClientError::Unreachable { at, cause: error });
            }
            Err(_) => tried.push(path.display().to_string()),
        }
    }
    Err(ClientError::NotHere(tried))
}

async fn open(path: PathBuf) -> io::Result<UnixStream> {
    if path.exists()
        && let Some(directory) = path.parent()
    {
        places::check(directory)?;
    }
    UnixStream::connect(path).await
}

fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or("localhost");
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

async fn there(url: &Url) -> Result<TcpStream, ClientError> {
    let host = url.host_str().unwrap_or("localhost");
    let address = (
        host.trim_matches(['[', ']']),
        url.port_or_known_default().unwrap_or(80),
    );
    let connected = timeout(CONNECTED_WITHIN, TcpStream::connect(address)).await;
    let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    connected.map_err(|cause| ClientError::Unreachable {
        at: authority(url),
        cause,
    })
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Full<Bytes>>,
    within: Duration,
) -> Result<Bytes, ClientError> {
    let broken = |error: hyper::Error| ClientError::Broken(error.to_string());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let conversation = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        let body = http_body_util::Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let body = body.collect().await;
        let body = body.map_err(|error| ClientError::Broken(error.to_string()))?;
        checked(status, body.to_bytes())
    };
    // The connection is driven beside the conversation, and goes with it.
    let answered = async {
        tokio::pin!(conversation);
        tokio::select! {
            answer = &mut conversation => answer,
            _ = connection => conversation.await,
        }
    };
    match timeout(within, answered).await {
        Ok(answer) => answer,
        Err(_) => Err(ClientError::Broken(format!(
            "no data arrived within {within:?}"
        ))),
    }
}

/// Returns the body, or the error of its problem document.
fn checked(status: StatusCode, body: Bytes) -> Result<Bytes, ClientError> {
    if status.is_success() {
        return Ok(body);
    }
    let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
    let detail = problem["detail"].as_str().map(str::to_owned);
    let mut detail = detail.unwrap_or_else(|| format!("the daemon answered {status}"));
    for error in problem["errors"].as_array().into_iter().flatten() {
        detail.push_str("\n  ");
        detail.push_str(error.as_str().unwrap_or_default());
    }
    for reason in problem["reasons"].as_array().into_iter().flatten() {
        detail.push_str("\n  ");
        detail.push_str(reason.as_str().unwrap_or_default());
    }
    let number = |name: &str| {
        let number = problem[name].as_u64();
        number.and_then(|number| usize::try_from(number).ok())
    };
    Err(ClientError::Refused {
        status: status.as_u16(),
        detail,
        changed: number("changed"),
        held: number("held").unwrap_or(0),
    })
}

/// Characters that a segment of a path can't have as they are. A point could make it one that leads upwards.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

/// Encodes a name as a segment of a path.
pub fn segment(name: &str) -> PercentEncode<'_> {
    utf8_percent_encode(name, SEGMENT)
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let cause = io::ErrorKind::ConnectionRefused.into();
        let at = "10.0.0.7:9464".to_owned();
        let error = ClientError::Unreachable { at, cause };
        assert!(error.source().is_none());
        assert!(error.to_string().ends_with("connection refused"), "{error}");
    }
}
