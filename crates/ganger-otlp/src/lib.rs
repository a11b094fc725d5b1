//! Sending to an OpenTelemetry collector, by gRPC or HTTP: on a thread of its own with a runtime of
//! its own, so that no collector, however slow, is felt by a pool.

mod error;
mod metrics;
mod records;
mod sender;
mod sending;
mod settings;
mod spans;
mod transport;

use std::io;
use std::sync::mpsc;
use std::time::Duration;

use opentelemetry::{KeyValue, Value};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_sdk::Resource;
use tokio::runtime;
use tokio::sync::watch;

use error::OtlpError;
use ganger_config::Environment;
use ganger_config::model::TelemetryConfig;
use ganger_https::{host, shown};
use ganger_telemetry::queue::Queue;
use ganger_telemetry::traces::Span;
use ganger_telemetry::{ExtraLayer, traces};
use sender::Sender;
use sending::{Route, send_all};
use settings::{Batching, Endpoint, Settings};

/// Longest time that the end of the program waits for the collector to take what is left.
const LAST_BATCHES_WITHIN: Duration = Duration::from_secs(5);

pub use metrics::send_metrics;

/// The export. Dropping it waits a moment until all is sent.
#[derive(Debug)]
#[must_use]
pub struct Otlp {
    closing: watch::Sender<bool>,
    ended: mpsc::Receiver<()>,
}

impl Drop for Otlp {
    fn drop(&mut self) {
        self.closing.send_replace(true);
        if self.ended.recv_timeout(LAST_BATCHES_WITHIN) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!(
                "the OTLP collector did not accept the last records within {LAST_BATCHES_WITHIN:?}"
            );
        }
    }
}

/// Queues and settings of the signals, for the export thread. The queues live as long as the daemon.
struct Signals {
    settings: Settings,
    spans: &'static Queue<Span>,
    records: &'static Queue<LogRecord>,
}

/// Exporter of each signal in use.
struct Exporters {
    spans: Option<SpanExporter>,
    records: Option<Sender>,
    metrics: Option<Sender>,
}

/// Returns the layer that passes log records to the collector, for
/// [`start_log`](ganger_telemetry::start_log).
pub fn layer() -> ExtraLayer {
    Box::new(records::Bridge)
}

/// Starts the export to an OpenTelemetry collector, if the configuration and the environment ask for it.
/// Called once, after the log has begun. An error is logged, and the daemon runs without the export.
pub fn start(config: &TelemetryConfig, environment: &Environment) -> Option<Otlp> {
    let (settings, problems) = settings::read(&config.otlp, environment);
    for problem in problems {
        tracing::warn!(problem, "an invalid setting of OpenTelemetry is ignored");
    }
    let started = begin(settings?);
    started
        .inspect_err(
            |error| tracing::error!(%error, "starting the export to the OTLP collector failed"),
        )
        .ok()
}

/// Returns the host of the collector to which secrets are sent unencrypted over a network, if there is one.
pub fn exposed_collector(config: &TelemetryConfig, environment: &Environment) -> Option<String> {
    let (settings, _) = settings::read(&config.otlp, environment);
    settings?.exposed_host()
}

/// Starts the export. Called once.
fn begin(settings: Settings) -> Result<Otlp, OtlpError> {
    let signals = Signals {
        spans: queue(settings.spans),
        records: queue(settings.records),
        settings,
    };
    let (spans, records) = (signals.spans, signals.records);
    let sampler = signals
        .settings
        .traces
        .is_some()
        .then_some(signals.settings.sampler);
    let sends_records = signals.settings.logs.is_some();
    let otlp = signals.start()?;
    if let Some(sampler) = sampler {
        traces::record(sampler, spans);
    }
    if sends_records {
        records::record(records);
    }
    Ok(otlp)
}

fn queue<T>(batching: Batching) -> &'static Queue<T> {
    Box::leak(Box::new(Queue::new(batching.waiting_max, batching.batch)))
}

