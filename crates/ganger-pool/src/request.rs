//! Requests to the daemon, by signals and by the API, and the outcome of reloads.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::status::unix_seconds;
use ganger_config::changed::ChangedKeys;
use ganger_config::model::Config;

/// Outcome of a reload: its changes, or the reason for which it was refused.
pub type Reloaded = Result<ReloadStatus, String>;

/// A request to the daemon.
#[derive(Debug)]
pub enum Request {
    /// Finish the messages in hand and end; a second request moves on to the next phase at once.
    Stop,
    /// Apply this configuration, and send the outcome to the caller, if any.
    Reload(Box<Config>, Option<oneshot::Sender<Reloaded>>),
    /// Write the status to the log.
    LogStatus,
    /// Replace all workers one by one.
    Roll,
}

/// The last reload of the configuration. Before the first reload it is the start, which succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct ReloadStatus {
    /// Number of reloads carried out since the start. A pool whose `reload` is as high has applied
    /// it.
    pub number: u64,
    /// Number of reloads refused since the start.
    pub refused: u64,
    /// True if the last reload was carried out. A refused one changes nothing.
    pub successful: bool,
    /// Time of the last reload, in seconds since 1970.
    #[serde(with = "unix_seconds")]
    #[schema(value_type = f64, default = 0.0)]
    pub at: SystemTime,
    /// Time of the last reload that was carried out, in seconds since 1970.
    #[serde(with = "unix_seconds")]
    #[schema(value_type = f64, default = 0.0)]
    pub succeeded_at: SystemTime,
    /// Reasons for which the last reload was refused, a sentence each.
    pub problems: Vec<String>,
    /// Keys changed by the last reload that was carried out.
    pub keys: ChangedKeys,
}

impl ReloadStatus {
    /// Returns the start at that time.
    pub fn start(at: SystemTime) -> Self {
        Self {
            number: 0,
            refused: 0,
            successful: true,
            at,
            succeeded_at: at,
            problems: Vec::new(),
            keys: ChangedKeys::default(),
        }
    }

    /// Returns the reasons for which the last reload was refused, in one line; `None` if it was
    /// carried out.
    pub fn refusal(&self) -> Option<String> {
        (!self.successful).then(|| self.problems.join("; "))
    }
}

impl Default for ReloadStatus {
    /// Returns the reload of a daemon that does not report it.
    fn default() -> Self {
        Self::start(SystemTime::UNIX_EPOCH)
    }
}
