//! The ledger on a server: its tables, its lock, and what becomes of messages when it can't be written.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::admin;
use crate::harness::{
    AHEAD, Api, BEHIND, Daemon, Database, Event, Flow, Launch, Pool, Proxy, Scene, Workspace,
    trials_on,
};
use crate::ledger::{self, lateness::Lateness};

trials_on![
    a_ledger_that_may_not_be_made_is_asked_for,
    a_ledger_of_the_first_version_is_upgraded,
    runs_end_while_the_tables_are_of_an_older_version,
    a_ledger_that_is_locked_is_used_again_once_it_is_free,
    a_dispatch_holds_up_no_other,
    a_schedule_that_is_locked_holds_up_no_other,
    a_server_that_is_killed_costs_no_slot_of_a_schedule,
    a_server_whose_clock_is_set_repeats_no_slot_and_loses_none,
    a_failover_costs_no_slot_of_a_schedule,
    a_ledger_that_is_gone_holds_up_no_message,
    what_waits_goes_to_the_ledger_as_it_is_configured_then,
    a_ledger_that_is_left_while_it_is_away_is_no_problem,
    an_occurrence_that_is_locked_keeps_no_other_log_waiting,
    changes_at_the_same_time_are_entered_one_after_the_other,
    schedules_are_listed_and_triggered_over_the_api,
];

/// Time for which a server is away; nothing waits for it.
const AWAY_FOR: Duration = Duration::from_secs(6);
const AWAY: &str = "the ledger can't be used: no schedule is dispatched; retrying";

/// A pool whose one schedule is due when it is triggered, and waits for the file `go`.
fn long() -> Pool {
    let keys = "at = \"2100-01-01T00:00:00\"\nbody = \"mode:wait:go\"";
    let pool = Pool::new(&[]).after(&ledger::schedule("long", keys));
    pool.set("workers", "2").set("prefetch", "1")
}

/// The statements that create the tables of the queue, and those of each version of the ledger.
fn schema(site: &Workspace) -> (String, Vec<String>) {
    let schema = site.ganger(&["schema", "--source", "main"]).good();
    let (queue, ledger) = schema.split_once("-- Ledger, version ").unwrap();
    let steps = ledger.split("-- Ledger, version ");
    let steps = steps.map(|step| format!("-- {step}"));
    (queue.to_owned(), steps.collect())
}

fn a_ledger_that_may_not_be_made_is_asked_for() {
    let site = Workspace::on("", "declare = false", Some(Database::shared()));
    let pools = [long()];
    site.configure_commands(&pools);
    let (queue, steps) = schema(&site);
    let server = site.database();
    let lacks = |version: usize| {
        let refused = site.ganger(&["check", "--online"]).bad(1);
        let problem = format!("lacks version {version} of the tables of the ledger");
        let what_to_do = format!("`ganger schema` from `-- Ledger, version {version}` on");
        assert!(
            refused.contains("ledger: ")
                && refused.contains(&problem)
                && refused.contains(&what_to_do),
            "{refused}"
        );
    };
    server.ask(&queue);
    lacks(1);
    server.ask(&steps[0]);
    let daemon = site.start(&pools);
    daemon.logged(AWAY);
    for (before, step) in (2..).zip(&steps[1..]) {
        lacks(before);
        server.ask(step);
    }
    daemon.entered();
    site.ganger(&["check", "--online"]).good();
    daemon.stop();
}

/// A daemon that has no ledger does the work for another one, whose tables are of the version before.
fn runs_end_while_the_tables_are_of_an_older_version() {
    let site = Workspace::on("", "declare = false", Some(Database::shared()));
    site.configure_commands(&[long()]);
    let (queue, steps) = schema(&site);
    let server = site.database();
    server.ask(&queue);
    // Version 3 knows no fingerprints.
    steps[..3].iter().for_each(|step| {
        server.ask(step);
    });
    for (id, body) in [("r1", "done"), ("r2", "mode:answer:400")] {
        let run = format!(
            "INSERT INTO occurrences (id, schedule, version, queue, state, queued_at)
             VALUES ('{id}', 's', 1, 'work', 0, 0)"
        );
        server.ask(&run);
        let header = format!("{{\"x-ganger-occurrence\": \"{id}\"}}");
        let message = format!(
            "INSERT INTO consumer_messages (queue, body, headers) VALUES ('work', '{body}', '{header}')"
        );
        server.ask(&message);
    }
    let pools = [Pool::new(&[]).attempts(1)];
    let daemon = site.start(&pools);
    let states = || {
        let states = "SELECT id, state, ended_at IS NOT NULL AS ended FROM occurrences ORDER BY id";
        server.ask(states).replace("|t", "|1")
    };
    daemon.eventually("both to end", || states() == "r1|2|1\nr2|3|1");
    daemon.logged(
        "the database rejects a part of a change of an occurrence: the ledger shows its state only",
    );
    daemon.stop();
}

