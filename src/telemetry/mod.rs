//! What the daemon shows of itself to the outside: so far its log.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::config::model::{Daemon, LogFormat};

/// The client library of RabbitMQ, which logs as errors what the source asks on purpose, bodies of
/// messages among it. What matters of it the source says itself.
const TALKATIVE: &str = "lapin";

/// Starts writing log records to stderr. Called once, before anything is logged.
///
/// # Errors
/// If the level is not one that tracing's `EnvFilter` understands.
pub fn start_log(daemon: &Daemon) -> Result<(), ParseError> {
    let filter = filter(&daemon.log_level)?;
    let terminal = std::io::stderr().is_terminal();
    let json = match daemon.log_format {
        LogFormat::Auto => !terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(terminal)
        .with_span_events(FmtSpan::NONE);
    // A second start, as tests in one process make it, keeps the first log.
    let started = if json {
        log.json().flatten_event(true).try_init()
    } else {
        log.try_init()
    };
    if let Err(error) = started {
        tracing::debug!(%error, "the log is being written already");
    }
    Ok(())
}

/// The records that are kept: those that are asked for, and of a talkative library none that are
/// not asked for by its name.
fn filter(level: &str) -> Result<EnvFilter, ParseError> {
    if level.contains(TALKATIVE) {
        return EnvFilter::try_new(level);
    }
    EnvFilter::try_new(format!("{level},{TALKATIVE}=off"))
}
