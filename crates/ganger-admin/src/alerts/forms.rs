//! Forms of a message: each a function from an alert to JSON. Texts of others, such as errors, stay text in
//! each: no link, no mention, no markup. Pure.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::alert::Scope;
use super::notice::{Notice, Sender};
use ganger_config::model::AlertForm;
use ganger_core::foreign;

/// Interval at which an ongoing alert is sent to Alertmanager.
pub(super) const KEPT_ALIVE_EVERY: Duration = Duration::from_secs(60);

/// Time after which Alertmanager ends an alert that is not repeated: its daemon is gone.
const ALERTMANAGER_ENDS_AFTER: Duration = Duration::from_secs(300);

/// Version of the form `json`. Fields may be added to a version; existing ones keep their meaning.
const VERSION: u32 = 1;

/// Maximum length of the text for Slack, in characters, before it is escaped. Slack cuts at 40,000, and no
/// character of ours becomes more than ten.
const SLACK_CHARS_MAX: usize = 3000;
/// Maximum length of a summary for PagerDuty, in characters.
const PAGERDUTY_SUMMARY_CHARS_MAX: usize = 1024;
/// Maximum length of a key for PagerDuty, in characters.
const PAGERDUTY_KEY_CHARS_MAX: usize = 255;
/// Maximum length of each of the few texts for Teams, in characters: Teams refuses messages of more than 28
/// KB.
const TEAMS_CHARS_MAX: usize = 1000;
/// Maximum number of lines of stderr in a form for people.
const LINES_MAX: usize = 8;
/// Maximum length of each, in characters.
const LINE_CHARS_MAX: usize = 200;

/// Returns the function for that form.
pub(super) fn form(form: AlertForm) -> fn(&Notice<'_>) -> Value {
    match form {
        AlertForm::Json => plain,
        AlertForm::Slack => slack,
        AlertForm::Teams => teams,
        AlertForm::PagerDuty => pagerduty,
        AlertForm::Alertmanager => alertmanager,
    }
}

fn plain(notice: &Notice<'_>) -> Value {
    let finding = notice.finding;
    json!({
        "version": VERSION,
        "id": notice.id,
        "state": notice.state(),
        "kind": finding.kind.as_str(),
        "severity": finding.kind.severity().as_str(),
        "pool": finding.pool,
        "source": finding.source,
        "queue": finding.queue,
        "summary": notice.summary,
        "details": finding.details,
        "error": finding.error,
        "stderr": finding.stderr,
        "command": finding.command,
        "url": notice.url,
        "since": seconds(notice.since),
        "at": seconds(notice.at),
        "ended": notice.ended,
        "daemon": notice.sender,
    })
}

/// Returns seconds since 1970, to the millisecond.
fn seconds(at: SystemTime) -> f64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    let ms = since.unwrap_or_default().as_millis();
    Duration::from_millis(ms.try_into().unwrap_or(u64::MAX)).as_secs_f64()
}

/// Returns lines for people, the first with state and summary.
fn lines(notice: &Notice<'_>) -> Vec<String> {
    let mut lines = vec![format!("[{}] {}", notice.state(), notice.summary)];
    let error = notice
        .error()
        .filter(|error| !notice.summary.contains(*error));
    lines.extend(error.map(|error| format!("last error: {error}")));
    let stderr = notice.stderr(LINES_MAX).iter();
    lines.extend(stderr.map(|line| format!("stderr: {}", cut(line, LINE_CHARS_MAX))));
    lines.extend(notice.command().map(|command| format!("run: {command}")));
    lines.extend(notice.url.iter().map(|url| format!("see: {url}")));
    lines
        .iter()
        .map(|line| foreign::line(line).into_owned())
        .collect()
}

fn signature(
    Sender {
        host, version, pid, ..
    }: &Sender,
) -> String {
    format!("ganger {version} on {host}, process {pid}")
}

fn cut(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).collect()
}