fn a_ledger_of_the_first_version_is_upgraded() {
    let site = Workspace::on("", "", Some(Database::shared()));
    let pools = [ledger::secondly()];
    site.configure_commands(&pools);
    let (queue, steps) = schema(&site);
    let server = site.database();
    server.ask(&queue);
    server.ask(&steps[0]);
    let run = "INSERT INTO occurrences (id, schedule, version, queue, state, attempt, queued_at, ended_at)
               VALUES ('early', 'a', 1, 'work', 2, 1, 1, 2)";
    server.ask(run);
    if let Database::Mariadb(_) = server {
        // An upgrade that was interrupted: there no transaction takes back what it did.
        let (altered, _) = steps[1].split_once("CREATE TABLE").unwrap();
        server.ask(altered);
    }
    let daemon = site.start(&pools);
    daemon.entered();
    daemon.eventually("a slot to run", || {
        !site.record().all(Event::Done).is_empty()
    });
    let newest = steps.len().to_string();
    assert_eq!(server.ask("SELECT version FROM ledger"), newest);
    let early = site.ganger(&["occurrence", "show", "early", "-o", "json"]);
    assert_eq!(early.json()["state"], "completed");
    if let Database::Mariadb(_) = server {
        // By hand it can be done again.
        steps[1..].iter().for_each(|step| drop(server.ask(step)));
    }
    daemon.signal(Signal::SIGTERM);
    daemon.exit();
}

/// For longer than the daemon waits for a lock, but not than a command does.
fn a_ledger_that_is_locked_is_used_again_once_it_is_free() {
    let site = Workspace::on("", "", Some(Database::shared()));
    let pools = [ledger::secondly()];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    let done = || site.record().all(Event::Done).len();
    daemon.eventually("some slots to run", || done() > 10);
    let locks = site.database().table();
    locks.run("BEGIN").unwrap();
    locks.ask("SELECT id FROM ledger WHERE id = 1 FOR UPDATE");
    std::thread::scope(|scope| {
        let paused = scope.spawn(|| site.ganger(&["schedule", "pause", "a"]));
        daemon.logged(AWAY);
        locks.run("COMMIT").unwrap();
        assert_eq!(paused.join().unwrap().good(), "paused a\n");
    });
    daemon.logged("schedules are dispatched again");
    site.ganger(&["schedule", "resume", "a", "--make-up"])
        .good();
    daemon.eventually("further slots of it to run", || {
        let record = site.record();
        let done = record.texts(Event::Done).into_iter();
        done.filter(|text| text.starts_with("a ")).count() > 8
    });
    ledger::each_slot_was_one_occurrence(&site);
    daemon.signal(Signal::SIGTERM);
    daemon.exit();
}

/// One that notes the clocks is alone: here that was done in the future.
fn a_dispatch_holds_up_no_other() {
    let site = Workspace::on("", "", Some(Database::shared()));
    let pools = [ledger::secondly()];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    let done = || site.record().all(Event::Done).len();
    daemon.eventually("some slots to run", || done() > 2);
    let (server, dispatch) = (site.database(), site.database().table());
    dispatch.run("BEGIN").unwrap();
    let far = server.now_ms() + 3_600_000;
    dispatch
        .run(&format!("UPDATE ledger SET seen_at = {far}"))
        .unwrap();
    dispatch.run("COMMIT").unwrap();
    let lock = match server {
        Database::Postgres(_) => "FOR SHARE",
        Database::Mariadb(_) => "LOCK IN SHARE MODE",
    };
    dispatch.run("BEGIN").unwrap();
    dispatch.ask(&format!("SELECT id FROM ledger WHERE id = 1 {lock}"));
    let before = done();
    daemon.eventually("further slots to run", || done() > before + 60);
    assert_eq!(daemon.times_logged(AWAY), 0);
    dispatch.run("COMMIT").unwrap();
    ledger::each_slot_was_one_occurrence(&site);
    daemon.stop();
}

