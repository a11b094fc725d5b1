//! The page that finds things: an id, a name, the error of dead letters. It answers in time, and says who did not.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use axum::Extension;
use axum::http::Uri;
use axum::response::{IntoResponse, Redirect, Response};
use futures_util::future::{join, join_all, join4};
use ganger_pool::overview::Status;
use ganger_queue::client::SourceInfo;
use ganger_queue::client::shown::DeadLetterJson;
use ganger_queue::dead_letter::DeadLetter;
use ganger_queue::ledger::shown::{OccurrenceDetailsJson, OccurrenceJson, ScheduleJson};
use maud::{Markup, html};
use tokio::time::{Instant, timeout_at};

use super::api::Api;
use super::dead::dead_letter;
use super::page::{Page, Section};
use super::paths::{
    SEARCH, STATUS, dead_api, dead_letter_path, dead_path, path, pool_path, queue_path, run_api,
    run_path, schedule_path,
};
use super::query::Fields;
use super::queue::{queues, reads};
use super::search_words::Search;
use super::shown::{first, state, text, time_of};
use crate::answer::Problem;
use crate::dead::Letters;
use crate::occurrences::Occurrences;

/// Time within which the answer is there, whoever has not answered.
const WITHIN: Duration = Duration::from_millis(1900);
/// Time for which dead letters are looked through for an id, and for an error.
const LOOKS_FOR: &str = "75ms";
/// Maximum number of hits of a kind.
const HITS_MAX: usize = 10;
/// Longest part of an error in a list, in characters.
const ERROR_CHARS: usize = 120;

/// Something that was found, with its page.
#[derive(Debug, Clone, PartialEq)]
struct Hit {
    kind: &'static str,
    path: String,
    name: String,
    more: Option<HitDetails>,
    /// True if it was found by its id.
    is_exact: bool,
}

/// More of something that was found.
#[derive(Debug, Clone, PartialEq)]
struct HitDetails {
    state: String,
    at: String,
    error: String,
}

/// Hits, and what could not be asked, with the reason.
#[derive(Debug, Default)]
struct Found {
    hits: Vec<Hit>,
    silent: Vec<(String, String)>,
    /// Lists that go on after the hits, each with its label.
    onward: Vec<(String, String)>,
}

impl Found {
    /// Returns the one hit, if there is no other where it was not looked either, or its id is the one that is sought.
    fn only(&self) -> Option<&Hit> {
        let [hit] = &*self.hits else { return None };
        let is_all = self.silent.is_empty() && self.onward.is_empty();
        (is_all || hit.is_exact).then_some(hit)
    }

    fn add(&mut self, other: Self) {
        self.hits.extend(other.hits);
        self.silent.extend(other.silent);
        self.onward.extend(other.onward);
    }
}

/// Finds what the query, `?q=`, says, and leads to it if there is one such thing.
pub(super) async fn page(Extension(api): Extension<Api>, uri: Uri) -> Result<Response, Problem> {
    let fields = Fields::of(&uri);
    let query = fields.get("q").unwrap_or_default().trim();
    let search = Search::of(query);
    if let Some(list) = search.list() {
        return Ok(Redirect::to(&list).into_response());
    }
    let page = Page::new(Section::Now, "Search").with("search", form(query));
    if !search.can_be_found() {
        return Ok(page.with("hits", apart(query)).still().into_response());
    }
    let found = find(&api, &search).await;
    if let Some(hit) = found.only() {
        return Ok(Redirect::to(&hit.path).into_response());
    }
    let page = page.with("hits", hits(query, &found));
    Ok(page.still().into_response())
}

/// Returns the lists of dead letters that are not looked through, since a broker's queue would be taken from others.
fn unsearched<'a>(
    sources: &'a [SourceInfo],
    search: &'a Search,
) -> impl Iterator<Item = (String, String)> + 'a {
    let brokers = sources.iter().filter(|source| !source.is_table());
    brokers.map(move |source| {
        let label = format!("Dead letters of {} with this error", source.name);
        let pool = search.word("pool").unwrap_or_default();
        let fields = Fields::from([("error", &*search.rest), ("pool", pool)]);
        (label, fields.at(&dead_path(&source.name)))
    })
}

