//! Schedules that daemons dispatch, the occurrences of their slots, and what operators do to them.

mod changes;
mod control;
mod failures;
pub(crate) mod lateness;
pub(crate) mod logs;
pub(crate) mod milvaion;
mod records;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::lateness::Lateness;
use crate::admin::socket;
use crate::harness::collector::with_variables;
use crate::harness::{
    Api, Base, DEADLINE, Daemon, Event, Launch, Pool, Workspace, field, trials_on,
};

trials_on![
    each_slot_is_one_occurrence_whatever_becomes_of_daemons,
    a_run_is_told_from_its_slot_to_its_end,
    a_run_that_fails_and_is_sent_back,
    a_run_whose_daemon_is_lost_goes_on_elsewhere,
    a_run_that_waits_is_cancelled,
    what_operators_do,
    the_configuration_is_followed,
    counts_go_on_after_a_reload,
    a_schedule_that_sql_inserts_and_one_that_is_nonsense,
    messages_for_another_table_are_published_and_followed,
    runs_are_reported,
    ; sqlite:
    each_slot_is_one_occurrence_though_the_clock_is_set,
    what_operators_mistype,
    commands_without_a_ledger_say_so,
    ; long:
    each_slot_is_one_occurrence_though_they_die_two_hundred_times,
];

/// The tests of this module and those below it, with their tables in that database.
pub(crate) fn all_trials_on(base: Base) -> Vec<Trial> {
    let modules = [
        trials_on,
        changes::trials_on,
        control::trials_on,
        failures::trials_on,
        logs::trials_on,
        milvaion::trials_on,
        records::trials_on,
    ];
    modules
        .into_iter()
        .flat_map(|trials| trials(base))
        .collect()
}

/// Interval at which daemons are killed or stopped; nothing waits for it.
const BLOW_EVERY: Duration = Duration::from_millis(400);
pub(crate) const BLOWS: usize = 20;
/// Time for which they are stopped: longer than a server waits for the end of a transaction.
const STOPPED_FOR: Duration = Duration::from_millis(2500);
/// Schedules that are due each second.
const SECONDLY: [&str; 5] = ["a", "b", "c", "d", "e"];

pub(crate) fn schedule(name: &str, keys: &str) -> String {
    schedule_to("queue = \"work\"", name, keys)
}

/// Returns a schedule whose messages go there.
pub(crate) fn schedule_to(place: &str, name: &str, keys: &str) -> String {
    format!("[[schedules]]\nname = \"{name}\"\n{place}\n{keys}\n")
}

/// Returns what is shown of the schedules, by name.
fn listed(site: &Workspace) -> BTreeMap<String, Value> {
    let all = site.ganger(&["schedule", "list", "-o", "json"]).json();
    let all = all.as_array().unwrap().iter();
    all.map(|one| (one["name"].as_str().unwrap().to_owned(), one.clone()))
        .collect()
}

