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
use super::dead::{
    FILTERS, LOOKS_FOR, PoolPages, as_commands, dead_letters, filter, groups_table, table,
};
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
    let counts_all = fields.get("count").is_some();
    let looked = sought.with("within", if counts_all { "" } else { LOOKS_FOR });
    let groups = looked.at(&format!("{}/groups", dead_api(source)));
    let limit = EXAMPLES.to_string();
    let examples = looked.with("limit", &limit).at(&dead_api(source));
    // One after the other: of a broker's queue only one can read.
    let DeadGroups { groups, until } = api.get(&groups).await?;
    let examples: Letters = api.get(&examples).await?;
    let examples = dead_letters(examples)?;
    let pools = PoolPages::read(api).await?;
    let all = Matching {
        number: groups.iter().map(|group| group.count).sum(),
        until,
    };
    let (verb, title) = match change {
        Change::Retry => ("Retry", format!("Retry dead letters of {source}")),
        Change::Drop => ("Drop", format!("Drop dead letters of {source}")),
    };
    let page = Page::new(Section::DeadLetters, title)
        .with("what", subject(&sought, &all, change))
        .with("do", deed(source, &sought, &all, change))
        .with("groups", in_groups(source, &groups, &pools));
    let page = match all.number {
        0 => page,
        _ => page.with("examples", shown_examples(source, &examples, &all, &pools)),
    };
    let lines: Vec<String> = as_commands(source, &sought)
        .into_iter()
        .filter(|line| line.starts_with(&format!("ganger dead {}", verb.to_lowercase())))
        .flat_map(|line| [format!("{line} --dry-run"), format!("{line} --background")])
        .collect();
    Ok(page.with("commands", commands(&lines)).still())
}

/// Dead letters that match.
#[derive(Debug)]
struct Matching {
    /// Number of those that were counted.
    number: u64,
    /// Time of the last failure of the last one that was looked at, if there was no time for the rest.
    until: Option<String>,
}

impl Matching {
    fn words(&self) -> String {
        let at_least = self.until.as_ref().map_or("", |_| "At least ");
        match self.number {
            1 => format!("{at_least}1 dead letter"),
            number => format!("{at_least}{} dead letters", count(number)),
        }
    }

    /// Returns the word for one, or the word for several.
    fn one_or(&self, one: &'static str, several: &'static str) -> &'static str {
        if self.number == 1 { one } else { several }
    }

    /// Returns the heading of that many examples.
    fn heading_of(&self, examples: usize) -> String {
        let are_all = self.until.is_none() && self.number <= examples as u64;
        match (are_all, examples) {
            (true, _) => self.one_or("This is it", "These are they").to_owned(),
            (false, 1) => "The oldest one".to_owned(),
            (false, examples) => format!("The oldest {examples}"),
        }
    }
}

