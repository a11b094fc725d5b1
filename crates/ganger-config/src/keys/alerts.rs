//! The keys of `[alerts]`: the webhooks and the conditions for an alert.

use std::time::Duration;

use super::shared::{DAY, ReadContext};
use super::webhook;
use crate::model::{AlertsConfig, WebhookConfig};
use crate::reader::Reader;
use crate::value_types::compound::off_or;
use crate::value_types::{duration, integer};

/// Name of the section.
const SECTION: &str = "alerts";

const MINUTE: Duration = Duration::from_secs(60);

/// Reads `[alerts]`. If it is left out, no alerts are sent and nothing of it is printed.
pub(super) fn alerts(t: &mut Reader<'_>, around: ReadContext<'_>) -> Option<AlertsConfig> {
    let is_given = t.has(SECTION);
    let alerts = t.table(
        SECTION,
        "Webhooks that receive a message when a problem occurs, such as a degraded pool, a source \
         that is down, workers in a crash loop or unable to start, an open breaker, many dead \
         letters or a refused reload, and another one when it is resolved.",
        |t| section(t, around, is_given),
    );
    if !is_given {
        t.print(SECTION, None);
    }
    alerts
}

fn section(t: &mut Reader<'_>, around: ReadContext<'_>, is_given: bool) -> Option<AlertsConfig> {
    let webhooks = webhooks(t, around, is_given);
    let rules = AlertsConfig {
        webhooks: Vec::new(),
        dead_letters: t.or(
            "dead_letters",
            off_or(integer(0..=1_000_000_000)),
            "10",
            "Maximum number of messages of a pool that are dead-lettered within the `window` \
             without an alert.",
        ),
        crashes: t.or(
            "crashes",
            off_or(integer(1..=1_000_000)),
            "5",
            "Number of crashes of a pool's workers within the `window` that counts as a crash \
             loop. Workers that the daemon stops itself, as for a timeout or to recycle them, do \
             not count.",
        ),
        waiting: t.or(
            "waiting",
            off_or(duration(Duration::from_secs(1)..=30 * DAY)),
            "1h",
            "Maximum time that a message waits in the queue of a pool without an alert.",
        ),
        window: t.or(
            "window",
            duration(Duration::from_secs(1)..=DAY),
            "1m",
            "Period over which dead letters and crashes are counted.",
        ),
        paused: t.or(
            "paused",
            off_or(duration(Duration::from_secs(1)..=30 * DAY)),
            "1h",
            "Maximum time that an operator keeps a pool's intake stopped, by a pause, a drain or a \
             scale to 0, without an alert.",
        ),
        hold: t.or(
            "hold",
            duration(Duration::ZERO..=DAY),
            "30s",
            "Time for which a problem must last before it is reported, and for which it must be \
             absent before it is reported as resolved. A stopped rolling restart, a refused reload \
             and a long pause are reported at once.",
        ),
        repeat: t.or(
            "repeat",
            off_or(duration(MINUTE..=30 * DAY)),
            "off",
            "Interval at which an ongoing alert is sent again. The form `alertmanager` sends it \
             each minute in any case.",
        ),
    };
    let webhooks = webhooks.into_iter().collect::<Option<Vec<_>>>()?;
    (!webhooks.is_empty()).then_some(AlertsConfig { webhooks, ..rules })
}

/// Reads the webhook of the section itself, if it names one, and those of the list.
fn webhooks(
    t: &mut Reader<'_>,
    around: ReadContext<'_>,
    is_given: bool,
) -> Vec<Option<WebhookConfig>> {
    let (own, has_list) = (webhook::is_named(t), t.has("webhooks"));
    let first = webhook::read(t, around);
    let meaning = "Further webhooks, each in its own `[[alerts.webhooks]]`, with the keys that a webhook has \
         in `[alerts]`.";
    let more = t.list("webhooks", meaning, |t| {
        if !webhook::is_named(t) {
            t.missing("webhook", "write webhook = \"https://…\" or a webhook_file");
        }
        webhook::read(t, around)
    });
    if !has_list {
        t.print("webhooks", None);
    }
    if is_given && !own && !has_list {
        let help = "write webhook = \"https://…\", a webhook_file or [[alerts.webhooks]], or leave the \
                    section out";
        t.missing("webhook", help);
    }
    let first = own.then_some(first);
    let mut all: Vec<Option<WebhookConfig>> = first.into_iter().chain(more).collect();
    make_names_unique(&mut all);
    all
}

/// Appends a number to each name that an earlier webhook has.
fn make_names_unique(webhooks: &mut [Option<WebhookConfig>]) {
    let mut names: Vec<String> = Vec::new();
    for webhook in webhooks.iter_mut().flatten() {
        let given = webhook.name.clone();
        let others = (2..).map(|number| format!("{given}#{number}"));
        let mut all = std::iter::once(given.clone()).chain(others);
        let free = all.find(|name| !names.contains(name));
        webhook.name = free.unwrap_or(given);
        names.push(webhook.name.clone());
    }
}