fn slack(notice: &Notice<'_>) -> Value {
    let text = cut(&lines(notice).join("\n"), SLACK_CHARS_MAX);
    let whole = format!("{text}\n{}", signature(notice.sender));
    let escaped = whole
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    json!({ "text": escaped })
}

/// Returns a message with an adaptive card. A `TextRun` shows its text unchanged, a `TextBlock` would not.
fn teams(notice: &Notice<'_>) -> Value {
    let color = match notice.ended {
        None => "attention",
        Some(_) => "good",
    };
    let mut paragraphs = lines(notice);
    paragraphs.push(signature(notice.sender));
    let block = |(number, text): (usize, &String)| {
        let mut run = json!({ "type": "TextRun", "text": cut(text, TEAMS_CHARS_MAX) });
        if number == 0 {
            run["weight"] = "bolder".into();
            run["color"] = color.into();
        }
        json!({ "type": "RichTextBlock", "inlines": [run] })
    };
    let body: Vec<Value> = paragraphs.iter().enumerate().map(block).collect();
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "msteams": { "width": "Full" },
                "body": body,
            },
        }],
    })
}

fn pagerduty(notice: &Notice<'_>) -> Value {
    let finding = notice.finding;
    let action = match notice.ended {
        None => "trigger",
        Some(_) => "resolve",
    };
    let mut event = json!({
        "routing_key": notice.integration_key,
        "event_action": action,
        "dedup_key": cut(&notice.id, PAGERDUTY_KEY_CHARS_MAX),
    });
    if notice.ended.is_none() {
        event["client"] = "ganger".into();
        if let Some(url) = &notice.url {
            event["client_url"] = url.as_str().into();
        }
        event["payload"] = json!({
            "summary": cut(&foreign::line(&notice.summary), PAGERDUTY_SUMMARY_CHARS_MAX),
            "source": notice.sender.host,
            "severity": finding.kind.severity().as_str(),
            "timestamp": rfc3339(notice.since),
            "component": finding.subject,
            "group": finding.source,
            "class": finding.kind.as_str(),
            "custom_details": {
                "pool": finding.pool,
                "queue": finding.queue,
                "error": finding.error,
                "stderr": finding.stderr,
                "command": finding.command,
                "details": finding.details,
                "daemon": notice.sender,
            },
        });
    }
    event
}

/// Returns an array, the form for several alerts. An alert that is not repeated within five minutes ends by
/// itself.
fn alertmanager(notice: &Notice<'_>) -> Value {
    let finding = notice.finding;
    let kind = finding.kind;
    let mut labels = Map::new();
    let mut label = |name: &str, value: &str| labels.insert(name.to_owned(), value.into());
    label("alertname", kind.as_str());
    label("job", "ganger");
    label("instance", &notice.sender.host);
    label("severity", kind.severity().as_str());
    // The same for all messages about the same.
    let of = match kind.scope() {
        Scope::Pool => "pool",
        Scope::Source => "source",
        Scope::Schedule => "schedule",
        Scope::Daemon => "of",
    };
    label(of, &finding.subject);
    let mut annotations = Map::new();
    annotations.insert("summary".to_owned(), notice.summary.as_str().into());
    annotations.extend(
        notice
            .error()
            .map(|error| ("error".to_owned(), error.into())),
    );
    let stderr = notice.stderr(LINES_MAX).join("\n");
    if !stderr.is_empty() {
        annotations.insert("stderr".to_owned(), stderr.into());
    }
    annotations.extend(
        notice
            .command()
            .map(|command| ("command".to_owned(), command.into())),
    );
    let ends = match notice.ended {
        None => notice.at + ALERTMANAGER_ENDS_AFTER,
        Some(_) => notice.at,
    };
    let mut alert = json!({
        "labels": labels,
        "annotations": annotations,
        "startsAt": rfc3339(notice.since),
        "endsAt": rfc3339(ends),
    });
    if let Some(url) = &notice.url {
        alert["generatorURL"] = url.as_str().into();
    }
    json!([alert])
}

fn rfc3339(at: SystemTime) -> String {
    let at = Timestamp::try_from(at);
    at.unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

#[cfg(test)]
mod tests;