impl Signals {
    fn start(self) -> Result<Otlp, OtlpError> {
        let (closing, closed) = watch::channel(false);
        let (end, ended) = mpsc::sync_channel(1);
        let (ready, is_ready) = mpsc::sync_channel(1);
        let run = move || {
            self.run(&ready, closed);
            // Possibly nothing waits for it.
            end.send(()).unwrap_or_default();
        };
        std::thread::Builder::new().name("otlp".into()).spawn(run)?;
        match is_ready.recv() {
            Ok(Ok(())) => Ok(Otlp { closing, ended }),
            Ok(Err(error)) => Err(error),
            Err(mpsc::RecvError) => Err(io::Error::other("it has ended").into()),
        }
    }

    /// Runs the export. The exporters need the runtime already when they are made.
    fn run(self, ready: &mpsc::SyncSender<Result<(), OtlpError>>, closed: watch::Receiver<bool>) {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(error.into()))),
        };
        runtime.block_on(async {
            let resource = resource();
            match self.exporters(&resource) {
                Ok(exporters) => {
                    drop(ready.send(Ok(())));
                    let resource = records::resource(&resource);
                    tokio::join!(
                        self.send_spans(exporters.spans, closed.clone()),
                        self.send_records(exporters.records, &resource, closed.clone()),
                        self.send_metrics(exporters.metrics, &resource, closed),
                    );
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        });
    }

    fn exporters(&self, resource: &Resource) -> Result<Exporters, OtlpError> {
        let spans = self.settings.traces.as_ref();
        let spans = spans.map(|endpoint| spans::exporter(endpoint, resource));
        let sender = |endpoint: &Option<Endpoint>| endpoint.as_ref().map(Sender::new).transpose();
        Ok(Exporters {
            spans: spans.transpose()?,
            records: sender(&self.settings.logs)?,
            metrics: sender(&self.settings.metrics)?,
        })
    }

    async fn send_spans(&self, exporter: Option<SpanExporter>, closed: watch::Receiver<bool>) {
        let (Some(exporter), Some(endpoint)) = (exporter, &self.settings.traces) else {
            return;
        };
        let to = shown(&endpoint.url);
        let route = Route {
            what: "spans",
            to: &to,
        };
        let send = async |batch| spans::send(&exporter, batch).await;
        send_all(route, self.spans, self.settings.spans, closed, send).await;
    }

    async fn send_records(
        &self,
        sender: Option<Sender>,
        resource: &records::Resource,
        closed: watch::Receiver<bool>,
    ) {
        let (Some(sender), Some(endpoint)) = (sender, &self.settings.logs) else {
            return;
        };
        let to = shown(&endpoint.url);
        let route = Route {
            what: "log records",
            to: &to,
        };
        let send = async |batch| sender.send(records::request(resource, batch)).await;
        send_all(route, self.records, self.settings.records, closed, send).await;
    }

    async fn send_metrics(
        &self,
        sender: Option<Sender>,
        resource: &records::Resource,
        closed: watch::Receiver<bool>,
    ) {
        let (Some(sender), Some(endpoint)) = (sender, &self.settings.metrics) else {
            return;
        };
        let to = shown(&endpoint.url);
        let route = Route {
            what: "metrics",
            to: &to,
        };
        metrics::send_all(&sender, route, &self.settings, resource, closed).await;
    }
}

/// Returns the resource attributes, unless `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` override
/// them.
fn resource() -> Resource {
    const UNNAMED: &str = "unknown_service";
    let told = Resource::builder().build();
    let of_ours = [
        ("service.name", Value::from("ganger")),
        ("service.version", env!("CARGO_PKG_VERSION").into()),
        (
            "service.instance.id",
            format!("{:032x}", fastrand::u128(..)).into(),
        ),
        ("host.name", host().into()),
        ("process.pid", i64::from(std::process::id()).into()),
    ];
    let mut all: Vec<KeyValue> = told
        .iter()
        .filter(|(name, value)| {
            name.as_str() != "service.name" || !value.as_str().starts_with(UNNAMED)
        })
        .map(|(name, value)| KeyValue::new(name.clone(), value.clone()))
        .collect();
    for (name, value) in of_ours {
        if !all.iter().any(|one| one.key.as_str() == name) {
            all.push(KeyValue::new(name, value));
        }
    }
    Resource::builder_empty().with_attributes(all).build()
}
