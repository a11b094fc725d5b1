//! Log levels that change while the daemon runs: a filter for all records, and for single pools a level
//! in its place. A record belongs to the pool on whose threads it is written.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::OnceLock;

use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata};
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::layer::Context;
use tracing_subscriber::{Layer, Registry, reload};

use super::context;
use super::repeats::REPEATS;
use ganger_config::is_log_filter;

/// Libraries that log more than an operator needs: lapin logs as errors what the source asks on purpose,
/// including bodies of messages; the others log each frame to a collector, even when that frame is full
/// of such records. We log the important part ourselves.
const TALKATIVE: [&str; 6] = [
    "lapin",
    "h2",
    "hyper_util",
    "tonic",
    "tower",
    "opentelemetry",
];

/// Handle that changes the levels of the log.
static HANDLE: OnceLock<Handle> = OnceLock::new();

/// Handle that changes the levels of a log.
pub(super) type Handle = reload::Handle<Levels, Registry>;

/// Reason that a level is not changed.
#[derive(Debug, thiserror::Error)]
pub enum LevelError {
    /// The text is not a valid filter.
    #[error("the log level must be a level or a filter, such as `info,ganger_pool=debug`: `{0}`")]
    Filter(String),
    /// The text is not a valid level.
    #[error("the log level of a pool must be off, error, warn, info, debug or trace: `{0}`")]
    Level(String),
    /// No log has been started.
    #[error("there is no log, so its level can't be changed")]
    NoLog,
}

/// Current log levels.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
pub struct LogLevels {
    /// Filter for all records.
    pub filter: String,
    /// Levels of the pools that have one of their own.
    pub pools: BTreeMap<String, String>,
}

/// Sets the filter for the records kept from now on, except of pools with a level of their own.
///
/// # Errors
/// If the text is not a valid filter.
pub fn set_level(filter: &str) -> Result<(), LevelError> {
    let wrong = || LevelError::Filter(filter.to_owned());
    let all = match is_log_filter(filter) {
        true => self::filter(filter).map_err(|_| wrong())?,
        false => return Err(wrong()),
    };
    change(|levels| {
        levels.all = all;
        levels.text = filter.to_owned();
    })
}

/// Sets the level up to which records of that pool's threads are kept from now on, whatever the filter
/// for all says; without a level, the filter applies. A pool of that name need not exist yet.
///
/// # Errors
/// If the text is not a valid level.
pub fn set_pool_level(pool: &str, level: Option<&str>) -> Result<(), LevelError> {
    let read = |text: &str| {
        LevelFilter::from_str(text.trim()).map_err(|_| LevelError::Level(text.to_owned()))
    };
    let level = level.map(read).transpose()?;
    change(|levels| {
        match level {
            Some(level) => levels.pools.insert(pool.to_owned(), level),
            None => levels.pools.remove(pool),
        };
    })
}

/// Returns the current levels.
pub fn levels() -> LogLevels {
    let now = HANDLE.get().and_then(|handle| {
        let text = |(pool, level): (&String, &LevelFilter)| (pool.clone(), level.to_string());
        let told = |levels: &Levels| LogLevels {
            filter: levels.text.clone(),
            pools: levels.pools.iter().map(text).collect(),
        };
        handle.with_current(told).ok()
    });
    now.unwrap_or_default()
}

fn change(how: impl FnOnce(&mut Levels)) -> Result<(), LevelError> {
    let handle = HANDLE.get().ok_or(LevelError::NoLog)?;
    handle.modify(how).map_err(|_| LevelError::NoLog)
}

/// Makes the filter of the log, by which [`set_level`] changes it once [`keep`] was called.
pub(super) fn reloadable(
    text: &str,
) -> Result<(reload::Layer<Levels, Registry>, Handle), ParseError> {
    Ok(reload::Layer::new(Levels::new(text)?))
}

/// Registers the handle of the filter with which the log was started.
pub(super) fn keep(handle: Handle) {
    HANDLE.get_or_init(|| handle);
}

/// Returns the filter: the records asked for, and of talkative libraries only those asked for by name.
/// Before there was a crate for each part of the program, `ganger_pool` was `ganger::pool`, which
/// configurations may still name.
fn filter(text: &str) -> Result<Targets, ParseError> {
    let text = text.replace("ganger::", "ganger_");
    let silent = TALKATIVE.iter().filter(|name| !text.contains(*name));
    let silent = silent.fold(String::new(), |all, name| format!("{all},{name}=off"));
    format!("{text}{silent}").parse()
}

/// The filter for all records, and the levels of single pools.
#[derive(Debug)]
pub struct Levels {
    text: String,
    all: Targets,
    pools: BTreeMap<String, LevelFilter>,
}

