//! Pages of dead letters: those of all sources by error, and those of one source.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Extension;
use axum::extract::Path;
use axum::http::Uri;
use futures_util::future::join_all;
use ganger_queue::client::SourceInfo;
use ganger_queue::client::shown::DeadLetterJson;
use ganger_queue::dead_letter::{DeadGroups, DeadLetter, Group};
use maud::{Markup, html};

use super::api::Api;
use super::commands::{command, commands, with_options};
use super::page::{Page, Section};
use super::paths::{
    DROP_ALL, JOBS, RETRY_ALL, dead_api, dead_letter_path, dead_path, form, path, pool_path,
};
use super::query::Fields;
use super::shown::{count, first, has_hidden, text, time_of};
use crate::answer::Problem;
use crate::dead::Letters;

/// Number of rows on a page.
const ROWS: usize = 50;
/// Longest part of an error that a list shows, and by which it is looked for, in characters.
const ERROR_CHARS: usize = 160;
/// Longest parts of an error and of a body in a row, in characters.
const LINE_CHARS: usize = 110;
const BODY_CHARS: usize = 40;
/// Time for which dead letters are looked through, unless all are asked for.
pub(super) const LOOKS_FOR: &str = "150ms";
/// Shortest time after which messages of a source are read again.
pub(super) const READ_EVERY: Duration = Duration::from_secs(5);

/// Fields by which dead letters are filtered, in the API as well, each with its label.
pub(super) const FILTERS: [(&str, &str); 6] = [
    ("pool", "Pool"),
    ("reason", "Reason"),
    ("error", "Error contains"),
    ("message_id", "Message id"),
    ("since", "Failed since"),
    ("before", "Failed before"),
];

/// Fields that are asked for less often.
const MORE: [&str; 4] = ["reason", "message_id", "since", "before"];

/// Returns the fields of a filter that are given.
pub(super) fn filter(fields: &Fields) -> Fields {
    fields.only(&FILTERS.map(|(name, _)| name))
}

/// Reads the dead letters of an answer.
pub(super) fn dead_letters(found: Letters) -> Result<Vec<DeadLetter>, Problem> {
    found.letters.into_iter().map(dead_letter).collect()
}

/// Reads a dead letter of an answer.
pub(super) fn dead_letter(json: DeadLetterJson) -> Result<DeadLetter, Problem> {
    DeadLetter::try_from(json).map_err(Problem::bad)
}

/// Pools that have pages. Dead letters outlive their pool.
#[derive(Debug, Default)]
pub(super) struct PoolPages(BTreeSet<String>);

impl PoolPages {
    pub(super) async fn read(api: &Api) -> Result<Self, Problem> {
        let sources: Vec<SourceInfo> = api.get("/v1/sources").await?;
        Ok(Self::of(&sources))
    }

    fn of(sources: &[SourceInfo]) -> Self {
        let pools = sources.iter().flat_map(|source| &source.pools);
        Self(pools.map(|pool| pool.name.clone()).collect())
    }

    /// Shows a pool, with a link to its page if there is one.
    pub(super) fn link(&self, pool: &str) -> Markup {
        html! {
            @if self.0.contains(pool) { a href=(pool_path(pool)) { (text(pool)) } }
            @else { (text(pool)) " " span.of { "(not configured any more)" } }
        }
    }
}

/// Has a page look again. A broker's dead letters are not read unasked: it has to put each back.
fn paced(page: Page, sources: &[SourceInfo]) -> Page {
    match sources.iter().all(SourceInfo::is_table) {
        true => page.every(READ_EVERY),
        false => page.still(),
    }
}

/// Shows the dead letters of all sources by error.
pub(super) async fn overview(Extension(api): Extension<Api>, uri: Uri) -> Result<Page, Problem> {
    let sources: Vec<SourceInfo> = api.get("/v1/sources").await?;
    let counts_all = Fields::of(&uri).get("count").is_some();
    let groups = sources.iter().map(|source| {
        let within = if counts_all { "" } else { LOOKS_FOR };
        let path = Fields::from([("within", within)]);
        let path = path.at(&format!("{}/groups", dead_api(&source.name)));
        let api = api.clone();
        async move { api.get::<DeadGroups>(&path).await }
    });
    let groups = join_all(groups).await;
    let counted = groups.iter().flatten();
    let is_complete = counted.clone().all(|counted| counted.until.is_none());
    let counted = counted.flat_map(|counted| &counted.groups);
    let all: u64 = counted.map(|group| group.count).sum();
    let page = Page::new(Section::DeadLetters, "Dead letters").with(
        "sum",
        html! {
            p.lead {
                @match all {
                    0 if groups.iter().any(Result::is_err) => "Not all sources have answered.",
                    0 => "No message was given up that is still here.",
                    _ if !is_complete => { "At least " (count(all)) " messages were given up." },
                    1 => "1 message was given up.",
                    _ => { (count(all)) " messages were given up." },
                }
            }
        },
    );
    let pools = PoolPages::of(&sources);
    let body = html! {
        @for (source, groups) in sources.iter().zip(&groups) { (of_source(source, groups.as_ref(), &pools)) }
        @if sources.is_empty() { p.none { "No source is configured." } }
    };
    let page = page.with("jobs", html! { p { a href=(JOBS) { "Jobs" } } });
    let page = page.with_list("sources", body).with(
        "commands",
        commands(&[command(&["dead", "list", "--by-error"])]),
    );
    Ok(match counts_all {
        true => page.still(),
        false => paced(page, &sources),
    })
}

