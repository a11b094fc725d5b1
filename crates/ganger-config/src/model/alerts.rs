//! Alerts: their rules and the webhooks that receive them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::secret::Secret;

/// `[alerts]`.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertsConfig {
    /// The webhooks: at least one, no two of one name.
    pub webhooks: Vec<WebhookConfig>,
    /// Number of dead letters of a pool within the window above which an alert begins; none for no limit.
    pub dead_letters: Option<u64>,
    /// Number of crashes of a pool's workers within the window at which an alert begins; none for no
    /// limit.
    pub crashes: Option<u64>,
    /// Time that a message may wait in its queue before an alert begins; none for no limit.
    pub waiting: Option<Duration>,
    /// Window over which dead letters and crashes are counted.
    pub window: Duration,
    /// Time that an operator may keep a pool paused before an alert begins; none for no limit.
    pub paused: Option<Duration>,
    /// Time that a condition must hold before the alert is sent, and must be gone before it is resolved.
    pub hold: Duration,
    /// Interval at which an ongoing alert is repeated; none for once.
    pub repeat: Option<Duration>,
}

/// A webhook: `[alerts]` itself, or one of `[[alerts.webhooks]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct WebhookConfig {
    /// Its name in the log, the status and metrics.
    pub name: String,
    /// URL that alerts are sent to. Whoever knows it may send to it.
    pub webhook: Secret,
    /// Form of the messages.
    pub form: AlertForm,
    /// Headers of each request, by lower-case name.
    pub headers: BTreeMap<String, Secret>,
    /// Secret that each request is signed with; none for no signature.
    pub signing_secret: Option<Secret>,
    /// PagerDuty's integration key; always set for its form.
    pub integration_key: Option<Secret>,
    /// PEM: the authorities that may have signed the webhook's certificate; none for the system's.
    pub ca_file: Option<PathBuf>,
    /// Timeout for the webhook's answer.
    pub timeout: Duration,
}

/// `alerts.form`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertForm {
    /// A JSON object with all details.
    Json,
    /// A message for Slack and services that accept the same form.
    Slack,
    /// A card for a workflow of Microsoft Teams.
    Teams,
    /// An event of PagerDuty's Events API v2.
    PagerDuty,
    /// Alerts as Prometheus posts them to Alertmanager's API v2.
    Alertmanager,
}

impl AlertForm {
    /// All forms with their words in the configuration.
    pub const ALL: [(&'static str, Self); 5] = [
        ("json", Self::Json),
        ("slack", Self::Slack),
        ("teams", Self::Teams),
        ("pagerduty", Self::PagerDuty),
        ("alertmanager", Self::Alertmanager),
    ];

    /// Returns its name in the configuration.
    pub fn as_str(self) -> &'static str {
        let mut all = Self::ALL.into_iter();
        all.find(|(_, form)| *form == self)
            .map_or("json", |(word, _)| word)
    }
}
