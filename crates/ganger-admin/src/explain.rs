//! The next slots of a schedule, or of one that is yet to be written, and its times in words.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::answer::Problem;
use super::at_ledger::away;
use super::body::JsonBody;
use super::context::Context;
use super::schedules::{ScheduleName, limit};
use ganger_core::units::duration;
use ganger_queue::ledger::explain as stored;
use ganger_queue::ledger::shown::{SlotJson, UpcomingJson};
use ganger_queue::ledger::{LedgerError, UPCOMING_MAX, UpcomingRange, definition_of, left_of};
use ganger_schedule::cron::Dialect;
use ganger_schedule::definition::Definition;
use ganger_schedule::explain;
use ganger_schedule::problem::Problem as Mistake;
use ganger_schedule::spec::Spec;
use ganger_schedule::zone::{Zone, Zones};

/// Maximum and default number of slots.
const SLOTS_MAX: u32 = 10_000;
const SLOTS: u32 = 5;
/// Default number of coming slots of all schedules.
const UPCOMING: u32 = 1000;

/// Range of slots.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SlotsQuery {
    /// Number of slots, 1 to 10000; 5 if omitted.
    n: Option<u32>,
    /// Only slots after this time: `2027-01-31T08:00:00` by the zone of the schedule, or with `Z`, an offset or
    /// `[Europe/Berlin]` at its end. The default is now.
    from: Option<String>,
}

/// Get the next slots of a schedule, as if it were neither paused nor disabled. There are none if it has ended.
#[utoipa::path(get, path = "/v1/schedules/{name}/next", tag = "schedules", operation_id = "next_slots",
    params(("name" = String, Path, description = "The schedule"), SlotsQuery),
    responses(
        (status = 200, description = "The slots", body = Vec<SlotJson>),
        (status = 400, description = "Invalid number or time", body = Problem),
        (status = 404, description = "Unknown schedule", body = Problem),
        (status = 409, description = "The schedule is broken, or the daemon has no ledger", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn next(
    State(context): State<Context>,
    ScheduleName(name): ScheduleName,
    query: Result<Query<SlotsQuery>, QueryRejection>,
) -> Result<Json<Vec<SlotJson>>, Problem> {
    let Query(SlotsQuery { n, from }) = query?;
    let count = count(n)?;
    let next = context.ledger.with(move |ledger| {
        let zones = Zones::load();
        let shown = ledger.schedule(&name)?;
        let schedule = definition_of(&shown, &zones)?;
        let spec = &left_of(&shown, &schedule.spec);
        let from = match explain::begin(from.as_deref(), spec, &zones, Timestamp::now()) {
            Ok(from) => from,
            Err(mistake) => return Ok(Err(Problem::bad(mistake.to_string()))),
        };
        let slots = explain::slots(spec, from, count);
        let slots = slots.map_err(|broken| LedgerError::Broken(name, broken.to_string()))?;
        Ok(Ok(slots.into_iter().map(SlotJson::from).collect()))
    });
    next.await?.map(Json)
}

/// Range of coming slots of all schedules.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct UpcomingQuery {
    /// Only slots after this time, in RFC 3339. The default is now.
    from: Option<String>,
    /// Only slots until this time, in RFC 3339. The default is a day after `from`.
    to: Option<String>,
    /// Time zone of the local times, by its IANA name. The default is that of each schedule.
    zone: Option<String>,
    /// Maximum number of slots of each schedule, 1 to 10000: of those that run often only the first ones.
    each: Option<u32>,
    /// Maximum number of slots, 1 to 10000; 1000 if omitted.
    limit: Option<u32>,
}

/// Get the coming slots of all active schedules, the earliest first.
#[utoipa::path(get, path = "/v1/upcoming", tag = "schedules", operation_id = "upcoming_slots",
    params(UpcomingQuery),
    responses(
        (status = 200, description = "The slots", body = Vec<UpcomingJson>),
        (status = 400, description = "Invalid time or limit, or unknown zone", body = Problem),
        (status = 409, description = "The daemon has no ledger", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn upcoming(
    State(context): State<Context>,
    query: Result<Query<UpcomingQuery>, QueryRejection>,
) -> Result<Json<Vec<UpcomingJson>>, Problem> {
    let Query(query) = query?;
    let each = query.each.map(|each| limit(Some(each), each, UPCOMING_MAX));
    let zone = query.zone.as_deref().map(zone_of).transpose()?;
    let range = UpcomingRange {
        zone,
        from: instant("from", query.from.as_deref())?,
        to: instant("to", query.to.as_deref())?,
        each: each.transpose()?,
        limit: limit(query.limit, UPCOMING, UPCOMING_MAX)?,
    };
    if let (Some(from), Some(to)) = (range.from, range.to)
        && to < from
    {
        let why = format!("to must not be before from: {to} is before {from}");
        return Err(Problem::bad(why));
    }
    let upcoming = context.ledger.with(move |ledger| ledger.upcoming(&range));
    upcoming.await.map(Json)
}

pub(super) fn instant(key: &str, text: Option<&str>) -> Result<Option<Timestamp>, Problem> {
    let read = text.map(str::parse::<Timestamp>).transpose();
    read.map_err(|_| {
        Problem::bad(format!(
            "{key} must be a time such as 2027-01-31T08:00:00Z: `{}`",
            text.unwrap_or_default().escape_debug()
        ))
    })
}

/// Returns the time zone of a name.
pub(super) fn zone_of(name: &str) -> Result<Zone, Problem> {
    let zone = Zones::load().get(name);
    zone.map_err(|problem| Problem::bad(problem.under("zone").to_string()))
}

fn count(n: Option<u32>) -> Result<u32, Problem> {
    let n = n.unwrap_or(SLOTS);
    match (1..=SLOTS_MAX).contains(&n) {
        true => Ok(n),
        false => Err(Problem::bad(format!(
            "n must be within 1..={SLOTS_MAX}: `{n}`"
        ))),
    }
}

/// Times of a schedule: `cron`, `every` or `at`.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExplainTimes {
    /// Cron expression of 5 fields, 6 (second first) or 7 (year last), or several of them.
    #[serde(default)]
    cron: OneOrMore,
    /// Period in absolute time, such as `90s` or `1h 30m`.
    every: Option<String>,
    /// Offset of the period from 1970-01-01T00:00:00Z.
    offset: Option<String>,
    /// One time: `2027-01-31T08:00:00` by the zone, or with `Z`, an offset or `[Europe/Berlin]` at its end.
    at: Option<String>,
    /// Time zone by its IANA name; UTC if omitted.
    zone: Option<String>,
    /// Dialect of the expressions: `standard` or `quartz`.
    dialect: Option<String>,
    /// Name of the schedule, of which `H` in an expression is a hash.
    name: Option<String>,
    /// Only slots after this time, written as `at`. The default is now.
    from: Option<String>,
    /// Number of slots, 1 to 10000; 5 if omitted.
    n: Option<u32>,
}

/// One text, or several.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
pub(super) enum OneOrMore {
    /// One.
    One(String),
    /// Several.
    More(Vec<String>),
}

impl Default for OneOrMore {
    fn default() -> Self {
        Self::More(Vec::new())
    }
}

/// Times of a schedule in words, and its next slots.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(super) struct Explained {
    /// The times in words, line by line.
    pub(super) words: Vec<ExplainedLine>,
    /// The next slots.
    pub(super) slots: Vec<SlotJson>,
}

/// A line of an explanation.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(super) struct ExplainedLine {
    /// The part of the schedule that it is about, such as `hours`, `days` or `zone`.
    pub(super) label: String,
    /// The text.
    pub(super) text: String,
}

