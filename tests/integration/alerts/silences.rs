//! Silences: of what an operator knows no webhook is told, and everything else shows it.

use serde_json::{Value, json};

use super::{DEGRADED, degraded, told};
use crate::admin::socket;
use crate::harness::{Api, Daemon, EVIL, Hook, Workspace, assert_tame, trials};

trials![
    a_silenced_alert_is_shown_and_told_when_the_silence_ends,
    silences_that_make_no_sense_are_refused,
];

fn api(daemon: &Daemon) -> Api {
    Api::Socket(socket(daemon))
}

fn ganger(site: &Workspace, daemon: &Daemon, args: &[&str]) -> crate::harness::Ran {
    let config = daemon.config().to_str().unwrap();
    site.ganger(&[args, &["--config", config]].concat())
}

/// Waits until the pool's alert is active, and silenced or not.
fn active(daemon: &Daemon, is_silenced: bool) -> Value {
    let api = api(daemon);
    daemon.eventually_some("the alert", || {
        let status = api.get("/v1/status").json();
        let active = status["alerts"]["active"].as_array()?.clone();
        let mut active = active.into_iter();
        let alert = active.find(|alert| alert["kind"] == "pool_degraded")?;
        Some(alert).filter(|alert| alert["silenced"].is_null() != is_silenced)
    })
}

fn a_silenced_alert_is_shown_and_told_when_the_silence_ends() {
    let hook = Hook::new();
    let scene = degraded(&hook, "");
    let (site, daemon) = (&scene.site, &scene.daemon);
    daemon.eventually("the alert to be told", || told(&hook) == [DEGRADED]);
    let silence = [
        "alerts",
        "silence",
        "pool_degraded",
        "work",
        "--for",
        "1h",
        "--reason",
        "a known fault",
    ];
    let done = ganger(site, daemon, &silence).good();
    assert!(
        done.starts_with("pool_degraded of work silenced until "),
        "{done}"
    );
    let alert = active(daemon, true);
    assert_eq!(alert["silenced"]["reason"], "a known fault");
    let metrics = api(daemon).get("/metrics").body;
    for line in [
        "ganger_alerts_silenced{kind=\"pool_degraded\"} 1",
        "ganger_alerts_firing{kind=\"pool_degraded\"} 1",
        "ganger_alerts_silenced{kind=\"waiting\"} 0",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    let status = ganger(site, daemon, &["status"]).good();
    assert!(status.contains("; silenced until "), "{status}");
    for page in ["/ui", "/ui/alerts"] {
        let page = api(daemon).get(page).body;
        assert!(
            page.contains("a known fault") && page.contains("End the silence"),
            "{page}"
        );
    }
    daemon.stop();
    let before = told(&hook);
    let config = daemon.config().file_name().unwrap().to_str().unwrap();
    let daemon = &site.start_as_it_is(config, &[]);
    let alert = active(daemon, true);
    assert_eq!(told(&hook), before, "the next daemon knows of the silence");
    let listed = ganger(site, daemon, &["alerts", "list"]).good();
    let id = alert["silenced"]["id"].as_str().unwrap();
    assert!(
        listed.contains(id) && listed.contains("a known fault"),
        "{listed}"
    );
    ganger(site, daemon, &["alerts", "unsilence", id]).good();
    ganger(site, daemon, &["alerts", "unsilence", id]).bad(2);
    active(daemon, false);
    daemon.eventually("the alert to be told again", || {
        told(&hook)[before.len()..] == [DEGRADED]
    });
    daemon.logs("silence of alerts ended by an operator", |record| {
        record["of"] == "work"
    });
    daemon.stop();
}

fn silences_that_make_no_sense_are_refused() {
    let hook = Hook::new();
    let scene = degraded(&hook, "");
    let api = api(&scene.daemon);
    let long = "x".repeat(2000);
    for (field, value, part) in [
        ("kind", json!(EVIL), "there is pool_degraded"),
        ("for", json!("31d"), "within 30 days"),
        ("for", json!("99999999999999d"), "for must be a duration"),
        ("for", json!("0s"), "in the future"),
        ("for", json!("soon"), "for must be a duration"),
        ("until", json!("2099-01-01T00:00:00Z"), "either"),
        ("of", json!(long), "at most 1024 bytes"),
        ("reason", json!(" "), "reason must not be empty"),
    ] {
        let mut wanted = json!({ "kind": "waiting", "for": "1h", "reason": "r" });
        wanted[field] = value;
        let told = api.post("/v1/alerts/silences", &wanted.to_string());
        let told = told.problem(400);
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(api.get("/v1/alerts/silences").json(), json!([]));
    let hostile = json!({ "kind": "pool_degraded", "for": "30d", "reason": EVIL });
    assert_eq!(
        api.post("/v1/alerts/silences", &hostile.to_string()).status,
        200
    );
    active(&scene.daemon, true);
    assert_tame(&api.get("/ui/alerts").body);
    assert_tame(&ganger(&scene.site, &scene.daemon, &["alerts", "list"]).good());
    scene.daemon.stop();
}
