//! An OpenTelemetry collector of the tests' own, made of OpenTelemetry's own services: gRPC, or HTTP
//! with protobuf bodies. It keeps what it is sent.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request as HttpRequest, Response as HttpResponse};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::common::v1::{AnyValue as Any, KeyValue};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::codec::CompressionEncoding;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::look;
use super::tls::{self, Authority};

/// Attributes by name, each value as text.
pub(crate) type Attributes = BTreeMap<String, String>;

/// What a collector was sent.
#[derive(Debug, Default)]
struct Received {
    resource: Attributes,
    spans: Vec<Span>,
    logs: Vec<LogRecord>,
    metrics: Vec<Metric>,
    /// The headers of each request.
    requests: Vec<Attributes>,
}

/// The collector; dropped, it is away.
pub(crate) struct Collector {
    address: SocketAddr,
    is_grpc: bool,
    received: Arc<Mutex<Received>>,
    runtime: Option<Runtime>,
}

#[derive(Clone)]
struct Service(Arc<Mutex<Received>>);

impl Collector {
    /// One that speaks gRPC.
    pub(crate) fn grpc() -> Self {
        Self::grpc_at("127.0.0.1:0".parse().unwrap())
    }

    /// The same, at that address.
    pub(crate) fn grpc_at(address: SocketAddr) -> Self {
        Self::serve(true, address, |listener, service| async move {
            let gzip = CompressionEncoding::Gzip;
            let traces = TraceServiceServer::new(service.clone()).accept_compressed(gzip);
            let logs = LogsServiceServer::new(service.clone()).accept_compressed(gzip);
            let metrics = MetricsServiceServer::new(service).accept_compressed(gzip);
            let server = Server::builder()
                .add_service(traces)
                .add_service(logs)
                .add_service(metrics);
            let connections = TcpListenerStream::new(listener);
            server.serve_with_incoming(connections).await.unwrap();
        })
    }

    /// One that speaks HTTP.
    pub(crate) fn http() -> Self {
        let address = "127.0.0.1:0".parse().unwrap();
        Self::serve(false, address, |listener, service| async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move {
                    let answer = service_fn(|request| service.clone().answer(request));
                    let connection = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), answer);
                    // Whoever asked may be gone.
                    drop(connection.await);
                });
            }
        })
    }

    fn serve<F: Future<Output = ()> + Send + 'static>(
        is_grpc: bool,
        address: SocketAddr,
        serve: impl FnOnce(TcpListener, Service) -> F,
    ) -> Self {
        let received: Arc<Mutex<Received>> = Arc::default();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(serve(listener, Service(received.clone())));
        Self {
            address,
            is_grpc,
            received,
            runtime: Some(runtime),
        }
    }

    /// Whether it speaks gRPC.
    pub(crate) fn is_grpc(&self) -> bool {
        self.is_grpc
    }

    /// A door to it behind which all is encrypted, for as long as it lives itself: the URL. It proves
    /// to be one that the authority has signed.
    pub(crate) fn behind_tls(&self, authority: &Authority) -> String {
        let runtime = self.runtime.as_ref().unwrap();
        tls::door(runtime, authority, self.address)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same as a URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.received().spans.clone()
    }

    /// Waits for so many spans at least.
    pub(crate) fn has_spans(&self, count: usize) -> Vec<Span> {
        let spans = look(|| Some(self.spans()).filter(|spans| spans.len() >= count));
        spans.unwrap_or_else(|| panic!("waited in vain for {count} spans: {:#?}", self.spans()))
    }

    /// What the last resource says of itself.
    pub(crate) fn resource(&self) -> Attributes {
        self.received().resource.clone()
    }

    /// The headers of the requests so far.
    pub(crate) fn requests(&self) -> Vec<Attributes> {
        self.received().requests.clone()
    }

    /// The log records so far.
    pub(crate) fn logs(&self) -> Vec<LogRecord> {
        self.received().logs.clone()
    }

    /// The metrics so far.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        self.received().metrics.clone()
    }

    fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

impl Service {
    fn take_traces(&self, request: ExportTraceServiceRequest) {
        let mut received = self.0.lock().unwrap();
        for one in request.resource_spans {
            received.resource = one
                .resource
                .map(|r| words(&r.attributes))
                .unwrap_or_default();
            let spans = one.scope_spans.into_iter().flat_map(|scope| scope.spans);
            received.spans.extend(spans);
        }
    }

