//! Answer of a worker to one message, for people and as JSON.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Map, Value, json};

use ganger_core::foreign;
use ganger_protocol::Output;
use ganger_protocol::status::{Answer, Meaning};
use ganger_queue::client::shown::body;
use ganger_queue::delivery::Headers;
use ganger_workerkit::conformance::{AttemptResult, Single};

/// Returns whether the message is done.
pub(super) fn is_good(told: &AttemptResult) -> bool {
    let meaning = told.answer.as_ref().map(|answer| answer.status.meaning());
    let done = matches!(meaning, Some(Meaning::Answer(Answer::Done | Answer::Reply)));
    done && told.trouble.is_none()
}

/// Formats the result for programs.
pub(super) fn as_json(single: &Single, told: &AttemptResult) -> Value {
    let note = |(after, output): &(Duration, Output)| {
        let mut fields = frame_json(output);
        fields.insert("after_seconds".into(), json!(seconds(*after)));
        Value::Object(fields)
    };
    let notes: Vec<Value> = told.notes.iter().map(note).collect();
    let answer = told.answer.as_ref().map(|answer| {
        let mut fields = frame_json(answer);
        fields.insert("goes_to".into(), json!(goes_to(single, answer)));
        Value::Object(fields)
    });
    json!({
        "done": is_good(told),
        "answer": answer,
        "problem": told.trouble.as_ref().map(|(said, _)| said),
        "mend": told.trouble.as_ref().map(|(_, mend)| mend),
        "notes": notes,
        "stdout": told.printed.stdout,
        "stderr": told.printed.stderr,
        "seconds": seconds(told.took),
        "cpu_seconds": told.used.map(|used| seconds(used.cpu)),
        "peak_memory_bytes": told.used.map(|used| used.peak_bytes),
        "pid": told.pid,
        "version": if told.hello.is_some() { 2 } else { 1 },
        "exit_code": told.exit.and_then(|exit| exit.code),
        "signal": told.exit.and_then(|exit| exit.signal),
    })
}

/// Formats a failed start of the worker for programs.
pub(super) fn unstarted_json(why: &str, stderr: &[String]) -> Value {
    json!({ "done": false, "answer": null, "problem": why, "stderr": stderr })
}

/// Formats a failed start of the worker for people.
pub(super) fn unstarted_text(why: &str, stderr: &[String]) -> String {
    let mut text = String::new();
    field(&mut text, "problem", why);
    lines(&mut text, "stderr", stderr);
    text
}

fn frame_json(output: &Output) -> Map<String, Value> {
    let (name, text) = body(&output.message);
    let headers: Map<String, Value> = headers(output.headers.as_ref())
        .map(|(name, value)| (name.clone(), value.as_str().into()))
        .collect();
    let mut fields = Map::new();
    fields.insert("status".into(), output.status.0.into());
    fields.insert("name".into(), json!(output.status.name()));
    fields.insert(name.into(), text.into());
    fields.insert("headers".into(), headers.into());
    fields.insert("reply_queue".into(), json!(output.reply_queue));
    fields.insert("retry_after_ms".into(), json!(output.retry_after_ms));
    fields
}

fn headers(headers: Option<&Headers>) -> impl Iterator<Item = &(String, String)> {
    headers.into_iter().flatten()
}

/// Returns the queue to which a reply would go.
fn goes_to<'a>(single: &'a Single, answer: &'a Output) -> Option<&'a str> {
    let is_reply = answer.status.meaning() == Meaning::Answer(Answer::Reply);
    let named = answer.reply_queue.as_deref();
    named
        .or(single.message.reply_to.as_deref())
        .filter(|_| is_reply)
}

fn seconds(time: Duration) -> f64 {
    // To a hundredth of a millisecond.
    (time.as_secs_f64() * 1e5).round() / 1e5
}

/// Formats the result for people.
pub(super) fn as_text(single: &Single, told: &AttemptResult) -> String {
    let mut text = String::new();
    if let Some(answer) = &told.answer {
        field(&mut text, "answer", &answer.status.to_string());
        frame(&mut text, answer);
        if let Some(queue) = goes_to(single, answer) {
            field(&mut text, "goes to", queue);
        }
    }
    if let Some((said, mend)) = &told.trouble {
        field(&mut text, "problem", said);
        field(&mut text, "mend", mend);
    }
    for (after, output) in &told.notes {
        let what = format!("{} after {}", output.status, shown(*after));
        field(&mut text, "note", &what);
        frame(&mut text, output);
        if let Some(queue) = &output.reply_queue {
            field(&mut text, "  to", queue);
        }
    }
    lines(&mut text, "stdout", &told.printed.stdout);
    lines(&mut text, "stderr", &told.printed.stderr);
    figures(&mut text, told);
    text
}

fn frame(text: &mut String, output: &Output) {
    let message = String::from_utf8_lossy(&output.message);
    let message: Vec<String> = message.lines().map(str::to_owned).collect();
    lines(text, "  message", &message);
    for (name, value) in headers(output.headers.as_ref()) {
        field(text, "  header", &format!("{name}={value}"));
    }
    if let Some(milliseconds) = output.retry_after_ms {
        field(text, "  retry after", &format!("{milliseconds} ms"));
    }
}

fn figures(text: &mut String, told: &AttemptResult) {
    field(text, "took", &shown(told.took));
    if let Some(used) = told.used {
        field(text, "cpu", &shown(used.cpu));
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let mebibytes = used.peak_bytes as f64 / f64::from(1 << 20);
        field(text, "peak memory", &format!("{mebibytes:.1} MiB"));
    }
    let version = match &told.hello {
        None => "version 1".to_owned(),
        Some(hello) => {
            let header = |name: &str| {
                let mut headers = headers(hello.headers.as_ref());
                let found = headers.find(|(other, _)| other == name);
                found.map_or("?", |(_, value)| value.as_str())
            };
            format!("version 2 ({} {})", header("sdk"), header("version"))
        }
    };
    let end = match told.exit {
        Some(exit) => exit.to_string(),
        None => "killed: it did not exit".to_owned(),
    };
    field(
        text,
        "worker",
        &format!("{version}, pid {}, {end}", told.pid),
    );
}

fn shown(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1} ms", time.as_secs_f64() * 1e3),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

fn lines(text: &mut String, name: &str, lines: &[String]) {
    let mut name = name;
    for line in lines {
        field(text, name, line);
        name = "";
    }
}

/// Adds a field, escaped since others may have written it.
fn field(text: &mut String, name: &str, value: &str) {
    let value = foreign::line(value);
    let line = format!("{name:<14} {value}");
    writeln!(text, "{}", line.trim_end()).expect("writing to a String does not fail");
}
