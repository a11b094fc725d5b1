//! Messages in JSON: in files, on the command line and over HTTP.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::shown::{bytes, text_or_base64};
use crate::delivery::{IfTaken, Outgoing, Post, Unique, UniqueScope};
use ganger_core::names;

/// A message in JSON, with `body` or `body_base64`.
#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = Message)]
pub struct MessageJson {
    /// The body, if it is text.
    body: Option<String>,
    /// The body in base64; allowed for any body.
    body_base64: Option<String>,
    /// Headers; a number keeps the digits as written.
    #[schema(value_type = BTreeMap<String, HeaderJson>)]
    headers: BTreeMap<String, Box<RawValue>>,
    /// Correlation id, which is repeated in the reply.
    correlation_id: String,
    /// Queue for the reply.
    reply_to: Option<String>,
    /// Message id set by the producer.
    message_id: Option<String>,
    /// MIME type of the body.
    content_type: Option<String>,
    /// Ordering or partition key.
    key: Option<String>,
    /// Priority; higher goes first.
    priority: i32,
    /// Delay before it may be worked on, such as `30s`.
    delay: Option<String>,
    /// Earliest time at which it may be worked on, RFC 3339.
    at: Option<String>,
    /// Unique key: only one message of the queue can have it at a time. Tables only.
    unique_key: Option<String>,
    /// Time for which the unique key is held: `waiting`, `waiting_or_running`, or a duration.
    unique_scope: Option<String>,
    /// Replace the pending message that has the same unique key.
    replace: bool,
    /// Replace the pending message that has the same unique key, and make it due this long after the
    /// newest message, such as `30s`.
    debounce: Option<String>,
    /// With `debounce`, latest due time as a duration after the first message.
    debounce_max: Option<String>,
}

/// Value of a header in a message.
#[derive(Debug, utoipa::ToSchema)]
#[schema(as = Header)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is described, and read as it is written")]
enum HeaderJson {
    Text(String),
    Number(f64),
    Flag(bool),
}

/// Reads a message, which names no queue: `body` or `body_base64`, and optionally `headers`,
/// `correlation_id`, `reply_to`, `message_id`, `content_type`, `key`, `priority`, `delay` or `at`, and
/// `unique_key` with `unique_scope`, `replace`, or `debounce` and `debounce_max`.
///
/// # Errors
/// The problem, and the remedy.
pub fn post(line: &[u8]) -> Result<Post, String> {
    let mut line: MessageJson = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let field = |name: &'static str, text: &Option<String>| {
        let parsed = text.as_deref().map(duration).transpose();
        parsed.map_err(|why| format!("{name}: {why}"))
    };
    let at = line.at.as_deref().map(until).transpose();
    let scope = line.unique_scope.as_deref().map(scope).transpose();
    let options = UniqueOptions {
        key: line.unique_key.take(),
        scope: scope.map_err(|why| format!("unique_scope: {why}"))?,
        replace: line.replace,
        debounce: field("debounce", &line.debounce)?,
        debounce_max: field("debounce_max", &line.debounce_max)?,
    };
    let delays = [
        field("delay", &line.delay)?,
        at.map_err(|why| format!("at: {why}"))?,
        options.debounce,
    ];
    let mut delays = delays.into_iter().flatten();
    let (delay, other) = (delays.next(), delays.next());
    if other.is_some() {
        return Err("only one of delay, at and debounce may be set".into());
    }
    Ok(Post {
        message: outgoing(line, delay.unwrap_or_default())?,
        unique: options.unique()?,
        topic: None,
    })
}

/// Writes a message, without its queue or topic, as [`post`] reads it.
impl From<&Post> for MessageJson {
    fn from(post: &Post) -> Self {
        let message = &post.message;
        let (body, body_base64) = text_or_base64(&message.body);
        let header = |(name, text): &(String, String)| {
            let text = to_raw_value(text).unwrap_or_default();
            (name.clone(), text)
        };
        let delay = (!message.delay.is_zero()).then(|| duration_text(message.delay));
        let mut written = Self {
            body,
            body_base64,
            headers: message.headers.iter().map(header).collect(),
            correlation_id: message.correlation_id.clone(),
            reply_to: message.reply_to.clone(),
            message_id: message.message_id.clone(),
            content_type: message.content_type.clone(),
            key: message.key.clone(),
            priority: message.priority,
            delay,
            ..Self::default()
        };
        let Some(unique) = &post.unique else {
            return written;
        };
        written.unique_key = Some(unique.key.clone());
        written.unique_scope = Some(match unique.scope {
            UniqueScope::For(time) => duration_text(time),
            scope => scope.name().to_owned(),
        });
        match unique.taken {
            IfTaken::Keep => {}
            IfTaken::Replace => written.replace = true,
            IfTaken::Debounce { longest } => {
                written.delay = None;
                written.debounce = Some(duration_text(message.delay));
                written.debounce_max = Some(duration_text(longest));
            }
        }
        written
    }
}

