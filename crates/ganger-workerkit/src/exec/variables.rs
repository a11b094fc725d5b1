//! A message as seen by its program: variables, and all of it as JSON. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use ganger_core::names;
use ganger_core::trace_context;
use ganger_protocol::Task;
use ganger_queue::delivery::Property;

/// Variable with the file that the program may write to.
pub(super) const RESULT: &str = "GANGER_RESULT";
/// Variable with the file that has the message's metadata.
pub(super) const METADATA: &str = "GANGER_METADATA";
/// Variable with the names of those left out because they can't be set.
const LEFT_OUT: &str = "GANGER_LEFT_OUT";

/// Maximum size of one variable. Linux takes 128 KiB (`MAX_ARG_STRLEN`).
const VARIABLE_BYTES_MAX: usize = 32 << 10;
/// Maximum size of all. Linux takes a quarter of the stack's limit, 2 MiB as a rule, with the arguments.
const VARIABLES_BYTES_MAX: usize = 256 << 10;

/// Returns whether the sender waits for a reply. A version 1 message does not say so: by the convention of
/// its workers, a sender that gives a correlation id waits.
pub(super) fn awaits_reply(task: &Task, version2: bool) -> bool {
    match version2 {
        true => reply_to(task).is_some(),
        false => !task.correlation_id.is_empty(),
    }
}

fn reply_to(task: &Task) -> Option<&str> {
    task.properties
        .iter()
        .find_map(|(name, value)| match value {
            Property::Text(queue) if name == names::REPLY_TO_PROPERTY && !queue.is_empty() => {
                Some(queue.as_str())
            }
            _ => None,
        })
}

/// Returns the message's variables.
pub(super) fn variables(task: &Task, now: Timestamp) -> BTreeMap<String, String> {
    let mut set = Variables::default();
    set.add("GANGER_QUEUE", &task.queue);
    set.add("GANGER_CORRELATION_ID", &task.correlation_id);
    if let Some(attempt) = task.attempt {
        set.add("GANGER_ATTEMPT", &attempt.to_string());
    }
    if let Some(left) = task.milliseconds_left {
        set.add("GANGER_MILLISECONDS_LEFT", &left.to_string());
        if let Ok(deadline) = now.checked_add(Duration::from_millis(left)) {
            set.add("GANGER_DEADLINE", &deadline.as_second().to_string());
        }
    }
    if let Some(queue) = reply_to(task) {
        set.add("GANGER_REPLY_TO", queue);
    }
    for (header, variable) in [
        (names::TRACEPARENT, "TRACEPARENT"),
        (names::TRACESTATE, "TRACESTATE"),
    ] {
        let mut headers = task.headers.iter();
        if let Some((_, value)) = headers.find(|(name, _)| trace_context::is(name, header)) {
            set.add(variable, value);
        }
    }
    for (name, value) in &task.properties {
        if name != names::REPLY_TO_PROPERTY {
            set.add_value(&variable("GANGER_PROPERTY_", name), value);
        }
    }
    for (name, value) in &task.headers {
        set.add(&variable("GANGER_HEADER_", name), value);
    }
    set.finish()
}

/// Returns the name in capitals, with an underscore for each character that is neither letter nor digit.
fn variable(prefix: &str, name: &str) -> String {
    let letter = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_uppercase(),
        false => '_',
    };
    prefix.chars().chain(name.chars().map(letter)).collect()
}

#[derive(Default)]
struct Variables {
    set: BTreeMap<String, String>,
    bytes: usize,
    left_out: Vec<String>,
}

impl Variables {
    /// Adds a variable. Of two with the same name the first counts.
    fn add(&mut self, name: &str, value: &str) {
        let bytes = name.len() + value.len();
        let fits = bytes <= VARIABLE_BYTES_MAX && self.bytes + bytes <= VARIABLES_BYTES_MAX;
        if self.set.contains_key(name) {
            return;
        }
        if fits && !value.contains('\0') {
            self.bytes += bytes;
            self.set.insert(name.into(), value.into());
        } else {
            self.leave_out(name);
        }
    }

    fn add_value(&mut self, name: &str, value: &Property) {
        match value {
            Property::Text(text) => self.add(name, text),
            Property::Integer(number) => self.add(name, &number.to_string()),
            Property::Boolean(yes) => self.add(name, &yes.to_string()),
            Property::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => self.add(name, text),
                Err(_) => self.leave_out(name),
            },
        }
    }

    fn leave_out(&mut self, name: &str) {
        let listed: usize = self.left_out.iter().map(|name| name.len() + 1).sum();
        if listed + name.len() <= VARIABLE_BYTES_MAX && !self.left_out.iter().any(|it| it == name) {
            self.left_out.push(name.into());
        }
    }

    fn finish(mut self) -> BTreeMap<String, String> {
        if !self.left_out.is_empty() {
            self.set.insert(LEFT_OUT.into(), self.left_out.join(" "));
        }
        self.set
    }
}

/// Returns the message's metadata as JSON, exactly: everything but its body. Of two headers with the same
/// name the first counts.
pub(super) fn metadata(task: &Task) -> Value {
    let mut headers = Map::new();
    for (name, value) in &task.headers {
        headers
            .entry(name.as_str())
            .or_insert_with(|| value.as_str().into());
    }
    let properties: Map<String, Value> = task
        .properties
        .iter()
        .map(|(name, value)| (name.clone(), as_json(value)))
        .collect();
    json!({
        "queue": task.queue,
        "correlation_id": task.correlation_id,
        "attempt": task.attempt,
        "milliseconds_left": task.milliseconds_left,
        "headers": headers,
        "properties": properties,
    })
}

