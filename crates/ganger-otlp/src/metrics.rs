//! Metrics for a collector: all of them at each interval, as their producer reports them.

use std::sync::OnceLock;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use tokio::sync::watch;

use super::records::{Resource, scope};
use super::sender::Sender;
use super::sending::{Health, Route, bounded};
use super::settings::Settings;

/// Returns all metrics at this moment, without waiting.
pub(crate) type Gather = Box<dyn Fn() -> Vec<Metric> + Send + Sync>;

/// The producer of metrics, once there is one.
static GATHER: OnceLock<Gather> = OnceLock::new();

/// Enables the export of metrics, if a collector wants them.
pub fn send_metrics(gather: Gather) {
    GATHER.get_or_init(|| gather);
}

/// Sends the metrics at each interval, and once more at the end.
pub(super) async fn send_all(
    sender: &Sender,
    route: Route<'_>,
    settings: &Settings,
    resource: &Resource,
    mut closing: watch::Receiver<bool>,
) {
    let mut health = Health::default();
    let mut is_over = false;
    while !is_over {
        tokio::select! {
            biased;
            // A dropped sender means the end, too.
            _ = closing.wait_for(|closing| *closing) => is_over = true,
            () = tokio::time::sleep(settings.metrics_interval) => {}
        }
        let Some(gather) = GATHER.get() else { continue };
        let sent = sender.send(request(resource, gather()));
        let result = bounded(settings.metrics_timeout, sent).await;
        health.record_result(route, &result);
    }
}

fn request(resource: &Resource, metrics: Vec<Metric>) -> ExportMetricsServiceRequest {
    let metrics = ScopeMetrics {
        scope: Some(scope()),
        metrics,
        ..ScopeMetrics::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource.clone()),
            scope_metrics: vec![metrics],
            ..ResourceMetrics::default()
        }],
    }
}
