//! The page on which a schedule is made: its times in words and its next slots as they are written, then its definition.

use axum::Extension;
use axum::http::Uri;
use ganger_pool::overview::Status;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::api::Api;
use super::commands::{command, commands, with_options};
use super::page::{Page, Section};
use super::paths::{NEW_SCHEDULE, SCHEDULES, STATUS, form, schedule_api};
use super::query::Fields;
use super::queue::queues as queues_of_pool;
use super::schedule::{planned_slots, words};
use super::schedule_versions::pretty;
use super::shown::text;
use crate::answer::Problem;
use crate::explain::Explained;

/// Keys of times.
const TIMES: [&str; 3] = ["cron", "every", "at"];

/// Shows the form of a new schedule. Its query has keys of the definition.
pub(super) async fn page(Extension(api): Extension<Api>, uri: Uri) -> Result<Page, Problem> {
    let asked = Fields::of(&uri);
    let status: Status = api.get(STATUS).await?;
    let mut queues: Vec<&str> = status.pools.iter().flat_map(queues_of_pool).collect();
    queues.sort_unstable();
    queues.dedup();
    let times = match TIMES.iter().any(|key| asked.get(key).is_some()) {
        true => Some(explained(&api, &asked).await),
        false => None,
    };
    Ok(Page::new(Section::Schedules, "New schedule")
        .with("fields", keys(&asked, &queues))
        .with("times", coming(times))
        .with("create", create(&asked))
        .still())
}

async fn explained(api: &Api, asked: &Fields) -> Result<Explained, Problem> {
    let mut times = Map::new();
    for key in TIMES.iter().chain(&["zone", "name"]) {
        if let Some(value) = asked.get(key) {
            times.insert((*key).to_owned(), value.into());
        }
    }
    times.insert("n".to_owned(), json!(10));
    api.ask("/v1/schedules/explain", &Value::Object(times))
        .await
}

fn keys(asked: &Fields, queues: &[&str]) -> Markup {
    let value = |key: &str| asked.get(key).unwrap_or_default().to_owned();
    html! {
        form.columns-form action=(NEW_SCHEDULE) data-preview="times create" {
            label { "Name" input name="name" value=(value("name")) maxlength="200" required autocomplete="off"; }
            label { "Queue" input name="queue" value=(value("queue")) list="queues" maxlength="200" autocomplete="off"; }
            datalist #queues { @for queue in queues { option value=(queue) {} } }
            label { "Cron, such as 0 8 * * MON-FRI" input name="cron" value=(value("cron")) maxlength="300" spellcheck="false" autocomplete="off"; }
            label { "or every, such as 1h 30m" input name="every" value=(value("every")) maxlength="60" autocomplete="off"; }
            label { "or once at, such as 2027-01-31T08:00" input name="at" value=(value("at")) maxlength="60" autocomplete="off"; }
            label { "Time zone; UTC if empty" input name="zone" value=(value("zone")) maxlength="60" placeholder="Europe/Berlin" autocomplete="off"; }
            label { "Body" input name="body" value=(value("body")) maxlength="2000" spellcheck="false" autocomplete="off"; }
            label { "Tags, with commas between" input name="tags" value=(value("tags")) maxlength="300" autocomplete="off"; }
            div { button { "Show times and definition" } }
        }
    }
}

fn coming(times: Option<Result<Explained, Problem>>) -> Markup {
    html! {
        h2 { "Times" }
        @match times {
            None => p.none { "Write a cron expression, a period or a time to see the next ten slots." },
            Some(Ok(explained)) => { (words(&explained)) h3 { "Next slots" } (planned_slots(&explained.slots)) },
            Some(Err(problem)) => {
                p.error { (text(problem.detail())) }
                ul { @for error in problem.errors() { li.error { (text(error)) } } }
            },
        }
    }
}

/// Returns the definition that the fields make.
fn definition(asked: &Fields) -> Value {
    let mut keys = Map::new();
    for key in ["cron", "every", "at", "zone", "queue", "body"] {
        if let Some(value) = asked.get(key) {
            keys.insert(key.to_owned(), value.into());
        }
    }
    if asked.get("tags").is_some() {
        let tags: Vec<&str> = tags(asked).collect();
        keys.insert("tags".to_owned(), json!(tags));
    }
    Value::Object(keys)
}

/// Returns the command that makes the same schedule.
fn as_command(asked: &Fields) -> String {
    let name = asked.get("name").unwrap_or("NAME");
    let keys = asked.only(&["cron", "every", "at", "zone", "queue", "body"]);
    let add = with_options(&command(&["schedule", "add", name]), &keys);
    tags(asked).fold(add, |add, tag| {
        with_options(&add, &Fields::from([("tag", tag)]))
    })
}

/// Returns the tags, between which there are commas.
fn tags(asked: &Fields) -> impl Iterator<Item = &str> {
    let tags = asked.get("tags").unwrap_or_default().split(',');
    tags.map(str::trim).filter(|tag| !tag.is_empty())
}

fn create(asked: &Fields) -> Markup {
    let json = pretty(&definition(asked));
    html! {
        h2 { "Definition" }
        @match asked.get("name") {
            None => p.none { "Write a name first." },
            Some(name) => form method="post" action=(form("put", &schedule_api(name))) {
                input type="hidden" name="if-none-match" value="*";
                input type="hidden" name="back" value={ (SCHEDULES) "/{schedule}" };
                label for="new-json" { "Keys of the schedule, as in [[schedules]], in JSON; others may be added, such as overlap or misfire" }
                textarea #new-json name=":json" rows="10" spellcheck="false" required { (json) }
                p { "Its first slot is the first one of the future." }
                button { "Create " (text(name)) }
            }
        }
        (commands(&[as_command(asked)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_make_a_definition() {
        let asked = "/ui/new-schedule?name=a&cron=0+8+*+*+*&every=&tags=x,+y,";
        let asked = Fields::of(&asked.parse().unwrap());
        let expected = json!({ "cron": "0 8 * * *", "tags": ["x", "y"] });
        assert_eq!(definition(&asked), expected);
        assert_eq!(
            as_command(&asked),
            "ganger schedule add a --cron '0 8 * * *' --tag x --tag y"
        );
    }
}
