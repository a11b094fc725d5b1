//! What the daemon shows of itself to the outside: so far its log.

mod writer;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal, Write};
use std::panic::{self, PanicHookInfo};
use std::sync::OnceLock;
use std::time::Duration;
use std::{fmt, thread};

use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{self, FmtSpan, debug_fn};

use crate::config::model::{DaemonConfig, LogFormat};
use crate::foreign;
use crate::foreign::Line;
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
pub fn start_log(daemon: &DaemonConfig) -> Result<Log, LogError> {
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
        .with_writer(Pen {
            writer: writer.clone(),
            spells_out: json && terminal,
        })
        // It would tell stderr of it, wait for that or panic.
        .log_internal_errors(false)
        .with_ansi(terminal)
        .with_span_events(FmtSpan::NONE);
    let started = if json {
        log.json().flatten_event(true).try_init()
    } else {
        log.fmt_fields(debug_fn(field).delimited(" ")).try_init()
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

/// Writes a field of a record as text. Much of what is logged others wrote, and a record is a line.
fn field(out: &mut format::Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    if field.name() != "message" {
        let [italic, dimmed, plain] = match out.has_ansi_escapes() {
            true => ["\u{1b}[3m", "\u{1b}[2m", "\u{1b}[0m"],
            false => [""; 3],
        };
        write!(out, "{italic}{}{plain}{dimmed}={plain}", field.name())?;
    }
    fmt::Write::write_fmt(&mut Line(out), format_args!("{value:?}"))
}

/// Gives records to the writer.
struct Pen {
    writer: Writer,
    /// They are JSON, and a terminal would obey some of what JSON need not spell out.
    spells_out: bool,
}

impl<'a> MakeWriter<'a> for Pen {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl Write for &Pen {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let shown = match str::from_utf8(record) {
            Ok(text) if self.spells_out => foreign::json(text),
            Ok(_) | Err(_) => return (&self.writer).write(record),
        };
        (&self.writer).write_all(shown.as_bytes())?;
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        (&self.writer).flush()
    }
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

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What a log of this level takes of some records, as text without colours.
    pub(crate) fn logged(level: &str, records: impl FnOnce()) -> String {
        #[derive(Clone, Default)]
        struct Page(Arc<Mutex<Vec<u8>>>);
        impl Write for Page {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let page = Page::default();
        let writer = page.clone();
        let log = tracing_subscriber::fmt()
            .with_env_filter(filter(level).unwrap())
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .without_time()
            .fmt_fields(debug_fn(field).delimited(" "))
            .finish();
        tracing::subscriber::with_default(log, records);
        let bytes = page.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

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
            " WARN ganger::telemetry::tests: message n=1 text=\"b\"\n"
        );
    }

    /// Each message that comes back is worth a warning to the library, with all that it says.
    #[test]
    fn the_library_of_rabbitmq_is_silent_unless_it_is_asked() {
        let returned = || {
            for _ in 0..1000 {
                tracing::warn!(target: "lapin::returned_messages", "Server returned us a message");
            }
        };
        for level in ["info", "trace", "ganger=debug", "warn,ganger=trace"] {
            assert_eq!(logged(level, returned), "", "{level}");
        }
        assert_eq!(logged("info,lapin=warn", returned).lines().count(), 1000);
    }
}
