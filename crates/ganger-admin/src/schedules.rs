//! Schedules: list, define, pause, trigger. Each change is a record in the log.

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Json};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::answer::{Done, Problem};
use super::body::{JsonBody, JsonIfGiven};
use super::caller::Caller;
use super::context::Context;
use super::precondition::Precondition;
use ganger_config::model::{Config, ScheduleConfig};
use ganger_config::{WrittenSchedule, patch};
use ganger_queue::ledger::shown::{ScheduleDetailsJson, ScheduleJson};
use ganger_queue::ledger::{
    Entered, Expected, LedgerClient, LedgerError, RESULTS_MAX, SCHEDULES_MAX, ScheduleFilter,
    Triggered, overlap,
};
use ganger_schedule::occurrence::ScheduleState;
use ganger_schedule::zone::Zones;

/// Path of the schedules.
const SCHEDULES: &str = "/v1/schedules/";

/// Name of a schedule in a path. There are schedules called like an operation on all of them, so it is read from the
/// path itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScheduleName(pub(super) String);

impl ScheduleName {
    fn of(path: &str) -> Result<Self, Problem> {
        let rest = path.strip_prefix(SCHEDULES).unwrap_or_default();
        let name = rest.split('/').next().unwrap_or_default();
        let name = percent_decode_str(name).decode_utf8();
        let name = name.map_err(|_| Problem::bad("the name of the schedule is not UTF-8"))?;
        Ok(Self(name.into_owned()))
    }
}

impl<S: Sync> FromRequestParts<S> for ScheduleName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::of(parts.uri.path())
    }
}

/// Choice of schedules to list.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SchedulesQuery {
    /// Only schedules with this tag.
    tag: Option<String>,
    /// Only schedules in this state: `active`, `paused`, `disabled`, `broken` or `ended`.
    state: Option<String>,
    /// Only schedules with this text in their name or in one of their tags, in whatever case.
    text: Option<String>,
    /// Only schedules after this name, the last one of the list before.
    after: Option<String>,
    /// Maximum number of schedules, 1 to 10000, which is also the default.
    limit: Option<u32>,
    /// Number of the newest occurrences of each schedule whose states are returned, 0 to 100; 0 if omitted.
    results: Option<u32>,
}

impl SchedulesQuery {
    fn filter(self) -> Result<ScheduleFilter, Problem> {
        let state = self.state.map(|state| state.parse::<ScheduleState>());
        let state = state.transpose();
        let state = state.map_err(|problem| Problem::bad(problem.under("state").to_string()))?;
        let results = self.results.unwrap_or(0);
        if results > RESULTS_MAX {
            let why = format!("results must be within 0..={RESULTS_MAX}: `{results}`");
            return Err(Problem::bad(why));
        }
        Ok(ScheduleFilter {
            results,
            tag: self.tag,
            state,
            text: self.text,
            after: self.after,
            limit: limit(self.limit, SCHEDULES_MAX, SCHEDULES_MAX)?,
        })
    }
}

/// Checks the length of a list.
pub(super) fn limit(given: Option<u32>, usual: u32, most: u32) -> Result<u32, Problem> {
    let limit = given.unwrap_or(usual);
    match (1..=most).contains(&limit) {
        true => Ok(limit),
        false => Err(Problem::bad(format!(
            "limit must be within 1..={most}: `{limit}`"
        ))),
    }
}