/// Options of a unique key, as given in JSON or on the command line.
#[derive(Debug, Clone, Default)]
pub struct UniqueOptions {
    /// The key; without it no other option is allowed.
    pub key: Option<String>,
    /// Time for which it is held.
    pub scope: Option<UniqueScope>,
    /// Replace the pending message with the newest one.
    pub replace: bool,
    /// Replace it, and make it due so long after the newest message.
    pub debounce: Option<Duration>,
    /// Longest delay by `debounce`, counted from the first message.
    pub debounce_max: Option<Duration>,
}

/// Default of the longest debounce delay, as a multiple of the debounce time.
const DEBOUNCES: u32 = 10;

impl UniqueOptions {
    /// Combines the options, if they make sense together.
    ///
    /// # Errors
    /// If they do not.
    pub fn unique(self) -> Result<Option<Unique>, String> {
        let taken = match (self.replace, self.debounce, self.debounce_max) {
            (true, None, None) => IfTaken::Replace,
            (false, Some(each), longest) => IfTaken::Debounce {
                longest: longest.unwrap_or(each.saturating_mul(DEBOUNCES)),
            },
            (false, None, None) => IfTaken::Keep,
            (true, ..) => return Err("either replace or debounce, not both".into()),
            (false, None, Some(_)) => return Err("debounce_max requires debounce".into()),
        };
        let scope = self.scope.unwrap_or_default();
        match self.key {
            None if self.scope.is_some() || taken != IfTaken::Keep => {
                Err("unique_scope, replace and debounce require a unique key".into())
            }
            None => Ok(None),
            Some(_) if taken != IfTaken::Keep && scope != UniqueScope::Waiting => {
                Err("replace and debounce require the scope `waiting`: leave the scope out".into())
            }
            Some(key) => Ok(Some(Unique { key, scope, taken })),
        }
    }
}

fn outgoing(line: MessageJson, delay: Duration) -> Result<Outgoing, String> {
    let body = bytes(line.body, line.body_base64)?;
    let body = body.ok_or("body or body_base64 is missing")?;
    let headers = line
        .headers
        .into_iter()
        .map(header_text)
        .collect::<Result<_, _>>()?;
    Ok(Outgoing {
        queue: String::new(),
        exchange: None,
        body,
        headers,
        correlation_id: line.correlation_id,
        reply_to: line.reply_to,
        message_id: line.message_id,
        content_type: line.content_type,
        key: line.key,
        priority: line.priority,
        delay,
    })
}

/// Returns the header as text. A number keeps every digit as written.
fn header_text((name, value): (String, Box<RawValue>)) -> Result<(String, String), String> {
    check_not_reserved(&name)?;
    let text = value.get();
    match text.as_bytes().first() {
        Some(b'"') => {
            let text = serde_json::from_str(text);
            let text = text.map_err(|error| format!("header `{name}`: {error}"))?;
            Ok((name, text))
        }
        Some(b'n' | b'[' | b'{') | None => Err(format!(
            "header `{name}` must be a string, a number or a boolean"
        )),
        Some(_) => Ok((name, text.to_owned())),
    }
}

/// Checks that a header may be set from outside.
///
/// # Errors
/// If it is reserved for ganger.
pub fn check_not_reserved(name: &str) -> Result<(), String> {
    let own = names::OWN_HEADER_PREFIX;
    if name.to_ascii_lowercase().starts_with(own) {
        return Err(format!(
            "header `{name}`: names that begin with `{own}` are reserved for ganger"
        ));
    }
    Ok(())
}

/// Reads a duration such as `30s`.
///
/// # Errors
/// If the text is not one.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed: Option<jiff::SignedDuration> = text.parse().ok();
    parsed
        .and_then(|duration| Duration::try_from(duration).ok())
        .ok_or_else(|| "expected a duration such as 500ms, 30s or 5m".into())
}

/// Writes a duration as [`duration`] reads it.
pub fn duration_text(duration: Duration) -> String {
    let duration = jiff::SignedDuration::try_from(duration);
    duration.unwrap_or(jiff::SignedDuration::MAX).to_string()
}

/// Reads a time such as `2027-01-31T08:00:00Z` as the duration until then; zero if it is past.
///
/// # Errors
/// If the text is not one.
pub fn until(text: &str) -> Result<Duration, String> {
    let at: jiff::Timestamp = text
        .parse()
        .map_err(|_| "expected a time such as 2027-01-31T08:00:00Z or 2027-01-31T09:00:00+01:00")?;
    let until = at.duration_since(jiff::Timestamp::now());
    Ok(Duration::try_from(until).unwrap_or_default())
}

/// Reads a past time: one such as `2027-01-31T08:00:00Z`, or a duration such as `2h` before now.
///
/// # Errors
/// If it is neither.
pub fn moment(text: &str) -> Result<jiff::Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let ago = duration(text).ok();
    let at = ago.and_then(|ago| jiff::Timestamp::now().checked_sub(ago).ok());
    at.ok_or_else(|| {
        "expected a time such as 2027-01-31T08:00:00Z, or a duration before now such as 2h".into()
    })
}

