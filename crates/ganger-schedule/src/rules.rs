//! The rules of a schedule in words: what becomes of its slots.

use std::time::Duration;

use ganger_core::units::show_duration;
use jiff::Timestamp;

use crate::expect::Expect;
use crate::overlap::Overlap;
use crate::spec::{Misfire, Policy, Spec};

/// Returns the rules of a schedule in words: lines of a label and a text.
pub fn rules_in_words(spec: &Spec) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(start) = spec.start {
        lines.push(("start", format!("no slot is before {start}")));
    }
    if let Some(end) = spec.end {
        lines.push(("end", format!("no slot is after {end}")));
    }
    if let Some(limit) = spec.limit {
        lines.push(("limit", format!("ends after {limit} runs")));
    }
    if !spec.jitter.is_zero() {
        let jitter = show_duration(spec.jitter);
        let less = match is_closer_than(spec, spec.jitter) {
            true => ", less if the next slot is sooner",
            false => "",
        };
        let text = format!("each slot is up to {jitter} late{less}, by a hash of name and slot");
        lines.push(("jitter", text));
    }
    lines.push(("misfire", misfire(&spec.misfire)));
    lines.push(("overlap", overlap(spec.overlap)));
    if let Some(rules) = spec.auto_disable {
        let (failures, window) = (rules.failures, show_duration(rules.window));
        let then = match rules.retry_after {
            Some(after) => format!("; after {} one run is tried", show_duration(after)),
            None => " until it is resumed".to_owned(),
        };
        let text = format!("{failures} failures in a row within {window} disable it{then}");
        lines.push(("auto_disable", text));
    }
    lines.extend(expected(&spec.expect).map(|text| ("expect", text)));
    lines
}

/// Returns true if some of the first slots are closer to each other than that.
fn is_closer_than(spec: &Spec, time: Duration) -> bool {
    let slots = spec
        .timing
        .between(Timestamp::UNIX_EPOCH, Timestamp::MAX, 100);
    let slots = slots.unwrap_or_default();
    slots
        .windows(2)
        .any(|pair| pair[1].duration_since(pair[0]).unsigned_abs() < time)
}

fn misfire(rules: &Misfire) -> String {
    let Misfire {
        policy,
        grace,
        catch_up,
        max,
    } = rules;
    let (grace, catch_up) = (show_duration(*grace), show_duration(*catch_up));
    let missed = format!("a slot that no daemon dispatches within {grace} is missed");
    match policy {
        Policy::Once => {
            format!("{missed}: the newest runs for all, unless it is more than {catch_up} late")
        }
        Policy::All => format!("{missed}: the newest {max} run that are at most {catch_up} late"),
        Policy::Skip => format!("{missed}, and does not run"),
    }
}

fn overlap(overlap: Overlap) -> String {
    match overlap {
        Overlap::Allow => "a slot runs beside runs that are still open".to_owned(),
        Overlap::Skip => "a slot is skipped while an earlier run is open".to_owned(),
        Overlap::Queue { max } => {
            format!("a slot waits until the runs before it have ended; at most {max} wait")
        }
        Overlap::Replace => "a slot cancels the run that is open, then it runs".to_owned(),
    }
}

fn expected(expect: &Expect) -> Option<String> {
    let within = |limit: Option<Duration>, text: &str| {
        limit.map(|limit| format!("{text} within {}", show_duration(limit)))
    };
    let parts = [
        within(expect.within, "a run starts"),
        within(expect.finish, "a run ends"),
        within(expect.every, "a run completes"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("{}; else it is overdue", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auto_disable;
    use crate::definition::Definition;
    use crate::zone::Zones;

    fn told(definition: &Definition) -> Vec<String> {
        let spec = definition.spec(&Zones::bundled()).unwrap();
        let lines = rules_in_words(&spec).into_iter();
        lines
            .map(|(label, text)| format!("{label}: {text}"))
            .collect()
    }

    #[test]
    fn rules_are_told_in_words() {
        let plain = Definition {
            name: "s".to_owned(),
            every: Some(Duration::from_secs(3600)),
            ..Definition::default()
        };
        assert_eq!(
            told(&plain),
            [
                "misfire: a slot that no daemon dispatches within 1m is missed: the newest runs for all, unless it is \
                 more than 24h late",
                "overlap: a slot is skipped while an earlier run is open",
            ]
        );
        let close = Definition {
            every: Some(Duration::from_secs(1)),
            jitter: Duration::from_secs(10),
            ..plain.clone()
        };
        assert_eq!(
            told(&close)[0],
            "jitter: each slot is up to 10s late, less if the next slot is sooner, by a hash of name and slot"
        );
        let all = Definition {
            limit: Some(3),
            jitter: Duration::from_secs(60),
            overlap: Overlap::Queue { max: 100 },
            misfire: Misfire {
                policy: Policy::All,
                ..Misfire::default()
            },
            auto_disable: Some(auto_disable::Rules {
                failures: 5,
                window: Duration::from_secs(3600),
                retry_after: None,
            }),
            expect: Expect {
                within: Some(Duration::from_secs(600)),
                ..Expect::default()
            },
            ..plain
        };
        let told = told(&all);
        for expected in [
            "limit: ends after 3 runs",
            "jitter: each slot is up to 1m late, by a hash of name and slot",
            "misfire: a slot that no daemon dispatches within 1m is missed: the newest 100 run that are at most 24h late",
            "overlap: a slot waits until the runs before it have ended; at most 100 wait",
            "auto_disable: 5 failures in a row within 1h disable it until it is resumed",
            "expect: a run starts within 10m; else it is overdue",
        ] {
            assert!(told.iter().any(|line| line == expected), "{told:#?}");
        }
    }
}
