//! Reports on the runs of a time.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use ganger_queue::ledger::shown::ReportOrder;
use ganger_queue::ledger::{LedgerClient, REPORT_MAX, ReportRange};

/// Midnight, 2026-12-01T00:00:00Z.
const START_MS: i64 = 1_796_083_200_000;

/// An occurrence that was entered so many milliseconds after midnight.
struct Run {
    schedule: &'static str,
    queue: &'static str,
    state: OccurrenceState,
    reason: Option<&'static str>,
    attempt: u32,
    queued: i64,
    started: Option<i64>,
    ended: Option<i64>,
    missed: u32,
}

/// A run that starts `late` after it was entered, and takes that long.
fn ran(schedule: &'static str, queued: i64, late: i64, took: i64) -> Run {
    Run {
        schedule,
        queue: "q",
        state: OccurrenceState::Completed,
        reason: None,
        attempt: 1,
        queued,
        started: Some(queued + late),
        ended: Some(queued + late + took),
        missed: 0,
    }
}

fn insert(rig: &Rig, runs: &[Run]) {
    let conn = rig.sql();
    for (number, run) in runs.iter().enumerate() {
        let at = |offset: i64| START_MS + offset;
        let queued = at(run.queued);
        let millis = u128::from(u64::try_from(queued).unwrap());
        let id = uuid::Uuid::from_u128(millis << 80 | number as u128).to_string();
        conn.execute(
            "INSERT INTO occurrences (id, schedule, version, queue, state, reason, attempt, queued_at, started_at,
               ended_at, missed) VALUES (?1, ?2, 1, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                id, run.schedule, run.queue, run.state.code(), run.reason, run.attempt, queued,
                run.started.map(at), run.ended.map(at), run.missed,
            ],
        )
        .unwrap();
    }
}

fn report(ledger: &mut Ledger, range: &ReportRange) -> Value {
    let range = ReportRange {
        limit: range.limit.max(REPORT_MAX),
        ..range.clone()
    };
    serde_json::to_value(LedgerClient::report(ledger, &range).unwrap()).unwrap()
}

fn names(report: &Value) -> Vec<&str> {
    let rows = report["rows"].as_array().unwrap().iter();
    rows.map(|row| row["schedule"].as_str().unwrap_or("-"))
        .collect()
}

#[test]
fn runs_are_counted_by_schedule_and_queue() {
    let rig = Rig::new();
    rig.set("2026-12-01T12:00:00Z");
    let mut ledger = rig.daemon();
    // 100 ms to 10 s, one each second.
    let mut runs: Vec<Run> = (1..=100)
        .map(|n| ran("often", n * 1000, n, n * 100))
        .collect();
    runs.push(Run {
        state: OccurrenceState::Failed,
        reason: Some("crashed"),
        // Its first attempt may have begun in time.
        attempt: 3,
        ..ran("failing", 500, 60_000, 70)
    });
    runs.push(Run {
        state: OccurrenceState::Skipped,
        reason: Some("overlap"),
        started: None,
        missed: 4,
        ..ran("failing", 600, 0, 0)
    });
    runs.push(Run {
        state: OccurrenceState::Running,
        reason: None,
        ended: None,
        ..ran("failing", 700, 5, 0)
    });
    runs.push(Run {
        queue: "mail",
        ..ran("", 800, 1, 2)
    });
    // A clock was set back between.
    runs.push(Run {
        queue: "mail",
        ..ran("", 900, -5, -5)
    });
    insert(&rig, &runs);
    let told = report(&mut ledger, &ReportRange::default());
    assert_eq!(
        told,
        json!({
            "from": "2026-11-30T12:00:00Z", "to": "2026-12-01T12:00:00Z", "is_complete": true,
            "rows": [
                {
                    "schedule": "failing", "source": null, "queue": "q", "runs": 7, "open": 1, "completed": 0,
                    "failed": 1, "timed_out": 0, "cancelled": 0, "skipped": 5,
                    "reasons": { "crashed": 1, "overlap": 5 },
                    "late": { "p50_ms": 5, "p95_ms": 5, "max_ms": 5 },
                    "took": { "p50_ms": 70, "p95_ms": 70, "max_ms": 70 },
                    "slowest": told["rows"][0]["slowest"],
                },
                {
                    "schedule": null, "source": null, "queue": "mail", "runs": 2, "open": 0, "completed": 2,
                    "failed": 0, "timed_out": 0, "cancelled": 0, "skipped": 0, "reasons": {},
                    "late": { "p50_ms": 0, "p95_ms": 1, "max_ms": 1 },
                    "took": { "p50_ms": 0, "p95_ms": 2, "max_ms": 2 },
                    "slowest": told["rows"][1]["slowest"],
                },
                {
                    "schedule": "often", "source": null, "queue": "q", "runs": 100, "open": 0, "completed": 100,
                    "failed": 0, "timed_out": 0, "cancelled": 0, "skipped": 0, "reasons": {},
                    "late": { "p50_ms": 50, "p95_ms": 95, "max_ms": 100 },
                    "took": { "p50_ms": 5000, "p95_ms": 9500, "max_ms": 10_000 },
                    "slowest": told["rows"][2]["slowest"],
                },
            ],
        })
    );
    let slowest = told["rows"][2]["slowest"].as_str().unwrap();
    let slowest = LedgerClient::occurrence(&mut ledger, slowest)
        .unwrap()
        .unwrap();
    assert_eq!(slowest.occurrence.duration_ms, Some(10_000));
}

