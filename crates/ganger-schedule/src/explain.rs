//! The next slots of a schedule, with the effect of clock changes on each, and its times in words.

use jiff::Timestamp;

use crate::cron::Cron;
use crate::definition::instant;
use crate::problem::{Broken, Problem};
use crate::spec::Spec;
use crate::timing::{Rule, Timing};
use crate::wall::{Fold, Gap};
use crate::zone::{Zone, Zones};

/// A slot as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownSlot {
    /// Its instant.
    pub at: Timestamp,
    /// The same by the clocks of the zone: RFC 3339, with the offset.
    pub local: String,
    /// The effect of clock changes and of the calendar on it; empty if there is none.
    pub note: String,
}

/// Returns the instant after which slots are shown: the one that is written, or else now.
///
/// # Errors
/// If the text is no time.
pub fn begin(
    from: Option<&str>,
    spec: &Spec,
    zones: &Zones,
    now: Timestamp,
) -> Result<Timestamp, Problem> {
    let written = from.map(|text| instant(text, &spec.timing.zone, zones, false));
    let written = written.transpose().map_err(|problem| problem.under("from"));
    Ok(written?.unwrap_or(now))
}

/// Returns the slots after an instant, at most `count`. The schedule's limit counts from the first of them.
///
/// # Errors
/// If one can't be worked out.
pub fn slots(spec: &Spec, from: Timestamp, count: u32) -> Result<Vec<ShownSlot>, Broken> {
    slots_until(spec, from, Timestamp::MAX, count)
}

/// Returns the slots after an instant and until another, at most `count`. The schedule's limit counts from the first of
/// them.
///
/// # Errors
/// If one can't be worked out.
pub fn slots_until(
    spec: &Spec,
    from: Timestamp,
    until: Timestamp,
    count: u32,
) -> Result<Vec<ShownSlot>, Broken> {
    let mut slots = Vec::new();
    let mut before = from;
    let mut runs = 0;
    for _ in 0..count {
        if spec.is_over(runs) {
            break;
        }
        let Some(slot) = spec.next(before)?.filter(|slot| slot.at <= until) else {
            break;
        };
        let remarks = spec.timing.remarks(before, slot.at)?;
        let mut remarks: Vec<String> = remarks.iter().map(ToString::to_string).collect();
        if spec.skips.contains(&slot.at) {
            remarks.push("does not run: an operator has skipped it".to_owned());
        } else {
            runs += 1;
            let opens = spec.moved_to(slot)?;
            remarks.extend(opens.map(|opens| {
                let opens = spec.timing.zone.local(opens);
                format!("runs at {opens}, when the calendar opens")
            }));
        }
        slots.push(ShownSlot {
            at: slot.at,
            local: spec.timing.zone.local(slot.at),
            note: remarks.join("; "),
        });
        before = slot.at;
    }
    Ok(slots)
}

/// Returns the times of a schedule in words: lines of a label and a text.
pub fn in_words(spec: &Spec, zones: &Zones) -> Vec<(&'static str, String)> {
    let timing = &spec.timing;
    let mut lines = Vec::new();
    let mut has_clock = false;
    for rule in &timing.rules {
        match rule {
            Rule::Cron(cron) => {
                has_clock = true;
                lines.push(("cron", cron.text().trim().to_owned()));
                lines.extend(cron.meaning());
                let changes = timing.zone != Zone::default();
                lines.extend(changes.then(|| ("summer time", change(timing, cron))));
            }
            Rule::Every(every) => {
                let (period, origin) = (every.period(), every.origin());
                let text = format!("{period:#}, counted from {origin}, whatever the clocks show");
                lines.push(("every", text));
            }
            Rule::At(at) => lines.push(("at", at.to_string())),
        }
    }
    let source = match has_clock {
        true => format!("{} (time zones: {})", timing.zone.name(), zones.source()),
        false => timing.zone.name().to_owned(),
    };
    lines.push(("zone", source));
    lines
}