async fn find(api: &Api, search: &Search) -> Found {
    let deadline = Instant::now() + WITHIN;
    let mut found = Found::default();
    if search.rest.is_empty() && search.words.is_empty() {
        return found;
    }
    let sources = in_time(
        deadline,
        "the daemon",
        api.get::<Vec<SourceInfo>>("/v1/sources"),
    );
    let (status, sources) = join(
        in_time(deadline, "the daemon", api.get::<Status>(STATUS)),
        sources,
    )
    .await;
    let (status, sources) = match (status, sources) {
        (Ok(status), Ok(sources)) => (status, sources),
        (Err(silent), _) | (_, Err(silent)) => {
            found.silent.push(silent);
            return found;
        }
    };
    found.hits.extend(of_pools(search, &status));
    let has_ledger = status.ledger.is_some();
    let rest = search.rest.as_str();
    let is_free = search.words.is_empty() && !rest.is_empty();
    // Beside the rest there is no word but the pool.
    let has_rest = !rest.is_empty();
    let of_dead = async {
        let asked = sources.iter().filter(|_| has_rest);
        // To look through those of a broker takes its queue away from others.
        let asked = asked.filter(|source| source.is_table());
        join_all(asked.map(|source| of_dead_letters(api, deadline, &source.name, search))).await
    };
    let schedules = async {
        match has_ledger && (is_free || search.word("schedule").is_some()) {
            true => of_schedules(api, deadline, search).await,
            false => Found::default(),
        }
    };
    let runs = async {
        match has_ledger && is_free {
            true => of_runs(api, deadline, rest).await,
            false => Found::default(),
        }
    };
    let correlated = async {
        match has_ledger && is_free {
            true => of_correlated(api, deadline, rest).await,
            false => Found::default(),
        }
    };
    found
        .onward
        .extend(unsearched(&sources, search).filter(|_| has_rest));
    let (schedules, runs, correlated, dead) = join4(schedules, runs, correlated, of_dead).await;
    for part in [schedules, runs, correlated].into_iter().chain(dead) {
        found.add(part);
    }
    let mut known = Vec::new();
    found.hits.retain(|hit| {
        let is_new = !known.contains(&hit.path);
        known.push(hit.path.clone());
        is_new
    });
    found
}

/// Returns an answer, or who has not given one in time and why.
async fn in_time<T>(
    deadline: Instant,
    who: &str,
    asked: impl Future<Output = Result<T, Problem>>,
) -> Result<T, (String, String)> {
    match timeout_at(deadline, asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(problem)) => Err((who.to_owned(), problem.detail().to_owned())),
        Err(_) => Err((who.to_owned(), "no answer in time".to_owned())),
    }
}

fn of_pools(search: &Search, status: &Status) -> Vec<Hit> {
    let hit = |kind, path: String, name: &str| Hit {
        kind,
        path,
        name: name.to_owned(),
        more: None,
        is_exact: false,
    };
    let pools = status
        .pools
        .iter()
        .filter(|_| search.rest.is_empty() || search.words.is_empty());
    let mut hits = Vec::new();
    for pool in pools {
        if search.names("pool", &pool.name) {
            hits.push(hit("Pools", pool_path(&pool.name), &pool.name));
        }
        for queue in queues(pool).filter(|queue| search.names("queue", queue)) {
            hits.push(hit("Queues", queue_path(&pool.source, queue), queue));
        }
    }
    for unread in &status.unread_queues {
        let is_read = status.pools.iter().any(|pool| reads(pool, &unread.queue));
        if !is_read && search.names("queue", &unread.queue) {
            hits.push(hit(
                "Queues",
                queue_path(&unread.source, &unread.queue),
                &unread.queue,
            ));
        }
    }
    hits
}