/// Reads the scope of a unique key: `waiting`, `waiting_or_running`, or a duration from now.
///
/// # Errors
/// If it is none of these.
pub fn scope(text: &str) -> Result<UniqueScope, String> {
    match text {
        "waiting" => Ok(UniqueScope::Waiting),
        "waiting_or_running" => Ok(UniqueScope::WaitingOrRunning),
        _ => match duration(text) {
            Ok(time) if !time.is_zero() => Ok(UniqueScope::For(time)),
            _ => Err("expected waiting, waiting_or_running or a duration such as 10m".into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_may_say_all_that_a_message_has() {
        let line =
            br#"{"body":"b","headers":{"n":1,"t":"x","y":true},"correlation_id":"c","reply_to":"r",
            "message_id":"m","content_type":"t","key":"k","priority":3,"delay":"5s"}"#;
        let message = post(line).unwrap().message;
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
    fn a_headers_number_stays_as_it_is_written() {
        for number in ["10.10", "18446744073709551616", "1e400", "-0"] {
            let line = format!(r#"{{"body":"b","headers":{{"n":{number}}}}}"#);
            let headers = post(line.as_bytes()).unwrap().message.headers;
            assert_eq!(headers, [("n".to_owned(), number.to_owned())]);
        }
    }

    #[test]
    fn a_line_may_say_what_is_unique() {
        let unique = |fields: &str| {
            let line = format!(r#"{{"body":"b","unique_key":"k",{fields}}}"#);
            let post = post(line.as_bytes()).unwrap();
            let unique = post.unique.unwrap();
            (unique.scope, unique.taken, post.message.delay)
        };
        let (none, second) = (Duration::ZERO, Duration::from_secs(1));
        let waiting = UniqueScope::Waiting;
        assert_eq!(unique(r#""priority":0"#), (waiting, IfTaken::Keep, none));
        assert_eq!(
            unique(r#""unique_scope":"waiting_or_running""#),
            (UniqueScope::WaitingOrRunning, IfTaken::Keep, none)
        );
        assert_eq!(
            unique(r#""unique_scope":"1s","delay":"1s""#),
            (UniqueScope::For(second), IfTaken::Keep, second)
        );
        assert_eq!(
            unique(r#""replace":true"#),
            (waiting, IfTaken::Replace, none)
        );
        let debounce = |longest| IfTaken::Debounce { longest };
        assert_eq!(
            unique(r#""debounce":"1s""#),
            (waiting, debounce(10 * second), second)
        );
        assert_eq!(
            unique(r#""debounce":"1s","debounce_max":"3s""#),
            (waiting, debounce(3 * second), second)
        );
    }

    #[test]
    fn a_message_is_written_as_it_is_read() {
        for fields in [
            r#""body":"grüße","headers":{"n":"1","t":"\"x\\"},"correlation_id":"c","reply_to":"r",
                "message_id":"m","content_type":"t","key":"k","priority":-3,"delay":"1.0005s""#,
            r#""body_base64":"/wD+""#,
            r#""body":"","unique_key":"k","unique_scope":"waiting_or_running""#,
            r#""body":"","unique_key":"k","unique_scope":"90m","delay":"1s""#,
            r#""body":"","unique_key":"k","replace":true,"delay":"1s""#,
            r#""body":"","unique_key":"k","debounce":"2s""#,
            r#""body":"","unique_key":"k","debounce":"2s","debounce_max":"5s""#,
        ] {
            let read = post(format!("{{{fields}}}").as_bytes()).unwrap();
            let written = serde_json::to_vec(&MessageJson::from(&read)).unwrap();
            assert_eq!(post(&written).unwrap(), read, "{fields}");
        }
    }

    #[test]
    fn a_time_that_is_past_is_now() {
        assert_eq!(until("2001-01-01T00:00:00Z").unwrap(), Duration::ZERO);
        assert!(until("2999-01-01T00:00:00+01:00").unwrap() > Duration::from_secs(1 << 30));
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
                "delay: expected a duration such as",
            ),
            (r#"{"body":"a","headers":{"h":[]}}"#, "header `h` must be"),
            (
                r#"{"body":"a","headers":{"X-Ganger-Attempts":"1"}}"#,
                "reserved for ganger",
            ),
            (r#"{"body":"a","at":"noon"}"#, "at: expected a time such as"),
            (
                r#"{"body":"a","delay":"1s","at":"2027-01-31T08:00:00Z"}"#,
                "only one of delay, at and debounce may be set",
            ),
            (r#"{"body":"a","replace":true}"#, "require a unique key"),
            (
                r#"{"body":"a","unique_key":"k","unique_scope":"0s"}"#,
                "unique_scope: expected waiting, waiting_or_running or a duration",
            ),
            (
                r#"{"body":"a","unique_key":"k","replace":true,"debounce":"1s"}"#,
                "either replace or debounce",
            ),
            (
                r#"{"body":"a","unique_key":"k","replace":true,"unique_scope":"1m"}"#,
                "require the scope `waiting`",
            ),
            (
                r#"{"body":"a","unique_key":"k","debounce_max":"1m"}"#,
                "debounce_max requires debounce",
            ),
        ];
        for (line, expected) in table {
            let error = post(line.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