/// A ledger with some runs of a night, and one of the day before.
fn in_the_night(rig: &Rig) -> Ledger {
    rig.set("2026-12-01T12:00:00Z");
    let mut ledger = rig.daemon();
    let tagged = r#"{"cron": "@yearly", "queue": "q", "tags": ["night"]}"#;
    ledger
        .sync(&[config("late", tagged), config("slow", MINUTELY)])
        .unwrap();
    let failed = Run {
        state: OccurrenceState::TimedOut,
        reason: Some("timed_out"),
        ..ran("failing", 1000, 1, 1)
    };
    let elsewhere = Run {
        queue: "other",
        ..ran("slow", 5000, 2, 500)
    };
    insert(
        rig,
        &[
            failed,
            ran("late", 2000, 900, 2),
            ran("slow", 3000, 2, 700),
            ran("old", -1, 1, 1),
            elsewhere,
        ],
    );
    ledger
}

#[test]
fn a_report_has_an_order() {
    let rig = Rig::new();
    let mut ledger = in_the_night(&rig);
    let mut of = |range: ReportRange| report(&mut ledger, &range);
    let midnight = Some(time("2026-12-01T00:00:00Z"));
    let since = ReportRange {
        from: midnight,
        ..ReportRange::default()
    };
    let orders = [
        (ReportOrder::Failures, "failing"),
        (ReportOrder::Lateness, "late"),
        (ReportOrder::Durations, "slow"),
        (ReportOrder::Slow, "slow"),
    ];
    for (order, first) in orders {
        let told = of(ReportRange {
            order,
            ..since.clone()
        });
        assert_eq!(names(&told)[0], first, "{told}");
        assert_eq!(names(&told).len(), 4);
        assert_eq!(ReportOrder::of(order.as_str()), Some(order));
    }
}

#[test]
fn a_report_is_of_a_range_and_of_chosen_runs() {
    let rig = Rig::new();
    let mut ledger = in_the_night(&rig);
    let mut of = |range: ReportRange| report(&mut ledger, &range);
    let midnight = Some(time("2026-12-01T00:00:00Z"));
    let since = ReportRange {
        from: midnight,
        ..ReportRange::default()
    };
    let until = ReportRange {
        to: Some(time("2026-12-01T00:00:02Z")),
        ..since.clone()
    };
    assert_eq!(names(&of(until)), ["failing"]);
    let until = ReportRange {
        to: midnight,
        ..ReportRange::default()
    };
    assert_eq!(names(&of(until)), ["old"]);
    let named = ReportRange {
        schedule: Some("slow".to_owned()),
        ..since.clone()
    };
    assert_eq!(names(&of(named.clone())), ["slow", "slow"]);
    let both = ReportRange {
        queue: Some("other".to_owned()),
        ..named
    };
    assert_eq!(names(&of(both)), ["slow"]);
    let tagged = ReportRange {
        tag: Some("night".to_owned()),
        ..since.clone()
    };
    assert_eq!(names(&of(tagged)), ["late"]);
    let untagged = ReportRange {
        tag: Some("day".to_owned()),
        ..since
    };
    assert_eq!(names(&of(untagged)), [""; 0]);
}

#[test]
fn runs_are_counted_by_the_days_of_a_zone() {
    let rig = Rig::new();
    rig.set("2026-12-03T12:00:00Z");
    let mut ledger = rig.daemon();
    const HOUR: i64 = 3_600_000;
    let failed = |queued| Run {
        state: OccurrenceState::Failed,
        ..ran("a", queued, 0, 1)
    };
    // In Tokyo it is nine hours later.
    let runs = [
        ran("a", 14 * HOUR, 0, 1),
        ran("a", 16 * HOUR, 0, 1),
        failed(23 * HOUR),
        failed(25 * HOUR),
        ran("b", 14 * HOUR, 0, 1),
    ];
    insert(&rig, &runs);
    let mut days = |zone: &str, runs: Option<u32>| {
        let range = ReportRange {
            from: Some("2026-12-01T00:00:00Z".parse().unwrap()),
            schedule: Some("a".to_owned()),
            by_day: Some(ganger_schedule::zone::Zones::bundled().get(zone).unwrap()),
            runs,
            ..ReportRange::default()
        };
        let told = report(&mut ledger, &range);
        let rows = told["rows"].as_array().unwrap().iter();
        let mut days: Vec<String> = rows
            .map(|row| format!("{} {} {}", row["day"], row["runs"], row["failed"]))
            .collect();
        days.sort();
        (
            days.join(", ").replace('"', ""),
            told["is_complete"].clone(),
        )
    };
    let whole = json!(true);
    let utc = "2026-12-01 3 1, 2026-12-02 1 1".to_owned();
    assert_eq!(days("UTC", None), (utc, whole.clone()));
    let tokyo = "2026-12-01 1 0, 2026-12-02 3 2".to_owned();
    assert_eq!(days("Asia/Tokyo", None), (tokyo, whole));
    // The newest are counted.
    let cut = "2026-12-01 1 1, 2026-12-02 1 1".to_owned();
    assert_eq!(days("UTC", Some(2)), (cut, json!(false)));
}

#[test]
fn a_report_of_more_than_can_be_counted_in_time_is_of_the_newest() {
    let rig = Rig::new();
    rig.set("2026-12-01T12:00:00Z");
    let mut ledger = rig.daemon();
    let runs: Vec<Run> = (0..10_001).map(|at| ran("many", 1000 + at, 1, 1)).collect();
    insert(&rig, &runs);
    let in_no_time = ReportRange {
        within: Some(Duration::ZERO),
        ..ReportRange::default()
    };
    let told = report(&mut ledger, &in_no_time);
    assert_eq!(told["rows"][0]["runs"], 100);
    assert_eq!(told["is_complete"], false);
    assert_eq!(told["from"], "2026-12-01T00:00:10.901Z");
    let told = report(&mut ledger, &ReportRange::default());
    assert_eq!(told["rows"][0]["runs"], 10_001);
    assert_eq!(told["is_complete"], true);
}