async fn of_schedules(api: &Api, deadline: Instant, search: &Search) -> Found {
    let mut found = Found::default();
    let name = search.word("schedule").unwrap_or(&search.rest);
    let asked = Fields::from([("text", name)]).at("/v1/schedules");
    let schedules = api.get::<Vec<ScheduleJson>>(&asked);
    match in_time(deadline, "the ledger", schedules).await {
        Err(silent) => found.silent.push(silent),
        Ok(schedules) => {
            let fitting = schedules
                .into_iter()
                .filter(|one| search.names("schedule", &one.name));
            found.hits.extend(fitting.take(HITS_MAX).map(|one| Hit {
                kind: "Schedules",
                path: schedule_path(&one.name),
                name: one.name,
                more: None,
                is_exact: false,
            }));
        }
    }
    // The whole name is the one that is meant.
    let exact = search.word("schedule");
    if found
        .hits
        .iter()
        .any(|hit| Some(hit.name.as_str()) == exact)
    {
        found.hits.retain(|hit| Some(hit.name.as_str()) == exact);
    }
    found
}

fn of_run(run: OccurrenceJson) -> Hit {
    Hit {
        kind: "Runs",
        path: run_path(&run.id),
        name: run.schedule.unwrap_or(run.queue),
        more: Some(HitDetails {
            state: run.state,
            at: run.ended_at.unwrap_or(run.queued_at),
            error: run.error.unwrap_or_default(),
        }),
        is_exact: false,
    }
}

/// Finds a run by its id, or by that of its message.
async fn of_runs(api: &Api, deadline: Instant, id: &str) -> Found {
    let path = run_api(id);
    let asked = async {
        match api.get::<OccurrenceDetailsJson>(&path).await {
            Ok(run) => Ok(vec![Hit {
                is_exact: true,
                ..of_run(run.occurrence)
            }]),
            Err(problem) if problem.is(axum::http::StatusCode::NOT_FOUND) => Ok(Vec::new()),
            Err(problem) => Err(problem),
        }
    };
    found(in_time(deadline, "the ledger", asked).await)
}

/// Finds runs by the correlation id of their messages.
async fn of_correlated(api: &Api, deadline: Instant, id: &str) -> Found {
    let limit = HITS_MAX.to_string();
    let path = Fields::from([("correlation_id", id), ("limit", &limit)]).at("/v1/occurrences");
    let asked = async {
        let runs: Occurrences = api.get(&path).await?;
        Ok(runs.occurrences.into_iter().map(of_run).collect())
    };
    found(in_time(deadline, "the ledger", asked).await)
}

fn found(asked: Result<Vec<Hit>, (String, String)>) -> Found {
    match asked {
        Ok(hits) => Found {
            hits,
            ..Found::default()
        },
        Err(silent) => Found {
            silent: vec![silent],
            ..Found::default()
        },
    }
}

/// Finds dead letters of a source by their id, that of their message, or a part of their error.
async fn of_dead_letters(api: &Api, deadline: Instant, source: &str, search: &Search) -> Found {
    let limit = HITS_MAX.to_string();
    let rest = search.rest.as_str();
    let api_path = dead_api(source);
    let pool = search.word("pool").unwrap_or_default();
    let by = |field: &str| Fields::from([(field, rest), ("pool", pool)]);
    let some = |field: &str| {
        let asked = by(field).with("limit", &limit);
        asked.with("within", LOOKS_FOR).at(&api_path)
    };
    let mut more = Vec::new();
    let asked = async {
        let one = path("/v1/dead/{source}/letters/{id}", &[source, rest]);
        let by_id = async {
            match search.words.is_empty() {
                true => api.get::<DeadLetterJson>(&one).await.ok(),
                false => None,
            }
        };
        let (by_message, by_error) = (some("message_id"), some("error"));
        // One after the other: there are few places at sources.
        let by_id = by_id.await;
        let by_message: Letters = api.get(&by_message).await?;
        let by_error: Letters = api.get(&by_error).await?;
        for (field, found) in [("message_id", &by_message), ("error", &by_error)] {
            more.push((field, found.next.clone(), found.until.clone()));
        }
        let hit = |letter, is_exact| {
            let hit = of_dead_letter(source, dead_letter(letter)?);
            Ok(Hit { is_exact, ..hit })
        };
        let by_id = by_id.into_iter().map(|letter| hit(letter, true));
        let others = by_message.letters.into_iter().chain(by_error.letters);
        by_id
            .chain(others.map(|letter| hit(letter, false)))
            .collect::<Result<Vec<Hit>, Problem>>()
    };
    let mut found = found(in_time(deadline, &format!("source {source}"), asked).await);
    let onward = more.into_iter().filter_map(|(field, next, until)| {
        let name = field.replace('_', " ");
        onward((source, &name), by(field), &next?, until)
    });
    found.onward.extend(onward);
    found
}

