//! Faults of Milvaion (its commit 9617204, read and run), each shown to be none here.
//!
//! | Milvaion | here |
//! |---|---|
//! | a restart runs every job, finished ones too | [`a_restart_runs_only_what_is_due`] |
//! | two dispatchers publish a slot twice | `ledger::each_slot_is_one_occurrence_whatever_becomes_of_daemons` |
//! | a failed publication is not tried again | [`a_dispatch_that_fails_is_tried_again`]; on servers `on_servers::ledger` |
//! | deleting an old run takes its job off the schedule | [`deleting_old_runs_leaves_their_schedule_alone`] |
//! | a slot without a free worker is lost | [`a_slot_waits_for_a_free_worker`] |
//! | a retry sleeps in the consumer | [`a_retry_holds_up_no_other_message`] |
//! | a dead worker is noticed after minutes, its job lost | [`a_run_whose_worker_dies_goes_on`] |
//! | an invalid payload becomes `{}`; a trigger is audited as a creation | [`a_body_is_sent_as_it_is`] |
//! | the setting that enables a job again is not read | [`a_disabled_schedule_is_tried_again`] |
//! | UTC only; no column has the time of a slot | [`a_slot_is_at_the_local_time_of_its_zone`] |
//! | killed while it dispatches 300: some run twice, some stay queued | [`a_kill_while_three_hundred_are_dispatched`] |
//! | slots of an outage are lost | [`slots_of_an_outage_run_or_are_counted`] |
//! | statuses overtake one another: some runs stay running | [`a_thousand_runs_at_once_all_complete`] |

use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::lateness::Lateness;
use super::{becomes, listed, occurrences, schedule, states, trigger};
use crate::harness::{Daemon, Event, Pool, Workspace, look, trials_on};

trials_on![
    a_restart_runs_only_what_is_due,
    deleting_old_runs_leaves_their_schedule_alone,
    a_slot_waits_for_a_free_worker,
    a_retry_holds_up_no_other_message,
    a_run_whose_worker_dies_goes_on,
    a_body_is_sent_as_it_is,
    a_disabled_schedule_is_tried_again,
    a_slot_is_at_the_local_time_of_its_zone,
    a_kill_while_three_hundred_are_dispatched,
    slots_of_an_outage_run_or_are_counted,
    a_thousand_runs_at_once_all_complete,
    ; sqlite:
    a_dispatch_that_fails_is_tried_again,
];

/// Keys of a schedule that runs only when it is triggered.
const TRIGGERED: &str = "at = \"2100-01-01T00:00:00\"";

/// Inserts a schedule with one slot, in so many seconds, and returns that slot. The row says that it was inserted
/// before its slot, which is no past one then, however busy the machine is.
fn insert_once(site: &Workspace, name: &str, seconds: i64) -> Timestamp {
    let now = Timestamp::now();
    let at = Timestamp::from_second(now.as_second() + seconds).unwrap();
    let insert = format!(
        r#"INSERT INTO schedules (name, definition, created_at)
           VALUES ('{name}', '{{"at": "{at}", "queue": "work", "body": "{name}"}}', {})"#,
        now.as_millisecond()
    );
    site.table().run(&insert).unwrap();
    at
}

fn insert(site: &Workspace, name: &str, definition: &str) {
    let insert =
        format!("INSERT INTO schedules (name, definition) VALUES ('{name}', '{definition}')");
    site.table().run(&insert).unwrap();
}

fn number_of_runs(site: &Workspace, schedule: &str) -> usize {
    occurrences(site, schedule).len()
}

fn wait_for(time: Timestamp) {
    look(|| (Timestamp::now() > time).then_some(())).unwrap();
}

