//! The look at a worker that hangs.

use std::time::Duration;

/// `on_timeout`: a program that looks at a worker before it is killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Autopsy {
    /// The program and its arguments, in which `{pid}` stands for the worker's process.
    pub command: Vec<String>,
    /// How long it may take.
    pub within: Duration,
}