/// List schedules, by name. If there are as many as `limit`, there may be more: repeat the request with the last one's
/// name as `after`.
#[utoipa::path(get, path = "/v1/schedules", tag = "schedules", operation_id = "list_schedules",
    params(SchedulesQuery),
    responses(
        (status = 200, description = "The schedules", body = Vec<ScheduleJson>),
        (status = 409, description = "The daemon has no ledger", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn list(
    State(context): State<Context>,
    query: Result<Query<SchedulesQuery>, QueryRejection>,
) -> Result<Json<Vec<ScheduleJson>>, Problem> {
    let Query(query) = query?;
    let filter = query.filter()?;
    let list = context.ledger.with(move |ledger| ledger.schedules(&filter));
    list.await.map(Json)
}

/// Get a schedule with its definition and its last occurrences.
#[utoipa::path(get, path = "/v1/schedules/{name}", tag = "schedules", operation_id = "show_schedule",
    params(("name" = String, Path, description = "The schedule")),
    responses(
        (status = 200, description = "The schedule", body = ScheduleDetailsJson,
            headers(("ETag" = String, description = "Tag of the definition, for `If-Match`"))),
        (status = 404, description = "Unknown schedule", body = Problem),
        (status = 409, description = "The daemon has no ledger", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn show(
    State(context): State<Context>,
    ScheduleName(name): ScheduleName,
) -> Result<impl IntoResponse, Problem> {
    let show = context.ledger.with(move |ledger| ledger.schedule(&name));
    let shown = show.await?;
    let tag = [(header::ETAG, format!("\"{}\"", shown.etag))];
    Ok((tag, Json(shown)))
}

/// Result of entering a schedule.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct ScheduleEntered {
    /// The result in a sentence.
    done: String,
    /// The schedule.
    schedule: String,
    /// The change: `created`, `replaced` or `unchanged`.
    change: String,
}

/// Create a schedule, or replace its definition. The body has the keys of `[[schedules]]`. Slots of the past are not
/// dispatched, and a schedule that is paused stays so. A schedule of a configuration or of SQL can't be replaced.
/// Without `If-Match` and `If-None-Match` the last definition wins.
#[utoipa::path(put, path = "/v1/schedules/{name}", tag = "schedules", operation_id = "enter_schedule",
    params(("name" = String, Path, description = "The schedule"), Precondition),
    request_body(content = Object, description = "The keys of `[[schedules]]`, such as `cron`, `queue` and `body`"),
    responses(
        (status = 200, description = "The schedule is in the ledger", body = ScheduleEntered),
        (status = 409, description = "A configuration or SQL has a schedule of that name, or the daemon has no ledger", body = Problem),
        (status = 412, description = "The schedule has another definition than `If-Match` names, or exists despite `If-None-Match: *`", body = Problem),
        (status = 422, description = "The definition is invalid; nothing has changed", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn enter(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    ScheduleName(name): ScheduleName,
    precondition: Precondition,
    JsonBody(keys): JsonBody<Map<String, Value>>,
) -> Result<Json<ScheduleEntered>, Problem> {
    let expected = precondition.expected()?;
    let named = name.clone();
    context.ledger.config()?;
    let config = context.daemon.overview.config();
    let read = move || definition(&named, &config, keys);
    let schedule = context.ledger.in_place(read).await??;
    let enter = move |ledger: &mut dyn LedgerClient| ledger.enter(&schedule, expected.as_ref());
    let entered = context.ledger.by(&caller, enter).await?;
    let change = entered.as_str();
    if entered != Entered::Unchanged {
        tracing::info!(schedule = name, change, by = %caller, "schedule entered by an operator");
    }
    Ok(Json(ScheduleEntered::new(&name, entered)))
}

/// Change keys of a schedule's definition. The body is a JSON Merge Patch (RFC 7396) of the keys of `[[schedules]]`: a
/// null takes a key out. A key replaces others that it excludes, as `every` does `cron`. Nothing changes if another
/// change comes in between.
#[utoipa::path(patch, path = "/v1/schedules/{name}", tag = "schedules", operation_id = "change_schedule",
    params(("name" = String, Path, description = "The schedule"), Precondition),
    request_body(content = Object, description = "The keys that change, such as `cron` or `body`"),
    responses(
        (status = 200, description = "The schedule has the new definition", body = ScheduleEntered),
        (status = 404, description = "Unknown schedule", body = Problem),
        (status = 409, description = "The schedule is that of a configuration or of SQL, or the daemon has no ledger", body = Problem),
        (status = 412, description = "The schedule has another definition than `If-Match` names, or was changed meanwhile", body = Problem),
        (status = 422, description = "The definition would be invalid; nothing has changed", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn change(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    ScheduleName(name): ScheduleName,
    precondition: Precondition,
    JsonBody(change): JsonBody<Map<String, Value>>,
) -> Result<Json<ScheduleEntered>, Problem> {
    let given = precondition.expected()?;
    let config = context.daemon.overview.config();
    let named = name.clone();
    let enter = move |ledger: &mut dyn LedgerClient| {
        let shown = ledger.schedule(&named)?;
        let Value::Object(mut keys) = shown.definition else {
            let why = "the definition is no JSON object: replace it as a whole with PUT";
            return Err(LedgerError::Unsuited(named, why.to_owned()));
        };
        patch(&mut keys, change);
        let schedule = match definition(&named, &config, keys) {
            Ok(schedule) => schedule,
            Err(problem) => return Ok(Err(problem)),
        };
        let expected = match given {
            Some(expected @ (Expected::OneOf(_) | Expected::Absent)) => expected,
            Some(Expected::Present) | None => Expected::OneOf(vec![shown.etag]),
        };
        ledger.enter(&schedule, Some(&expected)).map(Ok)
    };
    let entered = context.ledger.by(&caller, enter).await??;
    if entered != Entered::Unchanged {
        tracing::info!(schedule = name, by = %caller, "schedule changed by an operator");
    }
    Ok(Json(ScheduleEntered::new(&name, entered)))
}

impl ScheduleEntered {
    pub(super) fn new(name: &str, entered: Entered) -> Self {
        let change = entered.as_str();
        Self {
            done: format!("schedule `{name}` is {change}"),
            schedule: name.to_owned(),
            change: change.to_owned(),
        }
    }
}

/// Reads a definition as that of the configuration is read.
fn definition(
    name: &str,
    config: &Config,
    keys: Map<String, Value>,
) -> Result<ScheduleConfig, Problem> {
    let written = WrittenSchedule {
        name,
        keys,
        config: Some(config),
        ..WrittenSchedule::default()
    };
    written.read(&Zones::load()).map_err(|problems| {
        let each = problems
            .messages()
            .iter()
            .map(ganger_config::Problem::one_line);
        invalid(each.collect())
    })
}

/// Returns the problem of a definition with these errors.
fn invalid(errors: Vec<String>) -> Problem {
    let why = "the schedule is invalid; nothing has changed";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, why).with(errors)
}

/// Remove a schedule that is not in the daemon's configuration; its occurrences stay. One that another configuration
/// still has is entered again when a daemon of that configuration starts or reloads.
#[utoipa::path(delete, path = "/v1/schedules/{name}", tag = "schedules", operation_id = "remove_schedule",
    params(("name" = String, Path, description = "The schedule"), Precondition),
    responses(
        (status = 200, description = "The schedule is removed", body = Done),
        (status = 404, description = "Unknown schedule", body = Problem),
        (status = 409, description = "The schedule is in the daemon's configuration, or the daemon has no ledger", body = Problem),
        (status = 412, description = "The schedule has another definition than `If-Match` names", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn remove(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    ScheduleName(name): ScheduleName,
    precondition: Precondition,
) -> Result<Json<Done>, Problem> {
    let (named, expected) = (name.clone(), precondition.expected()?);
    let config = context.daemon.overview.config();
    let is_ours = config.schedules.iter().any(|one| one.name() == name);
    let remove = context.ledger.by(&caller, move |ledger| {
        ledger.remove(&named, !is_ours, expected.as_ref())
    });
    remove.await?;
    tracing::info!(schedule = name, by = %caller, "schedule removed by an operator");
    Ok(Done::json(format!("schedule `{name}` is removed")))
}

/// Reason of a pause.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PauseSchedule {
    /// Reason, which lists show.
    reason: Option<String>,
}

/// Pause a schedule: none of its slots is dispatched until it is resumed.
#[utoipa::path(post, path = "/v1/schedules/{name}/pause", tag = "schedules", operation_id = "pause_schedule",
    params(("name" = String, Path, description = "The schedule")),
    request_body = Option<PauseSchedule>,
    responses(
        (status = 200, description = "The schedule is paused", body = Done),
        (status = 400, description = "The reason is empty or too long, or has a NUL", body = Problem),
        (status = 404, description = "Unknown schedule", body = Problem),
        (status = 409, description = "The schedule is broken, or the daemon has no ledger", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn pause(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    ScheduleName(name): ScheduleName,
    JsonIfGiven(PauseSchedule { reason }): JsonIfGiven<PauseSchedule>,
) -> Result<Json<Done>, Problem> {
    let (named, why) = (name.clone(), reason.clone());
    let pause = context
        .ledger
        .by(&caller, move |ledger| ledger.pause(&named, why.as_deref()));
    pause.await?;
    tracing::info!(schedule = name, reason, by = %caller, "schedule paused by an operator");
    Ok(Done::json(format!("schedule `{name}` is paused")))
}

/// Pause all schedules of the ledger, for every daemon, until they are resumed.
#[utoipa::path(post, path = "/v1/schedules/pause", tag = "schedules", operation_id = "pause_all_schedules",
    request_body = Option<PauseSchedule>,
    responses(
        (status = 200, description = "All schedules are paused", body = Done),
        (status = 400, description = "The reason is empty or too long, or has a NUL", body = Problem),
        (status = 409, description = "The daemon has no ledger", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn pause_all(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    JsonIfGiven(PauseSchedule { reason }): JsonIfGiven<PauseSchedule>,
) -> Result<Json<Done>, Problem> {
    let reason = reason.unwrap_or_else(|| "paused by an operator".to_owned());
    let why = reason.clone();
    let pause = context
        .ledger
        .by(&caller, move |ledger| ledger.set_hold(Some(&why)));
    pause.await?;
    tracing::info!(reason, by = %caller, "all schedules paused by an operator");
    Ok(Done::json("all schedules are paused"))
}

/// Treatment of the slots of a pause.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResumeSchedule {
    /// Make up for the slots since then, by the schedule's rule for missed ones; otherwise they are skipped.
    #[serde(default)]
    make_up: bool,
}

/// Resume a schedule that is paused, disabled or broken.
#[utoipa::path(post, path = "/v1/schedules/{name}/resume", tag = "schedules", operation_id = "resume_schedule",
    params(("name" = String, Path, description = "The schedule")),
    request_body = Option<ResumeSchedule>,
    responses(
        (status = 200, description = "The schedule is resumed", body = Done),
        (status = 404, description = "Unknown schedule", body = Problem),
        (status = 409, description = "The schedule is still broken, or the daemon has no ledger", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn resume(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    ScheduleName(name): ScheduleName,
    JsonIfGiven(ResumeSchedule { make_up }): JsonIfGiven<ResumeSchedule>,
) -> Result<Json<Done>, Problem> {
    let named = name.clone();
    let resume = context
        .ledger
        .by(&caller, move |ledger| ledger.resume(&named, make_up));
    resume.await?;
    tracing::info!(schedule = name, make_up, by = %caller, "schedule resumed by an operator");
    Ok(Done::json(format!("schedule `{name}` is resumed")))
}

/// End the pause of all schedules. Slots since then are missed ones.
#[utoipa::path(post, path = "/v1/schedules/resume", tag = "schedules", operation_id = "resume_all_schedules",
    responses(
        (status = 200, description = "The pause of all schedules has ended", body = Done),
        (status = 409, description = "The daemon has no ledger", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn resume_all(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Done>, Problem> {
    let resume = context
        .ledger
        .by(&caller, move |ledger| ledger.set_hold(None));
    resume.await?;
    tracing::info!(by = %caller, "all schedules resumed by an operator");
    Ok(Done::json("all schedules are resumed"))
}

/// A run to send now.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TriggerSchedule {
    /// Send it even while another occurrence of the schedule is open.
    #[serde(default)]
    force: bool,
    /// Reason, which the history of the occurrence shows.
    reason: Option<String>,
    /// Send this body instead.
    body: Option<String>,
}

/// Result of a trigger.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ScheduleTriggered)]
pub(super) struct TriggeredJson {
    /// Id of the occurrence.
    pub(super) occurrence: String,
}

/// Send the message of a schedule now, whatever its state.
#[utoipa::path(post, path = "/v1/schedules/{name}/trigger", tag = "schedules", operation_id = "trigger_schedule",
    params(("name" = String, Path, description = "The schedule")),
    request_body = Option<TriggerSchedule>,
    responses(
        (status = 200, description = "The message is in its queue", body = TriggeredJson),
        (status = 400, description = "The reason is empty or too long, or has a NUL", body = Problem),
        (status = 404, description = "Unknown schedule", body = Problem),
        (status = 409, description = "An occurrence of the schedule is open, the schedule is broken, or the daemon has no ledger", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn trigger(
    State(context): State<Context>,
    Extension(caller): Extension<Caller>,
    ScheduleName(name): ScheduleName,
    JsonIfGiven(wanted): JsonIfGiven<TriggerSchedule>,
) -> Result<Json<TriggeredJson>, Problem> {
    let TriggerSchedule {
        force,
        reason,
        body,
    } = wanted;
    let (named, why) = (name.clone(), reason.clone());
    let trigger = context.ledger.by(&caller, move |ledger| {
        ledger.trigger(&named, body.as_deref(), why.as_deref(), force)
    });
    match trigger.await? {
        Triggered::Sent(occurrence) => {
            tracing::info!(
                schedule = name, occurrence, reason, force, by = %caller, "schedule triggered by an operator"
            );
            Ok(Json(TriggeredJson { occurrence }))
        }
        Triggered::Overlaps => Err(Problem::new(StatusCode::CONFLICT, overlap(&name))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ganger_config::Environment;

    fn keys(keys: Value) -> Map<String, Value> {
        keys.as_object().unwrap().clone()
    }

    fn errors(problem: &Problem) -> String {
        serde_json::to_value(problem).unwrap()["errors"].to_string()
    }

    #[test]
    fn the_name_is_the_segment_whatever_it_is() {
        for (path, name) in [
            ("/v1/schedules/nightly", "nightly"),
            ("/v1/schedules/pause", "pause"),
            ("/v1/schedules/pause/trigger", "pause"),
            ("/v1/schedules/%65xplain/next", "explain"),
            ("/v1/schedules/gr%C3%BC%C3%9Fe", "grüße"),
        ] {
            assert_eq!(ScheduleName::of(path).unwrap().0, name);
        }
        assert!(ScheduleName::of("/v1/schedules/%ff").is_err());
    }

    #[test]
    fn a_definition_is_that_of_a_configuration() {
        let whole = keys(json!({ "name": "s", "source": "main", "queue": "q", "every": "1h" }));
        let main = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:q.db\"\n[ledger]\n[[pools]]\nname = \"p\"\n\
                    queue = \"q\"\ncommand = \"true\"\n";
        let config = ganger_config::parse(main, "ganger.toml", &Environment::new()).unwrap();
        let read = definition("s", &config, whole).unwrap();
        assert_eq!(read.definition, r#"{"every":"1h","queue":"q"}"#);
        for (wrong, expected) in [
            (json!({ "queue": "q" }), "`cron`, `every`"),
            (json!({ "every": "1h" }), "queue"),
            (
                json!({ "queue": "q", "evry": "1h" }),
                "did you mean `every`?",
            ),
            (
                json!({ "queue": "q", "cron": "0 24 * * *" }),
                "write 0 to 23",
            ),
            (json!({ "queue": "q", "cron": "0 0 30 2 *" }), "no such day"),
            (
                json!({ "queue": "q", "every": "1h", "zone": "Mars/Base" }),
                "time zone `Mars/Base` is unknown",
            ),
            (
                json!({ "queue": "q", "every": "1h", "body": "{{ slott }}" }),
                "body",
            ),
            (
                json!({ "queue": "q", "every": "1h", "name": "t" }),
                "name must be `s`",
            ),
            (
                json!({ "queue": "q", "every": "1h", "source": "other" }),
                "source must be one of the sources",
            ),
        ] {
            let problem = definition("s", &config, keys(wrong)).unwrap_err();
            let errors = errors(&problem);
            assert!(errors.contains(expected), "{expected}: {errors}");
        }
    }

    #[test]
    fn a_list_has_bounds() {
        assert_eq!(limit(None, 7, 10).unwrap(), 7);
        assert_eq!(limit(Some(10), 7, 10).unwrap(), 10);
        for wrong in [0, 11] {
            assert!(limit(Some(wrong), 7, 10).is_err());
        }
        let query = SchedulesQuery {
            state: Some("activ".to_owned()),
            ..SchedulesQuery::default()
        };
        let problem = serde_json::to_value(query.filter().unwrap_err()).unwrap();
        let why = problem["detail"].as_str().unwrap();
        assert!(
            why.contains("invalid state `activ`") && why.contains("`paused`"),
            "{why}"
        );
    }
}
