//! Requests to the daemon, by signals and by the API, and the outcome of reloads.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::status::unix_seconds;
use ganger_config::changed::ChangedKeys;
use ganger_config::model::Config;

/// Outcome of a reload: what it has changed, or why it was refused.
pub type Reloaded = Result<ReloadStatus, String>;

/// What the daemon may be asked.
#[derive(Debug)]
pub enum Request {
    /// Finish what is in hand and end; asked again, go on to the next phase at once.
    Stop,
    /// Become what this configuration says, and tell whoever wants to know.
    Reload(Box<Config>, Option<oneshot::Sender<Reloaded>>),
    /// Write how things stand to the log.
    LogStatus,
    /// Replace all workers one by one.
    Roll,
}

/// The last reload of the configuration. Before the first one it is the start, which succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct ReloadStatus {
    /// Number of reloads carried out since the start. A pool whose `reload` is as high runs by it.
    pub number: u64,
    /// Number of reloads refused since the start.
    pub refused: u64,
    /// True if the last one was carried out. A refused one changes nothing.
    pub successful: bool,
    /// Time of the last one, in seconds since 1970.
    #[serde(with = "unix_seconds")]
    #[schema(value_type = f64, default = 0.0)]
    pub at: SystemTime,
    /// Time of the last one that was carried out, in seconds since 1970.
    #[serde(with = "unix_seconds")]
    #[schema(value_type = f64, default = 0.0)]
    pub succeeded_at: SystemTime,
    /// Reasons for which the last one was refused, a sentence each.
    pub problems: Vec<String>,
    /// Keys that the last one that was carried out has changed.
    pub keys: ChangedKeys,
}

impl ReloadStatus {
    /// The start at that time.
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

    /// Reasons for which the last one was refused, in one line; none if it was carried out.
    pub fn refusal(&self) -> Option<String> {
        (!self.successful).then(|| self.problems.join("; "))
    }
}

impl Default for ReloadStatus {
    /// Returns that of a daemon which does not tell it.
    fn default() -> Self {
        Self::start(SystemTime::UNIX_EPOCH)
    }
}
