//! Export to an OpenTelemetry collector by `ganger-otlp`: wired up in one place, with a twin for builds
//! without it (`no_collector.rs`).

use ganger_admin::exposition::{self, process::Processes};
use ganger_config::Environment;
use ganger_config::model::TelemetryConfig;
use ganger_otlp::Otlp;
use ganger_pool::overview::Overview;
use ganger_telemetry::ExtraLayer;

use crate::otlp_metrics;

pub(crate) use ganger_otlp::exposed_collector;

/// Returns the layer that sends log records to the collector.
#[expect(clippy::unnecessary_wraps, reason = "its twin has none")]
pub(crate) fn layer() -> Option<ExtraLayer> {
    Some(ganger_otlp::layer())
}

/// Starts the export, if configured. On drop, the result waits a moment until everything is sent.
pub(crate) fn start(config: &TelemetryConfig, environment: &Environment) -> Option<Otlp> {
    ganger_otlp::start(config, environment)
}

/// Sends the metrics to a collector that wants them.
pub(crate) fn send_metrics(overview: Overview, with_seed_names: bool) {
    ganger_otlp::send_metrics(Box::new(move || {
        let status = overview.status();
        let processes = Processes::look(&status);
        let families = exposition::families(&status, &processes, with_seed_names);
        otlp_metrics::metrics(&families, status.started_at)
    }));
}