fn as_json(value: &Property) -> Value {
    match value {
        Property::Text(text) => text.as_str().into(),
        Property::Integer(number) => (*number).into(),
        Property::Boolean(yes) => (*yes).into(),
        Property::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => json!({ "base64": STANDARD.encode(bytes) }),
        },
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn task(headers: &[(&str, &str)], properties: &[(&str, Property)]) -> Task {
        Task {
            message: Bytes::from_static(b"body"),
            binary: false,
            correlation_id: "c-1".into(),
            queue: "work".into(),
            headers: headers
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
            id: Some(1),
            attempt: None,
            milliseconds_left: None,
            properties: properties
                .iter()
                .map(|(name, value)| ((*name).into(), value.clone()))
                .collect(),
        }
    }

    fn set(task: &Task) -> BTreeMap<String, String> {
        variables(task, Timestamp::UNIX_EPOCH)
    }

    fn text(text: &str) -> Property {
        Property::Text(text.into())
    }

    #[test]
    fn a_version_1_message_has_its_queue_and_its_correlation_id() {
        let expected = [("GANGER_CORRELATION_ID", "c-1"), ("GANGER_QUEUE", "work")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(set(&task(&[], &[])), BTreeMap::from(expected));
    }

    #[test]
    fn a_version_2_message_has_more() {
        let bytes = Property::Bytes(Bytes::from_static(b"k"));
        let mut task = task(
            &[("traceparent", "00-a-b-01"), ("Trace-State", "no")],
            &[
                ("reply_to", text("answers")),
                ("offset", Property::Integer(7)),
                ("redelivered", Property::Boolean(true)),
                ("key", bytes),
            ],
        );
        (task.attempt, task.milliseconds_left) = (Some(3), Some(61_900));
        let set = set(&task);
        for (name, value) in [
            ("GANGER_ATTEMPT", "3"),
            ("GANGER_MILLISECONDS_LEFT", "61900"),
            ("GANGER_DEADLINE", "61"),
            ("GANGER_REPLY_TO", "answers"),
            ("GANGER_PROPERTY_OFFSET", "7"),
            ("GANGER_PROPERTY_REDELIVERED", "true"),
            ("GANGER_PROPERTY_KEY", "k"),
            ("TRACEPARENT", "00-a-b-01"),
            ("GANGER_HEADER_TRACEPARENT", "00-a-b-01"),
            ("GANGER_HEADER_TRACE_STATE", "no"),
        ] {
            assert_eq!(set[name], value, "{name}");
        }
        assert!(!set.contains_key("TRACESTATE") && !set.contains_key(LEFT_OUT));
    }

    #[test]
    fn headers_become_variables_whatever_they_are_called() {
        let cases = [
            ("colour", "GANGER_HEADER_COLOUR"),
            ("X-Request-Id", "GANGER_HEADER_X_REQUEST_ID"),
            ("a.b c", "GANGER_HEADER_A_B_C"),
            ("größe", "GANGER_HEADER_GR__E"),
            ("a=b\nc", "GANGER_HEADER_A_B_C"),
            ("nul\0", "GANGER_HEADER_NUL_"),
            ("", "GANGER_HEADER_"),
        ];
        for (header, name) in cases {
            assert_eq!(set(&task(&[(header, "v")], &[]))[name], "v", "{header:?}");
        }
        let twice = set(&task(&[("a-b", "first"), ("A_B", "second")], &[]));
        assert_eq!(twice["GANGER_HEADER_A_B"], "first");
    }

    #[test]
    fn values_go_in_as_far_as_the_system_takes_them() {
        let long = "x".repeat(VARIABLE_BYTES_MAX);
        let headers = [("lines", "a\nb\n"), ("nul", "a\0b"), ("long", &long)];
        let binary = Property::Bytes(Bytes::from_static(b"\xff"));
        let task = task(&headers, &[("key", binary)]);
        let set = set(&task);
        assert_eq!(set["GANGER_HEADER_LINES"], "a\nb\n");
        let left_out = "GANGER_PROPERTY_KEY GANGER_HEADER_NUL GANGER_HEADER_LONG";
        assert_eq!(set[LEFT_OUT], left_out);
        let metadata = metadata(&task);
        assert_eq!(metadata["headers"]["nul"], "a\0b");
        assert_eq!(metadata["headers"]["long"], long);
        assert_eq!(metadata["properties"]["key"]["base64"], "/w==");
    }

    #[test]
    fn all_together_are_never_more_than_the_system_takes() {
        let value = "x".repeat(1000);
        let names: Vec<String> = (0..10_000).map(|n| format!("header-{n}")).collect();
        let headers: Vec<(&str, &str)> = names.iter().map(|name| (&**name, &*value)).collect();
        let set = set(&task(&headers, &[]));
        let bytes: usize = set
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        let most = VARIABLES_BYTES_MAX + VARIABLE_BYTES_MAX + LEFT_OUT.len();
        assert!((VARIABLES_BYTES_MAX..most).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_reply_is_awaited_where_it_can_go() {
        let asks = task(&[], &[("reply_to", text("answers"))]);
        let silent = task(&[], &[("reply_to", text(""))]);
        assert!(awaits_reply(&asks, true) && !awaits_reply(&silent, true));
        assert!(awaits_reply(&silent, false), "who gives a correlation id");
    }
}
