//! Parts of messages that viewers do not see (`admin.redact`). They are taken out of the answers of the API, and so out
//! of the pages, which are made from these.

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use hyper::body::Bytes;
use serde_json::{Map, Value};
use serde_json_path::JsonPath;

use super::answer::Problem;
use super::caller::Caller;
use ganger_config::model::Role;
use ganger_pool::overview::Overview;

/// Text in place of what is hidden.
const HIDDEN: &str = "(hidden)";

/// Fields of answers that hold the body of a message or the answer of a worker.
const BODIES: [&str; 2] = ["body", "result"];
/// Field that holds a body that is no text.
const BINARY: &str = "body_base64";
/// Fields of answers that hold lines of a worker's output, or its progress.
const LINES: [&str; 4] = ["text", "stdout", "stderr", "progress"];

/// Maximum size of an answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Takes out of an answer what its reader may not see.
pub(super) async fn redact(
    State(overview): State<Overview>,
    request: Request,
    next: Next,
) -> Response {
    let caller = request.extensions().get::<Caller>();
    let is_viewer = caller.is_some_and(|caller| caller.role == Role::Viewer);
    let config = overview.config();
    let response = next.run(request).await;
    if !is_viewer || config.admin.redact.is_empty() {
        return response;
    }
    let redaction = Redaction::of(&config.admin.redact);
    let kind = response.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    match kind {
        "application/json" => redaction.whole(response).await,
        "text/event-stream" => redaction.stream(response),
        _ => response,
    }
}

/// Parts that are hidden.
#[derive(Debug, Default)]
struct Redaction {
    paths: Vec<JsonPath>,
    headers: Vec<String>,
}

impl Redaction {
    fn of(parts: &[String]) -> Self {
        let mut redaction = Self::default();
        for part in parts {
            match JsonPath::parse(part) {
                Ok(path) => redaction.paths.push(path),
                Err(_) => redaction.headers.push(part.to_ascii_lowercase()),
            }
        }
        redaction
    }

    async fn whole(&self, response: Response) -> Response {
        let (mut parts, body) = response.into_parts();
        let body = to_bytes(body, ANSWER_BYTES_MAX).await;
        let answer = body
            .ok()
            .and_then(|body| serde_json::from_slice(&body).ok());
        let Some(mut answer) = answer else {
            let why = "the answer can't be read, to take out what `admin.redact` hides";
            return Problem::new(StatusCode::INTERNAL_SERVER_ERROR, why).into_response();
        };
        self.answer(&mut answer);
        let answer = answer.to_string();
        let length = HeaderValue::from(answer.len());
        parts.headers.insert(header::CONTENT_LENGTH, length);
        Response::from_parts(parts, Body::from(answer))
    }

    /// Takes the parts out of the events of a stream, each of which is sent as a whole.
    fn stream(self, response: Response) -> Response {
        let (parts, body) = response.into_parts();
        let events = body.into_data_stream();
        let events = events.map(move |event| event.map(|event| self.event(&event)));
        Response::from_parts(parts, Body::from_stream(events))
    }

    fn event(&self, event: &[u8]) -> Bytes {
        let event = String::from_utf8_lossy(event);
        let line = |line: &str| match line.strip_prefix("data:") {
            Some(data) => match serde_json::from_str(data) {
                Ok(mut data) => {
                    self.answer(&mut data);
                    format!("data: {data}")
                }
                Err(_) => format!("data: {HIDDEN}"),
            },
            None => line.to_owned(),
        };
        let lines: Vec<String> = event.split('\n').map(line).collect();
        Bytes::from(lines.join("\n"))
    }

