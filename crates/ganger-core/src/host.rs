//! The machine.

use std::fs;

/// Returns the name of the host, for people to read; no decision depends on it.
pub fn name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}
