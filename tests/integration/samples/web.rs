//! A web server of the tests' own, which remembers what it was asked.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Heard {
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// How many requests with this path came before.
    pub(super) before: usize,
    pub(super) at: SystemTime,
}

impl Heard {
    /// A header that must be there.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }
}

/// What it answers.
pub(super) type Answer = Response<Full<Bytes>>;

/// An answer of that status, with these headers.
pub(super) fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::builder().status(status);
    for (name, value) in headers {
        answer = answer.header(*name, *value);
    }
    answer.body(Full::new(body.into())).unwrap()
}

/// The server; dropped, it is away.
pub(super) struct Web {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<Heard>>>,
    runtime: Option<Runtime>,
}

impl Web {
    /// One that answers so.
    pub(super) fn that<F>(answers: impl Fn(Heard) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let heard: Arc<Mutex<Vec<Heard>>> = Arc::default();
        let (shared, answers) = (heard.clone(), Arc::new(answers));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (heard, answers) = (shared.clone(), answers.clone());
                tokio::spawn(async move {
                    let answer = service_fn(|request| {
                        let (heard, answers) = (heard.clone(), answers.clone());
                        async move {
                            let request = remember(request, &heard).await?;
                            Ok::<_, hyper::Error>(answers(request).await)
                        }
                    });
                    let connection = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), answer);
                    // Whoever asked may be gone.
                    drop(connection.await);
                });
            }
        });
        Self {
            address,
            heard,
            runtime: Some(runtime),
        }
    }

    /// Host and port.
    pub(super) fn host(&self) -> String {
        self.address.to_string()
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests so far with that path.
    pub(super) fn heard(&self, path: &str) -> Vec<Heard> {
        let heard = self.heard.lock().unwrap();
        let found = heard.iter().filter(|request| request.path == path);
        found.cloned().collect()
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

async fn remember(
    request: Request<Incoming>,
    heard: &Mutex<Vec<Heard>>,
) -> Result<Heard, hyper::Error> {
    let path = request.uri().path().to_owned();
    let headers = request.headers().clone();
    let body = request.into_body().collect().await?.to_bytes();
    let mut heard = heard.lock().unwrap();
    let before = heard.iter().filter(|other| other.path == path).count();
    let request = Heard {
        path,
        headers,
        body,
        before,
        at: SystemTime::now(),
    };
    heard.push(request.clone());
    Ok(request)
}