/// Returns the list of dead letters that goes on, and its label.
fn onward(
    (source, name): (&str, &str),
    asked: Fields,
    next: &str,
    until: Option<String>,
) -> Option<(String, String)> {
    let path = dead_path(source);
    let Some(until) = until else {
        return Some((
            format!("All dead letters of {source} with this {name}"),
            asked.at(&path),
        ));
    };
    let until = until.split('.').next()?.replace('T', " ");
    let label =
        format!("Go on: dead letters of {source} with this {name} that failed after {until} UTC");
    Some((label, asked.with("after", next).at(&path)))
}

fn of_dead_letter(source: &str, dead: DeadLetter) -> Hit {
    Hit {
        kind: "Dead letters",
        path: dead_letter_path(source, &dead.id),
        name: format!("{} of {}", dead.id, dead.pool),
        more: Some(HitDetails {
            state: dead.reason,
            at: dead.last_failed_at,
            error: dead.error,
        }),
        is_exact: false,
    }
}

fn form(query: &str) -> Markup {
    html! {
        form.filters action=(SEARCH) role="search" {
            label { "Search " input type="search" name="q" value=(query) maxlength="200" size="40" autofocus; }
            button { "Search" }
        }
    }
}

fn hits(query: &str, found: &Found) -> Markup {
    let mut kinds: BTreeMap<&str, Vec<&Hit>> = BTreeMap::new();
    for hit in &found.hits {
        kinds.entry(hit.kind).or_default().push(hit);
    }
    html! {
        @for (who, why) in &found.silent {
            p { span.state.warn { "▲ Not searched: " (text(who)) } " – " (text(why)) }
        }
        @if kinds.is_empty() {
            @if !query.is_empty() {
                p.lead { "Nothing is found for " strong { (text(&first(query, ERROR_CHARS))) } "." }
            }
            (help())
        }
        @for (kind, hits) in &kinds {
            h2 { (kind) }
            (of_kind(kind, hits))
        }
        @for (label, path) in &found.onward { p { a href=(path) { (text(label)) } } }
    }
}

/// Tells that parts of a search can't be combined, and which can.
fn apart(query: &str) -> Markup {
    html! {
        p.lead { "Nothing was searched: the parts of " strong { (text(&first(query, ERROR_CHARS))) } " can't be combined." }
        p { "These can be:" }
        dl.facts {
            dt { code { "state:failed schedule:night" } } dd { "runs of a schedule in a state, or " code { "unresolved" } }
            dt { code { "state:paused tag:billing schedule:night" } } dd { "schedules in a state, with a tag, with a text in their name; two of them suffice" }
            dt { code { "pool:mail refused" } } dd { "dead letters of a pool by a part of their error" }
        }
        (help())
    }
}

