//! Schedules that daemons dispatch, the occurrences of their slots, and what operators do to them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{DEADLINE, Daemon, Event, Pool, Workspace, field, trials};

trials![
    each_slot_is_one_occurrence_though_daemons_are_killed,
    a_run_is_told_from_its_slot_to_its_end,
    a_run_that_fails_and_is_sent_back,
    what_operators_do,
    what_operators_mistype,
    the_configuration_is_followed,
    a_schedule_that_sql_inserts_and_one_that_is_nonsense,
    commands_without_a_ledger_say_so,
];

/// Interval at which daemons are killed; nothing waits for it.
const KILL_EVERY: Duration = Duration::from_millis(400);
const KILLS: usize = 20;

fn schedule(name: &str, keys: &str) -> String {
    format!("[[schedules]]\nname = \"{name}\"\nqueue = \"work\"\n{keys}\n")
}

/// Returns what is shown of the schedules, by name.
fn listed(site: &Workspace) -> BTreeMap<String, Value> {
    let all = site.ganger(&["schedule", "list", "-o", "json"]).json();
    let all = all.as_array().unwrap().iter();
    all.map(|one| (one["name"].as_str().unwrap().to_owned(), one.clone()))
        .collect()
}

fn occurrences(site: &Workspace, schedule: &str) -> Vec<Value> {
    let args = [
        "occurrence",
        "list",
        "--schedule",
        schedule,
        "--limit",
        "1000",
        "-o",
        "json",
    ];
    let all = site.ganger(&args).json();
    all.as_array().unwrap().clone()
}

/// Waits until an occurrence is in that state, and returns it with its events.
fn becomes(site: &Workspace, daemon: &Daemon, id: &str, state: &str) -> Value {
    daemon.eventually_some(&format!("occurrence {id} to be {state}"), || {
        let shown = site
            .ganger(&["occurrence", "show", id, "-o", "json"])
            .json();
        (shown["state"] == state).then_some(shown)
    })
}

fn states(occurrence: &Value) -> Vec<&str> {
    let events = occurrence["events"].as_array().unwrap().iter();
    events.map(|event| event["to"].as_str().unwrap()).collect()
}

fn trigger(site: &Workspace, name: &str) -> String {
    let told = site.ganger(&["schedule", "trigger", name, "-o", "json"]);
    told.json()["occurrence"].as_str().unwrap().to_owned()
}

/// Two daemons share the file; one of them is killed again and again, wherever it is then.
fn each_slot_is_one_occurrence_though_daemons_are_killed() {
    let site = Workspace::new();
    let names = ["a", "b", "c", "d", "e"];
    let keys = "every = \"1s\"\noverlap = \"allow\"\nmisfire = { policy = \"all\" }\n\
                body = \"{{ schedule }} {{ slot }}\"";
    let schedules: String = names.iter().map(|name| schedule(name, keys)).collect();
    let pool = Pool::new(&[])
        .set("workers", "2")
        .after(&schedules)
        .attempts(100);
    let pools = [pool.set("lapses_max", "1000")];
    site.configure_commands(&pools);
    let mut daemons = [site.start(&pools), site.start(&pools)];
    for kill in 0..KILLS {
        std::thread::park_timeout(KILL_EVERY);
        let victim = &mut daemons[kill % 2];
        victim.crash();
        *victim = site.start(&pools);
    }
    site.ganger(&["schedule", "pause", "--all"]).good();
    let begin = Instant::now();
    let is_open = |one: &Value| one["ended_at"].is_null();
    let all = loop {
        let all: Vec<Value> = names
            .iter()
            .flat_map(|name| occurrences(&site, name))
            .collect();
        if !all.iter().any(is_open) {
            break all;
        }
        assert!(begin.elapsed() < DEADLINE, "they never end: {all:#?}");
        std::thread::park_timeout(Duration::from_millis(50));
    };
    let mut bodies = BTreeSet::new();
    for name in names {
        let of_name = all.iter().filter(|one| one["schedule"] == name);
        let mut slots: Vec<Timestamp> = of_name
            .map(|one| {
                assert_eq!(
                    (&one["state"], &one["missed"]),
                    (&json!("completed"), &json!(0))
                );
                one["slot"].as_str().unwrap().parse().unwrap()
            })
            .collect();
        slots.sort_unstable();
        let (first, last) = (slots[0], slots[slots.len() - 1]);
        let seconds = last.duration_since(first).as_secs();
        assert!(seconds >= 5, "only {seconds} s: the test is too fast");
        let expected: Vec<Timestamp> = (0..=seconds)
            .map(|second| first + SignedDuration::from_secs(second))
            .collect();
        assert_eq!(slots, expected, "{name}");
        bodies.extend(slots.iter().map(|slot| format!("{name} {slot}")));
    }
    let bodies: Vec<String> = bodies.into_iter().collect();
    // A daemon that is killed may leave work that is done again; no slot has two messages.
    site.record().assert_none_lost(&bodies);
    let done = site.record();
    let done: BTreeSet<&str> = done.texts(Event::Done).into_iter().collect();
    assert_eq!(done.len(), bodies.len());
    daemons.iter().for_each(Daemon::stop);
}

