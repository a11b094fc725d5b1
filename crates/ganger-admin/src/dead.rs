//! Dead letters: list, count by error, retry, delete. Reading changes neither their order nor their state.

use std::ops::ControlFlow;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use tokio::time::Instant;

use super::answer::Problem;
use super::answer::bad_gateway;
use super::body::JsonBody;
use super::context::Context;
use super::pools::unknown;
use super::within::within;
use ganger_queue::client::json::moment;
use ganger_queue::client::shown::{DeadLetterJson, bytes};
use ganger_queue::client::{
    Client, Criteria, DeadFilter, Halted, Listed, Page, Retried, RetryTarget,
};
use ganger_queue::dead_letter::{DeadGroups, DeadLetter, Groups};

/// Maximum and default number of dead letters in a list.
pub(super) const LETTERS_MAX: usize = 1000;
const LETTERS: usize = 100;
/// Total size of bodies at which a list ends early, in bytes.
const LIST_BYTES_MAX: usize = 16 << 20;
/// Number of bytes of a body in a list unless full bodies are requested.
const BODY_BYTES_SHOWN: usize = 1024;

/// Selection of the dead letters to list.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// Only dead letters of this pool.
    pool: Option<String>,
    /// Only dead letters whose error contains this text.
    error: Option<String>,
    /// Only dead letters with this reason, such as `failed`, `rejected` or `crashed`.
    reason: Option<String>,
    /// Only the dead letters of the message with this id; of one without an id, with this correlation id.
    message_id: Option<String>,
    /// Only dead letters that last failed at or after this time: RFC 3339, or such as `2h` for so long ago.
    since: Option<String>,
    /// Only dead letters that last failed before this time, in the same forms.
    before: Option<String>,
    /// Only dead letters after this id, the last one of the list before.
    after: Option<String>,
    /// Maximum number of dead letters, 1 to 1000; 100 if omitted.
    limit: Option<usize>,
    /// Return complete bodies instead of the first kilobyte of each.
    #[serde(default)]
    full: bool,
    /// Time to look for dead letters that meet the criteria, such as `1s`, at most a minute; as long as it takes if
    /// omitted.
    within: Option<String>,
}

/// Selection of the dead letters to count.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CountFilter {
    /// Only dead letters of this pool.
    pool: Option<String>,
    /// Only dead letters whose error contains this text.
    error: Option<String>,
    /// Only dead letters with this reason, such as `failed`, `rejected` or `crashed`.
    reason: Option<String>,
    /// Only the dead letters of the message with this id; of one without an id, with this correlation id.
    message_id: Option<String>,
    /// Only dead letters that last failed at or after this time: RFC 3339, or such as `2h` for so long ago.
    since: Option<String>,
    /// Only dead letters that last failed before this time, in the same forms.
    before: Option<String>,
    /// Time to count for, such as `1s`, at most a minute; as long as it takes if omitted.
    within: Option<String>,
}

/// Reads the criteria of a request, whose fields have these names in each query and body.
macro_rules! criteria {
    ($request:expr) => {
        Criteria {
            error: $request.error.clone(),
            message_id: $request.message_id.clone(),
            reason: $request.reason.clone(),
            since: time("since", $request.since.as_deref())?,
            before: time("before", $request.before.as_deref())?,
        }
    };
}

/// Reads a time that a request gives.
pub(super) fn time(name: &str, given: Option<&str>) -> Result<Option<Timestamp>, Problem> {
    let read = given.map(moment).transpose();
    read.map_err(|why| Problem::bad(format!("{name}: {why}: `{}`", given.unwrap_or_default())))
}

/// A list of dead letters.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(super) struct Letters {
    /// The dead letters, oldest first; `body_cut` is set if a body is incomplete.
    pub(super) letters: Vec<DeadLetterJson>,
    /// True if there are more, or if there was no time to look: repeat the request with `next` as `after`.
    pub(super) more: bool,
    /// Id of the last dead letter that was looked at, if there are more after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
    /// Time of the last failure of that one, if there was no time for the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<String>,
}

