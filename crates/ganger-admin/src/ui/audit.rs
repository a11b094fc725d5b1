//! The page of changes by operators.

use axum::Extension;
use axum::http::Uri;
use ganger_queue::ledger::shown::AuditJson;
use maud::{Markup, html};

use super::api::Api;
use super::now::LEDGER_EVERY;
use super::page::{Page, Section};
use super::paths::AUDIT;
use super::query::Fields;
use super::shown::{text, time_of};
use crate::answer::Problem;

/// Number of changes on a page.
const ROWS: usize = 50;

/// Shows who has changed what. The query is that of `/v1/audit`.
pub(super) async fn page(Extension(api): Extension<Api>, uri: Uri) -> Result<Page, Problem> {
    let asked = asked(&uri);
    let changes: Vec<AuditJson> = api.get(&asked.at("/v1/audit")).await?;
    Ok(Page::new(Section::Audit, "Audit")
        .with_list("changes", rows(&changes, asked.get("subject")))
        .every(LEDGER_EVERY))
}

/// Returns the query of the API for that of the page, which is always as long.
fn asked(uri: &Uri) -> Fields {
    Fields::of(uri).with("limit", &ROWS.to_string())
}

fn rows(changes: &[AuditJson], subject: Option<&str>) -> Markup {
    let last = changes.last().filter(|_| changes.len() == ROWS);
    html! {
        div.wide tabindex="0" {
            table.cards {
                thead { tr { th { "When" } th { "Who" } th { "What" } th { "Subject" } th { "More" } } }
                tbody {
                    @for change in changes {
                        tr {
                            td { (time_of(&change.at)) }
                            td.cut { (text(change.actor.as_deref().unwrap_or("unknown"))) }
                            td { (change.action.replace('_', " ")) }
                            td.cut { a href=(Fields::from([("subject", &*change.subject)]).at(AUDIT)) { (text(&change.subject)) } }
                            td.cut.main { @if !change.detail.is_null() { code { (text(&change.detail.to_string())) } } }
                        }
                    }
                    @if changes.is_empty() { tr { td colspan="5" { "No change is recorded." } } }
                }
            }
        }
        @if let Some(last) = last {
            @let asked = Fields::default().with("before", &last.id.to_string());
            @let asked = match subject { Some(subject) => asked.with("subject", subject), None => asked };
            p { a href=(asked.at(AUDIT)) { "Older changes" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_page_is_its_own() {
        let uri = "/ui/audit?limit=5&subject=a%26b&limit=6".parse().unwrap();
        let expected = "/v1/audit?subject=a%26b&limit=50";
        assert_eq!(asked(&uri).at("/v1/audit"), expected);
    }
}
