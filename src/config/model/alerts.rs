//! Who is told when something is wrong, and when that is so.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::secret::Secret;

/// `[alerts]`.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertsConfig {
    /// The URL that alerts are sent to. Who knows it may send to it.
    pub webhook: Secret,
    /// What is sent there.
    pub form: AlertForm,
    /// PEM: the authorities that may have signed the webhook's certificate; none for the system's.
    pub ca_file: Option<PathBuf>,
    /// More dead letters of a pool within the window are an alert; none for however many.
    pub dead_letters: Option<u64>,
    /// As many crashes of a pool's workers within the window are an alert; none for however many.
    pub crashes: Option<u64>,
    /// A message that waits longer in its queue is an alert; none for however long.
    pub waiting: Option<Duration>,
    /// The time that dead letters and crashes are counted over.
    pub window: Duration,
    /// How long something must be wrong before it is told, and right before that is.
    pub hold: Duration,
    /// How often what goes on is told again; none for once.
    pub repeat: Option<Duration>,
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
}