/// List dead letters of a source, oldest first.
#[utoipa::path(get, path = "/v1/dead/{source}", tag = "dead letters",
    params(("source" = String, Path, description = "The source"), Wanted),
    responses(
        (status = 200, description = "The dead letters", body = Letters),
        (status = 404, description = "Unknown source or pool, or unknown dead letter in `after`", body = Problem),
        (status = 502, description = "Reading from the broker failed", body = Problem),
    ),
)]
pub(super) async fn list(
    State(context): State<Context>,
    source: Result<Path<String>, PathRejection>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Letters>, Problem> {
    let (Path(source), Query(wanted)) = (source?, wanted?);
    let limit = wanted.limit.unwrap_or(LETTERS);
    if !(1..=LETTERS_MAX).contains(&limit) {
        return Err(Problem::bad(format!(
            "limit must be within 1..={LETTERS_MAX}: `{limit}`"
        )));
    }
    let pool = wanted.pool.clone().filter(|_| wanted.after.is_none());
    let (page, within) = (page(&wanted, limit)?, within(wanted.within.as_deref())?);
    let read = move |client: &mut Client| read(client, page, wanted.full, within);
    let found = with_client(context.clone(), source, read).await?;
    if found.letters.is_empty() {
        known(&context, pool.as_deref())?;
    }
    Ok(Json(found))
}

fn page(wanted: &Wanted, limit: usize) -> Result<Page, Problem> {
    Ok(Page {
        filter: DeadFilter {
            pool: wanted.pool.clone(),
            criteria: criteria!(wanted),
            ids: None,
        },
        after: wanted.after.clone(),
        limit,
    })
}

/// Look through dead letters that may have to end early.
#[derive(Debug)]
struct Look {
    deadline: Option<Instant>,
    /// The last one that was looked at: its id, and when it last failed.
    last: Option<(String, String)>,
    is_over: bool,
}

impl Look {
    /// Begins a look for that time, if there is one.
    fn begin(within: Option<Duration>) -> Self {
        Self {
            deadline: within.map(|time| Instant::now() + time),
            last: None,
            is_over: false,
        }
    }

    /// Returns whether there is time for that dead letter. There is for one at least.
    fn takes(&mut self, letter: &DeadLetter) -> bool {
        let is_late = self
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline);
        self.is_over = is_late && self.last.is_some();
        if !self.is_over {
            self.last = Some((letter.id.clone(), letter.last_failed_at.clone()));
        }
        !self.is_over
    }

    /// Returns the time of the last failure of the last one that was looked at, if there was no time for the rest.
    fn until(&self) -> Option<String> {
        let last = self.last.as_ref().filter(|_| self.is_over);
        last.map(|(_, at)| at.clone())
    }
}