fn of_kind(kind: &str, hits: &[&Hit]) -> Markup {
    html! {
        @if hits.iter().all(|hit| hit.more.is_none()) {
            ul.plain { @for hit in hits { li { a href=(hit.path) { (text(&hit.name)) } } } }
        } @else {
            div.wide tabindex="0" {
                table.cards {
                    thead { tr {
                        th scope="col" { (kind) } th scope="col" { "State" } th scope="col" { "When" } th scope="col" { "Error" }
                    } }
                    tbody {
                        @for hit in hits {
                            tr {
                                th.cut scope="row" { a href=(hit.path) { (text(&hit.name)) } }
                                @if let Some(more) = &hit.more {
                                    td { @if kind == "Runs" { (state(&more.state)) } @else { (text(&more.state)) } }
                                    td { (time_of(&more.at)) }
                                    td.cut { (text(&first(&more.error, ERROR_CHARS))) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn help() -> Markup {
    html! {
        p { "These are found:" }
        dl.facts {
            dt { "an id" } dd { "of a run, a message, a correlation or a dead letter, in full" }
            dt { "a name" } dd { "or its beginning, of a pool, a queue or a schedule; " code { "pool:mail" } ", " code { "queue:mail" } " or " code { "schedule:night" } " for one kind" }
            dt { "an error" } dd { "a part of the error of a dead letter, as it is written; with " code { "pool:mail" } " of one pool" }
            dt { "a state" } dd { code { "state:failed" } ", " code { "state:unresolved" } ": runs; " code { "state:paused" } ": schedules" }
            dt { "a tag" } dd { code { "tag:billing" } ": schedules" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_were_not_searched_are_told() {
        let told = apart("queue:<x> y").into_string();
        assert!(told.contains("queue:&lt;x&gt; y") && told.contains("Nothing was searched"));
        assert!(!told.contains("Nothing is found"));
    }

    #[test]
    fn one_hit_is_the_only_one_if_all_was_searched() {
        let found = |is_exact| Found {
            hits: vec![Hit {
                kind: "Runs",
                path: "/ui/occurrences/1".to_owned(),
                name: "1".to_owned(),
                more: None,
                is_exact,
            }],
            ..Found::default()
        };
        let more = || vec![("more".to_owned(), "/ui/dead/main".to_owned())];
        let onward = |is_exact| Found {
            onward: more(),
            ..found(is_exact)
        };
        let silent = |is_exact| Found {
            silent: more(),
            ..found(is_exact)
        };
        assert!(found(false).only().is_some());
        assert!(onward(false).only().is_none() && silent(false).only().is_none());
        assert!(onward(true).only().is_some() && silent(true).only().is_some());
        let mut two = found(true);
        two.add(found(false));
        assert!(two.only().is_none() && Found::default().only().is_none());
    }

    #[test]
    fn lists_of_brokers_are_of_the_pool_that_is_asked_for() {
        let source = SourceInfo {
            name: "mq".to_owned(),
            kind: "rabbitmq".to_owned(),
            pools: Vec::new(),
        };
        let search = Search::of("pool:a refused");
        let lists: Vec<_> = unsearched(&[source], &search).collect();
        assert_eq!(lists[0].1, "/ui/dead/mq?error=refused&pool=a");
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_answer_is_named() {
        let deadline = Instant::now() + WITHIN;
        let never = std::future::pending::<Result<(), Problem>>();
        let (who, why) = in_time(deadline, "source main", never).await.unwrap_err();
        assert_eq!(
            (who.as_str(), why.as_str()),
            ("source main", "no answer in time")
        );
        let refused = async { Err::<(), _>(Problem::bad("why")) };
        assert!(in_time(deadline, "x", refused).await.is_err());
    }

    #[test]
    fn hits_are_shown_as_text_by_kind() {
        let hit = |kind, name: &str, more| Hit {
            kind,
            path: "/ui/pools/p".to_owned(),
            name: name.to_owned(),
            more,
            is_exact: false,
        };
        let more = HitDetails {
            state: "failed".to_owned(),
            at: String::new(),
            error: "<e>".to_owned(),
        };
        let found = Found {
            hits: vec![hit("Pools", "<p>", None), hit("Runs", "<r>", Some(more))],
            silent: vec![("source <s>".to_owned(), "<why>".to_owned())],
            onward: Vec::new(),
        };
        let shown = hits("<q>", &found).into_string();
        for tag in ["<p>", "<r>", "<e>", "<s>", "<why>"] {
            let tag = tag.trim_matches(['<', '>']);
            assert!(shown.contains(&format!("&lt;{tag}&gt;")), "{tag}: {shown}");
        }
        let none = hits("<q>", &Found::default()).into_string();
        assert!(none.contains("&lt;q&gt;") && none.contains("state:failed"));
    }
}
