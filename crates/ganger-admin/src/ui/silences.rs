//! The silence of an alert on a page: how long and why it is silenced, or a form to silence it.

use ganger_pool::overview::ActiveAlert;
use maud::{Markup, html};

use super::paths::{form, path};
use super::shown::{text, time_of};

/// Durations of a silence, each with its name.
const DURATIONS: [(&str, &str); 5] = [
    ("1h", "1 hour"),
    ("4h", "4 hours"),
    ("24h", "1 day"),
    ("7d", "1 week"),
    ("30d", "30 days"),
];

/// Shows the silence of an alert with its end, or the form to silence it.
pub(super) fn silence(alert: &ActiveAlert) -> Markup {
    html! {
        @match &alert.silenced {
            Some(silenced) => {
                p.silenced {
                    span.state.calm { span aria-hidden="true" { "◐" } " Silenced" } " until " (time_of(&silenced.until))
                    " by " (text(&silenced.by)) ": " (text(&silenced.reason))
                }
                form.actions method="post" action=(form("delete", &path("/v1/alerts/silences/{id}", &[&silenced.id.to_string()]))) {
                    button { "End the silence" }
                }
            }
            None => details.ask {
                summary { "Silence…" }
                form.filters method="post" action=(form("post", "/v1/alerts/silences")) {
                    p { "It is still shown here, and no webhook is told of it. If it lasts when the silence ends, they are." }
                    input type="hidden" name="kind" value=(alert.kind);
                    label { "For "
                        select name="for" { @for (value, name) in DURATIONS { option value=(value) { (name) } } }
                    }
                    label { "Which "
                        select name="of" {
                            option value=(alert.of) { "this alert" }
                            option value="" { "all of this kind" }
                        }
                    }
                    label { "Reason " input name="reason" required maxlength="200"; }
                    button { "Silence" }
                }
            },
        }
    }
}