/// By a program with a long transaction. The end of its run counts once it is free.
fn a_schedule_that_is_locked_holds_up_no_other() {
    let site = Workspace::on("", "", Some(Database::shared()));
    let failing = "at = \"2100-01-01T00:00:00\"\nbody = \"mode:wait:go,answer:500\"\n\
                   retry = { attempts = 1 }\nauto_disable = { failures = 1 }";
    let other =
        "every = \"1s\"\noverlap = \"allow\"\nbody = \"other\"\nexpect = { every = \"1h\" }";
    let pool = Pool::new(&[]).after(&format!(
        "{}{}",
        ledger::schedule("failing", failing),
        ledger::schedule("other", other)
    ));
    let pools = [pool.set("workers", "2").set("prefetch", "1")];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    let id = ledger::trigger(&site, "failing");
    ledger::becomes(&site, &daemon, &id, "running");
    let locks = site.database().table();
    locks.run("BEGIN").unwrap();
    locks.ask("SELECT name FROM schedules WHERE name = 'failing' FOR UPDATE");
    site.touch("go");
    ledger::becomes(&site, &daemon, &id, "failed");
    let counted = || {
        let counted = "SELECT count(*) FROM occurrences WHERE schedule = 'other' AND watched = 2";
        site.database().ask(counted).parse::<u32>().unwrap()
    };
    let before = counted();
    daemon.eventually("ends of the other to be counted", || counted() > before + 2);
    assert_eq!(daemon.times_logged(AWAY), 0);
    let state = || {
        let state = "SELECT state FROM schedules WHERE name = 'failing'";
        site.database().ask(state)
    };
    assert_eq!(state(), "active");
    locks.run("COMMIT").unwrap();
    daemon.eventually("its run to be counted", || state() == "disabled");
    daemon.stop();
}

fn a_server_that_is_killed_costs_no_slot_of_a_schedule() {
    let pool = ledger::secondly();
    let site = Workspace::on("", "lease = \"1s\"", Some(Database::alone()));
    let pools = [pool];
    let scene = Scene::at(site, &pools);
    scene.site.configure_commands(&pools);
    let other = scene.site.start(&pools);
    let server = scene.site.database();
    let done = || scene.record().all(Event::Done).len();
    other.eventually("some slots to run", || done() > 10);
    let lateness = Lateness::watch(&scene.site);
    lateness.outage(|| {
        server.kill();
        other.logged(AWAY);
        // The longer it is away, the less often is it tried.
        std::thread::park_timeout(AWAY_FOR);
        server.start_again();
    });
    let before = done();
    other.eventually("further slots to run", || done() > before + 60);
    lateness.assert_small(&ledger::each_slot_was_one_occurrence(&scene.site));
    other.stop();
    scene.daemon.stop();
}

/// The clocks of two of the daemons are wrong by a day: that of the server counts.
fn a_server_whose_clock_is_set_repeats_no_slot_and_loses_none() {
    let database = Database::alone();
    database.stop();
    database.set_clock("+0");
    database.start_again();
    let site = Workspace::on("", "", Some(database));
    let pools = [ledger::secondly()];
    site.configure_commands(&pools);
    let daemons = [&[][..], AHEAD, BEHIND].map(|through| {
        let launch = Launch {
            through,
            ..Launch::default()
        };
        site.launch(&pools, launch)
    });
    ledger::steps_of_the_clock(&site, &daemons, |offset| {
        site.database().set_clock(offset);
    });
    daemons.iter().for_each(Daemon::stop);
}

fn a_failover_costs_no_slot_of_a_schedule() {
    let database = Database::alone();
    let standby = database.standby();
    let site = Workspace::with_sections(&format!(
        "[sources.main]\nkind = \"table\"\nurl = \"{}\"\nlease = \"1s\"",
        standby.url_before(&database)
    ));
    let pools = [ledger::secondly()];
    site.configure_commands(&pools);
    let daemons = [(); 2].map(|()| site.start(&pools));
    let done = || site.record().all(Event::Done).len();
    let lateness = Lateness::watch(&site);
    daemons[0].eventually("some slots to run", || done() > 20);
    lateness.outage(|| {
        database.kill_followed(&standby);
        daemons[0].logged(AWAY);
        std::thread::park_timeout(AWAY_FOR);
        standby.promote();
    });
    let before = done();
    daemons[0].eventually("further slots to run", || done() > before + 40);
    lateness.assert_small(&ledger::each_slot_was_one_occurrence(&site));
    daemons.iter().for_each(Daemon::stop);
}