fn a_restart_runs_only_what_is_due() {
    let site = Workspace::new();
    let schedules = [
        schedule("limited", "every = \"1s\"\nlimit = 1\nbody = \"limited\""),
        schedule("yearly", "cron = \"0 0 1 1 *\""),
        schedule("weekly", "every = \"168h\""),
        schedule("often", "every = \"1s\""),
    ];
    let pools = [Pool::new(&[]).after(&schedules.concat())];
    site.configure_commands(&pools);
    let mut daemon = site.start(&pools);
    daemon.entered();
    insert_once(&site, "soon", 2);
    insert_once(&site, "later", 6 * 3600);
    for name in ["limited", "soon"] {
        daemon.eventually("those that are due to run", || {
            listed(&site)[name]["state"] == "ended"
        });
        // A run whose end is not safe yet is repeated after a crash.
        let id = occurrences(&site, name)[0]["id"]
            .as_str()
            .unwrap()
            .to_owned();
        becomes(&site, &daemon, &id, "completed");
    }
    for restart in 0..3 {
        match restart {
            0 => daemon.crash(),
            _ => daemon.stop(),
        }
        daemon = site.start(&pools);
        daemon.entered();
        let before = number_of_runs(&site, "often");
        daemon.eventually("slots to be dispatched again", || {
            number_of_runs(&site, "often") > before + 1
        });
    }
    let names = ["limited", "soon", "later", "yearly", "weekly"];
    let runs = names.map(|name| number_of_runs(&site, name));
    assert_eq!(runs, [1, 1, 0, 0, 0]);
    for name in ["limited", "soon"] {
        assert_eq!(site.record().of(Event::Done, name).len(), 1);
    }
    daemon.stop();
}

/// The database refuses each transaction for seconds.
fn a_dispatch_that_fails_is_tried_again() {
    let site = Workspace::new();
    let pools = [super::secondly()];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    let runs = || number_of_runs(&site, "a");
    daemon.eventually("some slots", || runs() > 1);
    let (table, lateness) = (site.table(), Lateness::watch(&site));
    let before = lateness.outage(|| {
        table.run("BEGIN IMMEDIATE").unwrap();
        let before = runs();
        wait_for(Timestamp::now() + SignedDuration::from_secs(4));
        assert_eq!(runs(), before);
        table.run("COMMIT").unwrap();
        before
    });
    daemon.eventually("the slots that were refused, and further ones", || {
        runs() > before + 5
    });
    lateness.assert_small(&super::each_slot_was_one_occurrence(&site));
    daemon.stop();
}

fn deleting_old_runs_leaves_their_schedule_alone() {
    let site = Workspace::new();
    let pools = [Pool::new(&[]).after(&schedule("often", "every = \"1s\""))];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    let runs = || number_of_runs(&site, "often");
    daemon.eventually("some runs", || runs() > 2);
    let newest = occurrences(&site, "often")[0]["slot"].clone();
    let table = site.table();
    table
        .run("DELETE FROM occurrences WHERE ended_at IS NOT NULL")
        .unwrap();
    daemon.eventually("further runs", || runs() > 2);
    let older = |one: &serde_json::Value| one["slot"].as_str() < newest.as_str();
    assert!(!occurrences(&site, "often").iter().any(older));
    assert_eq!(listed(&site)["often"]["state"], "active");
    daemon.stop();
}

fn a_slot_waits_for_a_free_worker() {
    let site = Workspace::new();
    let long = schedule("long", &format!("{TRIGGERED}\nbody = \"mode:wait:go\""));
    let pool = Pool::new(&[]).set("workers", "1").set("prefetch", "1");
    let pools = [pool.after(&long)];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    let long = trigger(&site, "long");
    becomes(&site, &daemon, &long, "running");
    let short =
        r#"{"every": "1s", "limit": 3, "overlap": "allow", "queue": "work", "body": "{{ slot }}"}"#;
    insert(&site, "short", short);
    daemon.eventually("three slots", || number_of_runs(&site, "short") == 3);
    let slots = occurrences(&site, "short");
    let is_queued = |one: &serde_json::Value| one["state"] == "queued";
    assert!(slots.iter().all(is_queued), "{slots:#?}");
    site.touch("go");
    becomes(&site, &daemon, &long, "completed");
    for slot in slots {
        becomes(&site, &daemon, slot["id"].as_str().unwrap(), "completed");
        let body = slot["slot"].as_str().unwrap();
        assert_eq!(site.record().of(Event::Done, body).len(), 1);
    }
    daemon.stop();
}

