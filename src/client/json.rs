//! Messages, replies and dead letters as JSON has them: in files, on the command line and over HTTP.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::contract::Reply;
use crate::dead_letter::DeadLetter;
use crate::delivery::Outgoing;
use crate::names;

/// A message as JSON has it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MessageJson {
    body: Option<String>,
    body_base64: Option<String>,
    headers: BTreeMap<String, serde_json::Value>,
    correlation_id: String,
    reply_to: Option<String>,
    message_id: Option<String>,
    content_type: Option<String>,
    key: Option<String>,
    priority: i32,
    delay: Option<String>,
}

/// Reads a message, which names no queue: `body` or `body_base64`, and if wanted `headers`,
/// `correlation_id`, `reply_to`, `message_id`, `content_type`, `key`, `priority` and `delay`.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn outgoing(line: &[u8]) -> Result<Outgoing, String> {
    let line: MessageJson = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let body = match (line.body, line.body_base64) {
        (Some(text), None) => Bytes::from(text),
        (None, Some(base64)) => Bytes::from(
            BASE64
                .decode(base64)
                .map_err(|error| format!("body_base64: {error}"))?,
        ),
        (None, None) => return Err("body or body_base64 is missing".into()),
        (Some(_), Some(_)) => return Err("either body or body_base64, not both".into()),
    };
    let delay = line.delay.as_deref().map(duration).transpose();
    let headers = line
        .headers
        .into_iter()
        .map(header_text)
        .collect::<Result<_, _>>()?;
    Ok(Outgoing {
        queue: String::new(),
        body,
        headers,
        correlation_id: line.correlation_id,
        reply_to: line.reply_to,
        message_id: line.message_id,
        content_type: line.content_type,
        key: line.key,
        priority: line.priority,
        delay: delay
            .map_err(|why| format!("delay: {why}"))?
            .unwrap_or_default(),
    })
}

fn header_text((name, value): (String, serde_json::Value)) -> Result<(String, String), String> {
    not_our_own(&name)?;
    match value {
        Value::String(text) => Ok((name, text)),
        Value::Number(number) => Ok((name, number.to_string())),
        Value::Bool(value) => Ok((name, value.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(format!(
            "header `{name}` must be a text, a number or true or false"
        )),
    }
}

/// Whether a header may be set from outside.
///
/// # Errors
/// If it is one of ganger's own.
pub fn not_our_own(name: &str) -> Result<(), String> {
    let own = names::OWN_HEADER_PREFIX;
    if name.to_ascii_lowercase().starts_with(own) {
        return Err(format!(
            "header `{name}`: names that begin with `{own}` are ganger's own"
        ));
    }
    Ok(())
}

/// Reads a duration such as `30s`.
///
/// # Errors
/// If it is none.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed: Option<jiff::SignedDuration> = text.parse().ok();
    parsed
        .and_then(|duration| Duration::try_from(duration).ok())
        .ok_or_else(|| "a duration such as 500ms, 30s or 5m".into())
}

/// A body as JSON has it: text where it is text, base64 else, with the field's name.
pub fn body(bytes: &[u8]) -> (&'static str, String) {
    match std::str::from_utf8(bytes) {
        Ok(text) => ("body", text.to_owned()),
        Err(_) => ("body_base64", BASE64.encode(bytes)),
    }
}

/// A reply as JSON has it.
pub fn reply_json(reply: &Reply) -> Value {
    let headers: BTreeMap<&str, &str> = reply
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let (field, body) = body(&reply.body);
    json!({ field: body, "headers": headers, "correlation_id": reply.correlation_id })
}

/// A dead letter in the form that scripts rely on.
pub fn letter_json(source: &str, letter: &DeadLetter) -> Value {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    put("id", id_json(&letter.id));
    put("source", json!(source));
    put("pool", json!(letter.pool));
    put("queue", json!(letter.queue));
    put("reason", json!(letter.reason));
    put("error", json!(letter.error));
    put("attempts", json!(letter.attempts));
    put("crashes", json!(letter.crashes));
    put("exit_code", json!(letter.exit_code));
    put("signal", json!(letter.signal));
    put("oom", json!(letter.oom));
    put("stderr", json!(letter.stderr));
    put("first_failed_at", json!(letter.first_failed_at));
    put("last_failed_at", json!(letter.last_failed_at));
    put("correlation_id", json!(letter.correlation_id));
    put("reply_to", json!(letter.reply_to));
    put("message_id", json!(letter.message_id));
    put("content_type", json!(letter.content_type));
    put("key", json!(letter.key));
    put("priority", json!(letter.priority));
    put("headers", headers_json(&letter.headers));
    let (name, text) = body(&letter.body);
    put(name, json!(text));
    if let Some(reply) = &letter.reply {
        let (name, text) = body(&reply.body);
        put(
            "reply",
            json!({ "queue": reply.queue, name: text, "headers": headers_json(&reply.headers) }),
        );
    }
    Value::Object(fields)
}

/// A row's id is a number, as it always was; other sources have texts.
fn id_json(id: &str) -> Value {
    id.parse::<i64>()
        .map_or_else(|_| json!(id), |row| json!(row))
}

fn headers_json(headers: &[(String, String)]) -> Value {
    headers
        .iter()
        .map(|(name, value)| (name.clone(), Value::from(value.clone())))
        .collect::<Map<_, _>>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_may_say_all_that_a_message_has() {
        let line =
            br#"{"body":"b","headers":{"n":1,"t":"x","y":true},"correlation_id":"c","reply_to":"r",
            "message_id":"m","content_type":"t","key":"k","priority":3,"delay":"5s"}"#;
        let message = outgoing(line).unwrap();
        assert_eq!(message.body, "b");
        let headers =
            [("n", "1"), ("t", "x"), ("y", "true")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(message.headers, headers);
        assert_eq!(
            (message.priority, message.delay),
            (3, Duration::from_secs(5))
        );
        assert_eq!(message.key.as_deref(), Some("k"));
    }

    #[test]
    fn a_bad_line_says_what_is_wrong() {
        let table = [
            ("{", "EOF"),
            ("{}", "body or body_base64 is missing"),
            (r#"{"body":"a","body_base64":"YQ=="}"#, "not both"),
            (r#"{"body_base64":"%"}"#, "body_base64"),
            (r#"{"body":"a","colour":"red"}"#, "unknown field `colour`"),
            (
                r#"{"body":"a","delay":"soon"}"#,
                "delay: a duration such as",
            ),
            (r#"{"body":"a","headers":{"h":[]}}"#, "header `h` must be"),
            (
                r#"{"body":"a","headers":{"X-Ganger-Attempts":"1"}}"#,
                "ganger's own",
            ),
        ];
        for (line, expected) in table {
            let error = outgoing(line.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