/// Reads a page of dead letters, of each body its beginning unless they are wanted in full.
fn read(
    client: &mut Client,
    mut page: Page,
    full: bool,
    within: Option<Duration>,
) -> Result<Letters, Problem> {
    let source = client.name().to_owned();
    let (mut letters, mut bytes, limit) = (Vec::new(), 0, page.limit);
    let mut look = Look::begin(within);
    // Those that don't meet the criteria are looked at here: where that ends, the next list begins.
    let criteria = std::mem::take(&mut page.filter.criteria);
    if !criteria.are_none() {
        page.limit = usize::MAX;
    }
    let listed = client.dead_list(&page, |mut letter| {
        if letters.len() == limit || !look.takes(&letter) {
            return ControlFlow::Break(());
        }
        if !criteria.fit(&letter) {
            return ControlFlow::Continue(());
        }
        let whole = letter.body.len();
        if !full && whole > BODY_BYTES_SHOWN {
            letter.body.truncate(BODY_BYTES_SHOWN);
        }
        bytes += letter.body.len();
        let mut shown = DeadLetterJson::new(&source, &letter);
        if letter.body.len() < whole {
            shown.body_cut = Some(whole);
        }
        letters.push(shown);
        match bytes < LIST_BYTES_MAX {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    match listed.map_err(bad_gateway)? {
        Listed::Lost => {
            let after = page.after.as_deref().unwrap_or_default();
            let why = format!(
                "the dead letter `{after}`, after which the list was to begin, does not exist (any \
                 more)"
            );
            Err(Problem::new(StatusCode::NOT_FOUND, why))
        }
        listed => Ok(Letters {
            more: listed == Listed::More,
            letters,
            until: look.until(),
            next: look
                .last
                .map(|(id, _)| id)
                .filter(|_| listed == Listed::More),
        }),
    }
}

/// Count dead letters by error, most frequent first. All dead letters of the source are read; with `within` only the oldest, as
/// many as there is time for.
#[utoipa::path(get, path = "/v1/dead/{source}/groups", tag = "dead letters",
    params(("source" = String, Path, description = "The source"), CountFilter),
    responses(
        (status = 200, description = "The groups", body = DeadGroups),
        (status = 404, description = "Unknown source", body = Problem),
        (status = 502, description = "Reading from the broker failed", body = Problem),
    ),
)]
pub(super) async fn groups(
    State(context): State<Context>,
    source: Result<Path<String>, PathRejection>,
    counted: Result<Query<CountFilter>, QueryRejection>,
) -> Result<Json<DeadGroups>, Problem> {
    let (Path(source), Query(counted)) = (source?, counted?);
    let within = within(counted.within.as_deref())?;
    let filter = DeadFilter {
        pool: counted.pool,
        criteria: criteria!(counted),
        ids: None,
    };
    let count = move |client: &mut Client| count(client, filter, within);
    with_client(context, source, count).await.map(Json)
}

fn count(
    client: &mut Client,
    mut filter: DeadFilter,
    within: Option<Duration>,
) -> Result<DeadGroups, Problem> {
    let (mut groups, mut look) = (Groups::default(), Look::begin(within));
    // As in a list: those that don't meet the criteria take time as well.
    let criteria = std::mem::take(&mut filter.criteria);
    let read = client.dead_list(&Page::all(filter), |letter| {
        if !look.takes(&letter) {
            return ControlFlow::Break(());
        }
        if criteria.fit(&letter) {
            groups.add(letter);
        }
        ControlFlow::Continue(())
    });
    read.map_err(bad_gateway)?;
    Ok(DeadGroups {
        groups: groups.largest_first(),
        until: look.until(),
    })
}

/// Get one dead letter in full.
#[utoipa::path(get, path = "/v1/dead/{source}/letters/{id}", tag = "dead letters",
    params(
        ("source" = String, Path, description = "The source"),
        ("id" = String, Path, description = "The dead letter's id, as lists show it"),
    ),
    responses(
        (status = 200, description = "The dead letter", body = DeadLetterJson),
        (status = 404, description = "Unknown dead letter", body = Problem),
        (status = 502, description = "Reading from the broker failed", body = Problem),
    ),
)]
pub(super) async fn show(
    State(context): State<Context>,
    place: Result<Path<(String, String)>, PathRejection>,
) -> Result<Json<DeadLetterJson>, Problem> {
    let Path((source, id)) = place?;
    let show = move |client: &mut Client| {
        let letter = client.dead_show(&id).map_err(bad_gateway)?;
        let source = client.name();
        let shown = letter.map(|letter| DeadLetterJson::new(source, &letter));
        shown.ok_or_else(|| missing(&id))
    };
    with_client(context, source, show).await.map(Json)
}

fn missing(id: &str) -> Problem {
    let why = format!("there is no dead letter `{id}` (any more)");
    Problem::new(StatusCode::NOT_FOUND, why)
}

