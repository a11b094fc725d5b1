//! What is sent of an alert: a JSON object for programs, or a text in the form of Slack. Pure.

use std::time::SystemTime;

use serde::Serialize;
use serde_json::{Map, Value};

use super::alert::farewell;
use super::told::Message;
use crate::config::model::AlertForm;
use crate::foreign;
use crate::https::host;
use crate::pool::status::unix_seconds;

/// The version of the JSON form. Fields may be added to one; what there is keeps its meaning.
const VERSION: u32 = 1;

/// The longest text for Slack, in characters, before it is escaped. Slack cuts at 40,000, and no
/// character of ours becomes more than ten.
const SLACK_CHARS_MAX: usize = 3000;

/// Who speaks.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Sender {
    /// The machine's name.
    pub(super) host: String,
    /// The daemon's version.
    pub(super) version: &'static str,
    /// Its process.
    pub(super) pid: u32,
}

impl Sender {
    /// This process.
    pub(super) fn this() -> Self {
        Self {
            host: host(),
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
        }
    }
}

/// The JSON form.
#[derive(Debug, Serialize)]
struct Body<'a> {
    version: u32,
    id: String,
    state: &'static str,
    kind: &'static str,
    pool: Option<&'a str>,
    source: &'a str,
    queue: Option<&'a str>,
    summary: &'a str,
    details: &'a Map<String, Value>,
    #[serde(serialize_with = "unix_seconds::serialize")]
    since: SystemTime,
    #[serde(serialize_with = "unix_seconds::serialize")]
    at: SystemTime,
    /// Why it is told to be over, if it is.
    ended: Option<&'static str>,
    daemon: &'a Sender,
}

/// The message as it is sent at that time.
pub(super) fn body(message: &Message, form: AlertForm, sender: &Sender, at: SystemTime) -> Vec<u8> {
    let finding = &message.alert.finding;
    let summary = match message.end {
        None => finding.summary.clone(),
        Some(end) => farewell(finding, end.why),
    };
    let state = match message.end {
        None => "firing",
        Some(_) => "resolved",
    };
    let written = match form {
        AlertForm::Slack => {
            let text = slack(&format!("[{state}] {summary}"), sender);
            serde_json::to_vec(&serde_json::json!({ "text": text }))
        }
        AlertForm::Json => serde_json::to_vec(&Body {
            version: VERSION,
            id: id(message, sender),
            state,
            kind: finding.kind.as_str(),
            pool: finding.pool.as_deref(),
            source: &finding.source,
            queue: finding.queue.as_deref(),
            summary: &summary,
            details: &finding.details,
            since: message.alert.since,
            at: message.end.map_or(at, |end| end.at),
            ended: message.end.map(|end| end.why.as_str()),
            daemon: sender,
        }),
    };
    written.expect("texts and numbers, by names that are texts, can be written as JSON")
}

/// The same whenever it is about the same, so that a daemon that starts again goes on with it.
fn id(message: &Message, sender: &Sender) -> String {
    let finding = &message.alert.finding;
    format!(
        "{}/{}/{}",
        sender.host,
        finding.kind.as_str(),
        finding.subject()
    )
}

/// A text that shows others' as it is: no link, no mention, no command of a terminal.
fn slack(text: &str, sender: &Sender) -> String {
    let Sender { host, version, pid } = sender;
    let text = foreign::line(text);
    let text: String = text.chars().take(SLACK_CHARS_MAX).collect();
    let whole = format!("{text}\nganger {version} on {host}, process {pid}");
    whole
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::alert::{Alert, AlertKind, Ended, Finding};
    use super::super::told::End;
    use super::*;

    fn message(summary: &str, end: Option<Ended>) -> Message {
        let finding = Finding {
            kind: AlertKind::RollStopped,
            pool: Some("p".into()),
            source: "main".into(),
            queue: Some("q".into()),
            summary: summary.into(),
            details: [("cause".to_owned(), Value::from("exited"))]
                .into_iter()
                .collect(),
        };
        let since = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
        let at = since + Duration::from_secs(60);
        Message {
            alert: Alert { finding, since },
            end: end.map(|why| End { why, at }),
        }
    }

    fn sent(message: &Message, form: AlertForm) -> Value {
        let sender = Sender {
            host: "host".into(),
            version: "1.2.3",
            pid: 7,
        };
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        serde_json::from_slice(&body(message, form, &sender, at)).unwrap()
    }

    #[test]
    fn the_json_form_is_as_it_is_documented() {
        let expected = serde_json::json!({
            "version": 1,
            "id": "host/roll_stopped/p",
            "state": "firing",
            "kind": "roll_stopped",
            "pool": "p",
            "source": "main",
            "queue": "q",
            "summary": "it has stopped",
            "details": { "cause": "exited" },
            "since": 1.5,
            "at": 100.0,
            "ended": null,
            "daemon": { "host": "host", "version": "1.2.3", "pid": 7 },
        });
        let firing = sent(&message("it has stopped", None), AlertForm::Json);
        assert_eq!(firing, expected);
        let over = sent(
            &message("it has stopped", Some(Ended::Over)),
            AlertForm::Json,
        );
        let changed = ["state", "summary", "at", "ended"];
        for (name, value) in over.as_object().unwrap() {
            assert_eq!(
                *value == expected[name],
                !changed.contains(&&**name),
                "{name}"
            );
        }
        assert_eq!(
            (&over["ended"], &over["at"]),
            (&"over".into(), &61.5.into())
        );
    }

    #[test]
    fn what_others_wrote_is_nothing_but_text_for_slack() {
        let evil = "<!channel> <https://evil|click> & \u{1b}[2J\nforged";
        let text = sent(&message(evil, None), AlertForm::Slack);
        assert_eq!(text.as_object().unwrap().len(), 1);
        let text = text["text"].as_str().unwrap();
        let expected = "[firing] &lt;!channel&gt; &lt;https://evil|click&gt; &amp; \\u{1b}[2J\\nforged\n\
                        ganger 1.2.3 on host, process 7";
        assert_eq!(text, expected);
        let over = sent(&message("x", Some(Ended::PoolGone)), AlertForm::Slack);
        let over = over["text"].as_str().unwrap();
        assert!(
            over.starts_with("[resolved] a rolling restart of pool `p` had stopped: "),
            "{over}"
        );
    }

    #[test]
    fn slack_is_sent_no_more_than_it_takes() {
        for sign in ["<", "\u{1b}", "漢"] {
            let long = sent(&message(&sign.repeat(100_000), None), AlertForm::Slack);
            let text = long["text"].as_str().unwrap();
            assert!(text.chars().count() < 40_000, "{}", text.len());
            assert!(text.contains("on host"), "the end is there");
        }
    }
}