fn of_source(
    source: &SourceInfo,
    counted: Result<&DeadGroups, &Problem>,
    pools: &PoolPages,
) -> Markup {
    let elsewhere: Vec<&str> = source
        .pools
        .iter()
        .filter(|pool| pool.dead_letters_at_broker)
        .map(|pool| pool.name.as_str())
        .collect();
    html! {
        h2 { a href=(dead_path(&source.name)) { (text(&source.name)) } " " span.of { (source.kind) } }
        @for pool in elsewhere {
            p.none { "Those of pool " (text(pool)) " go where the broker's policy sends them, and are not shown here." }
        }
        @match counted {
            Err(problem) => p.error { (text(problem.detail())) },
            Ok(DeadGroups { groups, .. }) if groups.is_empty() => p.none { "No dead letter." },
            Ok(DeadGroups { groups, until }) => {
                @if let Some(until) = until { p {
                    strong { "Not complete: " } "only the oldest are counted, up to " (time_of(until)) ". "
                    a href="/ui/dead?count=all" { "Count all" } ", which takes longer."
                } }
                (groups_table(&source.name, &groups[..groups.len().min(ROWS)], pools))
                @if groups.len() > ROWS {
                    p.none { "And " (groups.len() - ROWS) " rarer errors: " a href=(dead_path(&source.name)) { "all dead letters" } "." }
                }
            }
        }
    }
}

/// Shows dead letters by error.
pub(super) fn groups_table(source: &str, groups: &[Group], pools: &PoolPages) -> Markup {
    html! {
        div.wide tabindex="0" {
            table.cards {
                thead { tr {
                    th scope="col" { "Error" } th scope="col" { "Reason" } th scope="col" { "Pool" }
                    th.number scope="col" { "Dead letters" } th scope="col" { "First" } th scope="col" { "Last" }
                } }
                tbody { @for group in groups { (of_group(source, group, pools)) } }
            }
        }
    }
}

/// Returns the part of an error by which it is looked for. A part of its first line is enough, and all of it may be too
/// long for an address; a character that is not shown can't be copied with a command.
fn sought_of(error: &str) -> Option<&str> {
    let line = error.lines().next().unwrap_or_default();
    let mut parts = line.split(|sign: char| has_hidden(sign.encode_utf8(&mut [0; 4])));
    let part = parts.find(|part| !part.trim().is_empty())?;
    let end = part.char_indices().nth(ERROR_CHARS);
    Some(&part[..end.map_or(part.len(), |(end, _)| end)])
}

fn of_group(source: &str, group: &Group, pools: &PoolPages) -> Markup {
    let alike = Fields::from([("pool", &*group.pool), ("reason", &group.reason)]);
    let alike = alike.with("error", sought_of(&group.error).unwrap_or_default());
    let shown = first(&group.error, ERROR_CHARS);
    html! {
        tr {
            th.cut.main scope="row" {
                a href=(alike.at(&dead_path(source))) {
                    @if shown.is_empty() { "no error told" } @else { (text(&shown)) }
                }
            }
            td { (text(&group.reason)) }
            td { (pools.link(&group.pool)) }
            td.number data-label="Dead letters" { (count(group.count)) }
            td data-label="First" { (time_of(&group.first_failed_at)) }
            td data-label="Last" { (time_of(&group.last_failed_at)) }
        }
    }
}