fn a_retry_holds_up_no_other_message() {
    let site = Workspace::new();
    let fails = schedule("fails", &format!("{TRIGGERED}\nbody = \"mode:answer:500\""));
    let works = schedule("works", &format!("{TRIGGERED}\nbody = \"x\""));
    let pool = Pool::new(&[]).set("workers", "1").set("prefetch", "1");
    let pool = pool.set("retry", "{ attempts = 5, initial = \"1h\", max = \"1h\" }");
    let pools = [pool.after(&(fails + &works))];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    let fails = trigger(&site, "fails");
    becomes(&site, &daemon, &fails, "waiting");
    let works = trigger(&site, "works");
    becomes(&site, &daemon, &works, "completed");
    becomes(&site, &daemon, &fails, "waiting");
    daemon.stop();
}

/// A lease of an hour: nothing but the death itself tells of it.
fn a_run_whose_worker_dies_goes_on() {
    let site = Workspace::with_source("lease = \"1h\"");
    let keys = format!("{TRIGGERED}\nbody = \"mode:wait:go\"");
    let pools = [Pool::new(&[]).after(&schedule("long", &keys))];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    let id = trigger(&site, "long");
    becomes(&site, &daemon, &id, "running");
    let worker = daemon.has_workers(1)[0];
    kill(Pid::from_raw(worker), Signal::SIGKILL).unwrap();
    daemon.eventually("another worker to have the message", || {
        site.record().of(Event::Began, "mode:wait:go").len() == 2
    });
    site.touch("go");
    let ended = becomes(&site, &daemon, &id, "completed");
    assert_eq!(states(&ended)[..3], ["queued", "running", "waiting"]);
    assert_eq!(
        (&ended["attempt"], &ended["state"]),
        (&json!(2), &json!("completed"))
    );
    daemon.stop();
}

fn a_body_is_sent_as_it_is() {
    let site = Workspace::new();
    let body = r#"{"half": "#;
    let keys = format!("{TRIGGERED}\ncontent_type = \"application/json\"\nbody = '{body}'");
    let pools = [Pool::new(&[]).after(&schedule("half", &keys))];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    let id = trigger(&site, "half");
    let ended = becomes(&site, &daemon, &id, "completed");
    assert_eq!(site.record().texts(Event::Done), [body]);
    let note = ended["events"][0]["note"].as_str().unwrap();
    assert!(note.starts_with("triggered"), "{ended}");
    assert_eq!(
        (&ended["slot"], &listed(&site)["half"]["version"]),
        (&json!(null), &json!(1))
    );
    daemon.stop();
}

fn a_disabled_schedule_is_tried_again() {
    let site = Workspace::new();
    let keys = "every = \"1s\"\nbody = \"mode:unless:go:500\"\n\
                auto_disable = { failures = 2, window = \"1h\", retry_after = \"1s\" }";
    let pools = [Pool::new(&[]).attempts(1).after(&schedule("fails", keys))];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    let state = || {
        listed(&site)
            .remove("fails")
            .map(|fails| fails["state"].clone())
    };
    daemon.eventually("the schedule to be disabled", || {
        state() == Some(json!("disabled"))
    });
    // A trial that fails changes nothing.
    let number_of = |state: &str| {
        let all = occurrences(&site, "fails");
        all.iter().filter(|one| one["state"] == state).count()
    };
    daemon.eventually("a trial to fail", || number_of("failed") > 2);
    site.touch("go");
    daemon.eventually("the schedule to be active again", || {
        state() == Some(json!("active"))
    });
    daemon.eventually("slots after the trial to run", || {
        number_of("completed") > 1
    });
    daemon.stop();
}

fn a_slot_is_at_the_local_time_of_its_zone() {
    let site = Workspace::new();
    let pools = [Pool::new(&[]).after(&schedule("any", TRIGGERED))];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    let slot = Timestamp::from_second(Timestamp::now().as_second() + 3).unwrap();
    let kathmandu = TimeZone::fixed(Offset::from_seconds(5 * 3600 + 45 * 60).unwrap());
    let local = slot.to_zoned(kathmandu).datetime().to_string();
    let definition = format!(
        r#"{{"at": "{local}", "zone": "Asia/Kathmandu", "queue": "work",
             "body": "{{{{ slot | date(''%Y-%m-%dT%H:%M:%S'') }}}}"}}"#
    );
    insert(&site, "local", &definition);
    daemon.eventually("the slot to run", || {
        !site.record().of(Event::Done, &local).is_empty()
    });
    assert_eq!(
        occurrences(&site, "local")[0]["slot"],
        json!(slot.to_string())
    );
    daemon.stop();
}

