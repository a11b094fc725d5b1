//! Settings of the program to run, and terms of the daemon.

use std::collections::BTreeMap;
use std::time::Duration;

use ganger_core::names;

/// Default maximum length of a frame.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// Settings of the program that is run for each message.
#[derive(Debug)]
pub struct Settings {
    /// Program: a path, or a name looked up in `PATH`.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment that all programs share.
    pub env: BTreeMap<String, String>,
    /// Number of messages processed at once; at least one.
    pub concurrency: usize,
    /// Time from SIGTERM to SIGKILL for a program that is to be abandoned.
    pub grace: Duration,
}

/// Terms of the daemon.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// True if it speaks version 2.
    pub(super) version2: bool,
    /// Maximum length of a frame, either way.
    pub(super) frame_bytes_max: usize,
}

impl Terms {
    /// Reads the terms from this worker's environment.
    pub(super) fn of(env: &BTreeMap<String, String>) -> Self {
        let told = env.get(names::ENV_FRAME_BYTES_MAX);
        Self {
            version2: env.get(names::ENV_PROTOCOL).is_some_and(|it| it == "2"),
            frame_bytes_max: told
                .and_then(|bytes| bytes.parse().ok())
                .unwrap_or(FRAME_BYTES_MAX),
        }
    }
}
