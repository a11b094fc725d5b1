//! What is run, and for whom.

use std::collections::BTreeMap;
use std::time::Duration;

use ganger_core::names;

/// The longest frame there may be if nobody says.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// What is run for each message.
#[derive(Debug)]
pub struct Settings {
    /// The program: a path, or a name looked up in `PATH`.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// The environment that all have in common.
    pub env: BTreeMap<String, String>,
    /// How many messages are worked on at once; at least one.
    pub concurrency: usize,
    /// From SIGTERM to SIGKILL for one that is to be abandoned.
    pub grace: Duration,
}

/// What is known of the daemon.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// It speaks version 2.
    pub(super) version2: bool,
    /// The longest frame, either way.
    pub(super) frame_bytes_max: usize,
}

impl Terms {
    /// As this worker's environment says.
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
