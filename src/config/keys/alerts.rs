//! The keys of `[alerts]`: whom to tell when something is wrong, and when that is so.

use std::path::PathBuf;
use std::time::Duration;

use super::secret_file::secret_file;
use super::shared::{DAY, HOUR, Surroundings};
use crate::config::model::{AlertForm, AlertsConfig, Secret};
use crate::config::print;
use crate::config::reader::Reader;
use crate::config::value_types::choice::choice;
use crate::config::value_types::compound::off_or;
use crate::config::value_types::{WEB_RULE, Wrong, duration, integer, is_web, web_url, word};

/// The section.
const SECTION: &str = "alerts";

/// Whether this build can send any.
const BUILT: bool = cfg!(feature = "alerts");

const MINUTE: Duration = Duration::from_secs(60);

/// Reads `[alerts]`. Where it is left out nobody is told, and nothing of it is printed.
pub(super) fn alerts(t: &mut Reader<'_>, around: Surroundings<'_>) -> Option<AlertsConfig> {
    let is_given = t.has(SECTION);
    let alerts = t.table(
        SECTION,
        "A webhook that is told when a pool is degraded, its source is down, its workers crash again \
         and again, many of its messages are dead-lettered, one waits for long or its rolling restart has \
         stopped, and when that is over.",
        |t| section(t, around, is_given),
    );
    if !is_given {
        t.print(SECTION, None);
    }
    alerts
}

fn section(t: &mut Reader<'_>, around: Surroundings<'_>, is_given: bool) -> Option<AlertsConfig> {
    let webhook = webhook(t, around, is_given);
    let form = t.or(
        "form",
        choice(&[("json", AlertForm::Json), ("slack", AlertForm::Slack)]),
        "json",
        "What is sent: a JSON object with all that is known, or the text that Slack's incoming \
         webhooks take.",
    );
    let ca_file = ca_file(t, around);
    let rules = AlertsConfig {
        webhook: Secret::default(),
        form,
        ca_file,
        dead_letters: t.or(
            "dead_letters",
            off_or(integer(0..=1_000_000_000)),
            "10",
            "How many messages of a pool may be dead-lettered within the `window`; more are an alert.",
        ),
        crashes: t.or(
            "crashes",
            off_or(integer(1..=1_000_000)),
            "5",
            "So many crashes of a pool's workers within the `window` are a crash loop. What the daemon \
             ends itself, as for a timeout or a recycling, is none.",
        ),
        waiting: t.or(
            "waiting",
            off_or(duration(Duration::from_secs(1)..=30 * DAY)),
            "1h",
            "How long a message may wait in the queue of a pool; longer is an alert.",
        ),
        window: t.or(
            "window",
            duration(Duration::from_secs(1)..=DAY),
            "1m",
            "The time that dead letters and crashes are counted over.",
        ),
        hold: t.or(
            "hold",
            duration(Duration::ZERO..=DAY),
            "30s",
            "How long something must be wrong before it is told, and right before that is told. A \
             rolling restart that has stopped is told at once.",
        ),
        repeat: t.or(
            "repeat",
            off_or(duration(MINUTE..=30 * DAY)),
            "off",
            "How often an alert that goes on is sent again.",
        ),
        timeout: t.or(
            "timeout",
            duration(Duration::from_millis(100)..=HOUR),
            "10s",
            "How long the webhook may take to answer.",
        ),
    };
    let webhook = Secret::new(webhook?);
    Some(AlertsConfig { webhook, ..rules })
}

fn ca_file(t: &mut Reader<'_>, around: Surroundings<'_>) -> Option<PathBuf> {
    let ca_file = t.maybe(
        "ca_file",
        word(),
        "PEM: the authorities that may have signed the webhook's certificate, relative to the \
         directory of this file; left out, the system's.",
    );
    let ca_file = ca_file.map(|file: String| around.directory.join(file));
    let shown = ca_file.as_ref();
    t.print(
        "ca_file",
        shown.map(|file| print::text(&file.to_string_lossy())),
    );
    ca_file
}

fn webhook(t: &mut Reader<'_>, around: Surroundings<'_>, is_given: bool) -> Option<String> {
    let given = t.maybe(
        "webhook",
        web_url(),
        "The URL that alerts are sent to by POST, with http:// or https://. Who knows it may send to \
         it: best from a variable, as in `\"${SLACK_WEBHOOK}\"`. This or `webhook_file` must be given.",
    );
    let file = secret_file(
        t,
        around,
        "webhook",
        "webhook_file",
        "A file that holds the URL, instead of `webhook`; relative to the directory of this file.",
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
    if is_given && !t.has("webhook") && !t.has("webhook_file") {
        let help = "write webhook = \"https://…\" or a webhook_file, or leave the section out";
        t.missing("webhook", help);
    } else if is_given && !BUILT {
        let help = "build it with the feature `alerts`, or leave the section out";
        let key = if t.has("webhook") {
            "webhook"
        } else {
            "webhook_file"
        };
        t.wrong(
            key,
            &Wrong::new("is of no use to this build, which has no alerts", help),
        );
    }
    webhook
}
