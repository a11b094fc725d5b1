//! Addresses: those of all pages, and those by which pages ask the API. A name becomes a part of one here alone.

use super::query::Fields;
use crate::browser::HOME;
use crate::client::segment;

pub(super) const NOW: &str = HOME;
pub(super) const ALERTS: &str = "/ui/alerts";
pub(super) const AUDIT: &str = "/ui/audit";
pub(super) const CONFIG: &str = "/ui/config";
pub(super) const DAEMONS: &str = "/ui/daemons";
pub(super) const EVENTS: &str = "/ui/events";
pub(super) const JOBS: &str = "/ui/jobs";
pub(super) const JOB: &str = "/ui/jobs/{id}";
pub(super) const REPORTS: &str = "/ui/reports";
pub(super) const REPORTS_CSV: &str = "/ui/reports.csv";
pub(super) const RUNS: &str = "/ui/occurrences";
pub(super) const RUN: &str = "/ui/occurrences/{id}";
pub(super) const SEARCH: &str = "/ui/search";
pub(super) const COMPLETIONS: &str = "/ui/search/completions";
pub(super) const SCHEDULES: &str = "/ui/schedules";
pub(super) const SCHEDULE: &str = "/ui/schedules/{name}";
/// Not below [`SCHEDULES`], where each name is that of a schedule.
pub(super) const NEW_SCHEDULE: &str = "/ui/new-schedule";
pub(super) const UPCOMING: &str = "/ui/upcoming";
pub(super) const POOL: &str = "/ui/pools/{name}";
pub(super) const QUEUE: &str = "/ui/queues/{name}";
pub(super) const SEND: &str = "/ui/queues/{name}/send";
pub(super) const DEAD: &str = "/ui/dead";
pub(super) const DEAD_OF: &str = "/ui/dead/{source}";
pub(super) const RETRY_ALL: &str = "/ui/dead/{source}/retry";
pub(super) const DROP_ALL: &str = "/ui/dead/{source}/drop";
pub(super) const DEAD_LETTER: &str = "/ui/dead/{source}/{id}";
pub(super) const EDIT: &str = "/ui/dead/{source}/{id}/edit";

/// Path of the status in the API. No page of all pools shows what each worker's process takes.
pub(super) const STATUS: &str = "/v1/status?usage=false";

/// Path of a form that is a request to the API with another method.
pub(super) const FORMS: &str = "/ui/do/";

/// Returns the path of a route, with names in its places.
pub(super) fn path(route: &str, names: &[&str]) -> String {
    let mut parts = route.split(['{', '}']);
    let mut path = parts.next().unwrap_or_default().to_owned();
    for name in names {
        // The word in the place, and what follows it.
        let (_, rest) = (parts.next(), parts.next());
        path.push_str(&segment(name).to_string());
        path.push_str(rest.unwrap_or_default());
    }
    path
}

/// Returns the path of a form that is a request with this method to a path of the API.
pub(super) fn form(method: &str, of_api: &str) -> String {
    format!("{}{method}{of_api}", FORMS)
}

/// Returns the page of a pool.
pub(crate) fn pool_path(pool: &str) -> String {
    path(POOL, &[pool])
}

/// Returns the page of a schedule.
pub(crate) fn schedule_path(name: &str) -> String {
    path(SCHEDULE, &[name])
}

/// Returns the page of a run.
pub(super) fn run_path(id: &str) -> String {
    path(RUN, &[id])
}

/// Returns the page of a queue.
pub(super) fn queue_path(source: &str, queue: &str) -> String {
    Fields::from([("source", source)]).at(&path(QUEUE, &[queue]))
}

/// Returns the page of the dead letters of a source.
pub(super) fn dead_path(source: &str) -> String {
    path(DEAD_OF, &[source])
}

/// Returns the page of a dead letter.
pub(super) fn dead_letter_path(source: &str, id: &str) -> String {
    path(DEAD_LETTER, &[source, id])
}

/// Returns the path of a pool in the API.
pub(super) fn pool_api(pool: &str) -> String {
    path("/v1/pools/{name}", &[pool])
}

/// Returns the path of a schedule in the API.
pub(super) fn schedule_api(name: &str) -> String {
    path("/v1/schedules/{name}", &[name])
}

/// Returns the path of a run in the API.
pub(super) fn run_api(id: &str) -> String {
    path("/v1/occurrences/{id}", &[id])
}

/// Returns the path of a source's dead letters in the API.
pub(super) fn dead_api(source: &str) -> String {
    path("/v1/dead/{source}", &[source])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parts_of_a_path() {
        for (name, part) in [
            ("nightly-1_a~b", "nightly-1_a~b"),
            ("..", "%2E%2E"),
            ("a/b?c#d%", "a%2Fb%3Fc%23d%25"),
            ("grüße", "gr%C3%BC%C3%9Fe"),
            ("{id}", "%7Bid%7D"),
        ] {
            assert_eq!(schedule_path(name), format!("/ui/schedules/{part}"));
            assert_eq!(path(EDIT, &[name, "7"]), format!("/ui/dead/{part}/7/edit"));
        }
        assert_eq!(queue_path("a&b", "q"), "/ui/queues/q?source=a%26b");
        assert_eq!(
            form("put", &schedule_api("a b")),
            "/ui/do/put/v1/schedules/a%20b"
        );
    }

    #[test]
    fn no_page_takes_the_name_of_a_schedule() {
        assert!(!NEW_SCHEDULE.starts_with(&format!("{SCHEDULES}/")));
        assert_eq!(schedule_path("new"), "/ui/schedules/new");
    }
}
