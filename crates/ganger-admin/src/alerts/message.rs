//! Messages about alerts, as they are sent. Pure.

use std::time::SystemTime;

use super::alert::resolution;
use super::delivery_state::Message;
use super::forms::form;
use super::notice::{Notice, Sender};
use ganger_config::model::WebhookConfig;

/// Returns the message to that webhook as it is sent at that time.
pub(super) fn body(
    message: &Message,
    config: &WebhookConfig,
    sender: &Sender,
    at: SystemTime,
) -> Vec<u8> {
    let finding = &message.alert.finding;
    let key = config.integration_key.as_ref();
    let notice = Notice {
        id: id(message, sender),
        finding,
        summary: match message.end {
            None => finding.summary.clone(),
            Some(end) => resolution(finding, end.why),
        },
        since: message.alert.since,
        at: message.end.map_or(at, |end| end.at),
        ended: message.end.map(|end| end.why.as_str()),
        sender,
        url: sender
            .url
            .as_ref()
            .filter(|_| message.end.is_none())
            .map(|url| format!("{url}{}", finding.page())),
        integration_key: key.map_or("", |key| key.expose()),
    };
    let written = serde_json::to_vec(&form(config.form)(&notice));
    written.expect("texts and numbers, by names that are texts, can be written as JSON")
}

/// Returns the identity of the message: the same when it is sent again.
pub(super) fn name(message: &Message, sender: &Sender) -> String {
    let since = message.alert.since.duration_since(SystemTime::UNIX_EPOCH);
    let since = since.unwrap_or_default().as_millis();
    let state = message.end.map_or("firing", |_| "resolved");
    format!("{}/{since}/{state}", id(message, sender))
}

fn id(message: &Message, sender: &Sender) -> String {
    let finding = &message.alert.finding;
    let kind = finding.kind.as_str();
    format!("{}/{kind}/{}", sender.host, finding.subject)
}
