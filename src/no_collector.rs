//! Replaces `collector.rs` in a build without OpenTelemetry.

use ganger_config::Environment;
use ganger_config::model::TelemetryConfig;
use ganger_pool::overview::Overview;
use ganger_telemetry::ExtraLayer;

pub(crate) fn exposed_collector(_: &TelemetryConfig, _: &Environment) -> Option<String> {
    None
}

pub(crate) fn layer() -> Option<ExtraLayer> {
    None
}

pub(crate) fn start(_: &TelemetryConfig, _: &Environment) -> Option<()> {
    None
}

pub(crate) fn send_metrics(_: Overview, _: bool) {}