impl Levels {
    pub(super) fn new(text: &str) -> Result<Self, ParseError> {
        Ok(Self {
            text: text.to_owned(),
            all: filter(text)?,
            pools: BTreeMap::new(),
        })
    }

    /// Returns the level of the current thread's pool, if it has one and it applies to that record.
    fn of_this_pool(&self, metadata: &Metadata<'_>) -> Option<LevelFilter> {
        if self.pools.is_empty() {
            return None;
        }
        let level = context::pool(|pool| self.pools.get(pool?).copied())?;
        let root = metadata.target().split("::").next().unwrap_or_default();
        (!TALKATIVE.contains(&root)).then_some(level)
    }
}

impl Layer<Registry> for Levels {
    fn enabled(&self, metadata: &Metadata<'_>, context: Context<'_, Registry>) -> bool {
        match self.of_this_pool(metadata) {
            Some(level) => *metadata.level() <= level,
            None => Layer::enabled(&self.all, metadata, context),
        }
    }

    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match self.pools.is_empty() {
            true => Layer::<Registry>::register_callsite(&self.all, metadata),
            // It depends on the thread.
            false => Interest::sometimes(),
        }
    }

    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, Registry>) -> bool {
        REPEATS.takes(event)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let all = Layer::<Registry>::max_level_hint(&self.all)?;
        self.pools.values().copied().chain([all]).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::logged_by;

    #[test]
    fn a_filter_from_before_there_were_crates_goes_on_to_work() {
        for level in ["info,ganger_pool=debug", "info,ganger::pool=debug"] {
            let text = logged_by(level, |_| {
                tracing::debug!(target: "ganger_pool::lane", "told");
                tracing::debug!(target: "ganger_queue::health", "not told");
            });
            assert_eq!(text.lines().count(), 1, "{level}: {text}");
        }
    }

    #[test]
    fn a_level_is_one_word_and_a_filter_is_a_filter() {
        assert!(matches!(set_level("info"), Err(LevelError::NoLog)));
        for wrong in [
            "[[[",
            "[span]=info",
            "debgu",
            "info,debgu",
            "ganger=loud",
            "",
        ] {
            assert!(
                matches!(set_level(wrong), Err(LevelError::Filter(_))),
                "{wrong}"
            );
        }
        let error = set_pool_level("p", Some("loud")).unwrap_err().to_string();
        assert!(error.ends_with("debug or trace: `loud`"), "{error}");
    }

    fn on_the_thread_of(pool: &str, work: impl FnOnce() + Send) {
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name(format!("pool-{pool}"));
            let work = || tracing::dispatcher::with_default(&dispatch, work);
            thread.spawn_scoped(scope, work).unwrap().join().unwrap();
        });
    }

    #[test]
    fn levels_change_while_records_are_written_for_all_or_for_a_pool() {
        let say = |n: u32| {
            tracing::debug!(n, "debug");
            tracing::info!(n, "info");
        };
        let text = logged_by("info", |handle| {
            on_the_thread_of("a", || say(1));
            let debug = |levels: &mut Levels| {
                levels.pools.insert("a".into(), LevelFilter::DEBUG);
                levels.pools.insert("b".into(), LevelFilter::WARN);
            };
            handle.modify(debug).unwrap();
            on_the_thread_of("a", || say(2));
            on_the_thread_of("b", || say(3));
            on_the_thread_of("c", || say(4));
            on_the_thread_of("a", || tracing::debug!(target: "lapin::channel", "5"));
            handle.modify(|levels| levels.pools.clear()).unwrap();
            on_the_thread_of("a", || say(6));
            handle
                .modify(|levels| levels.all = filter("debug").unwrap())
                .unwrap();
            on_the_thread_of("b", || say(7));
        });
        let said = |line: &str| line.split(": ").last().unwrap().to_owned();
        let said: Vec<String> = text.lines().map(said).collect();
        let expected = [
            "info n=1",
            "debug n=2",
            "info n=2",
            "info n=4",
            "info n=6",
            "debug n=7",
            "info n=7",
        ];
        assert_eq!(said, expected, "{text}");
    }

    #[test]
    fn the_most_that_any_pool_keeps_is_looked_at() {
        let mut levels = Levels::new("warn").unwrap();
        let hint = |levels: &Levels| levels.max_level_hint().unwrap();
        assert_eq!(hint(&levels), LevelFilter::WARN);
        levels.pools.insert("p".into(), LevelFilter::DEBUG);
        assert_eq!(hint(&levels), LevelFilter::DEBUG);
        levels.pools.insert("p".into(), LevelFilter::OFF);
        assert_eq!(hint(&levels), LevelFilter::WARN);
    }
}