fn subject(sought: &Fields, all: &Matching, change: Change) -> Markup {
    html! {
        p.lead {
            @match (all.number, &all.until, change) {
                (0, None, _) => "No dead letter matches: there is nothing to do.",
                (0, Some(until), _) => { "None of the oldest dead letters matches, up to " (time_of(until)) "." },
                (_, _, Change::Retry) => {
                    (all.words()) " would go back to the queue " (all.one_or("it", "they"))
                    " came from, with a clean count of attempts."
                },
                (_, _, Change::Drop) => {
                    (all.words()) " would be deleted for good, with " (all.one_or("its message", "their messages"))
                    ". This can't be undone."
                },
            }
        }
        @if all.until.is_some() {
            p {
                strong { "Not complete: " } "only the oldest are counted. "
                a href={ (sought.with("count", "all").at("")) } { "Count all" } ", which takes longer."
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

fn deed(source: &str, sought: &Fields, all: &Matching, change: Change) -> Markup {
    let back = sought.at(&dead_path(source));
    let verb = match change {
        Change::Retry => "retry",
        Change::Drop => "drop",
    };
    let these = match all.until {
        Some(_) => "all that match".to_owned(),
        None => all.words(),
    };
    html! {
        form.actions method="post" action=(form("post", "/v1/jobs")) {
            @if all.number > 0 {
                input type="hidden" name="change" value=(verb);
                input type="hidden" name="source" value=(source);
                @if all.until.is_none() { input type="hidden" name="expected:int" value=(all.number); }
                input type="hidden" name="back" value=(JOB);
                input type="hidden" name="said" value="job started";
                (sought.hidden())
                label { "At most " input type="number" name="rate:int" min="1" max="1000000" placeholder="any"; " per second" }
                @match change {
                    Change::Retry => button { "Retry " (these) },
                    Change::Drop => button.danger { "Drop " (these) },
                }
            }
            a.button href=(back) { "Back to the list" }
        }
        @if all.number > 0 { p.none { "It is done in the background. Those that fail after this page was made are not included." } }
    }
}

fn in_groups(source: &str, groups: &[Group], pools: &PoolPages) -> Markup {
    html! {
        @if groups.len() > 1 {
            h2 { "By error" }
            (groups_table(source, &groups[..groups.len().min(EXAMPLES)], pools))
            @if groups.len() > EXAMPLES { p.none { "And " (groups.len() - EXAMPLES) " rarer errors." } }
        }
    }
}

fn shown_examples(
    source: &str,
    examples: &[DeadLetter],
    all: &Matching,
    pools: &PoolPages,
) -> Markup {
    html! {
        h2 { (all.heading_of(examples.len())) }
        (table(source, examples, pools, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(number: u64, until: Option<&str>, change: Change) -> String {
        let all = Matching {
            number,
            until: until.map(str::to_owned),
        };
        let sought = Fields::from([("pool", "a&b"), ("before", "2026-11-30T00:00:00Z")]);
        let parts = [
            subject(&sought, &all, change),
            deed("main", &sought, &all, change),
        ];
        parts.map(Markup::into_string).concat()
    }

    #[test]
    fn examples_are_all_only_if_all_were_looked_at() {
        let heading = |number, until: Option<&str>, examples| {
            let until = until.map(str::to_owned);
            Matching { number, until }.heading_of(examples)
        };
        let until = Some("2026-11-29T00:00:00Z");
        assert_eq!(heading(2, None, 2), "These are they");
        assert_eq!(heading(1, None, 1), "This is it");
        assert_eq!(heading(11, None, 10), "The oldest 10");
        assert_eq!(heading(2, until, 2), "The oldest 2");
        assert_eq!(heading(1, until, 1), "The oldest one");
    }

    #[test]
    fn one_dead_letter_is_one() {
        let one = shown(1, None, Change::Retry);
        let words = "1 dead letter would go back to the queue it came from";
        assert!(one.contains(words), "{one}");
        let several = shown(2, None, Change::Drop);
        assert!(several.contains("with their messages"), "{several}");
    }

    #[test]
    fn a_number_that_is_not_complete_is_none_to_confirm() {
        let whole = shown(120, None, Change::Drop);
        for part in ["deleted for good", "Drop 120 dead letters", "expected:int"] {
            assert!(whole.contains(part), "{part}: {whole}");
        }
        assert!(!whole.contains("Count all"), "{whole}");
        let some = shown(120, Some("2026-11-29T00:00:00Z"), Change::Retry);
        for part in [
            "At least 120 dead letters",
            ">Retry all that match<",
            "href=\"?pool=a%26b&amp;before=2026-11-30T00%3A00%3A00Z&amp;count=all\"",
        ] {
            assert!(some.contains(part), "{part}: {some}");
        }
        assert!(!some.contains("expected:int"), "{some}");
        for until in [None, Some("2026-11-29T00:00:00Z")] {
            let none = shown(0, until, Change::Drop);
            assert!(!none.contains("<button"), "{none}");
            assert_eq!(none.contains("Count all"), until.is_some(), "{none}");
        }
    }
}