/// Explain a schedule in words: its state, times and rules, why its last slots did not run, and the next ones.
#[utoipa::path(get, path = "/v1/schedules/{name}/explain", tag = "schedules", operation_id = "explain_stored_schedule",
    params(("name" = String, Path, description = "The schedule"), SlotsQuery),
    responses(
        (status = 200, description = "The explanation", body = Explained),
        (status = 400, description = "Invalid number", body = Problem),
        (status = 404, description = "Unknown schedule", body = Problem),
        (status = 409, description = "The schedule is broken, or the daemon has no ledger", body = Problem),
        (status = 422, description = "Invalid time", body = Problem),
        (status = 503, description = "The ledger can't be used now", body = Problem),
    ),
)]
pub(super) async fn explain_schedule(
    State(context): State<Context>,
    ScheduleName(name): ScheduleName,
    query: Result<Query<SlotsQuery>, QueryRejection>,
) -> Result<Json<Explained>, Problem> {
    let Query(SlotsQuery { n, from }) = query?;
    let count = count(n)?;
    let explain = context.ledger.with(move |ledger| {
        let shown = ledger.schedule(&name)?;
        stored::explained(
            &shown,
            (from.as_deref(), count),
            &Zones::load(),
            Timestamp::now(),
        )
    });
    let told = explain.await?;
    Ok(Json(Explained {
        words: lines(told.words),
        slots: told.slots,
    }))
}

fn lines<L: Into<String>>(words: impl IntoIterator<Item = (L, String)>) -> Vec<ExplainedLine> {
    let words = words.into_iter().map(|(label, text)| ExplainedLine {
        label: label.into(),
        text,
    });
    words.collect()
}

/// Explain the times of a schedule in words, with its next slots. Nothing is stored. Errors state the key, the position
/// and the remedy.
#[utoipa::path(post, path = "/v1/schedules/explain", tag = "schedules", operation_id = "explain_schedule",
    request_body = ExplainTimes,
    responses(
        (status = 200, description = "The explanation", body = Explained),
        (status = 400, description = "Invalid number of slots", body = Problem),
        (status = 422, description = "The times are invalid", body = Problem),
    ),
)]
pub(super) async fn explain(
    State(context): State<Context>,
    JsonBody(times): JsonBody<ExplainTimes>,
) -> Result<Json<Explained>, Problem> {
    let count = count(times.n)?;
    let explain = move || explained(times, count, Timestamp::now());
    context.ledger.in_place(explain).await?.map(Json)
}