fn a_run_is_told_from_its_slot_to_its_end() {
    let site = Workspace::new();
    let keys = "every = \"1s\"\nlimit = 1\nbody = \"mode:wait:go\"\ntags = [\"t\"]";
    let pools = [Pool::new(&[]).after(&schedule("once", keys))];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    let running = daemon.eventually_some("the run to begin", || {
        let all = site.ganger(&["occurrence", "list", "--state", "running", "-o", "json"]);
        all.json().as_array().unwrap().first().cloned()
    });
    let id = running["id"].as_str().unwrap();
    assert_eq!(running["attempt"], 1);
    assert!(running["started_at"].is_string() && running["ended_at"].is_null());
    site.touch("go");
    let ended = becomes(&site, &daemon, id, "completed");
    assert_eq!(states(&ended), ["queued", "running", "completed"]);
    assert!(ended["duration_ms"].as_u64().unwrap() >= 200);
    let slot: Timestamp = ended["slot"].as_str().unwrap().parse().unwrap();
    let queued: Timestamp = ended["queued_at"].as_str().unwrap().parse().unwrap();
    assert!(queued >= slot && ended["message_id"] == id);
    let once = daemon.eventually_some("the schedule to end", || {
        listed(&site)
            .remove("once")
            .filter(|once| once["state"] == "ended")
    });
    assert_eq!(
        (
            &once["next_slot"],
            &once["last_state"],
            &once["tags"],
            &once["origin"]
        ),
        (
            &Value::Null,
            &json!("completed"),
            &json!(["t"]),
            &json!("file")
        )
    );
    // A restart runs nothing again.
    daemon.stop();
    let daemon = site.start(&pools);
    daemon.logged("schedules of the configuration are in the ledger");
    let next = trigger(&site, "once");
    becomes(&site, &daemon, &next, "completed");
    assert_eq!(occurrences(&site, "once").len(), 2);
    daemon.stop();
}

fn a_run_that_fails_and_is_sent_back() {
    let site = Workspace::new();
    let keys = "at = \"2100-01-01T00:00:00\"\nbody = \"mode:answer:500\"";
    let pools = [Pool::new(&[]).after(&schedule("fails", keys))];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.logged("schedules of the configuration are in the ledger");
    let id = trigger(&site, "fails");
    let failed = becomes(&site, &daemon, &id, "failed");
    assert_eq!(states(&failed).first(), Some(&"queued"));
    assert_eq!(states(&failed).last(), Some(&"failed"));
    assert!(states(&failed).contains(&"waiting"), "{failed}");
    assert_eq!(
        (&failed["attempt"], &failed["reason"]),
        (&json!(2), &json!("failed"))
    );
    assert!(failed["error"].is_string());
    let dead = site.ganger(&["dead", "list", "-o", "json"]).json();
    assert_eq!(dead[0]["message_id"], json!(id), "{dead}");
    site.put("ok", "fine", false);
    let dead_id = dead[0]["id"].as_str().unwrap();
    site.ganger(&["dead", "retry", dead_id, "--body", "ok"])
        .good();
    becomes(&site, &daemon, &id, "completed");
    daemon.stop();
}

fn what_operators_do() {
    let site = Workspace::new();
    let keys = "every = \"1s\"\nbody = \"x\"";
    let pools = [Pool::new(&[]).after(&schedule("often", keys))];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    let runs = || occurrences(&site, "often").len();
    daemon.eventually("two slots", || {
        listed(&site).contains_key("often") && runs() >= 2
    });
    let paused = site.ganger(&["schedule", "pause", "often", "--reason", "maintenance"]);
    assert_eq!(paused.good(), "paused often\n");
    let often = &listed(&site)["often"];
    assert_eq!(
        (&often["state"], &often["state_reason"]),
        (&json!("paused"), &json!("maintenance"))
    );
    // It stays so over a restart, and a trigger works.
    daemon.stop();
    let daemon = site.start(&pools);
    daemon.logged("schedules of the configuration are in the ledger");
    let id = trigger(&site, "often");
    becomes(&site, &daemon, &id, "completed");
    let next = listed(&site)["often"]["next_slot"].clone();
    let next: Timestamp = next.as_str().unwrap().parse().unwrap();
    daemon.eventually("a slot of the pause", || Timestamp::now() > next);
    assert_eq!(listed(&site)["often"]["state"], "paused");
    assert_eq!(
        site.ganger(&["schedule", "resume", "often"]).good(),
        "resumed often\n"
    );
    let skipped = |one: &Value| one["reason"] == "paused";
    daemon.eventually("the slots of the pause to be skipped", || {
        occurrences(&site, "often").iter().any(skipped)
    });
    let held = site.ganger(&["schedule", "pause", "--all", "--reason", "an incident"]);
    assert_eq!(held.good(), "paused all schedules\n");
    let told = site.ganger(&["schedule", "list"]);
    assert!(
        told.err.contains("all schedules are paused (an incident)"),
        "{}",
        told.err
    );
    site.ganger(&["schedule", "resume", "--all"]).good();
    let before = runs();
    daemon.eventually("further slots", || runs() > before + 1);
    let shown = site.ganger(&["schedule", "show", "often"]).good();
    assert!(
        shown.contains("every         1s") && shown.contains("SCHEDULE"),
        "{shown}"
    );
    let next = site.ganger(&["schedule", "next", "often", "-n", "2", "-o", "json"]);
    assert_eq!(next.json().as_array().unwrap().len(), 2);
    daemon.stop();
}