/// Returns a pool with so many schedules that are all due at the next second, once, and their names.
fn all_at_once(count: usize) -> ([Pool; 1], Vec<String>) {
    let keys = "every = \"1s\"\nlimit = 1\nbody = \"{{ schedule }}\"";
    let names: Vec<String> = (0..count).map(|number| format!("s{number}")).collect();
    let schedules: String = names.iter().map(|name| schedule(name, keys)).collect();
    let pool = Pool::new(&[]).set("workers", "2").after(&schedules);
    ([pool.attempts(100).set("lapses_max", "1000")], names)
}

/// Waits until all of these have run, and checks that each has done so once and is completed for good.
fn each_ran_once(site: &Workspace, daemon: &Daemon, names: &[String]) {
    let table = site.table();
    let all = names.len();
    daemon.eventually("all to be completed", || {
        table.ask("SELECT count(*) FROM occurrences WHERE state = 2") == all.to_string()
    });
    let runs = table.ask("SELECT count(*), count(DISTINCT schedule) FROM occurrences");
    assert_eq!(runs, format!("{all}|{all}"));
    assert_eq!(table.count("work"), 0);
    site.record().assert_none_lost(names);
    // Nothing comes after an end.
    let ends = table.ask("SELECT count(*) FROM occurrence_events WHERE to_state = 2");
    assert_eq!(ends, all.to_string());
    let after = table.ask("SELECT count(*) FROM occurrence_events WHERE from_state = 2");
    assert_eq!(after, "0");
}

fn a_kill_while_three_hundred_are_dispatched() {
    let site = Workspace::new();
    let (pools, names) = all_at_once(300);
    site.configure_commands(&pools);
    let mut daemon = site.start(&pools);
    daemon.entered();
    wait_for(Timestamp::from_second(Timestamp::now().as_second() + 1).unwrap());
    for round in 0..8 {
        daemon.crash();
        daemon = site.start(&pools);
        let done = || site.record().all(Event::Done).len();
        daemon.eventually("some to be done", || done() > round * 20);
    }
    each_ran_once(&site, &daemon, &names);
    daemon.stop();
}

fn slots_of_an_outage_run_or_are_counted() {
    let site = Workspace::new();
    let keys = "every = \"1s\"\nmisfire = { policy = \"once\", grace = \"1s\" }";
    let pools = [Pool::new(&[]).after(&schedule("often", keys))];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    let runs = || number_of_runs(&site, "often");
    daemon.eventually("some slots", || runs() > 1);
    let due = insert_once(&site, "once", 3);
    daemon.crash();
    // Some slots of the others are missed in any case.
    wait_for(due.max(Timestamp::now()) + SignedDuration::from_secs(4));
    let daemon = site.start(&pools);
    let before = runs();
    daemon.eventually("further slots", || runs() > before + 2);
    daemon.eventually("the single slot of the outage to run", || {
        occurrences(&site, "once")
            .iter()
            .any(|one| one["state"] == "completed")
    });
    assert_eq!(number_of_runs(&site, "once"), 1);
    let often = occurrences(&site, "often");
    let slots = often
        .iter()
        .map(|one| one["slot"].as_str().unwrap().parse().unwrap());
    let slots: Vec<Timestamp> = slots.collect();
    let (first, last) = (*slots.iter().min().unwrap(), *slots.iter().max().unwrap());
    // A row of skipped slots counts the others of the row, and the run after it all of them.
    let number_of = |is_skipped: bool| -> i64 {
        let rows = often
            .iter()
            .filter(|one| (one["state"] == "skipped") == is_skipped);
        rows.map(|one| one["missed"].as_i64().unwrap()).sum()
    };
    let told = i64::try_from(slots.len()).unwrap() + number_of(true);
    assert_eq!(told, last.duration_since(first).as_secs() + 1, "{often:#?}");
    assert!(number_of(false) > 2, "{often:#?}");
    daemon.stop();
}

fn a_thousand_runs_at_once_all_complete() {
    let site = Workspace::new();
    let (pools, names) = all_at_once(1000);
    let daemon = site.start(&pools);
    daemon.entered();
    each_ran_once(&site, &daemon, &names);
    site.record().assert_done_once(&names);
    daemon.stop();
}
