//! A schedule of the ledger in plain words.

use jiff::Timestamp;
use serde_json::Value as Json;

use super::shown::{OccurrenceJson, ScheduleDetailsJson, ScheduleJson, SlotJson};
use super::{LedgerError, definition_of, left_of};
use ganger_config::model::ScheduleConfig;
use ganger_schedule::explain::{begin, in_words, slots};
use ganger_schedule::rules::rules_in_words;
use ganger_schedule::zone::Zones;

/// State of a schedule that does not run again, in words.
pub const ENDED: &str = "ended: it has no further slot";

/// A schedule in words, and its next slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedSchedule {
    /// Lines of a label and a text.
    pub words: Vec<(String, String)>,
    /// The next slots.
    pub slots: Vec<SlotJson>,
}

/// Explains a schedule that is shown: its state, its times, its rules, why its last slots did not run, and the next
/// ones after `from`, or after now.
///
/// # Errors
/// If it is broken, or `from` is no time.
pub fn explained(
    shown: &ScheduleDetailsJson,
    (from, count): (Option<&str>, u32),
    zones: &Zones,
    now: Timestamp,
) -> Result<ExplainedSchedule, LedgerError> {
    let name = &shown.schedule.name;
    let config = definition_of(shown, zones)?;
    let spec = &config.spec;
    let from = begin(from, spec, zones, now);
    let from = from.map_err(|wrong| LedgerError::Unsuited(name.clone(), wrong.to_string()))?;
    let left = left_of(shown, spec);
    let next = slots(&left, from, count);
    let next = next.map_err(|broken| LedgerError::Broken(name.clone(), broken.to_string()))?;
    let trial = spec.auto_disable.and_then(|rules| rules.retry_after);
    let has_left = !left.is_over(0);
    let state = state(shown, trial.is_some(), has_left);
    let mut words = vec![("state".to_owned(), state)];
    words.extend(
        shown
            .schedule
            .overdue
            .clone()
            .map(|overdue| ("overdue".to_owned(), overdue)),
    );
    words.push(("sends to".to_owned(), destination(&config)));
    let rules = in_words(spec, zones)
        .into_iter()
        .chain(rules_in_words(spec));
    words.extend(rules.map(|(label, text)| (label.to_owned(), text)));
    words.extend(calendar(&shown.definition).map(|text| ("only".to_owned(), text)));
    let skipped = shown.occurrences.iter().filter_map(skipped);
    words.extend(skipped.map(|text| ("skipped".to_owned(), text)));
    Ok(ExplainedSchedule {
        words,
        slots: next.into_iter().map(SlotJson::from).collect(),
    })
}

/// Returns a schedule of a configuration that no daemon has entered yet.
pub fn not_entered(configured: &ScheduleConfig) -> ScheduleDetailsJson {
    ScheduleDetailsJson {
        schedule: ScheduleJson {
            name: configured.name().to_owned(),
            state: "new".to_owned(),
            state_reason: None,
            overdue: None,
            next_slot: None,
            results: Vec::new(),
            last_state: None,
            tags: Vec::new(),
            origin: "file".to_owned(),
            version: 0,
        },
        runs: 0,
        definition: serde_json::from_str(&configured.definition).unwrap_or_default(),
        etag: String::new(),
        skips: Vec::new(),
        occurrences: Vec::new(),
    }
}

fn state(shown: &ScheduleDetailsJson, has_trial: bool, has_left: bool) -> String {
    let schedule = &shown.schedule;
    let name = &schedule.name;
    let reason = schedule.state_reason.as_deref();
    let reason = reason
        .map(|reason| format!(" ({reason})"))
        .unwrap_or_default();
    let resume = format!("until `ganger schedule resume {name}`");
    match schedule.state.as_str() {
        "active" if has_left => "active: its slots are dispatched".to_owned(),
        "paused" => format!("paused{reason}: no slot is dispatched {resume}"),
        "disabled" => {
            let trial = match has_trial {
                true => ", or until a trial run completes",
                false => "",
            };
            format!("disabled{reason}: no slot is dispatched {resume}{trial}")
        }
        "broken" => format!("broken{reason}: nothing is dispatched until that is corrected"),
        "active" | "ended" => ENDED.to_owned(),
        "new" => "new: a daemon enters it when it starts or reloads".to_owned(),
        other => format!("{other}{reason}"),
    }
}

fn destination(config: &ScheduleConfig) -> String {
    let place = match &config.exchange {
        Some(exchange) => format!(
            "exchange `{exchange}`, with the routing key `{}`",
            config.queue
        ),
        None => format!("queue `{}`", config.queue),
    };
    match &config.source {
        Some(source) => format!("{place} of source `{source}`"),
        None => place,
    }
}

/// Describes the calendar, by its keys.
fn calendar(definition: &Json) -> Option<String> {
    let only = definition.get("only")?.as_object()?;
    let list = |key: &str| {
        let values = only.get(key)?.as_array()?.iter();
        let values: Vec<&str> = values.filter_map(Json::as_str).collect();
        (!values.is_empty()).then(|| values.join(", "))
    };
    let mut parts = vec![list("days").unwrap_or_else(|| "every day".to_owned())];
    parts.extend(list("hours"));
    parts.extend(list("except").map(|days| format!("except {days}")));
    let outside = match only.get("outside").and_then(Json::as_str) {
        Some("next") => "the newest slot outside runs when the calendar opens",
        _ => "a slot outside is skipped",
    };
    Some(format!("{}; {outside}", parts.join(", ")))
}

