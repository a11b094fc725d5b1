//! Contents of a message about an alert. Plain data.

use std::time::SystemTime;

use serde::Serialize;

use super::alert::Finding;
use ganger_https::host;

/// Sender of a message.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Sender {
    /// The machine's name.
    pub(super) host: String,
    /// The daemon's version.
    pub(super) version: &'static str,
    /// Its process id.
    pub(super) pid: u32,
    /// URL at which people reach it, if that is known.
    #[serde(skip)]
    pub(super) url: Option<String>,
}

impl Sender {
    /// Returns this process as the sender.
    pub(super) fn this() -> Self {
        Self {
            host: host(),
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            url: None,
        }
    }
}

/// Everything known of an alert when a message about it is made.
#[derive(Debug)]
pub(super) struct Notice<'a> {
    /// Identity: the same for the same problem, so that a daemon that restarts continues it.
    pub(super) id: String,
    /// The problem.
    pub(super) finding: &'a Finding,
    /// Sentence for people: the problem, or its end.
    pub(super) summary: String,
    /// Beginning of the problem.
    pub(super) since: SystemTime,
    /// Time of the message, or of the end.
    pub(super) at: SystemTime,
    /// Reason of the end, if it is resolved.
    pub(super) ended: Option<&'static str>,
    /// Its sender.
    pub(super) sender: &'a Sender,
    /// Page of the dashboard about its subject; none if it is resolved, or if the URL of the daemon is not configured.
    pub(super) url: Option<String>,
    /// Integration key of PagerDuty.
    pub(super) integration_key: &'a str,
}

impl Notice<'_> {
    /// Returns the word for the state, firing or resolved.
    pub(super) fn state(&self) -> &'static str {
        match self.ended {
            None => "firing",
            Some(_) => "resolved",
        }
    }

    /// Returns the last error, of an ongoing alert.
    pub(super) fn error(&self) -> Option<&str> {
        let error = self.finding.error.as_deref();
        error.filter(|_| self.ended.is_none())
    }

    /// Returns at most `lines_max` of the last lines on stderr, of an ongoing alert.
    pub(super) fn stderr(&self, lines_max: usize) -> &[String] {
        let lines = match self.ended {
            None => self.finding.stderr.as_slice(),
            Some(_) => &[],
        };
        &lines[lines.len().saturating_sub(lines_max)..]
    }

    /// Returns the command to run, of an ongoing alert.
    pub(super) fn command(&self) -> Option<&str> {
        let command = self.finding.command.as_str();
        self.ended.is_none().then_some(command)
    }
}
