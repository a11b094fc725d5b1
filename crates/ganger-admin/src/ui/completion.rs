//! Completions of a search: words that narrow it, and the names that begin like its last word.

use std::collections::BTreeSet;

use axum::http::Uri;
use axum::{Extension, Json};
use ganger_pool::overview::Status;
use ganger_queue::ledger::shown::ScheduleJson;

use super::api::Api;
use super::paths::STATUS;
use super::query::Fields;
use super::queue::queues;
use super::search_words::WORDS;
use crate::answer::Problem;
use ganger_schedule::occurrence::OccurrenceState;

/// Maximum number of completions.
const COMPLETIONS_MAX: usize = 12;
/// Maximum number of schedules that are looked at: only such as have the text in their name or a tag.
const SCHEDULES_MAX: &str = "100";

/// States beside those of runs.
const OTHER_STATES: [&str; 6] = [
    "unresolved",
    "active",
    "paused",
    "disabled",
    "broken",
    "ended",
];

/// Names that can be searched for.
#[derive(Debug, Default)]
struct SearchNames {
    pools: BTreeSet<String>,
    queues: BTreeSet<String>,
    schedules: BTreeSet<String>,
    tags: BTreeSet<String>,
}

/// Returns whole searches that begin as the query, `?q=`, does.
pub(super) async fn complete(
    Extension(api): Extension<Api>,
    uri: Uri,
) -> Result<Json<Vec<String>>, Problem> {
    let fields = Fields::of(&uri);
    let query = fields.get("q").unwrap_or_default();
    let status: Status = api.get(STATUS).await?;
    let mut names = SearchNames::default();
    for pool in &status.pools {
        names.pools.insert(pool.name.clone());
        names.queues.extend(queues(pool).map(str::to_owned));
    }
    let (word, value) = match last_of(query).1 {
        last if !last.contains(':') => ("", last),
        last => last.split_once(':').unwrap_or_default(),
    };
    let is_of_schedules =
        ["schedule", "tag"].contains(&word) || (word.is_empty() && !value.is_empty());
    if is_of_schedules && status.ledger.is_some() {
        let fields = Fields::from([("text", value), ("limit", SCHEDULES_MAX)]);
        let schedules: Vec<ScheduleJson> = api.get(&fields.at("/v1/schedules")).await?;
        for schedule in schedules {
            names.schedules.insert(schedule.name);
            names.tags.extend(schedule.tags);
        }
    }
    Ok(Json(names.complete(query)))
}

/// Divides a search before its last word.
fn last_of(query: &str) -> (&str, &str) {
    let at = query.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    query.split_at(at)
}

impl SearchNames {
    fn complete(&self, query: &str) -> Vec<String> {
        let (before, last) = last_of(query);
        let names = |word: &str| -> Vec<&str> {
            let names = match word {
                "pool" => &self.pools,
                "queue" => &self.queues,
                "schedule" => &self.schedules,
                "tag" => &self.tags,
                _ => {
                    let of_runs = OccurrenceState::ALL.iter().map(|state| state.as_str());
                    return of_runs.chain(OTHER_STATES).collect();
                }
            };
            names.iter().map(String::as_str).collect()
        };
        let words = WORDS.iter().flat_map(|word| match last.split_once(':') {
            Some((begun, _)) if begun == *word => {
                let whole = names(word).into_iter().map(|name| format!("{word}:{name}"));
                whole.collect()
            }
            Some(_) => Vec::new(),
            None => vec![format!("{word}:")],
        });
        let free = [&self.pools, &self.schedules]
            .into_iter()
            .flatten()
            .cloned();
        let free = free.filter(|_| before.trim().is_empty() && !last.is_empty());
        let fits = |whole: &String| {
            // Words are divided by spaces, and a name that has one can't be searched for by a word.
            let is_begun = whole.to_lowercase().starts_with(&last.to_lowercase());
            is_begun && whole != last && !whole.contains(char::is_whitespace)
        };
        let fitting: BTreeSet<String> = words.chain(free).filter(fits).collect();
        let fitting = fitting.into_iter().take(COMPLETIONS_MAX);
        fitting.map(|whole| format!("{before}{whole}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_completed_at_its_last_word() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let names = SearchNames {
            pools: set(&["email", "export", "two words"]),
            queues: set(&["Emails"]),
            schedules: set(&["etl", "nightly"]),
            tags: set(&["billing", "größe"]),
        };
        for (query, expected) in [
            ("pool:e", &["pool:email", "pool:export"][..]),
            ("pool:email", &[]),
            ("queue:e", &["queue:Emails"]),
            ("e", &["email", "etl", "export"]),
            ("tw", &[]),
            ("state:fa tag:gR", &["state:fa tag:größe"]),
            ("state:fa", &["state:failed"]),
            ("state:pa", &["state:paused"]),
            ("connection pool:x", &[]),
            ("connection po", &["connection pool:"]),
            ("schedule:n", &["schedule:nightly"]),
            ("s", &["schedule:", "state:"]),
            ("other:e", &[]),
            ("constructor", &[]),
        ] {
            assert_eq!(names.complete(query), expected, "{query}");
        }
        assert_eq!(names.complete("").len(), WORDS.len());
    }
}
