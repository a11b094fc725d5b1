//! Metrics of the alerts sent, if there are any.

use super::family::{Family, Sample};
use ganger_pool::overview::{AlertsStatus, Status, WebhookStatus};

/// Returns the metrics of the alerts' results.
pub(super) fn families(status: &Status) -> Vec<Family> {
    let alerts = status.alerts.as_ref();
    let one =
        |count: fn(&AlertsStatus) -> u64| alerts.map(|alerts| Sample::count(vec![], count(alerts)));
    let firing = alerts.into_iter().flat_map(|alerts| &alerts.firing);
    let of_kind =
        |(kind, count): (&String, &u64)| Sample::count(vec![("kind", kind.clone())], *count);
    let silenced = alerts.into_iter().flat_map(|alerts| {
        let of_kind = |kind: &String| {
            let active = alerts.active.iter();
            let silenced = active.filter(|alert| alert.kind == *kind && alert.silenced.is_some());
            Sample::count(vec![("kind", kind.clone())], silenced.count() as u64)
        };
        alerts.firing.keys().map(of_kind)
    });
    let webhooks = alerts.into_iter().flat_map(|alerts| &alerts.webhooks);
    let failing = |webhook: &WebhookStatus| {
        let labels = vec![("webhook", webhook.name.clone())];
        Sample::count(labels, u64::from(webhook.problem.is_some()))
    };
    vec![
        Family::gauge("ganger_alerts_firing", "Active alerts, by kind.").of(firing.map(of_kind)),
        Family::gauge(
            "ganger_alerts_silenced",
            "Active alerts of which webhooks are not told, by kind.",
        )
        .of(silenced),
        Family::counter(
            "ganger_alerts_sent_total",
            "Messages that the webhooks have accepted.",
        )
        .of(one(|alerts| alerts.sent)),
        Family::counter(
            "ganger_alerts_failed_total",
            "Failed attempts to send a message to a webhook.",
        )
        .of(one(|alerts| alerts.failed)),
        Family::gauge(
            "ganger_alerts_webhook_failing",
            "1 if the last message to the webhook failed, otherwise 0.",
        )
        .of(webhooks.map(failing)),
    ]
}
