//! The keys of a webhook that alerts are sent to: in `[alerts]` itself and in each
//! `[[alerts.webhooks]]`.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::secret_file::secret_file;
use super::shared::{HOUR, ReadContext};
use crate::model::{AlertForm, Secret, WebhookConfig};
use crate::print;
use crate::reader::Reader;
use crate::value_types::choice::choice;
use crate::value_types::{WEB_RULE, Wrong, duration, is_web, name, text, web_url, word};

/// Prefix of a secret by the specification of Standard Webhooks.
const SECRET_PREFIX: &str = "whsec_";

/// Headers that the request sets itself.
const OWN_HEADERS: [&str; 8] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
];

/// Returns whether the table names a webhook, right or wrong.
pub(super) fn is_named(t: &Reader<'_>) -> bool {
    t.has("webhook") || t.has("webhook_file")
}

/// Reads a webhook; none if it is not named, or wrong.
pub(super) fn read(t: &mut Reader<'_>, around: ReadContext<'_>) -> Option<WebhookConfig> {
    let webhook = url(t, around);
    let given = t.maybe(
        "name",
        name(),
        "Name of the webhook in the log, the status and metrics; host and port of its URL if \
         omitted.",
    );
    let form = t.or(
        "form",
        choice(&AlertForm::ALL),
        "json",
        "Format of the messages: `json`, an object with all details; `slack`, the text for Slack's \
         incoming webhooks; `teams`, a card for a workflow of Microsoft Teams; `pagerduty`, an \
         event of PagerDuty's Events API v2; `alertmanager`, alerts of Alertmanager's API v2.",
    );
    let headers = headers(t);
    let signing_secret = signing_secret(t, around);
    let integration_key = integration_key(t, around, form);
    let ca_file = t.maybe(
        "ca_file",
        word(),
        "PEM file: the authorities that may have signed the webhook's certificate, relative to the \
         directory of this file; the system's if omitted.",
    );
    let ca_file = ca_file.map(|file: String| around.directory.join(file));
    let shown = ca_file.as_ref();
    t.print(
        "ca_file",
        shown.map(|file| print::text(&file.to_string_lossy())),
    );
    let timeout = t.or(
        "timeout",
        duration(Duration::from_millis(100)..=HOUR),
        "10s",
        "Maximum time for the webhook to answer.",
    );
    let webhook = webhook?;
    Some(WebhookConfig {
        name: given.unwrap_or_else(|| place(&webhook)),
        webhook: Secret::new(webhook),
        form,
        headers,
        signing_secret,
        integration_key,
        ca_file,
        timeout,
    })
}

/// Returns host and port, the only part of the URL that may be shown.
fn place(url: &str) -> String {
    let url = url::Url::parse(url).ok();
    let place = url.as_ref().and_then(|url| {
        let (host, port) = (url.host_str()?, url.port_or_known_default()?);
        Some(format!("{host}:{port}"))
    });
    place.unwrap_or_else(|| "webhook".to_owned())
}

fn url(t: &mut Reader<'_>, around: ReadContext<'_>) -> Option<String> {
    let given = t.maybe(
        "webhook",
        web_url(),
        "URL that alerts are sent to by POST, with http:// or https://. Whoever knows it may send \
         to it, so preferably from a variable, as in `\"${SLACK_WEBHOOK}\"`. This, `webhook_file` \
         or `[[alerts.webhooks]]` is required.",
    );
    let file = secret_file(
        t,
        around,
        "webhook",
        "webhook_file",
        "File with the URL, instead of `webhook`; relative to the directory of this file.",
    );
    if file.as_deref().is_some_and(|url| !is_web(url)) {
        let rule = format!("holds a URL that {WEB_RULE}");
        t.wrong("webhook_file", &Wrong::new(rule, ""));
    }
    let webhook = given.or(file);
    t.print(
        "webhook",
        webhook.as_ref().map(|_| print::hidden("webhook")),
    );
    webhook
}

