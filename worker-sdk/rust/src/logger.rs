//! The facade of the crate `log`, bridged to the daemon's log.

use log::kv::{Error, Key, Value as KvValue, VisitSource};
use log::{LevelFilter, Log, Metadata, Record, SetLoggerError};

use crate::{Level, Value, current};

/// A logger for the crate `log`: what is logged in a handler, on its own thread or in its own future,
/// becomes a record of its message in the daemon's log, with its keys and values as fields. The rest
/// goes to stderr, which the daemon logs too, or to a logger of yours.
///
/// ```
/// ganger_worker::Logger::new().install(log::LevelFilter::Info)?;
/// # Ok::<(), log::SetLoggerError>(())
/// ```
#[derive(Default)]
pub struct Logger {
    rest: Option<Box<dyn Log>>,
}

impl std::fmt::Debug for Logger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Logger").finish_non_exhaustive()
    }
}

impl Logger {
    /// A logger that gives to stderr what belongs to no message.
    pub fn new() -> Self {
        Self::default()
    }

    /// A logger that gives to another what belongs to no message.
    pub fn with_rest(rest: Box<dyn Log>) -> Self {
        Self { rest: Some(rest) }
    }

    /// Makes it the program's.
    ///
    /// # Errors
    /// If the program has one.
    pub fn install(self, most: LevelFilter) -> Result<(), SetLoggerError> {
        log::set_boxed_logger(Box::new(self))?;
        log::set_max_level(most);
        Ok(())
    }
}

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    #[expect(
        clippy::print_stderr,
        reason = "stderr is where logs go that belong to no message"
    )]
    fn log(&self, record: &Record<'_>) {
        let level = level_of(record.level());
        let mut fields = Fields(vec![("target".to_owned(), record.target().into())]);
        match (current::handle(), &self.rest) {
            (Some(handle), _) => {
                // What has no text is left out.
                record.key_values().visit(&mut fields).unwrap_or_default();
                handle.log(level, &record.args().to_string(), fields.0);
            }
            (None, Some(rest)) => rest.log(record),
            (None, None) => {
                record.key_values().visit(&mut fields).unwrap_or_default();
                let fields = fields
                    .0
                    .iter()
                    .map(|(name, value)| format!(" {name}={value}"));
                eprintln!("{level}: {}{}", record.args(), fields.collect::<String>());
            }
        }
    }

    fn flush(&self) {
        if let Some(rest) = &self.rest {
            rest.flush();
        }
    }
}

fn level_of(level: log::Level) -> Level {
    match level {
        log::Level::Error => Level::Error,
        log::Level::Warn => Level::Warn,
        log::Level::Info => Level::Info,
        log::Level::Debug => Level::Debug,
        log::Level::Trace => Level::Trace,
    }
}

struct Fields(Vec<(String, Value)>);

impl<'kvs> VisitSource<'kvs> for Fields {
    fn visit_pair(&mut self, key: Key<'kvs>, value: KvValue<'kvs>) -> Result<(), Error> {
        let name = match key.as_str() {
            // The record's own.
            "target" => "target_".to_owned(),
            other => other.to_owned(),
        };
        self.0.push((name, value.to_string().into()));
        Ok(())
    }
}
