//! A webhook of the tests' own: a server that keeps what it is sent and answers as it is told to.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::look;
use super::tls::{self, Authority};

/// How it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// With that status.
    Status(u16),
    /// With that status, and that the client is to wait so many seconds.
    Wait(u16, u64),
    /// That it is to be found at its own address, under another path.
    Elsewhere,
    /// Not at all.
    Nothing,
}

/// A request that it has had.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
    /// The same, byte for byte.
    pub(crate) raw: Vec<u8>,
    /// How it was answered.
    pub(crate) word: Word,
}

#[derive(Debug, Default)]
struct Memory {
    heard: Vec<Heard>,
    words: VecDeque<Word>,
    usual: Option<Word>,
}

/// The server; dropped, it is away.
pub(crate) struct Hook {
    address: SocketAddr,
    memory: Arc<Mutex<Memory>>,
    runtime: Option<Runtime>,
}

impl Hook {
    /// One that answers 200.
    pub(crate) fn new() -> Self {
        Self::at("127.0.0.1:0".parse().unwrap())
    }

    /// The same, at that address.
    pub(crate) fn at(address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        let memory: Arc<Mutex<Memory>> = Arc::default();
        let shared = memory.clone();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let memory = shared.clone();
                tokio::spawn(async move {
                    let answer = service_fn(|request| answer(request, memory.clone()));
                    let connection = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), answer);
                    // Whoever asked may be gone.
                    drop(connection.await);
                });
            }
        });
        Self {
            address,
            memory,
            runtime: Some(runtime),
        }
    }

    /// It answers the next requests so, in turn.
    pub(crate) fn says(&self, words: &[Word]) {
        self.memory().words.extend(words);
    }

    /// It answers all others so.
    pub(crate) fn always_says(&self, word: Word) {
        self.memory().usual = Some(word);
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL, with a secret in it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// The same behind a door that speaks TLS, as one that the authority has signed.
    pub(crate) fn tls_url(&self, authority: &Authority) -> String {
        let runtime = self.runtime.as_ref().unwrap();
        format!("{}{PATH}", tls::door(runtime, authority, self.address))
    }

    /// The requests so far.
    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.memory().heard.clone()
    }

    /// What it has taken so far.
    pub(crate) fn taken(&self) -> Vec<Value> {
        let heard = self.heard().into_iter();
        let taken = heard.filter(|it| it.word == Word::Status(200));
        taken.map(|it| it.body).collect()
    }

    /// State and kind of what it has taken so far.
    pub(crate) fn told(&self) -> Vec<String> {
        self.taken().iter().map(named).collect()
    }

    /// Waits until it has taken that; the first of that kind.
    pub(crate) fn is_told(&self, what: &str) -> Value {
        let found = look(|| self.taken().into_iter().find(|it| named(it) == what));
        found.unwrap_or_else(|| panic!("it was not told `{what}`: {:#?}", self.heard()))
    }

    /// Waits for so many requests at least.
    pub(crate) fn has_heard(&self, count: usize) -> Vec<Heard> {
        let heard = look(|| Some(self.heard()).filter(|heard| heard.len() >= count));
        heard.unwrap_or_else(|| panic!("not {count} requests: {:#?}", self.heard()))
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap()
    }
}

/// The path of its URL, which is a secret.
const PATH: &str = "/services/T0/s3cret?key=t0ps3cret";

fn named(message: &Value) -> String {
    let word = |name: &str| message[name].as_str().unwrap_or_default();
    format!("{} {}", word("state"), word("kind"))
}

async fn answer(
    request: Request<Incoming>,
    memory: Arc<Mutex<Memory>>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let path = request.uri().path_and_query().unwrap().to_string();
    let headers = request.headers().iter();
    let headers = headers.map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.to_string(), value)
    });
    let headers = headers.collect();
    let raw = request.into_body().collect().await?.to_bytes().to_vec();
    let body = serde_json::from_slice(&raw).unwrap();
    let word = {
        let mut memory = memory.lock().unwrap();
        let usual = memory.usual.unwrap_or(Word::Status(200));
        let word = memory.words.pop_front().unwrap_or(usual);
        memory.heard.push(Heard {
            path,
            headers,
            body,
            raw,
            word,
        });
        word
    };
    let answer = Response::builder();
    let answer = match word {
        Word::Status(status) => answer.status(status),
        Word::Wait(status, seconds) => answer.status(status).header("retry-after", seconds),
        Word::Elsewhere => answer.status(307).header("location", "/elsewhere"),
        Word::Nothing => std::future::pending().await,
    };
    Ok(answer.body(Full::default()).unwrap())
}

impl Drop for Hook {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}
