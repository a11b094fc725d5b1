//! Telemetry of the daemon: its log, its metrics and its traces.

pub mod capture;
pub mod context;
mod levels;
pub mod metrics;
pub mod queue;
mod repeats;
pub mod sampler;
pub mod traces;
mod writer;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal, Write};
use std::panic::{self, PanicHookInfo};
use std::sync::OnceLock;
use std::time::Duration;
use std::{fmt, thread};

use tokio::time::Instant;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{self, FmtSpan, debug_fn};
use tracing_subscriber::layer::{Layered, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

pub use context::{Fields, SpanGuard, WithFields, about, with_fields};
use ganger_config::model::{DaemonConfig, LogFormat};
use ganger_core::foreign;
use ganger_core::foreign::EscapedLine;
pub use levels::{LevelError, Levels, LogLevels, levels, set_level, set_pool_level};
use repeats::{REPEATS, WINDOW};
use writer::Writer;

/// Longest time that the end of the program waits for stderr to take the log.
const LAST_RECORDS_WITHIN: Duration = Duration::from_secs(2);

/// Writer of log records.
static WRITER: OnceLock<Writer> = OnceLock::new();

/// Reason that the log can't be started.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// `Targets` does not accept the level.
    #[error(transparent)]
    Level(#[from] ParseError),
    /// The operating system could not start a thread.
    #[error("spawning the log's thread failed: {0}")]
    Thread(#[from] io::Error),
}

/// The log. Dropping it waits a moment until all is written.
#[derive(Debug)]
#[must_use]
pub struct Log(Writer);

impl Log {
    /// Writes a text among the records, unchanged.
    pub fn print(&self, text: &str) {
        // Like that of a record, this write never fails.
        drop(writeln!(&self.0, "{text}"));
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // Counts that are reported at the end of their second would be reported too late.
        REPEATS.tell(Instant::now() + WINDOW);
        self.0.finish(LAST_RECORDS_WITHIN);
    }
}

/// Returns the number of log records dropped since the start because stderr did not take them.
pub fn records_dropped() -> u64 {
    WRITER.get().map_or(0, Writer::dropped)
}

/// Returns the number of log records left out since the start because too many with the same text were
/// written in one second.
pub fn records_left_out() -> u64 {
    REPEATS.left_out()
}

/// A further receiver of log records.
pub type ExtraLayer = Box<dyn Layer<LevelLayered> + Send + Sync>;

/// The records that pass the levels.
pub type LevelLayered = Layered<reload::Layer<Levels, Registry>, Registry>;

/// Starts writing log records, including panics, to stderr, and passing them to `also`. Called once,
/// before anything is logged. From then on nothing that logs waits for stderr.
///
/// # Errors
/// If the level is not one that tracing's `Targets` accepts, or no thread can be started.
pub fn start_log(daemon: &DaemonConfig, also: Option<ExtraLayer>) -> Result<Log, LogError> {
    let (levels, handle) = levels::reloadable(&daemon.log_level)?;
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
    let log = tracing_subscriber::fmt::layer()
        .with_writer(RecordWriter {
            writer: writer.clone(),
            is_json: json,
        })
        // It would report the error to stderr, and wait for that or panic.
        .log_internal_errors(false)
        .with_ansi(terminal)
        .with_span_events(FmtSpan::NONE);
    let kept = tracing_subscriber::registry().with(levels).with(also);
    let started = if json {
        kept.with(log.json().flatten_event(true)).try_init()
    } else {
        kept.with(log.fmt_fields(debug_fn(field).delimited(" ")))
            .try_init()
    };
    match started {
        Ok(()) => {
            panic::set_hook(Box::new(log_panic));
            WRITER.get_or_init(|| writer.clone());
            levels::keep(handle);
        }
        // A second start, as tests in one process make it, keeps the first log.
        Err(error) => tracing::debug!(%error, "the log has already been started"),
    }
    Ok(Log(writer))
}

/// Writes a field of a record as text on one line: much of it comes from others.
pub(crate) fn field(
    out: &mut format::Writer<'_>,
    field: &Field,
    value: &dyn fmt::Debug,
) -> fmt::Result {
    if field.name() != "message" {
        let [italic, dimmed, plain] = match out.has_ansi_escapes() {
            true => ["\u{1b}[3m", "\u{1b}[2m", "\u{1b}[0m"],
            false => [""; 3],
        };
        write!(out, "{italic}{}{plain}{dimmed}={plain}", field.name())?;
    }
    fmt::Write::write_fmt(&mut EscapedLine(out), format_args!("{value:?}"))
}

/// Passes records to the writer.
struct RecordWriter {
    writer: Writer,
    is_json: bool,
}

impl<'a> MakeWriter<'a> for RecordWriter {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl Write for &RecordWriter {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let Ok(text) = str::from_utf8(record) else {
            return (&self.writer).write(record);
        };
        let whole = context::complete(text, self.is_json);
        let whole = whole.as_deref().unwrap_or(text);
        // Terminals obey some characters that JSON need not escape, wherever the log is read in the end.
        match self.is_json {
            true => (&self.writer).write_all(foreign::json(whole).as_bytes())?,
            false => (&self.writer).write_all(whole.as_bytes())?,
        }
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        (&self.writer).flush()
    }
}

/// Logs a panic. By default it would go straight to stderr and wait for it.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let backtrace = Backtrace::capture();
    tracing::error!(
        thread = thread::current().name(),
        backtrace =
            (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string()),
        "{panic}"
    );
}

#[cfg(test)]
mod tests {
    use crate::capture::logged;

    #[test]
    fn a_record_is_a_line_whatever_others_wrote() {
        let text = logged("info", || {
            let forged = "a\n ERROR ganger: forged\r\u{1b}[2J\u{9b}m\u{202e}";
            tracing::warn!(problem = %forged, quoted = forged, "{forged}");
        });
        let clean = |c: char| (c == '\n' || !c.is_control()) && c != '\u{202e}';
        assert!(text.chars().all(clean), "{text:?}");
        assert_eq!(text.lines().count(), 1, "{text:?}");
        let plain = logged("info", || tracing::warn!(n = 1, text = "b", "message"));
        assert_eq!(
            plain,
            " WARN ganger_telemetry::tests: message n=1 text=\"b\"\n"
        );
    }

    /// The library logs each returned message as a warning, with all its content.
    #[test]
    fn the_library_of_rabbitmq_is_silent_unless_it_is_asked() {
        let returned = || {
            for _ in 0..1000 {
                tracing::debug!(target: "lapin::returned_messages", "Server returned us a message");
            }
        };
        for level in ["info", "trace", "ganger=debug", "warn,ganger=trace"] {
            assert_eq!(logged(level, returned), "", "{level}");
        }
        assert_eq!(logged("info,lapin=debug", returned).lines().count(), 1000);
    }
}
