//! `samples/reports`: a report with its log, its progress and its result, one that fails, and one that is missed.

use std::fs;

use serde_json::{Value, json};

use super::Sample;
use crate::harness::{Daemon, Hook, trials};
use crate::ledger::{becomes, logs};

trials![
    a_report_tells_of_itself,
    reports_that_fail_stop_their_schedule,
    a_report_that_is_missed_is_an_alert,
];

/// Has the report of that day made; the id of the run.
fn trigger(sample: &Sample, day: &str) -> String {
    let body = json!({ "day": day }).to_string();
    let args = ["schedule", "trigger", "sales", "--body", "-"];
    let id = sample.site.ganger_reading(&args, body.as_bytes()).good();
    id.trim().to_owned()
}

fn ended(sample: &Sample, daemon: &Daemon, id: &str, state: &str) -> Value {
    becomes(&sample.site, daemon, id, state)
}

fn a_report_tells_of_itself() {
    let sample = Sample::of("reports");
    let daemon = sample.start(&[]);
    daemon.entered();
    let id = trigger(&sample, "2026-11-28");
    let run = ended(&sample, &daemon, &id, "completed");
    let result: Value = serde_json::from_str(run["result"].as_str().unwrap()).unwrap();
    let expected = json!({"day": "2026-11-28", "orders": 4, "total": "205.00"});
    assert_eq!(result, expected);
    let lines = logs::becomes(&sample.site, &daemon, &id, 2);
    let expected = [
        "1 info reading the orders day=2026-11-28",
        "1 info the report is written regions=3",
    ];
    assert_eq!(logs::of(&lines, "log"), expected);
    let show = ["occurrence", "show", &id, "-o", "json"];
    let progress = sample.site.ganger(&show).json()["progress"].clone();
    assert_eq!(progress, "4 of 4 orders");
    let report = fs::read_to_string(sample.site.path("reports/2026-11-28.csv")).unwrap();
    let report: Vec<&str> = report.lines().collect();
    assert_eq!(
        report,
        ["region,total", "north,80.50", "south,119.50", "west,5.00"]
    );
    // An order that can't be counted is no reason to have no report.
    let id = trigger(&sample, "2026-11-29");
    ended(&sample, &daemon, &id, "completed");
    let lines = logs::becomes(&sample.site, &daemon, &id, 3);
    let warning = "1 warn an order without an amount is left out region=north";
    assert_eq!(logs::of(&lines, "log")[1], warning);
    daemon.stop();
}

fn reports_that_fail_stop_their_schedule() {
    let sample = Sample::of("reports");
    let daemon = sample.start(&[]);
    daemon.entered();
    for _ in 0..3 {
        let failed = ended(&sample, &daemon, &trigger(&sample, "1999-12-31"), "failed");
        let why = failed["error"].as_str().unwrap();
        assert!(why.ends_with("there are no orders of 1999-12-31"), "{why}");
    }
    daemon.eventually("the schedule to be disabled", || {
        let listed = sample.site.ganger(&["schedule", "list", "-o", "json"]);
        listed.json()[0]["state"] == "disabled"
    });
    daemon.stop();
}

/// It was expected within 26 hours; here, within a second.
fn a_report_that_is_missed_is_an_alert() {
    let sample = Sample::of("reports");
    let hook = Hook::new();
    let config = fs::read_to_string(sample.site.path("ganger.toml")).unwrap();
    assert!(config.contains("every = \"26h\""));
    let config = config.replace("every = \"26h\"", "every = \"1s\"");
    let config = config.replace("finish = \"45m\", ", "");
    let config = format!("{config}\n[alerts]\nwebhook = \"{}\"\n", hook.url());
    fs::write(sample.site.path("ganger.toml"), config).unwrap();
    let daemon = sample.start(&[]);
    let told = hook.is_told("firing schedule_overdue");
    let summary = told["summary"].as_str().unwrap();
    assert!(summary.starts_with("schedule `sales` is overdue"), "{told}");
    daemon.stop();
}