    /// Takes the parts out of the fields of an answer.
    fn answer(&self, answer: &mut Value) {
        match answer {
            Value::Object(fields) => {
                // What is shown in its place is text, and no base64.
                if fields.remove(BINARY).is_some_and(|body| !body.is_null()) {
                    fields.insert("body".to_owned(), HIDDEN.into());
                }
                for (name, value) in fields {
                    self.field(name, value);
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.answer(value)),
            _ => {}
        }
    }

    fn field(&self, name: &str, value: &mut Value) {
        match value {
            Value::Null => {}
            // Another program has stored what is no JSON.
            Value::String(text) if name == "definition" => *text = HIDDEN.to_owned(),
            value if BODIES.contains(&name) => self.body(value),
            value if LINES.contains(&name) => self.lines(value),
            Value::Object(headers) if name == "headers" => self.headers(headers),
            value => self.answer(value),
        }
    }

    fn body(&self, body: &mut Value) {
        let Value::String(text) = body else {
            return self.parts(body);
        };
        let parsed = serde_json::from_str(text).ok();
        let mut parsed = parsed.filter(|parsed: &Value| parsed.is_object() || parsed.is_array());
        if let Some(parsed) = &mut parsed {
            self.parts(parsed);
        }
        *text = parsed.map_or_else(|| HIDDEN.to_owned(), |parsed| parsed.to_string());
    }

    fn lines(&self, lines: &mut Value) {
        match lines {
            Value::Array(lines) => lines.iter_mut().for_each(|line| self.lines(line)),
            Value::String(line) => {
                if let Ok(mut parsed) =
                    serde_json::from_str::<Map<String, Value>>(line).map(Value::Object)
                {
                    self.parts(&mut parsed);
                    *line = parsed.to_string();
                }
            }
            other => self.answer(other),
        }
    }

    fn headers(&self, headers: &mut Map<String, Value>) {
        for (name, value) in headers {
            if self.headers.contains(&name.to_ascii_lowercase()) {
                *value = HIDDEN.into();
            }
        }
    }

    /// Hides the parts of JSON that came from outside.
    fn parts(&self, value: &mut Value) {
        for path in &self.paths {
            let found = path.query_located(value);
            let found = found.locations().map(|location| location.to_json_pointer());
            for pointer in found.collect::<Vec<_>>() {
                if let Some(part) = value.pointer_mut(&pointer) {
                    *part = HIDDEN.into();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redaction() -> Redaction {
        let parts = ["$..card", "$.customer.name", "X-Api-Key"];
        Redaction::of(&parts.map(str::to_owned))
    }

    #[test]
    fn parts_are_taken_out_wherever_a_message_is_shown() {
        let mut answer = json!({
            "letters": [{
                "id": "7",
                "body": r#"{"card":4111,"customer":{"name":"Ann","card":[1]},"sum":3}"#,
                "headers": { "x-api-key": "k", "X-API-KEY": "k", "trace": "t", "card": "c" },
                "reply": { "body": "[{\"card\":1}]", "headers": { "x-api-key": 5 } },
                "stderr": ["plain", "{\"card\": 4111, \"n\": 1}"],
            }],
            "result": r#"{"customer":{"name":"Ann"}}"#,
            "lines": [{ "line": 0, "text": "{\"card\":1}" }],
            "reply": { "body_base64": "NDExMQ==", "content_type": "image/png" },
            "progress": "50 %",
            "definition": "{card: 4111}",
            "definitions": [{ "definition": { "cron": "@daily", "body": "{\"card\":4111}" } }],
            "error": "no",
        });
        redaction().answer(&mut answer);
        let expected = json!({
            "letters": [{
                "id": "7",
                "body": r#"{"card":"(hidden)","customer":{"card":"(hidden)","name":"(hidden)"},"sum":3}"#,
                "headers": { "x-api-key": "(hidden)", "X-API-KEY": "(hidden)", "trace": "t", "card": "c" },
                "reply": { "body": "[{\"card\":\"(hidden)\"}]", "headers": { "x-api-key": "(hidden)" } },
                "stderr": ["plain", "{\"card\":\"(hidden)\",\"n\":1}"],
            }],
            "result": r#"{"customer":{"name":"(hidden)"}}"#,
            "lines": [{ "line": 0, "text": "{\"card\":\"(hidden)\"}" }],
            "reply": { "body": "(hidden)", "content_type": "image/png" },
            "progress": "50 %",
            "definition": "(hidden)",
            "definitions": [{ "definition": { "cron": "@daily", "body": "{\"card\":\"(hidden)\"}" } }],
            "error": "no",
        });
        assert_eq!(answer, expected);
    }

    #[test]
    fn what_is_no_json_is_hidden_whole() {
        for body in [
            "4111",
            "{\"card\":4111",
            "card=4111",
            "{\"a\":1}{\"card\":4111}",
            "",
        ] {
            let mut answer = json!({ "body": body });
            redaction().answer(&mut answer);
            assert_eq!(answer["body"], HIDDEN, "{body}");
        }
        let deep = format!("{}4111{}", "[".repeat(5000), "]".repeat(5000));
        let mut answer = json!({ "body": deep });
        redaction().answer(&mut answer);
        assert_eq!(answer["body"], HIDDEN);
    }

    #[test]
    fn a_path_in_a_path_that_is_hidden_is_no_error() {
        let both = Redaction::of(&["$.a".to_owned(), "$.a.b".to_owned(), "$.a".to_owned()]);
        let mut answer = json!({ "body": { "a": { "b": 1 }, "c": 2 } });
        both.answer(&mut answer);
        assert_eq!(answer, json!({ "body": { "a": "(hidden)", "c": 2 } }));
    }

    #[test]
    fn events_of_a_stream_are_redacted() {
        let event = "id: 3\nevent: line\ndata: {\"text\":\"{\\\"card\\\":1}\"}\n\n";
        let expected =
            "id: 3\nevent: line\ndata: {\"text\":\"{\\\"card\\\":\\\"(hidden)\\\"}\"}\n\n";
        assert_eq!(redaction().event(event.as_bytes()), expected);
        assert_eq!(redaction().event(b":\n\n"), ":\n\n");
        assert_eq!(
            redaction().event(b"data: no JSON\n\n"),
            "data: (hidden)\n\n"
        );
    }
}
