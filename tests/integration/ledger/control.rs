//! What operators and schedules do to runs: cancel, send back, resolve, replace, limit.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{becomes, occurrences, schedule, schedule_to, states, trigger};
use crate::harness::{Daemon, Event, NewMessage, Pool, Workspace, trials_on};

trials_on![
    a_run_that_a_worker_has_is_given_up_and_can_be_sent_back,
    a_run_is_cancelled_while_its_daemon_drains,
    a_worker_that_does_not_give_up_is_killed,
    a_run_that_waits_is_cancelled_at_once,
    a_run_whose_daemon_was_killed_is_cancelled_by_the_next_one,
    a_run_that_ends_while_it_is_cancelled_ends_once,
    a_failure_is_sent_back_or_resolved,
    a_run_has_the_limits_of_its_schedule,
    a_slot_replaces_the_run_before_it,
    ; sqlite:
    what_operators_mistype,
];

const TRIGGERED: &str = "at = \"2100-01-01T00:00:00\"\noverlap = \"allow\"";
const BLOW_EVERY: Duration = Duration::from_millis(1200);
const BLOWS: usize = 4;

/// A schedule that runs when it is triggered.
fn asked(name: &str, body: &str) -> String {
    schedule(name, &format!("{TRIGGERED}\nbody = \"{body}\""))
}

fn start(site: &Workspace, pool: &Pool) -> Daemon {
    let pools = [pool.clone()];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    daemon
}

fn last_note(occurrence: &Value) -> &Value {
    &occurrence["events"].as_array().unwrap().last().unwrap()["note"]
}

fn cancel(site: &Workspace, id: &str) -> bool {
    let done = site.ganger(&["occurrence", "cancel", id, "-o", "json"]);
    done.json()["ended"].as_bool().unwrap()
}

fn a_run_that_a_worker_has_is_given_up_and_can_be_sent_back() {
    let site = Workspace::new();
    let body = "mode:until-cancelled,answer:500";
    let pool = Pool::new(&["--v2=1"])
        .attempts(20)
        .after(&asked("long", body));
    let daemon = start(&site, &pool);
    let id = trigger(&site, "long");
    becomes(&site, &daemon, &id, "running");
    let told = site.ganger(&["occurrence", "cancel", &id, "--reason", "wrong day"]);
    let expected = format!("{id} is being cancelled by the daemon that has its message\n");
    assert_eq!(told.good(), expected);
    let cancelled = becomes(&site, &daemon, &id, "cancelled");
    assert_eq!(states(&cancelled), ["queued", "running", "cancelled"]);
    assert_eq!(last_note(&cancelled), "wrong day");
    assert_eq!(
        (
            &cancelled["reason"],
            &cancelled["cancel_request"],
            &cancelled["attempt"]
        ),
        (&json!("cancelled"), &Value::Null, &json!(1))
    );
    let again = site.ganger(&["occurrence", "cancel", &id]).bad(1);
    assert!(
        again.contains("has ended already: it is cancelled"),
        "{again}"
    );
    let dead = site.ganger(&["dead", "list", "-o", "json"]).json();
    assert_eq!(
        (&dead[0]["message_id"], &dead[0]["reason"]),
        (&json!(id), &json!("cancelled"))
    );
    site.put("fine", "fine", false);
    let back = site.ganger(&["occurrence", "retry", &id, "--body", "fine"]);
    assert_eq!(back.good(), format!("sent back {id}\n"));
    let completed = becomes(&site, &daemon, &id, "completed");
    assert_eq!(states(&completed).last(), Some(&"completed"));
    assert_eq!(site.record().of(Event::Began, body).len(), 1);
    assert_eq!(site.record().of(Event::Done, "fine").len(), 1);
    daemon.stop();
}

fn a_run_is_cancelled_while_its_daemon_drains() {
    let site = Workspace::new();
    let pool = Pool::new(&["--v2=1"]);
    let daemon = start(
        &site,
        &pool.after(&asked("long", "mode:until-cancelled,answer:500")),
    );
    let id = trigger(&site, "long");
    becomes(&site, &daemon, &id, "running");
    daemon.signal(Signal::SIGTERM);
    daemon.logged("stopping: messages in hand are finished first");
    assert!(!cancel(&site, &id));
    becomes(&site, &daemon, &id, "cancelled");
    assert!(daemon.exit().success());
}