/// Returns what a change of the clock does to an expression.
fn change(timing: &Timing, cron: &Cron) -> String {
    let (gap, fold) = timing.wall(cron).rules();
    if cron.is_interval() && (gap, fold) == (Gap::Skip, Fold::Both) {
        return "goes on in real time when the clock is changed: a repeated hour runs twice, a missing one not at all"
            .to_owned();
    }
    let repeated = match fold {
        Fold::First => "at its first pass",
        Fold::Last => "at its second pass",
        Fold::Both => "twice",
    };
    let missing = match gap {
        Gap::After => "when the clock has gone forward",
        Gap::Skip => "not at all",
    };
    format!("goes by the clock: a repeated time runs {repeated}, a missing one {missing}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;
    use crate::calendar::Outside;
    use crate::definition::{CalendarDefinition, Definition};
    use crate::wall::Dst;

    fn spec(cron: &str, zone: &str) -> (Spec, Zones) {
        let zones = Zones::bundled();
        let definition = Definition {
            name: "s".to_owned(),
            cron: vec![cron.to_owned()],
            zone: Some(zone.to_owned()),
            ..Definition::default()
        };
        (definition.spec(&zones).unwrap(), zones)
    }

    #[test]
    fn a_slot_is_shown_by_both_clocks_with_what_a_change_does_to_it() {
        let (spec, zones) = spec("30 2 * * *", "America/New_York");
        let now = Timestamp::UNIX_EPOCH;
        let from = begin(Some("2026-03-07T12:00"), &spec, &zones, now).unwrap();
        let shown = slots(&spec, from, 2).unwrap();
        assert_eq!(shown[0].at.to_string(), "2026-03-08T07:00:00Z");
        assert_eq!(shown[0].local, "2026-03-08T03:00:00-04:00");
        assert!(shown[0].note.contains("does not exist"));
        assert_eq!(shown[1].note, "");
        assert_eq!(begin(None, &spec, &zones, now), Ok(now));
        let wrong = begin(Some("noon"), &spec, &zones, now).unwrap_err();
        assert!(
            wrong.to_string().starts_with("from: invalid time `noon`"),
            "{wrong}"
        );
    }

    #[test]
    fn slots_end_with_the_schedule() {
        let (spec, _) = spec("0 0 0 1 1 * 2030", "UTC");
        let shown = slots(&spec, Timestamp::UNIX_EPOCH, 5).unwrap();
        let shown: Vec<String> = shown.iter().map(|slot| slot.at.to_string()).collect();
        assert_eq!(shown, ["2030-01-01T00:00:00Z"]);
    }

    #[test]
    fn a_slot_that_a_calendar_moves_says_when_it_runs() {
        let only = CalendarDefinition {
            days: vec!["MON-FRI".to_owned()],
            outside: Outside::Next,
            ..CalendarDefinition::default()
        };
        let definition = Definition {
            name: "s".to_owned(),
            cron: vec!["0 9 * * SAT,MON".to_owned()],
            zone: Some("America/New_York".to_owned()),
            only: Some(only),
            ..Definition::default()
        };
        let mut spec = definition.spec(&Zones::bundled()).unwrap();
        let from: Timestamp = "2027-01-29T00:00Z".parse().unwrap();
        let shown = slots(&spec, from, 2).unwrap();
        assert_eq!(shown[0].local, "2027-01-30T09:00:00-05:00");
        assert_eq!(
            shown[0].note,
            "runs at 2027-02-01T00:00:00-05:00, when the calendar opens"
        );
        assert_eq!(shown[1].note, "");
        spec.skips = BTreeSet::from([shown[0].at]);
        let skipped = &slots(&spec, from, 1).unwrap()[0];
        assert_eq!(skipped.note, "does not run: an operator has skipped it");
    }

    #[test]
    fn slots_end_with_the_limit() {
        let (mut spec, _) = spec("0 0 * * *", "UTC");
        let count = |spec: &Spec| slots(spec, Timestamp::UNIX_EPOCH, 5).unwrap().len();
        spec.limit = Some(2);
        assert_eq!(count(&spec), 2);
        // What does not run does not count.
        spec.skips = BTreeSet::from(["1970-01-02T00:00Z".parse().unwrap()]);
        assert_eq!(count(&spec), 3);
        spec.limit = Some(0);
        assert_eq!(count(&spec), 0);
    }

    #[test]
    fn words_tell_the_rules_for_changes_of_the_clock() {
        let told = |cron, dst| {
            let (mut spec, zones) = spec(cron, "Europe/Berlin");
            spec.timing.dst = dst;
            let mut lines = in_words(&spec, &zones).into_iter();
            lines.find(|(label, _)| *label == "summer time").unwrap().1
        };
        let standard = told("30 2 * * *", Dst::Standard);
        assert!(standard.ends_with(
            "a repeated time runs at its first pass, a missing one when the clock has gone forward"
        ));
        let interval = told("*/30 * * * *", Dst::Standard);
        assert!(interval.starts_with("goes on in real time"), "{interval}");
        let dst = Dst::Explicit {
            gap: Gap::Skip,
            fold: Fold::Last,
        };
        for cron in ["30 2 * * *", "*/30 * * * *"] {
            assert_eq!(
                told(cron, dst),
                "goes by the clock: a repeated time runs at its second pass, a missing one not at all"
            );
        }
    }

    #[test]
    fn words_count_a_period_from_its_offset() {
        let zones = Zones::bundled();
        let definition = Definition {
            name: "s".to_owned(),
            every: Some(Duration::from_secs(3600)),
            offset: Some(Duration::from_secs(300)),
            ..Definition::default()
        };
        let lines = in_words(&definition.spec(&zones).unwrap(), &zones);
        assert_eq!(
            lines[0].1,
            "1h, counted from 1970-01-01T00:05:00Z, whatever the clocks show"
        );
    }

    #[test]
    fn words_name_the_zone_and_what_summer_time_does() {
        let labels = |cron, zone| {
            let (spec, zones) = spec(cron, zone);
            let lines = in_words(&spec, &zones);
            lines
                .into_iter()
                .map(|(label, _)| label)
                .collect::<Vec<_>>()
        };
        let berlin = labels("30 2 * * *", "Europe/Berlin");
        assert_eq!((berlin[0], berlin[berlin.len() - 1]), ("cron", "zone"));
        assert!(berlin.contains(&"summer time"));
        assert!(!labels("30 2 * * *", "UTC").contains(&"summer time"));
    }
}