/// Shows the dead letters of a source, the oldest first. The query is that of `/v1/dead/{source}`.
pub(super) async fn of_one(
    Extension(api): Extension<Api>,
    Path(source): Path<String>,
    uri: Uri,
) -> Result<Page, Problem> {
    let fields = Fields::of(&uri);
    let (sought, after) = (filter(&fields), fields.get("after"));
    let asked = sought.with("limit", &ROWS.to_string());
    let asked = asked.with("within", LOOKS_FOR);
    let asked = asked.with("after", after.unwrap_or_default());
    let mut info: Vec<SourceInfo> = api.get("/v1/sources").await?;
    let pools = PoolPages::of(&info);
    info.retain(|info| info.name == source);
    let found: Letters = api.get(&asked.at(&dead_api(&source))).await?;
    let (next, until) = (found.next.clone(), found.until.clone());
    let dead = dead_letters(found)?;
    let here = sought.at(&dead_path(&source));
    let page = Page::new(Section::DeadLetters, format!("Dead letters of {source}"))
        .with("filters", filters(&source, &info, &fields))
        .with("all", for_all(&source, &sought, dead.is_empty()))
        .with_list(
            "dead-letters",
            listed(&source, &dead, &pools, (&here, until.is_none())),
        )
        .with(
            "more",
            onward(
                &source,
                &sought,
                after.is_some(),
                (next.as_deref(), until.as_deref()),
            ),
        )
        .with("commands", commands(&as_commands(&source, &sought)));
    Ok(paced(page, &info))
}

fn filters(source: &str, info: &[SourceInfo], fields: &Fields) -> Markup {
    let pools = info.iter().flat_map(|source| &source.pools);
    let chosen = fields.get("pool");
    let mut pools: Vec<&str> = pools.map(|pool| pool.name.as_str()).collect();
    // Dead letters outlive their pool.
    pools.extend(chosen.filter(|chosen| !pools.contains(chosen)));
    html! {
        form.filters action=(dead_path(source)) {
            label {
                "Pool "
                select name="pool" {
                    option value="" { "all" }
                    @for pool in pools { option value=(pool) selected[chosen == Some(pool)] { (pool) } }
                }
            }
            (field("error", fields))
            button { "Filter" }
            @if !filter(fields).is_empty() { a href=(dead_path(source)) { "Show all" } }
            details open[!fields.only(&MORE).is_empty()] {
                summary { "More" }
                @for name in MORE { (field(name, fields)) }
            }
        }
    }
}

fn field(name: &str, fields: &Fields) -> Markup {
    let label = FILTERS.iter().find(|(own, _)| *own == name);
    let is_time = matches!(name, "since" | "before");
    html! {
        label {
            (label.map_or(name, |(_, label)| *label)) " "
            input name=(name) value=[fields.get(name)] placeholder=[is_time.then_some("2h, or a time in UTC")];
        }
    }
}

fn listed(
    source: &str,
    dead: &[DeadLetter],
    pools: &PoolPages,
    (here, is_complete): (&str, bool),
) -> Markup {
    let retry = form("post", &format!("{}/retry", dead_api(source)));
    let drop = form("delete", &dead_api(source));
    html! {
        @if dead.is_empty() {
            p.none { @if is_complete { "No dead letter matches." } @else { "None of those matches that were looked at." } }
        } @else {
            form method="post" action=(retry) {
                input type="hidden" name="back" value=(here);
                (table(source, dead, pools, true))
                div.actions.bar {
                    button { "Retry the ticked" }
                    details.ask {
                        summary { "Drop the ticked…" }
                        p { "The ticked dead letters" span data-ticked {} " are deleted for good, with their messages." }
                        button.danger formaction=(drop) { "Drop" }
                    }
                }
            }
        }
    }
}

/// Shows dead letters as a table; those of a form have a box to tick.
pub(super) fn table(
    source: &str,
    dead: &[DeadLetter],
    pools: &PoolPages,
    has_boxes: bool,
) -> Markup {
    html! {
        div.wide tabindex="0" {
            table.cards {
                thead { tr {
                    @if has_boxes { th scope="col" { input type="checkbox" data-all aria-label="Tick all on this page"; } }
                    th scope="col" { "Id" } th scope="col" { "Last failed" } th scope="col" { "Pool" }
                    th scope="col" { "Reason" } th scope="col" { "Error" } th scope="col" { "Message, body" }
                } }
                tbody { @for one in dead { (row(source, one, pools, has_boxes)) } }
            }
        }
    }
}

fn row(source: &str, dead: &DeadLetter, pools: &PoolPages, has_box: bool) -> Markup {
    let body = &dead.body[..dead.body.len().min(4 * BODY_CHARS)];
    html! {
        tr {
            @if has_box {
                td { input type="checkbox" name="ids:list" value=(dead.id) aria-label={ "Tick " (dead.id) }; }
            }
            th scope="row" { a href=(dead_letter_path(source, &dead.id)) { (text(&dead.id)) } }
            td { (time_of(&dead.last_failed_at)) }
            td { (pools.link(&dead.pool)) }
            td { (text(&dead.reason)) }
            td.cut.main { (text(&first(&dead.error, LINE_CHARS))) }
            td.cut {
                (text(&first(name_of(dead), BODY_CHARS)))
                @if !body.is_empty() { br; code.of { (text(&first(&String::from_utf8_lossy(body), BODY_CHARS))) } }
            }
        }
    }
}

