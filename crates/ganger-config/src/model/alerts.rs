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
    /// More dead letters of a pool within the window are an alert; none for however many.
    pub dead_letters: Option<u64>,
    /// As many crashes of a pool's workers within the window are an alert; none for however many.
    pub crashes: Option<u64>,
    /// A message that waits longer in its queue is an alert; none for however long.
    pub waiting: Option<Duration>,
    /// The time that dead letters and crashes are counted over.
    pub window: Duration,
    /// A pool that an operator keeps from taking messages in for so long is an alert; none for however
    /// long.
    pub paused: Option<Duration>,
    /// How long something must be wrong before it is told, and right before that is.
    pub hold: Duration,
    /// How often what goes on is told again; none for once.
    pub repeat: Option<Duration>,
}

/// A webhook: `[alerts]` itself, or one of `[[alerts.webhooks]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct WebhookConfig {
    /// Its name in the log, the status and metrics.
    pub name: String,
    /// The URL that alerts are sent to. Who knows it may send to it.
    pub webhook: Secret,
    /// Form of the messages.
    pub form: AlertForm,
    /// Headers of each request, by lower-case names.
    pub headers: BTreeMap<String, Secret>,
    /// The secret that each request is signed with; none for no signature.
    pub signing_secret: Option<Secret>,
    /// PagerDuty's integration key; always there for its form.
    pub integration_key: Option<Secret>,
    /// PEM: the authorities that may have signed the webhook's certificate; none for the system's.
    pub ca_file: Option<PathBuf>,
    /// How long the webhook may take to answer.
    pub timeout: Duration,
}

/// `alerts.form`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertForm {
    /// A JSON object with all that is known.
    Json,
    /// What Slack, and who takes the same, shows to people.
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

    /// The word for it in the configuration.
    pub fn as_str(self) -> &'static str {
        let mut all = Self::ALL.into_iter();
        all.find(|(_, form)| *form == self)
            .map_or("json", |(word, _)| word)
    }
}