pub(crate) fn occurrences(site: &Workspace, schedule: &str) -> Vec<Value> {
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
pub(crate) fn becomes(site: &Workspace, daemon: &Daemon, id: &str, state: &str) -> Value {
    daemon.eventually_some(&format!("occurrence {id} to be {state}"), || {
        let shown = site
            .ganger(&["occurrence", "show", id, "-o", "json"])
            .json();
        (shown["state"] == state).then_some(shown)
    })
}

pub(crate) fn states(occurrence: &Value) -> Vec<&str> {
    let events = occurrence["events"].as_array().unwrap().iter();
    events.map(|event| event["to"].as_str().unwrap()).collect()
}

pub(crate) fn trigger(site: &Workspace, name: &str) -> String {
    let told = site.ganger(&["schedule", "trigger", name, "-o", "json"]);
    told.json()["occurrence"].as_str().unwrap().to_owned()
}

fn each_slot_is_one_occurrence_whatever_becomes_of_daemons() {
    three_daemons(&Workspace::new(), BLOWS);
}

fn each_slot_is_one_occurrence_though_they_die_two_hundred_times() {
    three_daemons(&Workspace::new(), 200);
}

/// Three daemons share the ledger. They are killed again and again, wherever they are then, or stopped for
/// longer than the others wait for one that is in the middle of a transaction.
pub(crate) fn three_daemons(site: &Workspace, blows: usize) {
    let pools = [secondly()];
    site.configure_commands(&pools);
    let lateness = Lateness::watch(site);
    let mut daemons = [(); 3].map(|()| site.start(&pools));
    for blow in 0..blows {
        std::thread::park_timeout(BLOW_EVERY);
        let victim = &mut daemons[blow % 3];
        match blow % 5 {
            4 => lateness.outage(|| {
                victim.signal(Signal::SIGSTOP);
                std::thread::park_timeout(STOPPED_FOR);
                victim.signal(Signal::SIGCONT);
            }),
            _ => {
                victim.crash();
                *victim = site.start(&pools);
                // One of them has the ledger, however slowly they start.
                victim.entered();
            }
        }
    }
    lateness.assert_small(&each_slot_was_one_occurrence(site));
    daemons.iter().for_each(Daemon::stop);
}

/// It is that of all daemons on the machine. Slots are late after a step forward, and none is repeated after
/// one back.
fn each_slot_is_one_occurrence_though_the_clock_is_set() {
    let site = Workspace::new();
    let clock = site.path("clock");
    let set = |offset: &str| site.put("clock", offset, false);
    set("+0");
    let variables = [
        ("LD_PRELOAD", "/usr/$LIB/faketime/libfaketimeMT.so.1"),
        ("DONT_FAKE_MONOTONIC", "1"),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_TIMESTAMP_FILE", clock.to_str().unwrap()),
    ];
    let launch = Launch {
        through: with_variables(&variables),
        ..Launch::default()
    };
    let pools = [secondly()];
    site.configure_commands(&pools);
    let daemons = [(); 3].map(|()| site.launch(&pools, launch));
    steps_of_the_clock(&site, &daemons, set);
    daemons.iter().for_each(Daemon::stop);
}

/// Sets the clock of the ledger forward and back while these daemons dispatch.
pub(crate) fn steps_of_the_clock(site: &Workspace, daemons: &[Daemon], set: impl Fn(&str)) {
    let lateness = Lateness::watch(site);
    for offset in [0, 20, -20, 0] {
        lateness.sets_clock(offset);
        set(&format!("{offset:+}"));
        let later = lateness.now() + SignedDuration::from_secs(4);
        let is_later = |body: &&str| {
            let (_, slot) = body.split_once(' ').unwrap();
            slot.parse::<Timestamp>().unwrap() >= later
        };
        daemons[0].eventually("later slots to run", || {
            site.record().texts(Event::Done).iter().any(is_later)
        });
    }
    lateness.assert_small(&each_slot_was_one_occurrence(site));
    for daemon in daemons {
        assert_eq!(
            daemon.times_logged("the clock was wrong and is corrected: schedules start anew"),
            0
        );
    }
}

/// Returns a pool with schedules of each second, whose slots are all to be dispatched.
pub(crate) fn secondly() -> Pool {
    let pool = Pool::new(&[]).set("lapses_max", "1000");
    secondly_to("queue = \"work\"", &pool)
}

/// Returns the pool with such schedules, whose messages go there.
pub(crate) fn secondly_to(place: &str, pool: &Pool) -> Pool {
    let keys = "every = \"1s\"\noverlap = \"allow\"\nmisfire = { policy = \"all\" }\n\
                body = \"{{ schedule }} {{ slot }}\"";
    let schedules = SECONDLY.iter().map(|name| schedule_to(place, name, keys));
    let schedules: String = schedules.collect();
    let pool = pool.clone().set("workers", "2").after(&schedules);
    pool.attempts(100)
}

/// Stops these schedules, and checks that each of their slots was one occurrence, and ran.
/// Returns these.
pub(crate) fn each_slot_was_one_occurrence(site: &Workspace) -> Vec<Value> {
    site.ganger(&["schedule", "pause", "--all"]).good();
    let begin = Instant::now();
    let is_open = |one: &Value| one["ended_at"].is_null();
    let all = loop {
        let of_name = SECONDLY.iter().flat_map(|name| occurrences(site, name));
        let all: Vec<Value> = of_name.collect();
        if !all.iter().any(is_open) {
            break all;
        }
        assert!(begin.elapsed() < DEADLINE, "they never end: {all:#?}");
        std::thread::park_timeout(Duration::from_millis(50));
    };
    let mut bodies = BTreeSet::new();
    for name in SECONDLY {
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
    all
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
    let worker = &running["worker"];
    assert_eq!(
        (&worker["pool"], &worker["worker"]),
        (&json!("work"), &json!(0))
    );
    assert_eq!(worker["pid"], json!(daemon.has_workers(1)[0]));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(
        worker["daemon"],
        format!("{}:{}", host.trim(), daemon.pid())
    );
    site.touch("go");
    let ended = becomes(&site, &daemon, id, "completed");
    assert_eq!(states(&ended), ["queued", "running", "completed"]);
    assert!(ended["duration_ms"].as_u64().unwrap() >= 200);
    let slot: Timestamp = ended["slot"].as_str().unwrap().parse().unwrap();
    let queued: Timestamp = ended["queued_at"].as_str().unwrap().parse().unwrap();
    assert!(queued >= slot && ended["message_id"] == id);
    assert_eq!(ended["result"], Value::Null);
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
    daemon.entered();
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
    daemon.entered();
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
    site.put("ok", "mode:answer:200", false);
    let dead_id = dead[0]["id"].as_str().unwrap();
    site.ganger(&["dead", "retry", dead_id, "--body", "ok"])
        .good();
    let completed = becomes(&site, &daemon, &id, "completed");
    assert_eq!(completed["result"], "the word on mode:answer:200");
    daemon.stop();
}

fn a_run_whose_daemon_is_lost_goes_on_elsewhere() {
    let site = Workspace::new();
    let keys = "at = \"2100-01-01T00:00:00\"\nbody = \"mode:wait:go\"";
    let pools = [Pool::new(&[]).after(&schedule("long", keys))];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    let id = trigger(&site, "long");
    becomes(&site, &daemon, &id, "running");
    daemon.crash();
    let other = site.start(&pools);
    other.eventually("the other daemon to have it", || {
        site.record().of(Event::Began, "mode:wait:go").len() == 2
    });
    site.touch("go");
    let ended = becomes(&site, &other, &id, "completed");
    let states = states(&ended);
    assert_eq!(states[..3], ["queued", "running", "unknown"]);
    assert_eq!(states.last(), Some(&"completed"));
    other.stop();
}

fn a_run_that_waits_is_cancelled() {
    let site = Workspace::new();
    let keys = "at = \"2100-01-01T00:00:00\"\noverlap = \"allow\"\nbody = \"mode:wait:go\"";
    let pool = Pool::new(&[]).after(&schedule("long", keys));
    let pools = [pool.set("workers", "1").set("prefetch", "1")];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    let first = trigger(&site, "long");
    becomes(&site, &daemon, &first, "running");
    let second = trigger(&site, "long");
    let config = daemon.config().to_str().unwrap();
    site.ganger(&["cancel", "work", &second, "--config", config])
        .good();
    let cancelled = becomes(&site, &daemon, &second, "cancelled");
    assert_eq!(states(&cancelled), ["queued", "cancelled"]);
    assert_eq!(cancelled["reason"], "cancelled");
    site.touch("go");
    becomes(&site, &daemon, &first, "completed");
    daemon.stop();
}

/// Returns a pool on a table in another database, with a schedule of its own whose messages go there.
pub(crate) fn elsewhere(body: &str) -> Pool {
    let place = "queue = \"elsewhere\"\nsource = \"other\"";
    let keys = format!("at = \"2100-01-01T00:00:00\"\nbody = \"{body}\"");
    let pool = ["name", "queue"]
        .iter()
        .fold(Pool::new(&[]), |pool, key| pool.text(key, "elsewhere"));
    pool.text("source", "other").after(&format!(
        "[sources.other]\nkind = \"table\"\nurl = \"sqlite:other.db\"\n\
         [ledger]\nsource = \"main\"\ngroup = \"other\"\n{}",
        schedule_to(place, "elsewhere", &keys)
    ))
}

fn messages_for_another_table_are_published_and_followed() {
    let site = Workspace::new();
    let pools = [elsewhere("mode:wait:go,unless:fine:500")];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    let id = trigger(&site, "elsewhere");
    becomes(&site, &daemon, &id, "running");
    site.touch("go");
    let failed = becomes(&site, &daemon, &id, "failed");
    assert_eq!(failed["events"][1]["note"], "published to other");
    assert_eq!(
        (states(&failed)[2], &failed["attempt"]),
        ("running", &json!(2))
    );
    site.touch("fine");
    let next = trigger(&site, "elsewhere");
    becomes(&site, &daemon, &next, "completed");
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
    let list = site.ganger(&["schedule", "list"]).good();
    assert!(!list.contains("Z "), "no slot is next: {list}");
    // It stays so over a restart, and a trigger works.
    daemon.stop();
    let daemon = site.start(&pools);
    daemon.entered();
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
    let upcoming = ["schedule", "upcoming", "-n", "3", "-o", "json"];
    let upcoming = site.ganger(&upcoming).json();
    assert_eq!(
        (&upcoming[2]["schedule"], &upcoming[3]),
        (&json!("often"), &Value::Null)
    );
    daemon.stop();
}

fn runs_are_reported() {
    let site = Workspace::new();
    let pools = [Pool::new(&[]).after(&schedule("often", "cron = \"@yearly\""))];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    let id = trigger(&site, "often");
    becomes(&site, &daemon, &id, "completed");
    let report = [
        "schedule",
        "report",
        "durations",
        "--schedule",
        "often",
        "-o",
        "json",
    ];
    let report = site.ganger(&report).json();
    let completed = report["rows"][0]["completed"].as_u64();
    assert!(completed > Some(0), "{report:#}");
    let table = site.ganger(&["schedule", "report"]).good();
    assert!(table.contains("often"), "{table}");
    let by_day = ["schedule", "report", "--by-day", "--zone", "Asia/Tokyo"];
    let table = site.ganger(&by_day).good();
    assert!(table.starts_with(" DAY "), "{table}");
    let by_day = site.ganger(&[&by_day[..], &["-o", "json"]].concat()).json();
    let day = by_day["rows"][0]["day"].as_str().unwrap();
    let slot = &occurrences(&site, "often")[0]["queued_at"];
    let slot: Timestamp = slot.as_str().unwrap().parse().unwrap();
    let tokyo = slot.in_tz("Asia/Tokyo").unwrap();
    assert_eq!(day, tokyo.date().to_string());
    let list = ["schedule", "list", "--results", "3", "-o", "json"];
    let list = site.ganger(&list).json();
    assert_eq!(list[0]["results"], json!(["completed"]));
    let api = Api::Socket(socket(&daemon));
    let page = api.get("/ui/schedules").body;
    let dots = "aria-label=\"1 succeeded, last succeeded\"";
    assert!(page.contains(dots), "{page}");
    let page = api.get("/ui/schedules/often").body;
    assert!(page.contains("1 run: 1 succeeded</title>"), "{page}");
    daemon.stop();
}

fn what_operators_mistype() {
    let site = Workspace::new();
    let pools = [Pool::new(&[]).after(&schedule("often", "every = \"1s\""))];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
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
    let entered = daemon.entered();
    assert_eq!(field(&entered, "added"), "a, b");
    let version = |name: &str| {
        let all = listed(&site);
        all.get(name)
            .map_or(0, |one| one["version"].as_i64().unwrap())
    };
    daemon.eventually("both to be seen", || version("a") == 1 && version("b") == 1);
    site.reconfigure(&daemon, &with(&(yearly("b", 2) + &yearly("c", 1))));
    daemon.signal(Signal::SIGHUP);
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
    daemon.signal(Signal::SIGHUP);
    daemon.eventually("none to be left", || listed(&site).is_empty());
    daemon.stop();
}

fn counts_go_on_after_a_reload() {
    let site = Workspace::new();
    let daemon = site.start(&[secondly()]);
    let config = daemon.config().to_str().unwrap();
    let dispatched = || {
        let status = site.ganger(&["status", "-o", "json", "--config", config]);
        status.json()["ledger"]["dispatched"].as_u64()
    };
    let before = daemon.eventually_some("some slots", || dispatched().filter(|sent| *sent > 20));
    let other = schedule("other", "at = \"2100-01-01T00:00:00\"");
    site.reconfigure(&daemon, &[secondly().after(&other)]);
    daemon.signal(Signal::SIGHUP);
    daemon.logs("schedules of the configuration are in the ledger", |told| {
        told["added"] == "other"
    });
    assert!(dispatched().is_some_and(|sent| sent >= before));
    daemon.stop();
}

fn a_schedule_that_sql_inserts_and_one_that_is_nonsense() {
    let site = Workspace::new();
    let pools = [Pool::new(&[]).after(&schedule("own", "cron = \"0 0 1 1 *\""))];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
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