/// The header is one that PostgreSQL stores, but can't read as JSON.
fn a_ledger_that_is_gone_holds_up_no_message() {
    let site = Workspace::on("", "", Some(Database::shared()));
    let pools = [long()];
    site.configure_commands(&pools);
    let scene = Scene::at(site, &pools);
    let server = scene.site.database();
    scene.daemon.entered();
    server.ask(
        r#"INSERT INTO consumer_messages (queue, body, headers) VALUES ('work', 'mode:wait:go', '{"a": "\u0000"}')"#,
    );
    scene.site.ganger(&["schedule", "trigger", "long"]).good();
    let begun = || scene.record().of(Event::Began, "mode:wait:go").len();
    scene.daemon.eventually("both to begin", || begun() == 2);
    let other = scene.site.start(&pools);
    let has_state = |state| {
        let states = server.ask("SELECT DISTINCT state FROM occurrences WHERE ended_at IS NULL");
        states == state
    };
    other.eventually("the ledger to show the run", || has_state("1"));
    scene.daemon.crash();
    other.eventually("the other to have both and to show it", || {
        begun() == 4 && has_state("1")
    });
    server.ask("ALTER TABLE occurrences RENAME TO elsewhere");
    scene.site.touch("go");
    other.logged("the database rejects a change of an occurrence: the ledger does not show it");
    other.eventually("both to be done", || scene.table.count("work") == 0);
    assert_eq!(scene.table.dead(), []);
    other.stop();
}

/// As after a change of a password, or of an address.
fn what_waits_goes_to_the_ledger_as_it_is_configured_then() {
    let database = Database::shared();
    let proxy = Proxy::to(database.port());
    let way = database.url_at(proxy.port());
    let site = Workspace::on("", "", Some(database));
    let pools = [ledger::elsewhere("mode:wait:go")];
    site.configure_commands(&pools);
    let daemon = site.start_elsewhere(&way, &pools);
    daemon.entered();
    let id = ledger::trigger(&site, "elsewhere");
    ledger::becomes(&site, &daemon, &id, "running");
    proxy.flow(Flow {
        refuses: true,
        ..Flow::default()
    });
    proxy.cut();
    site.touch("go");
    daemon.logged("the ledger can't be written: it shows later what becomes of messages; retrying");
    site.reconfigure(&daemon, &pools);
    daemon.signal(Signal::SIGHUP);
    ledger::becomes(&site, &daemon, &id, "completed");
    daemon.stop();
}

fn a_ledger_that_is_left_while_it_is_away_is_no_problem() {
    let database = Database::shared();
    let proxy = Proxy::to(database.port());
    let way = database.url_at(proxy.port());
    let site = Workspace::on("", "", Some(database));
    let pools = [ledger::elsewhere("fine")];
    let daemon = site.start_elsewhere(&way, &pools);
    daemon.entered();
    proxy.flow(Flow {
        up_is_stalled: true,
        ..Flow::default()
    });
    daemon.eventually("the dispatch and the relay to wait for it", || {
        proxy.held_back() >= 2
    });
    let other = "[sources.other]\nkind = \"table\"\nurl = \"sqlite:other.db\"\n";
    let without = Pool::new(&[]).text("source", "other").after(other);
    site.reconfigure(&daemon, &[without]);
    daemon.signal(Signal::SIGHUP);
    daemon.logged("configuration reloaded");
    proxy.flow(Flow {
        refuses: true,
        ..Flow::default()
    });
    proxy.cut();
    daemon.logged(
        "schedules of the configuration stay in the ledger that is left: a daemon that has it dispatches them; \
         remove them with `ganger schedule remove`",
    );
    let config = daemon.config().to_str().unwrap();
    let status = site.ganger(&["status", "-o", "json", "--config", config]);
    assert_eq!(status.json()["ledger"], serde_json::Value::Null);
    daemon.stop();
}