fn a_worker_that_does_not_give_up_is_killed() {
    let site = Workspace::new();
    let pool = Pool::new(&["--v2=1"]).text("timeout_grace", "100ms");
    let daemon = start(&site, &pool.after(&asked("hangs", "mode:hang")));
    let id = trigger(&site, "hangs");
    becomes(&site, &daemon, &id, "running");
    assert!(!cancel(&site, &id));
    let cancelled = becomes(&site, &daemon, &id, "cancelled");
    assert_eq!(last_note(&cancelled), "cancelled by an operator");
    let error = cancelled["error"].as_str().unwrap();
    assert!(error.contains("was killed"), "{error}");
    assert_eq!(site.record().of(Event::Began, "mode:hang").len(), 1);
    daemon.stop();
}

fn a_run_that_waits_is_cancelled_at_once() {
    let site = Workspace::new();
    let keys = "every = \"1s\"\nlimit = 2\noverlap = \"queue\"\nbody = \"mode:wait:go\"";
    let nobodys = schedule_to("queue = \"nobodys\"", "nobodys", TRIGGERED);
    let pool = Pool::new(&[]).after(&(schedule("often", keys) + &nobodys));
    let daemon = start(&site, &pool);
    let waiting = daemon.eventually_some("a run to wait for the other", || {
        let all = occurrences(&site, "often");
        let waits = |one: &&Value| one["reason"] == "overlap";
        all.iter()
            .find(waits)
            .map(|one| one["id"].as_str().unwrap().to_owned())
    });
    let queued = trigger(&site, "nobodys");
    for id in [&waiting, &queued] {
        let told = site.ganger(&["occurrence", "cancel", id, "--reason", "no need"]);
        assert_eq!(told.good(), format!("cancelled {id}\n"));
        let shown = becomes(&site, &daemon, id, "cancelled");
        assert_eq!(last_note(&shown), "no need");
    }
    assert_eq!(site.table().count("nobodys"), 0);
    let refused = site.ganger(&["occurrence", "retry", &waiting]).bad(1);
    let expected =
        "has no dead letter (any more): `ganger schedule trigger often` starts a new run";
    assert!(refused.contains(expected), "{refused}");
    site.ganger(&["occurrence", "retry", &queued]).good();
    assert_eq!(site.table().count("nobodys"), 1);
    becomes(&site, &daemon, &queued, "queued");
    site.touch("go");
    daemon.stop();
}

fn a_run_whose_daemon_was_killed_is_cancelled_by_the_next_one() {
    let site = Workspace::new();
    let body = "mode:wait:go";
    let pool = Pool::new(&[])
        .text("timeout_grace", "100ms")
        .after(&asked("long", body));
    let daemon = start(&site, &pool);
    let id = trigger(&site, "long");
    becomes(&site, &daemon, &id, "running");
    daemon.crash();
    assert!(!cancel(&site, &id));
    let other = site.start(&[pool]);
    let cancelled = becomes(&site, &other, &id, "cancelled");
    assert_eq!(last_note(&cancelled), "cancelled by an operator");
    // It may have begun before that daemon knew that it was to be cancelled.
    assert!(site.record().of(Event::Done, body).is_empty());
    other.stop();
}

/// Each of them has an end, and a dead letter only if it was cancelled.
fn a_run_that_ends_while_it_is_cancelled_ends_once() {
    let site = Workspace::new();
    let pool = Pool::new(&["--v2=1"]).attempts(20);
    let daemon = start(&site, &pool.after(&asked("short", "mode:wait:go")));
    let ids: Vec<String> = (0..12).map(|_| trigger(&site, "short")).collect();
    // Some wait for certain; the others may have ended by then.
    for (number, id) in ids.iter().rev().enumerate() {
        site.ganger(&["occurrence", "cancel", id]);
        if number == 3 {
            site.touch("go");
        }
    }
    let ended = daemon.eventually_some("all to end", || {
        let all = occurrences(&site, "short");
        all.iter()
            .all(|one| one["ended_at"].is_string())
            .then_some(all)
    });
    let cancelled = ended
        .iter()
        .filter(|one| one["state"] == "cancelled")
        .count();
    let completed = ended
        .iter()
        .filter(|one| one["state"] == "completed")
        .count();
    assert_eq!(cancelled + completed, ids.len(), "{ended:#?}");
    assert!(cancelled > 0, "{ended:#?}");
    assert_eq!(site.table().dead().len(), cancelled);
    assert_eq!(site.table().count("work"), 0);
    daemon.stop();
}