/// Selection of the dead letters to change.
#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Chosen {
    /// Ids of the dead letters.
    #[serde(default, deserialize_with = "ids")]
    pub(super) ids: Option<Vec<String>>,
    /// All dead letters, or all that meet the criteria (`pool`, `error`, `reason`, `message_id`, `since`, `before`);
    /// either this or `ids`.
    #[serde(default)]
    pub(super) all: bool,
    /// Only dead letters of this pool.
    pub(super) pool: Option<String>,
    /// With `all`, only dead letters whose error contains this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// With `all`, only dead letters with this reason, such as `failed`, `rejected` or `crashed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// With `all`, only the dead letters of the message with this id; of one without an id, with this correlation id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) message_id: Option<String>,
    /// With `all`, only dead letters that last failed at or after this time: RFC 3339, or such as `2h` for so long ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<String>,
    /// With `all`, only dead letters that last failed before this time, in the same forms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<String>,
    /// Replace the body with this text; for a single dead letter, and only to retry.
    pub(super) body: Option<String>,
    /// Replace the body with these bytes, in base64; as `body`.
    pub(super) body_base64: Option<String>,
    /// Send the dead letters to this queue instead; only to retry, and brokers only. Needed if a dead letter
    /// names a queue that none of its pools reads.
    pub(super) to: Option<String>,
}

/// Result of a change to dead letters.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(super) struct Changed {
    /// The result in a sentence.
    done: String,
    /// Number of dead letters that were sent back or deleted.
    pub(super) changed: usize,
    /// Number of dead letters that stay because another message has their unique key.
    pub(super) held: usize,
}

/// Reads ids; those of table rows were once numbers.
fn ids<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Id {
        Text(String),
        Row(i64),
    }
    let ids: Option<Vec<Id>> = Option::deserialize(d)?;
    let text = |id| match id {
        Id::Text(text) => text,
        Id::Row(row) => row.to_string(),
    };
    Ok(ids.map(|ids| ids.into_iter().map(text).collect()))
}

impl Chosen {
    fn filter(&self) -> Result<DeadFilter, Problem> {
        match (&self.ids, self.all) {
            (Some(ids), false) if !ids.is_empty() => {}
            (None, true) => {}
            _ => return Err(Problem::bad("name `ids`, or say `\"all\": true`")),
        }
        let criteria = criteria!(self);
        if !self.all && !criteria.are_none() {
            return Err(Problem::bad(
                "`error`, `reason`, `message_id`, `since` and `before` narrow `all`, not `ids`",
            ));
        }
        Ok(DeadFilter {
            ids: self.ids.clone().map(|ids| ids.into_iter().collect()),
            pool: self.pool.clone(),
            criteria,
        })
    }

    fn edit(&self) -> Result<Option<Bytes>, Problem> {
        let edit = bytes(self.body.clone(), self.body_base64.clone());
        let edit = edit.map_err(Problem::bad)?;
        match edit.is_none() || self.ids.as_ref().is_some_and(|ids| ids.len() == 1) {
            true => Ok(edit),
            false => Err(Problem::bad(
                "a body is for one dead letter: name one in `ids`",
            )),
        }
    }

    /// Returns the result for `changed` dead letters, or why not all were changed; `held` exist and could not
    /// be changed.
    fn result(&self, what: &str, changed: usize, held: usize) -> Result<Json<Changed>, Problem> {
        let wanted = self.ids.as_ref().map_or(0, Vec::len);
        let stay = match held {
            0 => String::new(),
            held => format!("; {held} stay: another message has their unique key"),
        };
        let problem = |status, why: String| Err(Problem::new(status, why).after(changed, held));
        match wanted.saturating_sub(changed) {
            0 => Ok(Json(Changed {
                done: format!("{what} {changed}{stay}"),
                changed,
                held,
            })),
            missing if missing <= held => problem(
                StatusCode::CONFLICT,
                format!("{what} {changed} of {wanted}{stay}"),
            ),
            _ => problem(
                StatusCode::NOT_FOUND,
                format!("{what} {changed} of {wanted}: the others do not exist (any more){stay}"),
            ),
        }
    }
}