/// Describes why a slot did not run, if it did not.
fn skipped(one: &OccurrenceJson) -> Option<String> {
    if one.state != "skipped" {
        return None;
    }
    let why = match one.reason.as_deref().unwrap_or_default() {
        "overlap" => "an earlier run was open",
        "misfire" => "no daemon dispatched it in time",
        "calendar" => "it is outside the calendar",
        "paused" => "the schedule was paused or disabled",
        "changed" => "the schedule was changed before",
        "operator" => "an operator has skipped it",
        other => other,
    };
    let slot = one.slot.as_deref().unwrap_or_default();
    Some(match (&one.last_slot, one.missed) {
        (Some(last), more) => format!("{slot} to {last}, {} slots: {why}", more + 1),
        (None, 0) => format!("{slot}: {why}"),
        (None, more) => format!("{slot}, and {more} more: {why}"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(definition: Json, state: &str) -> ScheduleDetailsJson {
        let skipped = |slot: &str, last: Option<&str>, reason: &str, missed: u64| {
            json!({
                "id": "i", "schedule": "s", "version": 1, "slot": slot, "last_slot": last, "queue": "q",
                "state": "skipped", "state_code": 7, "reason": reason, "attempt": 0, "queued_at": slot,
                "started_at": null, "ended_at": slot, "duration_ms": null, "error": null, "message_id": "i",
                "missed": missed,
            })
        };
        let shown = json!({
            "name": "s", "state": state, "state_reason": "maintenance", "next_slot": null, "last_state": null,
            "tags": [], "origin": "api", "version": 1, "runs": 0, "definition": definition,
            "skips": ["2026-12-02T01:30:00Z"],
            "occurrences": [
                skipped("2026-11-30T01:30:00Z", None, "overlap", 0),
                skipped("2026-11-28T01:30:00Z", Some("2026-11-29T01:30:00Z"), "misfire", 1),
            ],
        });
        serde_json::from_value(shown).unwrap()
    }

    #[test]
    fn a_schedule_is_told_in_words() {
        let definition = json!({
            "cron": "30 2 * * *", "zone": "Europe/Berlin", "queue": "q", "source": "rabbit",
            "only": { "days": ["MON-FRI"], "except": ["2026-12-24..2026-12-26"] },
        });
        let now = "2026-12-01T12:00:00Z".parse().unwrap();
        let told = |state| {
            explained(
                &shown(definition.clone(), state),
                (None, 2),
                &Zones::bundled(),
                now,
            )
        };
        let paused = told("paused").unwrap();
        let lines = paused
            .words
            .iter()
            .map(|(label, text)| format!("{label}: {text}"));
        let lines: Vec<String> = lines.collect();
        for expected in [
            "state: paused (maintenance): no slot is dispatched until `ganger schedule resume s`",
            "sends to: queue `q` of source `rabbit`",
            "cron: 30 2 * * *",
            "overlap: a slot is skipped while an earlier run is open",
            "only: MON-FRI, except 2026-12-24..2026-12-26; a slot outside is skipped",
            "skipped: 2026-11-30T01:30:00Z: an earlier run was open",
            "skipped: 2026-11-28T01:30:00Z to 2026-11-29T01:30:00Z, 2 slots: no daemon dispatched it in time",
        ] {
            assert!(
                lines.iter().any(|line| line == expected),
                "{expected}: {lines:#?}"
            );
        }
        let notes: Vec<&str> = paused.slots.iter().map(|slot| slot.note.as_str()).collect();
        assert_eq!(notes, ["does not run: an operator has skipped it", ""]);
        assert_eq!(
            told("active").unwrap().words[0].1,
            "active: its slots are dispatched"
        );
        let disabled = |retry_after: &str| {
            let mut definition = definition.clone();
            definition["auto_disable"] = json!({ "failures": 3, "retry_after": retry_after });
            let shown = shown(definition, "disabled");
            let told = explained(&shown, (None, 1), &Zones::bundled(), now).unwrap();
            told.words[0]
                .1
                .ends_with(", or until a trial run completes")
        };
        assert_eq!(["off", "1h"].map(disabled), [false, true]);
        let broken = shown(json!({ "queue": "q" }), "broken");
        let broken = explained(&broken, (None, 2), &Zones::bundled(), now).unwrap_err();
        assert!(
            broken.to_string().contains("schedule `s` is broken"),
            "{broken}"
        );
        let wrong = shown(definition.clone(), "active");
        let wrong = explained(&wrong, (Some("noon"), 2), &Zones::bundled(), now).unwrap_err();
        assert!(
            wrong.to_string().contains("from: invalid time `noon`"),
            "{wrong}"
        );
    }

    #[test]
    fn no_more_slots_are_told_than_are_left() {
        let now = "2026-12-01T12:00:00Z".parse().unwrap();
        let definition = json!({ "cron": "30 2 * * *", "queue": "q", "limit": 3 });
        let told = |state, runs| {
            let mut shown = shown(definition.clone(), state);
            (shown.runs, shown.skips) = (runs, Vec::new());
            explained(&shown, (None, 5), &Zones::bundled(), now).unwrap()
        };
        let counts = [("active", 0), ("active", 2), ("active", 3), ("ended", 1)];
        let counts = counts.map(|(state, runs)| told(state, runs).slots.len());
        assert_eq!(counts, [3, 1, 0, 0]);
        for (state, runs) in [("active", 3), ("active", 4), ("ended", 1)] {
            assert_eq!(told(state, runs).words[0].1, ENDED, "{state} {runs}");
        }
        // The rules are those of the definition.
        let words = told("active", 2).words;
        assert!(
            words.iter().any(|(_, text)| text.contains('3')),
            "{words:?}"
        );
    }
}