fn a_failure_is_sent_back_or_resolved() {
    let site = Workspace::new();
    let daemon = start(
        &site,
        &Pool::new(&[]).after(&asked("fails", "mode:unless:fine:500")),
    );
    let ids = [(); 2].map(|()| trigger(&site, "fails"));
    for id in &ids {
        becomes(&site, &daemon, id, "failed");
    }
    let unresolved = || {
        let listed = site.ganger(&["occurrence", "list", "--unresolved", "-o", "json"]);
        let listed = listed.json().as_array().unwrap().clone();
        listed
            .iter()
            .map(|one| one["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(unresolved(), [ids[1].clone(), ids[0].clone()]);
    let resolved = site.ganger(&["occurrence", "resolve", &ids[0], "--note", "paid by hand"]);
    assert_eq!(resolved.good(), format!("resolved {}\n", ids[0]));
    assert_eq!(unresolved(), [ids[1].clone()]);
    let shown = site.ganger(&["occurrence", "show", &ids[0]]).good();
    assert!(shown.contains("resolved      paid by hand\n"), "{shown}");
    site.touch("fine");
    site.ganger(&["occurrence", "retry", &ids[1]]).good();
    let completed = becomes(&site, &daemon, &ids[1], "completed");
    assert!(states(&completed).contains(&"failed"), "{completed}");
    assert!(unresolved().is_empty());
    for (id, action, detail) in [
        (&ids[0], "resolve", json!({ "note": "paid by hand" })),
        (&ids[1], "retry", Value::Null),
    ] {
        let audit = site.ganger(&["schedule", "audit", id, "-o", "json"]).json();
        let newest = &audit[0];
        assert_eq!(
            (&newest["action"], &newest["detail"]),
            (&json!(action), &detail)
        );
    }
    for (args, expected) in [
        (
            &["retry", &ids[1]][..],
            "is completed: only a run that failed",
        ),
        (
            &["resolve", &ids[1], "--note", "x"],
            "is completed: only a run that failed",
        ),
        (&["cancel", &ids[1]], "has ended already: it is completed"),
    ] {
        let refused = site.ganger(&[&["occurrence"], args].concat()).bad(1);
        assert!(refused.contains(expected), "{refused}");
    }
    others_dead_letters_are_left_alone(&site, &daemon, &ids[0]);
    let refused = site.ganger(&["occurrence", "retry", &ids[0]]).bad(1);
    assert!(
        refused.contains("has no dead letter (any more)"),
        "{refused}"
    );
    daemon.stop();
}

/// A message without an id has the id of a run as its correlation id; the dead letter of the run is gone.
fn others_dead_letters_are_left_alone(site: &Workspace, daemon: &Daemon, run: &str) {
    site.ganger(&["dead", "drop", "--all", "--yes"]).good();
    let other = NewMessage::new("mode:answer:400 other").correlation_id(run);
    site.table().insert(&[other]);
    let dead = || site.table().dead();
    daemon.eventually("the other to be dead", || dead().len() == 1);
    let found = site.ganger(&["dead", "list", "--message-id", run, "-o", "json"]);
    assert_eq!(found.json().as_array().unwrap().len(), 1);
    let refused = site.ganger(&["occurrence", "retry", run]).bad(1);
    assert!(refused.contains("has no dead letter"), "{refused}");
    assert_eq!(dead().len(), 1);
}

fn what_operators_mistype() {
    let site = Workspace::new();
    let daemon = start(&site, &Pool::new(&[]).after(&asked("x", "x")));
    let id = trigger(&site, "x");
    let long = "x".repeat(501);
    for (args, code, expected) in [
        (
            &["cancel", "nothing"][..],
            1,
            "there is no occurrence `nothing`",
        ),
        (&["retry", "nothing"], 1, "there is no occurrence `nothing`"),
        (
            &["resolve", "nothing", "--note", "x"],
            1,
            "there is no occurrence `nothing`",
        ),
        (
            &["resolve", &id, "--note", " "],
            2,
            "the note must not be empty",
        ),
        (
            &["cancel", &id, "--reason", ""],
            2,
            "the reason must not be empty",
        ),
        (
            &["cancel", &id, "--reason", &long],
            2,
            "the reason must have at most 500 characters: it has 501",
        ),
        (
            &["list", "--unresolved", "--state", "failed"],
            2,
            "cannot be used with",
        ),
        (&["resolve", &id], 2, "--note"),
    ] {
        let refused = site.ganger(&[&["occurrence"], args].concat()).bad(code);
        assert!(refused.contains(expected), "{refused}");
    }
    daemon.stop();
}

fn a_run_has_the_limits_of_its_schedule() {
    let site = Workspace::new();
    let keys = |limits: &str, body: &str| format!("{TRIGGERED}\n{limits}\nbody = \"{body}\"");
    let hangs = keys("timeout = \"200ms\"\nretry = { attempts = 1 }", "mode:hang");
    let fails = keys("retry = { attempts = 3 }", "mode:answer:500");
    let schedules = schedule("hangs", &hangs) + &schedule("fails", &fails);
    let pool = Pool::new(&[])
        .text("timeout", "1h")
        .text("timeout_grace", "100ms");
    let daemon = start(&site, &pool.after(&schedules));
    let failed = becomes(&site, &daemon, &trigger(&site, "fails"), "failed");
    assert_eq!(failed["attempt"], 3);
    let late = becomes(&site, &daemon, &trigger(&site, "hangs"), "timed_out");
    assert_eq!(
        (&late["attempt"], &late["reason"]),
        (&json!(1), &json!("timed_out"))
    );
    assert!(late["error"].as_str().unwrap().contains("200ms"), "{late}");
    daemon.stop();
}

/// The daemon is killed again and again. Each slot has one occurrence, and each run ends before the next one
/// begins.
fn a_slot_replaces_the_run_before_it() {
    let site = Workspace::new();
    let keys = "every = \"1s\"\noverlap = \"replace\"\nmisfire = { grace = \"1h\" }\n\
                body = \"mode:until-cancelled,answer:500\"";
    let pool = Pool::new(&["--v2=4"])
        .attempts(20)
        .set("lapses_max", "1000");
    let pools = [pool.after(&schedule("often", keys))];
    site.configure_commands(&pools);
    let mut daemon = site.start(&pools);
    for _ in 0..BLOWS {
        std::thread::park_timeout(BLOW_EVERY);
        daemon.crash();
        daemon = site.start(&pools);
    }
    daemon.entered();
    let replaced = |one: &&Value| one["reason"] == "replaced" && one["started_at"].is_string();
    daemon.eventually("runs to be replaced that workers had", || {
        occurrences(&site, "often").iter().filter(replaced).count() >= 3
    });
    site.ganger(&["schedule", "pause", "often"]).good();
    let all = daemon.eventually_some("all but the last to end", || {
        let all = occurrences(&site, "often");
        let open: Vec<&str> = all
            .iter()
            .filter(|one| one["ended_at"].is_null())
            .map(|one| one["id"].as_str().unwrap())
            .collect();
        for id in &open {
            site.ganger(&["occurrence", "cancel", id]);
        }
        open.is_empty().then_some(all)
    });
    let mut slots = BTreeSet::new();
    for one in &all {
        let at = |key: &str| -> Option<Timestamp> { one[key].as_str()?.parse().ok() };
        let (first, last) = (at("slot").unwrap(), at("last_slot").or(at("slot")).unwrap());
        let word = (
            one["state"].as_str().unwrap(),
            one["reason"].as_str().unwrap(),
        );
        let expected = [
            ("cancelled", "replaced"),
            ("cancelled", "cancelled"),
            ("skipped", "overlap"),
        ];
        assert!(expected.contains(&word), "{one}");
        for second in 0..=last.duration_since(first).as_secs() {
            assert!(
                slots.insert(first + SignedDuration::from_secs(second)),
                "{one}"
            );
        }
    }
    let (first, last) = (*slots.first().unwrap(), *slots.last().unwrap());
    let seconds = last.duration_since(first).as_secs();
    assert_eq!(
        slots.len(),
        usize::try_from(seconds).unwrap() + 1,
        "{all:#?}"
    );
    daemon.stop();
}
