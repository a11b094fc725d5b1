//! Previews of a change of all dead letters that match: their number, their errors and examples, and the form that does
//! it.

use axum::Extension;
use axum::extract::Path;
use axum::http::Uri;
use ganger_queue::client::json::moment;
use ganger_queue::dead_letter::{DeadGroups, DeadLetter, Group};
use jiff::Timestamp;
use maud::{Markup, html};

use super::api::Api;
use super::commands::commands;
use super::dead::{FILTERS, as_commands, dead_letters, filter, groups_table, table};
use super::page::{Page, Section};
use super::paths::{JOB, dead_api, dead_path, form};
use super::query::Fields;
use super::shown::{count, text, time_of};
use crate::answer::Problem;
use crate::dead::Letters;

/// Number of examples.
const EXAMPLES: usize = 10;

/// A change of all dead letters that match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Retry,
    Drop,
}

/// Shows what a retry of all that match would send back. The query is the filter of `/v1/dead/{source}`.
pub(super) async fn retry_all(
    Extension(api): Extension<Api>,
    Path(source): Path<String>,
    uri: Uri,
) -> Result<Page, Problem> {
    preview(&api, &source, &Fields::of(&uri), Change::Retry).await
}

/// Shows what a drop of all that match would delete. The query is the filter of `/v1/dead/{source}`.
pub(super) async fn drop_all(
    Extension(api): Extension<Api>,
    Path(source): Path<String>,
    uri: Uri,
) -> Result<Page, Problem> {
    preview(&api, &source, &Fields::of(&uri), Change::Drop).await
}

async fn preview(
    api: &Api,
    source: &str,
    fields: &Fields,
    change: Change,
) -> Result<Page, Problem> {
    // A time that is told as so long ago is the same one when the button is pressed.
    let mut sought = filter(fields);
    for name in ["since", "before"] {
        if let Some(given) = sought.get(name) {
            let at = moment(given).map_err(|why| Problem::bad(format!("{name}: {why}")))?;
            sought = sought.with(name, &at.to_string());
        }
    }
    // What comes in later was not seen.
    if sought.get("before").is_none() {
        sought = sought.with("before", &Timestamp::now().to_string());
    }
    let groups = sought.at(&format!("{}/groups", dead_api(source)));
    let limit = EXAMPLES.to_string();
    let examples = sought.with("limit", &limit).at(&dead_api(source));
    // One after the other: of a broker's queue only one can read.
    let DeadGroups { groups, .. } = api.get(&groups).await?;
    let examples: Letters = api.get(&examples).await?;
    let examples = dead_letters(examples)?;
    let number: u64 = groups.iter().map(|group| group.count).sum();
    let (verb, title) = match change {
        Change::Retry => ("Retry", format!("Retry dead letters of {source}")),
        Change::Drop => ("Drop", format!("Drop dead letters of {source}")),
    };
    let page = Page::new(Section::DeadLetters, title)
        .with("what", subject(&sought, number, change))
        .with("do", deed(source, &sought, number, change))
        .with("groups", in_groups(source, &groups));
    let page = match number {
        0 => page,
        _ => page.with("examples", shown_examples(source, &examples, number)),
    };
    let all: Vec<String> = as_commands(source, &sought)
        .into_iter()
        .filter(|line| line.starts_with(&format!("ganger dead {}", verb.to_lowercase())))
        .flat_map(|line| [format!("{line} --dry-run"), format!("{line} --background")])
        .collect();
    Ok(page.with("commands", commands(&all)).still())
}

fn number_of(number: u64) -> String {
    match number {
        1 => "1 dead letter".to_owned(),
        _ => format!("{} dead letters", count(number)),
    }
}

fn subject(sought: &Fields, number: u64, change: Change) -> Markup {
    html! {
        p.lead {
            @match (number, change) {
                (0, _) => "No dead letter matches: there is nothing to do.",
                (_, Change::Retry) => {
                    (number_of(number)) " would go back to the queue they came from, with a clean count of attempts."
                },
                (_, Change::Drop) => {
                    (number_of(number)) " would be deleted for good, with their messages. This can't be undone."
                },
            }
        }
        @if sought.is_empty() {
            p { "No filter: all dead letters of the source." }
        } @else {
            dl.facts {
                @for (name, value) in sought.iter() {
                    @let label = FILTERS.iter().find(|(own, _)| *own == name).map_or(name, |(_, label)| *label);
                    dt { (label) }
                    dd { @match name { "since" | "before" => (time_of(value)), _ => (text(value)) } }
                }
            }
        }
    }
}

fn deed(source: &str, sought: &Fields, number: u64, change: Change) -> Markup {
    let back = sought.at(&dead_path(source));
    let verb = match change {
        Change::Retry => "retry",
        Change::Drop => "drop",
    };
    html! {
        form.actions method="post" action=(form("post", "/v1/jobs")) {
            @if number > 0 {
                input type="hidden" name="change" value=(verb);
                input type="hidden" name="source" value=(source);
                input type="hidden" name="expected:int" value=(number);
                input type="hidden" name="back" value=(JOB);
                input type="hidden" name="said" value="job started";
                (sought.hidden())
                label { "At most " input type="number" name="rate:int" min="1" max="1000000" placeholder="any"; " per second" }
                @match change {
                    Change::Retry => button { "Retry " (number_of(number)) },
                    Change::Drop => button.danger { "Drop " (number_of(number)) },
                }
            }
            a.button href=(back) { "Back to the list" }
        }
        @if number > 0 { p.none { "It is done in the background. Those that fail after this page was made are not included." } }
    }
}

fn in_groups(source: &str, groups: &[Group]) -> Markup {
    html! {
        @if groups.len() > 1 {
            h2 { "By error" }
            (groups_table(source, &groups[..groups.len().min(EXAMPLES)]))
            @if groups.len() > EXAMPLES { p.none { "And " (groups.len() - EXAMPLES) " rarer errors." } }
        }
    }
}

fn shown_examples(source: &str, examples: &[DeadLetter], number: u64) -> Markup {
    html! {
        h2 { @if number > examples.len() as u64 { "The oldest " (examples.len()) } @else { "These are they" } }
        (table(source, examples, false))
    }
}