/// Send dead letters back to the queue they came from, with a clean count, and with another body if one is
/// given.
#[utoipa::path(post, path = "/v1/dead/{source}/retry", tag = "dead letters",
    params(("source" = String, Path, description = "The source")),
    request_body = Chosen,
    responses(
        (status = 200, description = "The dead letters were sent back", body = Changed),
        (status = 404, description = "Some dead letters do not exist, or the pool", body = Problem),
        (status = 409, description = "Another message holds the unique key of a dead letter", body = Problem),
        (status = 502, description = "The broker did not accept them all", body = Problem),
    ),
)]
pub(super) async fn retry(
    State(context): State<Context>,
    source: Result<Path<String>, PathRejection>,
    JsonBody(chosen): JsonBody<Chosen>,
) -> Result<Json<Changed>, Problem> {
    let Path(source) = source?;
    let (filter, pool) = (chosen.filter()?, chosen.pool.clone());
    let way = RetryTarget {
        body: chosen.edit()?,
        to: chosen.to.clone(),
    };
    let retry = move |client: &mut Client| {
        let Retried { retried, held } = client.dead_retry(&filter, &way).map_err(halted)?;
        chosen.result("retried", retried, held)
    };
    let done = with_client(context.clone(), source, retry).await?;
    if done.changed + done.held == 0 {
        known(&context, pool.as_deref()).map_err(|problem| problem.after(0, 0))?;
    }
    Ok(done)
}

/// Delete dead letters.
#[utoipa::path(delete, path = "/v1/dead/{source}", tag = "dead letters",
    params(("source" = String, Path, description = "The source")),
    request_body = Chosen,
    responses(
        (status = 200, description = "The dead letters were deleted", body = Changed),
        (status = 404, description = "Some dead letters did not exist, or the pool", body = Problem),
        (status = 502, description = "The broker did not delete them all", body = Problem),
    ),
)]
pub(super) async fn discard(
    State(context): State<Context>,
    source: Result<Path<String>, PathRejection>,
    JsonBody(chosen): JsonBody<Chosen>,
) -> Result<Json<Changed>, Problem> {
    let Path(source) = source?;
    if chosen.body.is_some() || chosen.body_base64.is_some() {
        return Err(Problem::bad("`body` is for a retry only"));
    }
    if chosen.to.is_some() {
        return Err(Problem::bad("`to` is for a retry only"));
    }
    let (filter, pool) = (chosen.filter()?, chosen.pool.clone());
    let discard = move |client: &mut Client| {
        let dropped = client.dead_drop(&filter).map_err(halted)?;
        chosen.result("dropped", dropped, 0)
    };
    let done = with_client(context.clone(), source, discard).await?;
    if done.changed == 0 {
        known(&context, pool.as_deref()).map_err(|problem| problem.after(0, 0))?;
    }
    Ok(done)
}

/// Refuses a pool of which there is nothing: neither a dead letter, as of a pool that is gone, nor the pool.
fn known(context: &Context, pool: Option<&str>) -> Result<(), Problem> {
    let config = context.daemon.overview.config();
    let known: Vec<&str> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
    match pool.filter(|pool| !known.contains(pool)) {
        Some(pool) => Err(unknown(pool, &known)),
        None => Ok(()),
    }
}

/// Returns the problem of a source that did not finish; `changed` is the number that it changed.
fn halted(halted: Halted) -> Problem {
    bad_gateway(&halted).after(halted.done, 0)
}

/// Runs work with a connection to that source, on a thread that may block.
async fn with_client<T: Send + 'static>(
    context: Context,
    source: String,
    work: impl FnOnce(&mut Client) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let sources = context.sources();
    let work = move || work(&mut sources.open(&source)?);
    context.at_broker(work).await
}
