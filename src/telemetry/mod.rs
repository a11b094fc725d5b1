//! What the daemon shows of itself to the outside: so far its log.

mod writer;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal, Write};
use std::panic::{self, PanicHookInfo};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::config::model::{Daemon, LogFormat};
use writer::Writer;

/// The client library of RabbitMQ, which logs as errors what the source asks on purpose, bodies of
/// messages among it. What matters of it the source says itself.
const TALKATIVE: &str = "lapin";

/// How long the end of the program waits for stderr to take what was logged.
const LAST_RECORDS_WITHIN: Duration = Duration::from_secs(2);

/// Where records go.
static WRITER: OnceLock<Writer> = OnceLock::new();

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// `EnvFilter` does not understand the level.
    #[error(transparent)]
    Level(#[from] ParseError),
    /// The operating system gave no thread.
    #[error("no thread for the log: {0}")]
    Thread(#[from] io::Error),
}

/// The log. Dropped, it waits a moment until all is written.
#[derive(Debug)]
#[must_use]
pub struct Log(Writer);

impl Log {
    /// Writes a text among the records, as it is.
    pub fn print(&self, text: &str) {
        // It fails no more than a record does.
        drop(writeln!(&self.0, "{text}"));
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.finish(LAST_RECORDS_WITHIN);
    }
}

/// How many log records were dropped since the start, because stderr did not take them.
pub fn records_dropped() -> u64 {
    WRITER.get().map_or(0, Writer::dropped)
}

/// Starts writing log records to stderr, panics among them. Called once, before anything is logged.
/// Nothing that logs waits for stderr from then on.
///
/// # Errors
/// If the level is not one that tracing's `EnvFilter` understands, or there is no thread.
pub fn start_log(daemon: &Daemon) -> Result<Log, LogError> {
    let filter = filter(&daemon.log_level)?;
    let writer = Writer::default();
    let thread = {
        let writer = writer.clone();
        move || writer.run(io::stderr())
    };
    thread::Builder::new().name("log".into()).spawn(thread)?;
    let terminal = io::stderr().is_terminal();
    let json = match daemon.log_format {
        LogFormat::Auto => !terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer.clone())
        // It would tell stderr of it, wait for that or panic.
        .log_internal_errors(false)
        .with_ansi(terminal)
        .with_span_events(FmtSpan::NONE);
    let started = if json {
        log.json().flatten_event(true).try_init()
    } else {
        log.try_init()
    };
    match started {
        Ok(()) => {
            panic::set_hook(Box::new(log_panic));
            WRITER.get_or_init(|| writer.clone());
        }
        // A second start, as tests in one process make it, keeps the first log.
        Err(error) => tracing::debug!(%error, "the log is being written already"),
    }
    Ok(Log(writer))
}

/// A panic's usual way is straight to stderr, waiting for it.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let backtrace = Backtrace::capture();
    tracing::error!(
        thread = thread::current().name(),
        backtrace =
            (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string()),
        "{panic}"
    );
}

/// The records that are kept: those that are asked for, and of a talkative library none that are
/// not asked for by its name.
fn filter(level: &str) -> Result<EnvFilter, ParseError> {
    if level.contains(TALKATIVE) {
        return EnvFilter::try_new(level);
    }
    EnvFilter::try_new(format!("{level},{TALKATIVE}=off"))
}
