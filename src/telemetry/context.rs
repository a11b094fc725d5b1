//! What a record belongs to though it does not say so: the pool on whose thread it is written, and
//! the span of the message that the thread is just about.

use std::cell::Cell;
use std::fmt::{self, Write};
use std::thread;

use crate::trace_context::SpanContext;

/// What the threads of a pool are called, before its name.
const THREADS: [&str; 3] = ["pool-", "source-", "spawner-"];

thread_local! {
    /// The pool that the thread works for, by its name.
    static POOL: Option<Box<str>> = {
        let thread = thread::current();
        let name = thread.name().unwrap_or_default();
        let pool = THREADS.iter().find_map(|prefix| name.strip_prefix(prefix));
        pool.map(Box::from)
    };
    static SPAN: Cell<Option<SpanContext>> = const { Cell::new(None) };
    /// What the record that is being written says of these itself.
    static SAID: Cell<Said> = const { Cell::new(Said { pool: false, span: false }) };
}

/// What a record says itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) pool: bool,
    pub(super) span: bool,
}

/// The pool on whose thread we are. None at the end of a thread.
pub(super) fn pool<T>(look: impl FnOnce(Option<&str>) -> Option<T>) -> Option<T> {
    POOL.try_with(|pool| look(pool.as_deref())).ok().flatten()
}

/// The span that the thread is about.
pub(super) fn span() -> Option<SpanContext> {
    SPAN.try_with(Cell::get).ok().flatten()
}

/// Until it is dropped, what the thread writes is about that span.
pub fn about(span: Option<SpanContext>) -> About {
    About(SPAN.replace(span))
}

/// What the thread was about before.
#[derive(Debug)]
#[must_use]
pub struct About(Option<SpanContext>);

impl Drop for About {
    fn drop(&mut self) {
        SPAN.set(self.0);
    }
}

/// The record that is written next on this thread says so much itself.
pub(super) fn says(said: Said) {
    // At the end of a thread something may be said twice.
    SAID.try_with(|all| all.set(said)).unwrap_or_default();
}

/// Adds what the record does not say itself, before its end.
pub(super) fn complete(record: &str, is_json: bool) -> Option<String> {
    let said = SAID.try_with(Cell::get).unwrap_or_default();
    let pool = match said.pool {
        true => None,
        false => pool(|pool| Some(pool?.to_owned())),
    };
    let span = span().filter(|_| !said.span);
    if pool.is_none() && span.is_none() {
        return None;
    }
    let end = if is_json { "}\n" } else { "\n" };
    let mut whole = record.strip_suffix(end)?.to_owned();
    whole.reserve(128);
    add(&mut whole, pool.as_deref(), span, is_json).ok()?;
    whole.push_str(end);
    Some(whole)
}

/// Names of pools and numbers of spans need no escaping.
fn add(
    whole: &mut String,
    pool: Option<&str>,
    span: Option<SpanContext>,
    is_json: bool,
) -> fmt::Result {
    let parent = span.map(|span| span.write());
    let ids = parent.as_ref().map(|parent| parent.ids());
    let fields = [
        ("pool", pool),
        ("trace_id", ids.map(|(trace_id, _)| trace_id)),
        ("span_id", ids.map(|(_, span_id)| span_id)),
    ];
    for (name, value) in fields {
        let Some(value) = value else { continue };
        match is_json {
            true => write!(whole, ",\"{name}\":\"{value}\"")?,
            false => write!(whole, " {name}=\"{value}\"")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_a_thread(name: &str, work: impl FnOnce() + Send) {
        thread::scope(|scope| {
            let thread = thread::Builder::new().name(name.into());
            thread.spawn_scoped(scope, work).unwrap().join().unwrap();
        });
    }

    #[test]
    fn a_record_is_completed_by_what_its_thread_is_about() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        on_a_thread("source-e-mail", || {
            says(Said::default());
            let whole = complete("{\"message\":\"m\"}\n", true).unwrap();
            assert_eq!(whole, "{\"message\":\"m\",\"pool\":\"e-mail\"}\n");
            let about = about(SpanContext::parse(parent));
            says(Said {
                pool: true,
                span: false,
            });
            let whole = complete("INFO m\n", false).unwrap();
            assert_eq!(
                whole,
                "INFO m trace_id=\"0af7651916cd43dd8448eb211c80319c\" span_id=\"b7ad6b7169203331\"\n"
            );
            drop(about);
            assert_eq!(complete("INFO m\n", false), None);
        });
        on_a_thread("log", || {
            says(Said::default());
            assert_eq!(complete("{}\n", true), None);
        });
    }
}