/// As one is that is being settled.
fn an_occurrence_that_is_locked_keeps_no_other_log_waiting() {
    let site = Workspace::on("", "", Some(Database::shared()));
    let keys = "at = \"2100-01-01T00:00:00\"\noverlap = \"allow\"\n\
                body = \"mode:wait:go,print:one,wait:end\"";
    let pool = Pool::new(&["--v2=1"]).after(&ledger::schedule("long", keys));
    let pools = [pool.set("workers", "2")];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    let ids = [(); 2].map(|()| ledger::trigger(&site, "long"));
    for id in &ids {
        ledger::becomes(&site, &daemon, id, "running");
    }
    let locks = site.database().table();
    locks.run("BEGIN").unwrap();
    let lock = format!(
        "SELECT id FROM occurrences WHERE id = '{}' FOR UPDATE",
        ids[0]
    );
    locks.ask(&lock);
    site.touch("go");
    ledger::logs::becomes(&site, &daemon, &ids[1], 1);
    assert_eq!(site.ganger(&["occurrence", "log", &ids[0]]).good(), "");
    locks.run("COMMIT").unwrap();
    ledger::logs::becomes(&site, &daemon, &ids[0], 1);
    site.touch("end");
    for id in &ids {
        ledger::becomes(&site, &daemon, id, "completed");
    }
    daemon.stop();
}

/// An operator sends a dead letter back, and its message is done before the ledger has the change.
fn changes_at_the_same_time_are_entered_one_after_the_other() {
    let site = Workspace::on("", "", Some(Database::alone()));
    let pools = [long()];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    let id = ledger::trigger(&site, "long");
    ledger::becomes(&site, &daemon, &id, "running");
    let server = site.database();
    let other = server.table();
    other.run("BEGIN").unwrap();
    let change = format!("UPDATE occurrences SET state = 0 WHERE id = '{id}'");
    other.run(&change).unwrap();
    site.touch("go");
    let waiting = match server {
        Database::Postgres(_) => "SELECT count(*) FROM pg_locks WHERE NOT granted",
        Database::Mariadb(_) => {
            "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
        }
    };
    daemon.eventually("the settlement to wait", || server.ask(waiting) != "0");
    other.run("COMMIT").unwrap();
    let completed = ledger::becomes(&site, &daemon, &id, "completed");
    let last = completed["events"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["from"], &last["to"]),
        (&"queued".into(), &"completed".into())
    );
    daemon.stop();
}

fn schedules_are_listed_and_triggered_over_the_api() {
    let site = Workspace::on("", "", Some(Database::alone()));
    let pools = [long()];
    let scene = Scene::at(site, &pools);
    scene.daemon.entered();
    let api = Api::Socket(admin::socket(&scene.daemon));
    let names = || {
        let listed = api.get("/v1/schedules").json();
        let listed = listed.as_array().unwrap().iter();
        let names: Vec<String> = listed.map(|one| one["name"].to_string()).collect();
        names.join(" ")
    };
    assert_eq!(names(), "\"long\"");
    let keys = r#"{"at": "2100-01-01T00:00:00", "queue": "work", "body": "x", "tags": ["t"]}"#;
    let entered = api.ask("PUT", "/v1/schedules/far", &[], keys);
    assert_eq!(entered.json()["change"], "created");
    assert_eq!(names(), "\"far\" \"long\"");
    let trigger = |name: &str| api.post(&format!("/v1/schedules/{name}/trigger"), "");
    let triggered = trigger("far").json();
    let id = triggered["occurrence"].as_str().unwrap();
    let ended = api.get(&format!("/v1/occurrences/{id}?wait=20s")).json();
    assert_eq!(ended["state"], "completed", "{ended}");
    let log = format!("/v1/occurrences/{id}/log");
    let lines = api.get(&log).json();
    assert_eq!(lines["state"], "completed", "{lines}");
    let followed = api.get(&format!("{log}?follow")).body;
    assert!(followed.contains("event: end\n"), "{followed}");
    api.get("/v1/occurrences/typo/log").problem(404);
    let running = trigger("long").json();
    trigger("long").problem(409);
    let removed = api.ask("DELETE", "/v1/schedules/far", &[], "");
    assert_eq!(removed.status, 200, "{removed:?}");
    // One that waits is told that the server is away.
    let id = running["occurrence"].as_str().unwrap();
    let server = scene.site.database();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| api.get(&format!("/v1/occurrences/{id}?wait=20s")));
        scene.begun(&["mode:wait:go"]);
        server.kill();
        let why = waiting.join().unwrap().problem(503);
        assert!(why.contains("main"), "{why}");
    });
    let why = api.get("/v1/schedules").problem(503);
    assert!(why.contains("source `main`"), "{why}");
    assert_eq!(api.get("/v1/status").status, 200);
    server.start_again();
    scene.daemon.eventually("the ledger to be there again", || {
        api.get("/v1/schedules").status == 200
    });
    scene.site.touch("go");
    scene.daemon.eventually("the run to end", || {
        api.get(&format!("/v1/occurrences/{id}")).json()["state"] == "completed"
    });
    scene.daemon.stop();
}