fn explained(times: ExplainTimes, count: u32, now: Timestamp) -> Result<Explained, Problem> {
    let zones = Zones::load();
    let from = times.from.clone();
    let spec = spec(times, &zones).map_err(|mistakes| {
        let errors = mistakes.iter().map(Mistake::to_string);
        invalid(errors.collect())
    })?;
    let wrong = |mistake: Mistake| invalid(vec![mistake.to_string()]);
    let from = explain::begin(from.as_deref(), &spec, &zones, now).map_err(wrong)?;
    if let Some(mistake) = spec.never_runs(from) {
        return Err(wrong(mistake));
    }
    let slots = explain::slots(&spec, from, count).map_err(away)?;
    Ok(Explained {
        words: lines(explain::in_words(&spec, &zones)),
        slots: slots.into_iter().map(SlotJson::from).collect(),
    })
}

/// Returns the problem of times with these errors.
fn invalid(errors: Vec<String>) -> Problem {
    let why = "the times are invalid";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, why).with(errors)
}

/// Reads the times, as a command line is read.
fn spec(times: ExplainTimes, zones: &Zones) -> Result<Spec, Vec<Mistake>> {
    let mut mistakes = Vec::new();
    let mut period = |text: Option<String>, key: &str| {
        let read = duration(text.as_deref()?);
        if read.is_none() {
            let right = "write a number with its unit, such as `90s` or `5m`";
            let wrong = format!("invalid duration `{}`", text.unwrap_or_default());
            mistakes.push(Mistake::new(wrong, right).under(key));
        }
        read
    };
    let (every, offset) = (period(times.every, "every"), period(times.offset, "offset"));
    let dialect = times.dialect.map(|dialect| dialect.parse::<Dialect>());
    let dialect = dialect.transpose().unwrap_or_else(|mistake| {
        mistakes.push(mistake.under("dialect"));
        None
    });
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let definition = Definition {
        name: times.name.unwrap_or_else(|| "schedule".to_owned()),
        cron: match times.cron {
            OneOrMore::One(cron) => vec![cron],
            OneOrMore::More(crons) => crons,
        },
        dialect: dialect.unwrap_or_default(),
        every,
        offset,
        at: times.at,
        zone: times.zone,
        ..Definition::default()
    };
    definition.spec(zones)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(times: Value) -> Result<Value, String> {
        let times: ExplainTimes =
            serde_json::from_value(times).map_err(|error| error.to_string())?;
        let now = "2026-12-01T00:00:00Z".parse().unwrap();
        let told = explained(times, 2, now);
        told.map(|told| serde_json::to_value(told).unwrap())
            .map_err(|problem| serde_json::to_value(problem).unwrap()["errors"].to_string())
    }

    #[test]
    fn times_are_told_in_words_and_slots() {
        let told = told(json!({ "cron": "0 9 * * MON", "zone": "Europe/Berlin" })).unwrap();
        assert_eq!(
            told["words"][0],
            json!({ "label": "cron", "text": "0 9 * * MON" })
        );
        let slot = json!({
            "slot": "2026-12-07T08:00:00Z", "local": "2026-12-07T09:00:00+01:00", "note": "",
        });
        assert_eq!(told["slots"][0], slot);
        assert_eq!(told["slots"].as_array().unwrap().len(), 2);
        let several = self::told(json!({ "cron": ["0 1 * * *", "0 2 * * *"] })).unwrap();
        assert_eq!(several["slots"][1]["slot"], "2026-12-01T02:00:00Z");
        let every = self::told(json!({ "every": "1h", "offset": "5m" })).unwrap();
        assert_eq!(every["slots"][0]["slot"], "2026-12-01T00:05:00Z");
    }

    #[test]
    fn mistakes_are_told_with_place_and_remedy() {
        for (times, expected) in [
            (json!({ "cron": "0 24 * * *" }), "(byte 2): write 0 to 23"),
            (
                json!({ "cron": ["* * * * *", "0 25 * * *"] }),
                "cron[1]: hour `25`",
            ),
            (json!({ "cron": "0 0 30 2 *" }), "no such day"),
            (json!({ "every": "5" }), "every: invalid duration `5`"),
            (
                json!({ "cron": "* * * * *", "zone": "berlin" }),
                "did you mean `Europe/Berlin`?",
            ),
            (json!({ "at": "2001-01-01T00:00" }), "has no slot after"),
            (
                json!({ "every": "1h", "from": "noon" }),
                "from: invalid time `noon`",
            ),
            (
                json!({ "cron": "* * * * *", "dialect": "unix" }),
                "dialect: invalid",
            ),
            (
                json!({ "every": "1h", "cron": "* * * * *" }),
                "one of `cron`, `every` and `at`",
            ),
            (json!({}), "one of `cron`, `every` and `at`"),
            (json!({ "evry": "1h" }), "unknown field `evry`"),
        ] {
            let why = told(times.clone()).unwrap_err();
            assert!(why.contains(expected), "{times}: {why}");
        }
    }
}
