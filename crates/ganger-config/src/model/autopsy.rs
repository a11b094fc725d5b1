//! The inspection of a worker that hangs.

use std::time::Duration;

/// `on_timeout`: a program that inspects a worker before it is killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Autopsy {
    /// The program and its arguments; `{pid}` stands for the worker's process.
    pub command: Vec<String>,
    /// Timeout of the program.
    pub within: Duration,
}
