//! What the daemon may be asked from outside, by signals and by the API.

use tokio::sync::oneshot;

use crate::config::model::Config;

/// What has become of a reload: how many changes there were, or why it was refused.
pub type Reloaded = Result<usize, String>;

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