/// Reads the headers. Values may be secrets, and none is shown.
fn headers(t: &mut Reader<'_>) -> BTreeMap<String, Secret> {
    let headers = t.map(
        "headers",
        "NAME",
        header,
        text(),
        "Headers of each request, as in `{ Authorization = \"Bearer ${TOKEN}\" }`.",
    );
    let shown = headers.keys();
    let shown = shown.map(|name: &String| (print::key(name), print::hidden(name)));
    t.print("headers", Some(print::table(shown.collect::<Vec<_>>())));
    let is_legal = |value: &String| value.chars().all(|c| (' '..='~').contains(&c));
    if !headers.values().all(is_legal) {
        t.wrong(
            "headers",
            &Wrong::new("has a value with characters other than printable ASCII", ""),
        );
    }
    let secret = |(name, value): (String, String)| (name, Secret::new(value));
    headers.into_iter().map(secret).collect()
}

fn header(name: &str) -> Result<String, Wrong> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let lower = name.to_ascii_lowercase();
    match !name.is_empty() && name.chars().all(is_token) {
        false => Err(Wrong::new("is not a valid name of a header", "")),
        true if OWN_HEADERS.contains(&&*lower) => Err(Wrong::new(
            "is a header that ganger sets itself",
            "leave it out",
        )),
        true => Ok(lower),
    }
}

fn signing_secret(t: &mut Reader<'_>, around: ReadContext<'_>) -> Option<Secret> {
    let given = t.maybe(
        "signing_secret",
        word(),
        "Secret that signs each request by the specification of Standard Webhooks, with \
         HMAC-SHA256 in the header `webhook-signature`: 24 to 64 bytes in Base64, with or without \
         the prefix `whsec_`.",
    );
    let file = secret_file(
        t,
        around,
        "signing_secret",
        "signing_secret_file",
        "File with the secret, instead of `signing_secret`; relative to the directory of this \
         file.",
    );
    let (key, text) = match (given, file) {
        (Some(text), _) => ("signing_secret", Some(text)),
        (None, text) => ("signing_secret_file", text),
    };
    let hidden = text.as_ref().map(|_| print::hidden("signing_secret"));
    t.print("signing_secret", hidden);
    let text: String = text?;
    let bytes = STANDARD.decode(text.strip_prefix(SECRET_PREFIX).unwrap_or(&text));
    match bytes {
        Ok(bytes) if (24..=64).contains(&bytes.len()) => Some(Secret::new(text)),
        Ok(_) | Err(_) => {
            let rule = "must be 24 to 64 bytes in Base64, with or without the prefix `whsec_`";
            let help = "make one with echo \"whsec_$(openssl rand -base64 32)\"";
            t.wrong(key, &Wrong::new(rule, help));
            None
        }
    }
}

fn integration_key(t: &mut Reader<'_>, around: ReadContext<'_>, form: AlertForm) -> Option<Secret> {
    let given = t.maybe(
        "integration_key",
        word(),
        "Integration key of a PagerDuty service; required by the form `pagerduty`.",
    );
    let file = secret_file(
        t,
        around,
        "integration_key",
        "integration_key_file",
        "File with the key, instead of `integration_key`; relative to the directory of this file.",
    );
    let key: Option<String> = given.or(file);
    let hidden = key.as_ref().map(|_| print::hidden("integration_key"));
    t.print("integration_key", hidden);
    let is_given = t.has("integration_key") || t.has("integration_key_file");
    match form {
        AlertForm::PagerDuty if !is_given => {
            let help = "PagerDuty shows it with the integration `Events API v2` of a service";
            t.missing("integration_key", help);
        }
        AlertForm::PagerDuty => {}
        AlertForm::Json | AlertForm::Slack | AlertForm::Teams | AlertForm::Alertmanager
            if is_given =>
        {
            let name = match t.has("integration_key") {
                true => "integration_key",
                false => "integration_key_file",
            };
            let rule = "has an effect with the form `pagerduty` only";
            t.wrong(name, &Wrong::new(rule, "leave it out"));
        }
        AlertForm::Json | AlertForm::Slack | AlertForm::Teams | AlertForm::Alertmanager => {}
    }
    key.map(Secret::new)
}