    fn take_logs(&self, request: ExportLogsServiceRequest) {
        let mut received = self.0.lock().unwrap();
        for one in request.resource_logs {
            received.resource = one
                .resource
                .map(|r| words(&r.attributes))
                .unwrap_or_default();
            let logs = one
                .scope_logs
                .into_iter()
                .flat_map(|scope| scope.log_records);
            received.logs.extend(logs);
        }
    }

    fn take_metrics(&self, request: ExportMetricsServiceRequest) {
        let mut received = self.0.lock().unwrap();
        for one in request.resource_metrics {
            received.resource = one
                .resource
                .map(|r| words(&r.attributes))
                .unwrap_or_default();
            let metrics = one
                .scope_metrics
                .into_iter()
                .flat_map(|scope| scope.metrics);
            received.metrics.extend(metrics);
        }
    }

    fn note<'a>(&self, headers: impl Iterator<Item = (&'a str, &'a [u8])>) {
        let text = |(name, value): (&str, &[u8])| {
            (name.to_owned(), String::from_utf8_lossy(value).into_owned())
        };
        self.0
            .lock()
            .unwrap()
            .requests
            .push(headers.map(text).collect());
    }

    /// A request by HTTP: what its path says.
    async fn answer(
        self,
        request: HttpRequest<Incoming>,
    ) -> Result<HttpResponse<Full<Bytes>>, hyper::Error> {
        let headers = request.headers();
        let is_zipped = headers
            .get("content-encoding")
            .is_some_and(|how| how == "gzip");
        let is_protobuf = headers
            .get("content-type")
            .is_some_and(|what| what == "application/x-protobuf");
        self.note(
            headers
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_bytes())),
        );
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await?.to_bytes();
        let body = if is_zipped { unzipped(&body) } else { body };
        assert!(is_protobuf, "a body of another type");
        match path.as_str() {
            "/v1/traces" => self.take_traces(Message::decode(body).unwrap()),
            "/v1/logs" => self.take_logs(Message::decode(body).unwrap()),
            "/v1/metrics" => self.take_metrics(Message::decode(body).unwrap()),
            other => panic!("nothing is at {other}"),
        }
        Ok(HttpResponse::new(Full::default()))
    }

    fn note_grpc<T>(&self, request: &Request<T>) {
        let headers = request.metadata().as_ref();
        self.note(
            headers
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_bytes())),
        );
    }
}

fn unzipped(bytes: &[u8]) -> Bytes {
    use std::io::Read;
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes)
        .read_to_end(&mut plain)
        .unwrap();
    plain.into()
}

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.note_grpc(&request);
        self.take_traces(request.into_inner());
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl LogsService for Service {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.note_grpc(&request);
        self.take_logs(request.into_inner());
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Service {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.note_grpc(&request);
        self.take_metrics(request.into_inner());
        Ok(Response::new(Default::default()))
    }
}

/// Attributes as text.
pub(crate) fn words(attributes: &[KeyValue]) -> Attributes {
    let pair = |one: &KeyValue| (one.key.clone(), word(one.value.as_ref()));
    attributes.iter().map(pair).collect()
}

/// A value as text.
pub(crate) fn word(value: Option<&Any>) -> String {
    match value.and_then(|any| any.value.as_ref()) {
        Some(AnyValue::StringValue(text)) => text.clone(),
        Some(AnyValue::IntValue(number)) => number.to_string(),
        Some(AnyValue::BoolValue(yes)) => yes.to_string(),
        other => format!("{other:?}"),
    }
}

/// What `env` needs so that a daemon has these variables, beside those that make tests fast.
pub(crate) fn with_variables(variables: &[(&str, &str)]) -> &'static [&'static str] {
    let fast = [
        ("OTEL_BSP_SCHEDULE_DELAY", "20"),
        ("OTEL_BLRP_SCHEDULE_DELAY", "20"),
    ];
    let words = fast.iter().chain(variables);
    let words = words.map(|(name, value)| &*format!("{name}={value}").leak());
    let words: Vec<&'static str> = std::iter::once("env").chain(words).collect();
    // A test's, and as long as the test runs.
    words.leak()
}
