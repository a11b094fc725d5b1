//! Everything known of an alert that a message about it can say. Plain data.

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
    /// Its process.
    pub(super) pid: u32,
}

impl Sender {
    /// This process.
    pub(super) fn this() -> Self {
        Self {
            host: host(),
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
        }
    }
}

/// Everything known of an alert when a message about it is made.
#[derive(Debug)]
pub(super) struct Notice<'a> {
    /// The same whenever it is about the same, so that a daemon that starts again goes on with it.
    pub(super) id: String,
    /// The problem.
    pub(super) finding: &'a Finding,
    /// Sentence for people: the problem, or its end.
    pub(super) summary: String,
    /// Beginning of the problem.
    pub(super) since: SystemTime,
    /// Time of the message, or of the end.
    pub(super) at: SystemTime,
    /// Reason of the end, if it is over.
    pub(super) ended: Option<&'static str>,
    /// Its sender.
    pub(super) sender: &'a Sender,
    /// PagerDuty's integration key.
    pub(super) integration_key: &'a str,
}

impl Notice<'_> {
    /// The word for whether it is over.
    pub(super) fn state(&self) -> &'static str {
        match self.ended {
            None => "firing",
            Some(_) => "resolved",
        }
    }

    /// The last error, of what goes on.
    pub(super) fn error(&self) -> Option<&str> {
        let error = self.finding.error.as_deref();
        error.filter(|_| self.ended.is_none())
    }

    /// At most so many of the last lines on stderr, of what goes on.
    pub(super) fn stderr(&self, lines_max: usize) -> &[String] {
        let lines = match self.ended {
            None => self.finding.stderr.as_slice(),
            Some(_) => &[],
        };
        &lines[lines.len().saturating_sub(lines_max)..]
    }

    /// The command to run, of what goes on.
    pub(super) fn command(&self) -> Option<&str> {
        let command = self.finding.command.as_str();
        self.ended.is_none().then_some(command)
    }
}