fn what_operators_mistype() {
    let site = Workspace::new();
    let pools = [Pool::new(&[]).after(&schedule("often", "every = \"1s\""))];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.logged("schedules of the configuration are in the ledger");
    // It is in the configuration, and `list` of a name that does not exist is no empty list.
    let refused = site.ganger(&["schedule", "remove", "often"]).bad(1);
    assert!(refused.contains("remove it there"), "{refused}");
    for args in [
        &["schedule", "pause", "oftn"][..],
        &["schedule", "trigger", "oftn"],
        &["schedule", "show", "oftn"],
        &["schedule", "next", "oftn"],
        &["occurrence", "list", "--schedule", "oftn"],
    ] {
        let refused = site.ganger(args).bad(2);
        assert!(refused.contains("there is no schedule `oftn`"), "{refused}");
    }
    site.ganger(&["schedule", "pause"]).bad(2);
    site.ganger(&["schedule", "pause", "often", "--all"]).bad(2);
    let refused = site.ganger(&["occurrence", "show", "nothing"]).bad(1);
    assert!(
        refused.contains("there is no occurrence nothing"),
        "{refused}"
    );
    daemon.stop();
}

fn the_configuration_is_followed() {
    let site = Workspace::new();
    let with = |schedules: &str| [Pool::new(&[]).after(schedules)];
    let yearly = |name: &str, hour: u8| schedule(name, &format!("cron = \"0 {hour} 1 1 *\""));
    let pools = with(&(yearly("a", 1) + &yearly("b", 1)));
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    let entered = daemon.logged("schedules of the configuration are in the ledger");
    assert_eq!(field(&entered, "added"), "a, b");
    let version = |name: &str| {
        let all = listed(&site);
        all.get(name)
            .map_or(0, |one| one["version"].as_i64().unwrap())
    };
    daemon.eventually("both to be seen", || version("a") == 1 && version("b") == 1);
    site.reconfigure(&daemon, &with(&(yearly("b", 2) + &yearly("c", 1))));
    daemon.signal(nix::sys::signal::Signal::SIGHUP);
    daemon.eventually("the new configuration to be followed", || {
        version("a") == 0 && version("b") == 2 && version("c") == 1
    });
    assert!(
        listed(&site)["b"]["next_slot"]
            .as_str()
            .unwrap()
            .ends_with("-01-01T02:00:00Z")
    );
    // Without schedules there is none left to dispatch.
    site.reconfigure(&daemon, &with(""));
    daemon.signal(nix::sys::signal::Signal::SIGHUP);
    daemon.eventually("none to be left", || listed(&site).is_empty());
    daemon.stop();
}

fn a_schedule_that_sql_inserts_and_one_that_is_nonsense() {
    let site = Workspace::new();
    let pools = [Pool::new(&[]).after(&schedule("own", "cron = \"0 0 1 1 *\""))];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.logged("schedules of the configuration are in the ledger");
    let table = site.table();
    let insert = |name: &str, definition: &str| {
        let inserted = table.run(&format!(
            "INSERT INTO schedules (name, definition) VALUES ('{name}', '{definition}')"
        ));
        inserted.unwrap();
    };
    insert(
        "nonsense",
        "{\"cron\": \"61 * * * *\", \"queue\": \"work\"}",
    );
    insert(
        "theirs",
        "{\"every\": \"1s\", \"queue\": \"work\", \"body\": \"from SQL\"}",
    );
    let problem = daemon.logged("schedule is broken, and dispatches nothing until it is corrected");
    assert_eq!(field(&problem, "schedule"), "nonsense");
    assert!(field(&problem, "problem").contains("minute `61` is out of range"));
    daemon.eventually("the other to run", || {
        !site.record().of(Event::Done, "from SQL").is_empty()
    });
    assert_eq!(listed(&site)["nonsense"]["state"], "broken");
    for name in ["nonsense", "theirs"] {
        let removed = site.ganger(&["schedule", "remove", name]).good();
        assert_eq!(removed, format!("removed {name}\n"));
    }
    assert_eq!(listed(&site).len(), 1);
    daemon.stop();
}

fn commands_without_a_ledger_say_so() {
    let site = Workspace::new();
    site.configure_commands(&[Pool::new(&[])]);
    for args in [
        &["schedule", "list"][..],
        &["schedule", "next", "x"],
        &["occurrence", "list"],
    ] {
        let refused = site.ganger(args).bad(2);
        assert!(
            refused.contains("neither schedules nor a ledger"),
            "{refused}"
        );
    }
}
