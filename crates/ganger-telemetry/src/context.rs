//! Context of a log record that does not name it itself: the pool on whose thread it is written, and the
//! span of the message being worked on. Also fields from others, whose names tracing can't know.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Write};
use std::thread;

use serde_json::Value;

use ganger_core::foreign;
use ganger_core::trace_context::SpanContext;

/// Fields that a worker gives a record.
pub type Fields = serde_json::Map<String, Value>;

/// Prefixes of the names of a pool's threads.
const THREADS: [&str; 3] = ["pool-", "source-", "spawner-"];

thread_local! {
    /// Name of the pool that the thread works for.
    static POOL: Option<Box<str>> = {
        let thread = thread::current();
        let name = thread.name().unwrap_or_default();
        let pool = THREADS.iter().find_map(|prefix| name.strip_prefix(prefix));
        pool.map(Box::from)
    };
    static SPAN: Cell<Option<SpanContext>> = const { Cell::new(None) };
    static FIELDS: RefCell<Fields> = RefCell::default();
    /// Context that the record being written names itself.
    static SAID: Cell<NamedContext> = const { Cell::new(NamedContext { pool: false, span: false }) };
}

/// Context that a record names itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NamedContext {
    pub(super) pool: bool,
    pub(super) span: bool,
}

/// Passes the pool of the current thread to `look`. None at the end of a thread.
pub fn pool<T>(look: impl FnOnce(Option<&str>) -> Option<T>) -> Option<T> {
    POOL.try_with(|pool| look(pool.as_deref())).ok().flatten()
}

/// Returns the current span of the thread.
pub fn span() -> Option<SpanContext> {
    SPAN.try_with(Cell::get).ok().flatten()
}

/// Makes `span` the thread's current span until the result is dropped.
pub fn about(span: Option<SpanContext>) -> SpanGuard {
    SpanGuard(SPAN.replace(span))
}

/// The thread's previous span.
#[derive(Debug)]
#[must_use]
pub struct SpanGuard(Option<SpanContext>);

impl Drop for SpanGuard {
    fn drop(&mut self) {
        SPAN.set(self.0);
    }
}

/// Adds these fields to the thread's records until the result is dropped.
pub fn with_fields(fields: &Fields) -> WithFields {
    if !fields.is_empty() {
        FIELDS.set(fields.clone());
    }
    WithFields(!fields.is_empty())
}

/// Guard that keeps fields on the thread's records.
#[derive(Debug)]
#[must_use]
pub struct WithFields(bool);

impl Drop for WithFields {
    fn drop(&mut self) {
        if self.0 {
            FIELDS.set(Fields::new());
        }
    }
}

/// Passes the fields of the thread's records to `look`. None at the end of a thread.
pub fn fields<T>(look: impl FnOnce(&Fields) -> T) -> Option<T> {
    let looked = FIELDS.try_with(|fields| {
        let fields = fields.borrow();
        (!fields.is_empty()).then(|| look(&fields))
    });
    looked.ok().flatten()
}

/// Sets the context that the next record on this thread names itself.
pub(super) fn says(said: NamedContext) {
    // At the end of a thread something may be said twice.
    SAID.try_with(|all| all.set(said)).unwrap_or_default();
}

/// Returns the record with the context added that it does not name itself.
pub(super) fn complete(record: &str, is_json: bool) -> Option<String> {
    let said = SAID.try_with(Cell::get).unwrap_or_default();
    let pool = match said.pool {
        true => None,
        false => pool(|pool| Some(pool?.to_owned())),
    };
    let span = span().filter(|_| !said.span);
    let fields = fields(|fields| written(fields, is_json));
    if pool.is_none() && span.is_none() && fields.is_none() {
        return None;
    }
    let end = if is_json { "}\n" } else { "\n" };
    let mut whole = record.strip_suffix(end)?.to_owned();
    whole.reserve(128);
    fields.iter().for_each(|fields| whole.push_str(fields));
    add(&mut whole, pool.as_deref(), span, is_json).ok()?;
    whole.push_str(end);
    Some(whole)
}

/// Formats the fields: in JSON as an object under a key of their own, as text one by one.
fn written(fields: &Fields, is_json: bool) -> String {
    let json = |value: &Value| value.to_string();
    if is_json {
        let object: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{}:{}", json(&Value::from(name.as_str())), json(value)))
            .collect();
        return format!(",\"fields\":{{{}}}", object.join(","));
    }
    // A name that is more than a word would look like other fields.
    let word = |name: &str| match name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
    {
        true => name.to_owned(),
        false => json(&Value::from(name)),
    };
    let one = |(name, value): (&String, &Value)| format!(" {}={}", word(name), json(value));
    let all: String = fields.iter().map(one).collect();
    foreign::line(&all).into_owned()
}

/// Adds pool and span. Names of pools and numbers of spans need no escaping.
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
            says(NamedContext::default());
            let whole = complete("{\"message\":\"m\"}\n", true).unwrap();
            assert_eq!(whole, "{\"message\":\"m\",\"pool\":\"e-mail\"}\n");
            let about = about(SpanContext::parse(parent));
            says(NamedContext {
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
            says(NamedContext::default());
            assert_eq!(complete("{}\n", true), None);
        });
    }

    #[test]
    fn what_others_give_a_record_has_a_place_of_its_own() {
        let given = r#"{"at":{"x":[2]},"n":1,"message":"two\nlines","a\"b":null}"#;
        let given: Fields = serde_json::from_str(given).unwrap();
        on_a_thread("log", || {
            says(NamedContext::default());
            let with = with_fields(&given);
            let whole = complete("{\"message\":\"m\"}\n", true).unwrap();
            let read: Value = serde_json::from_str(&whole).unwrap();
            let expected = serde_json::json!({ "message": "m", "fields": given });
            assert_eq!(read, expected);
            let text = complete("INFO m\n", false).unwrap();
            let fields = r#""a\"b"=null at={"x":[2]} message="two\nlines" n=1"#;
            assert_eq!(text, format!("INFO m {fields}\n"));
            drop(with);
            assert_eq!(complete("INFO m\n", false), None);
        });
    }
}