/// Returns the text by which people know a message best.
fn name_of(dead: &DeadLetter) -> &str {
    let name = dead.message_id.as_deref().or(dead.message_name.as_deref());
    name.unwrap_or(&dead.correlation_id)
}

fn onward(
    source: &str,
    sought: &Fields,
    is_later: bool,
    (next, until): (Option<&str>, Option<&str>),
) -> Markup {
    let next = next.map(|next| sought.with("after", next).at(&dead_path(source)));
    html! {
        @if is_later || next.is_some() {
            p {
                @if let Some(until) = until { "Looked through those that failed up to " (time_of(until)) ". " }
                @if let Some(next) = next { a href=(next) { @if until.is_some() { "Go on" } @else { "Later dead letters" } } " " }
                @if is_later { a href=(sought.at(&dead_path(source))) { "From the oldest" } }
            }
        }
    }
}

fn for_all(source: &str, sought: &Fields, are_none: bool) -> Markup {
    let of = if sought.is_empty() {
        "all"
    } else {
        "all that match"
    };
    let to = |route: &str| sought.at(&path(route, &[source]));
    html! {
        @if let Some(error) = sought.get("error") {
            p { "Dead letters whose error contains " code { (text(error)) } ", whatever else is in it." }
        }
        @if !are_none {
            p.actions {
                a.button href=(to(RETRY_ALL)) { "Retry " (of) "…" }
                a.button href=(to(DROP_ALL)) { "Drop " (of) "…" }
            }
        }
    }
}

pub(super) fn as_commands(source: &str, sought: &Fields) -> Vec<String> {
    let fields = Fields::from([("source", source)]);
    let fields = sought
        .iter()
        .fold(fields, |sum, (name, value)| sum.with(name, value));
    let all = match sought.iter().all(|(name, _)| name == "pool") {
        true => " --all",
        false => "",
    };
    let of = |verb: &str| with_options(&command(&["dead", verb]), &fields);
    vec![
        of("list"),
        format!("{}{all}", of("retry")),
        format!("{}{all}", of("drop")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_the_same_as_a_command() {
        let lines = as_commands("main", &Fields::from([("message_id", "a b")]));
        assert_eq!(
            lines[1],
            "ganger dead retry --source main --message-id 'a b'"
        );
        let lines = as_commands("main", &Fields::from([("pool", "p")]));
        assert_eq!(lines[2], "ganger dead drop --source main --pool p --all");
    }

    #[test]
    fn an_error_is_looked_for_by_what_is_shown_of_it() {
        for (error, sought) in [
            ("no such card\nat line 1", Some("no such card")),
            ("gpj\u{202e}exe", Some("gpj")),
            ("\u{1b}[31mfailed\u{1b}[0m", Some("[31mfailed")),
            ("a\tb", Some("a\tb")),
            ("\u{200b} \u{200b}", None),
            ("", None),
        ] {
            assert_eq!(sought_of(error), sought, "{error:?}");
        }
    }

    #[test]
    fn a_page_says_by_which_part_of_an_error_it_looks() {
        let sought = Fields::from([("error", "<b>")]);
        let shown = for_all("main", &sought, true).into_string();
        assert!(
            shown.contains("whose error contains <code>&lt;b&gt;</code>"),
            "{shown}"
        );
        let shown = for_all("main", &Fields::default(), true).into_string();
        assert!(!shown.contains("contains"), "{shown}");
    }

    #[test]
    fn pools_that_are_configured_are_links() {
        let pools = PoolPages(BTreeSet::from(["a".to_owned()]));
        assert!(pools.link("a").into_string().contains("/ui/pools/a"));
        assert!(!pools.link("b").into_string().contains("href"));
    }

    #[test]
    fn a_group_leads_to_its_dead_letters() {
        let group = Group {
            error: format!("<{}", "x".repeat(10_000)),
            pool: "a/b".to_owned(),
            count: 3,
            ..Group::default()
        };
        let shown = of_group("main", &group, &PoolPages::default()).into_string();
        assert!(
            shown.contains("href=\"/ui/dead/main?pool=a%2Fb&amp;error=%3Cxxx"),
            "{shown}"
        );
        assert!(!shown.contains("<x"), "{shown}");
        assert!(shown.len() < 2000);
    }
}
