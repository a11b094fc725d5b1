//! The page of alerts: those that are active, and the webhooks that are told of them.

use axum::Extension;
use ganger_pool::overview::{ActiveAlert, AlertsStatus, Status, WebhookStatus};
use maud::{Markup, html};

use super::api::Api;
use super::commands::{command, commands};
use super::page::{Page, Section};
use super::paths::{CONFIG, STATUS, pool_path, schedule_path};
use super::shown::{count, since, text};
use super::silences::silence;
use crate::answer::Problem;

/// Shows the alerts.
pub(super) async fn page(Extension(api): Extension<Api>) -> Result<Page, Problem> {
    let status: Status = api.get(STATUS).await?;
    let page = Page::new(Section::Config, "Alerts");
    let Some(alerts) = status.alerts else {
        let none = html! {
            p.lead { "No alerts are sent: the configuration has no section " code { "[alerts]" } "." }
            p { a href=(CONFIG) { "Configuration" } }
        };
        return Ok(page.with("none", none));
    };
    Ok(page
        .with("sentence", sentence(&alerts))
        .with("active", active(&alerts.active))
        .with("webhooks", webhooks(&alerts.webhooks)))
}

fn sentence(alerts: &AlertsStatus) -> Markup {
    html! {
        p.lead {
            @match alerts.active.len() {
                0 => span.state.good { span aria-hidden="true" { "●" } " No alert is active" },
                1 => span.state.bad { span aria-hidden="true" { "▲" } " One alert is active" },
                many => span.state.bad { span aria-hidden="true" { "▲" } " " (many) " alerts are active" },
            }
            "; " (count(alerts.sent)) " messages sent since the start, " (count(alerts.failed)) " tries failed."
        }
        @if let Some(problem) = &alerts.problem { p.error { (text(problem)) } }
    }
}

/// Returns the page of an alert's subject.
pub(super) fn path_of(alert: &ActiveAlert) -> Option<String> {
    // That one is of a source.
    let of_schedule = alert.kind.starts_with("schedule_") && alert.kind != "schedule_unsent";
    let of_schedule = of_schedule.then(|| schedule_path(&alert.of));
    alert.pool.as_deref().map(pool_path).or(of_schedule)
}

fn active(alerts: &[ActiveAlert]) -> Markup {
    html! {
        h2 { "Active" }
        @if alerts.is_empty() { p.none { "Nothing is wrong that an alert is configured for." } }
        ul.problems {
            @for alert in alerts {
                li.(if alert.severity == "critical" { "critical" } else { "warning" }) {
                    strong {
                        @match path_of(alert) {
                            Some(path) => a href=(path) { (text(&alert.summary)) },
                            None => (text(&alert.summary)),
                        }
                    }
                    " " (since(alert.since))
                    p.none { (alert.severity) ", " (alert.kind.replace('_', " ")) }
                    p.remedy { code { (text(&alert.command)) } }
                    (silence(alert))
                }
            }
        }
    }
}

fn webhooks(webhooks: &[WebhookStatus]) -> Markup {
    html! {
        h2 { "Webhooks" }
        div.wide tabindex="0" {
            table {
                thead { tr {
                    th scope="col" { "Webhook" } th scope="col" { "Address" } th scope="col" { "Form" } th scope="col" { "State" }
                    th.number scope="col" { "Sent" } th.number scope="col" { "Failed tries" }
                } }
                tbody {
                    @for webhook in webhooks {
                        tr {
                            th scope="row" { (text(&webhook.name)) }
                            td.cut { (text(&webhook.place)) }
                            td { (text(&webhook.form)) }
                            td.cut {
                                @match &webhook.problem {
                                    None if webhook.sent == 0 => span.state.calm { span aria-hidden="true" { "○" } " nothing sent yet" },
                                    None => span.state.good { span aria-hidden="true" { "●" } " took its last message" },
                                    Some(problem) => {
                                        span.state.bad { span aria-hidden="true" { "▲" } " failed" } " " span.error { (text(problem)) }
                                    },
                                }
                            }
                            td.number { (count(webhook.sent)) }
                            td.number { (count(webhook.failed)) }
                        }
                    }
                    @if webhooks.is_empty() { tr { td colspan="6" { "No webhook is configured: alerts are in the log and in the metrics." } } }
                }
            }
        }
        (commands(&[command(&["alerts", "list"]), command(&["check", "--send-alert"])]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_lead_to_their_subjects() {
        let alert = |kind: &str, of: &str, pool: Option<&str>| ActiveAlert {
            kind: kind.to_owned(),
            severity: "critical".to_owned(),
            of: of.to_owned(),
            pool: pool.map(str::to_owned),
            summary: "<it>".to_owned(),
            command: String::new(),
            since: std::time::SystemTime::UNIX_EPOCH,
            silenced: None,
        };
        let schedule = alert("schedule_overdue", "a b", None);
        assert_eq!(path_of(&schedule).as_deref(), Some("/ui/schedules/a%20b"));
        let pool = alert("pool_degraded", "p", Some("p"));
        assert_eq!(path_of(&pool).as_deref(), Some("/ui/pools/p"));
        assert_eq!(path_of(&alert("source_down", "main", None)), None);
        assert!(active(&[schedule]).into_string().contains("&lt;it&gt;"));
    }
}
