//! What changes while the daemon runs: the number of workers, their command, the pools, the rules.
//! And what it tells of itself when asked.

use std::collections::BTreeSet;
use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::harness::{
    Daemon, Event, Launch, NewMessage, Pool, Scene, Table, Workspace, field, said, trials,
};
use crate::modes_worker;

trials![
    two_to_eight_to_one_worker_under_load,
    a_changed_command_is_rolled_new_before_old,
    a_rolling_restart_stops_at_the_first_that_does_not_come_up,
    a_build_that_dies_on_its_first_message_replaces_nobody_and_harms_none,
    a_build_that_fails_each_message_replaces_nobody,
    a_build_is_no_worse_where_the_old_one_fails_as_well,
    several_new_workers_may_be_on_trial_at_once,
    a_roll_ends_though_no_worker_gets_old,
    a_command_that_changes_while_workers_start_is_the_one_that_counts,
    more_workers_and_another_command_at_once,
    an_invalid_file_changes_nothing_and_says_why,
    a_pool_is_added,
    a_pool_is_removed_after_what_it_has_in_hand,
    a_pool_moves_to_another_queue_after_what_it_has_in_hand,
    a_pool_that_is_moving_may_change_again,
    a_pool_whose_database_is_away_can_be_removed_or_moved,
    rules_change_in_place_for_the_next_messages,
    rules_of_recycling_reach_the_workers_that_are_there,
    the_file_is_watched_if_asked_for,
    a_rolling_restart_under_load,
    the_status_report_tells_of_each_pool_and_worker,
];

const REFUSED: &str = "reload refused: the configuration is invalid";
const ROLLED: &str = "rolling restart completed";
const ROLL_STOPPED: &str =
    "rolling restart stopped: a new worker failed its trial; the old ones stay";

fn bodies(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{what} {n}")).collect()
}

fn reload(scene: &Scene, pools: &[Pool]) {
    let times = scene.daemon.times_logged("configuration reloaded");
    scene.site.reconfigure(&scene.daemon, pools);
    scene.daemon.signal(Signal::SIGHUP);
    scene.daemon.eventually("the reload", || {
        scene.daemon.times_logged("configuration reloaded") > times
    });
}

fn rules_of_recycling_reach_the_workers_that_are_there() {
    let scene = Scene::of(Pool::new(&[]));
    scene.send(&["one"]);
    scene.all_done();
    let recycled = Pool::new(&[]).set("recycle", "{ tasks = 1, jitter = 0.0 }");
    reload(&scene, &[recycled]);
    scene.daemon.logged("recycling the worker");
    scene.send(&["two"]);
    scene.all_done();
    scene.record().assert_done_once(&["one", "two"]);
    scene.finish();
}

/// Each message was begun once and done once, and no worker ended unasked.
fn nothing_lost_nothing_twice(scene: &Scene, bodies: &[String]) {
    scene.all_done();
    let record = scene.record();
    record.assert_done_once(bodies);
    assert_eq!(record.all(Event::Began).len(), bodies.len());
    assert_eq!(scene.daemon.times_logged("worker lost"), 0);
}

fn a_part_is_done(scene: &Scene, count: usize) {
    scene.daemon.eventually("a part of it to be done", || {
        scene.record().all(Event::Done).len() >= count
    });
}

fn two_to_eight_to_one_worker_under_load() {
    let pool = |workers: usize| {
        let pool = Pool::new(&["--mode=sleep:2"]).set("workers", &workers.to_string());
        pool.set("pipeline", "4")
    };
    let scene = Scene::of(pool(2));
    let first = scene.daemon.has_workers(2);
    let bodies = bodies("message", 1_500);
    scene.send(&bodies);
    a_part_is_done(&scene, 200);
    reload(&scene, &[pool(8)]);
    let more = scene.daemon.has_workers(8);
    assert!(first.iter().all(|pid| more.contains(pid)), "the first stay");
    a_part_is_done(&scene, 800);
    reload(&scene, &[pool(1)]);
    scene.daemon.has_workers(1);
    assert!(scene.table.count("work") > 0, "the load was too small");
    nothing_lost_nothing_twice(&scene, &bodies);
    scene.finish();
}

/// Workers with that variable, three of them, which can be seen in what they record.
fn versioned(version: &str) -> Pool {
    let pool = Pool::new(&["--mode=note:env:VERSION,sleep:1"]).set("workers", "3");
    pool.env("VERSION", version)
}

/// Some more messages are worked on by workers of that version only.
fn only_version(scene: &Scene, version: &str) {
    let before = scene.record().all(Event::Noted).len();
    scene.send(&bodies("again", 30));
    scene.all_done();
    let record = scene.record();
    let noted = record.texts(Event::Noted).split_off(before);
    assert_eq!(noted, vec![format!("env:VERSION={version}"); 30]);
}

fn a_changed_command_is_rolled_new_before_old() {
    let scene = Scene::of(versioned("1"));
    let old = scene.daemon.has_workers(3);
    let bodies = bodies("message", 1_000);
    scene.send(&bodies);
    a_part_is_done(&scene, 100);
    reload(&scene, &[versioned("2")]);
    scene.daemon.logged(ROLLED);
    assert!(scene.table.count("work") > 0, "the load was too small");
    let new = scene.daemon.has_workers(3);
    assert!(!new.iter().any(|pid| old.contains(pid)), "{old:?}, {new:?}");
    never_fewer_than(3, 4, &scene.daemon);
    nothing_lost_nothing_twice(&scene, &bodies);
    only_version(&scene, "2");
    scene.finish();
}

/// Once all are up there are never fewer than `least` of them, and never more than `most`.
fn never_fewer_than(least: usize, most: usize, daemon: &Daemon) {
    let mut up = 0_usize;
    let mut complete = false;
    for record in daemon.records(|record| !record["pid"].is_null()) {
        match record["message"].as_str() {
            Some("worker up") => up += 1,
            Some("worker gone" | "worker lost") => up -= 1,
            _ => {}
        }
        complete |= up == least;
        assert!(
            !complete || (least..=most).contains(&up),
            "{up} at {record}"
        );
    }
    assert!(complete);
}

/// Only one is tried; the old ones go on, and one that dies is replaced by one like it.
fn a_rolling_restart_stops_at_the_first_that_does_not_come_up() {
    let scene = Scene::of(versioned("1"));
    let old = scene.daemon.has_workers(3);
    let broken = Pool::new(&["--start=exit:3"]).set("workers", "3");
    reload(&scene, &[broken]);
    scene.daemon.logged(ROLL_STOPPED);
    let lost = scene.daemon.logged("worker lost");
    assert!(field(&lost, "cause").contains("code 3"), "{lost}");
    assert!(field(&lost, "stderr").contains("never starts"), "{lost}");
    only_version(&scene, "1");
    assert_eq!(scene.daemon.workers_up(), old);
    assert_eq!(scene.daemon.times_logged("worker lost"), 1);
    kill(Pid::from_raw(old[0]), Signal::SIGKILL).unwrap();
    scene.daemon.eventually("its successor", || {
        scene.daemon.times_logged("worker up") == 4
    });
    only_version(&scene, "1");
    reload(&scene, &[versioned("2")]);
    scene.daemon.logged(ROLLED);
    only_version(&scene, "2");
    scene.finish();
}

/// It connects, and that is all that it does well: the old ones stay and work everything off.
fn a_build_that_dies_on_its_first_message_replaces_nobody_and_harms_none() {
    for surge in [1, 3] {
        let restart = format!(r#"{{ initial = "10ms", max = "100ms", surge = {surge} }}"#);
        let sized = |pool: Pool| {
            pool.set("workers", "4")
                .set("restart", &restart)
                .attempts(2)
        };
        let scene = Scene::of(sized(Pool::new(&["--mode=sleep:2"])));
        let old = scene.daemon.has_workers(4);
        let bodies = bodies("message", 2_000);
        scene.send(&bodies);
        a_part_is_done(&scene, 50);
        reload(&scene, &[sized(Pool::new(&["--mode=die:kill"]))]);
        scene.daemon.logged(ROLL_STOPPED);
        assert!(scene.table.count("work") > 0, "the load was too small");
        scene.all_done();
        assert_eq!(scene.daemon.has_workers(4), old);
        let record = scene.record();
        record.assert_done_once(&bodies);
        let failed = |record: &Value| said(record, "attempt failed");
        assert!(scene.daemon.records(failed).is_empty(), "none is charged");
        let lost = scene.daemon.times_logged("worker lost");
        assert!((1..=surge).contains(&lost), "{lost} died");
        scene.finish();
    }
}

/// Its answers are failures, however many there are.
fn a_build_that_fails_each_message_replaces_nobody() {
    let sized = |pool: Pool| {
        let pool = pool.set("workers", "4").attempts(100);
        pool.text("breaker", "off")
    };
    let scene = Scene::of(sized(Pool::new(&["--mode=sleep:2"])));
    let old = scene.daemon.has_workers(4);
    let bodies = bodies("message", 2_000);
    scene.send(&bodies);
    a_part_is_done(&scene, 50);
    reload(&scene, &[sized(Pool::new(&["--mode=answer:500"]))]);
    let stopped = scene.daemon.logged(ROLL_STOPPED);
    let cause = field(&stopped, "cause");
    assert!(cause.starts_with("new workers failed "), "{cause}");
    assert!(
        cause.contains(", old ones 0 of ") && cause.contains("500"),
        "{cause}"
    );
    assert!(scene.table.count("work") > 0, "the load was too small");
    scene.all_done();
    assert_eq!(scene.daemon.has_workers(4), old);
    scene.record().assert_done_once(&bodies);
    scene.finish();
}

/// Both depend on something that is down: nothing speaks against the new one.
fn a_build_is_no_worse_where_the_old_one_fails_as_well() {
    let failing = |version: &str| {
        let pool = Pool::new(&["--mode=note:env:VERSION,answer:500"]).attempts(100_000);
        pool.set("workers", "2")
            .text("breaker", "off")
            .env("VERSION", version)
    };
    let scene = Scene::of(failing("1"));
    scene.daemon.has_workers(2);
    scene.send(&bodies("message", 20));
    scene.daemon.eventually("many failures", || {
        scene.record().all(Event::Noted).len() >= 100
    });
    reload(&scene, &[failing("2")]);
    scene.daemon.logged(ROLLED);
    assert_eq!(scene.daemon.times_logged(ROLL_STOPPED), 0);
    scene.finish();
}

fn several_new_workers_may_be_on_trial_at_once() {
    let sized = |version| {
        let restart = r#"{ initial = "10ms", max = "100ms", surge = 3 }"#;
        versioned(version)
            .set("workers", "6")
            .set("restart", restart)
    };
    let scene = Scene::of(sized("1"));
    let old = scene.daemon.has_workers(6);
    let bodies = bodies("message", 2_000);
    scene.send(&bodies);
    a_part_is_done(&scene, 100);
    reload(&scene, &[sized("2")]);
    scene.daemon.logged(ROLLED);
    let new = scene.daemon.has_workers(6);
    assert!(!new.iter().any(|pid| old.contains(pid)), "{old:?}, {new:?}");
    never_fewer_than(6, 9, &scene.daemon);
    nothing_lost_nothing_twice(&scene, &bodies);
    only_version(&scene, "2");
    scene.finish();
}

/// They are recycled, by their size or their age, before they have been idle for as long as a trial
/// takes.
fn a_roll_ends_though_no_worker_gets_old() {
    for limit in [r#"memory = "1MiB""#, r#"age = "1s", jitter = 0.0"#] {
        let recycle = format!("{{ {limit} }}");
        let scene = Scene::of(versioned("1").set("recycle", &recycle));
        scene.daemon.logged("recycling the worker");
        reload(&scene, &[versioned("2").set("recycle", &recycle)]);
        scene.daemon.logged(ROLLED);
        only_version(&scene, "2");
        assert_eq!(scene.daemon.times_logged("worker lost"), 0);
        scene.finish();
    }
}

/// Starts the tests' worker once a file is there.
fn gated(site: &Workspace, version: &str) -> Pool {
    let gate = site.path("gate");
    let worker = std::env::current_exe().unwrap();
    let script = format!(
        "while [ ! -e '{}' ]; do sleep 0.01; done; exec '{}' {} --mode=note:env:VERSION,sleep:1",
        gate.display(),
        worker.display(),
        modes_worker::NAME
    );
    let pool = Pool::of_program("/bin/sh", &["-c", &script]).set("workers", "3");
    pool.env("VERSION", version)
}

fn a_command_that_changes_while_workers_start_is_the_one_that_counts() {
    let site = Workspace::new();
    let (old, new) = (gated(&site, "1"), gated(&site, "2"));
    let scene = Scene::at(site, &[old]);
    scene.daemon.eventually("the old ones to be started", || {
        scene.daemon.processes().len() >= 3
    });
    reload(&scene, &[new]);
    scene.site.touch("gate");
    scene.daemon.logged(ROLLED);
    scene.daemon.has_workers(3);
    only_version(&scene, "2");
    scene.finish();
}

fn more_workers_and_another_command_at_once() {
    let scene = Scene::of(versioned("1"));
    scene.daemon.has_workers(3);
    let bodies = bodies("message", 1_000);
    scene.send(&bodies);
    a_part_is_done(&scene, 100);
    reload(&scene, &[versioned("2").set("workers", "5")]);
    scene.daemon.logged(ROLLED);
    scene.daemon.has_workers(5);
    nothing_lost_nothing_twice(&scene, &bodies);
    only_version(&scene, "2");
    scene.finish();
}

fn an_invalid_file_changes_nothing_and_says_why() {
    let pool = Pool::new(&[]).set("workers", "2");
    let scene = Scene::of(pool.clone());
    let workers = scene.daemon.has_workers(2);
    let valid = fs::read_to_string(scene.daemon.config()).unwrap();
    let files = [
        ("this is no TOML", "TOML"),
        (
            &*valid.replace("workers = 2", "workers = 0"),
            "pools.work.workers must be within",
        ),
        (&*valid.replace("workers = 2", "wrokers = 2"), "wrokers"),
        (&*valid.replace("sqlite:queue.db", "redis:"), "url"),
    ];
    for (times, (text, why)) in files.iter().enumerate() {
        fs::write(scene.daemon.config(), text).unwrap();
        scene.daemon.signal(Signal::SIGHUP);
        scene
            .daemon
            .eventually("the refusal", || scene.daemon.times_logged(REFUSED) > times);
        scene.daemon.logs(REFUSED, |record| {
            field(record, "problem").contains(why) && record["line"].is_u64()
        });
        scene.send(&[format!("after {why}")]);
        scene.all_done();
        assert_eq!(scene.daemon.workers_up(), workers);
    }
    assert_eq!(scene.daemon.times_logged("configuration reloaded"), 0);
    fs::remove_file(scene.daemon.config()).unwrap();
    scene.daemon.signal(Signal::SIGHUP);
    scene.daemon.logs(REFUSED, |record| {
        field(record, "problem").contains("can't be read") && record["line"].is_null()
    });
    let named = |record: &Value| record["file"].as_str() == scene.daemon.config().to_str();
    let refused = scene.daemon.records(|record| said(record, REFUSED));
    assert!(refused.iter().all(named), "{refused:#?}");
    reload(&scene, &[pool.set("workers", "3")]);
    let more = scene.daemon.has_workers(3);
    assert_eq!(more[..2], workers);
    scene.finish();
}

fn named(name: &str) -> Pool {
    Pool::new(&[]).text("name", name).text("queue", name)
}

fn send_to(scene: &Scene, queue: &str, bodies: &[&str]) {
    let message = |body: &&str| NewMessage::new(body).to(queue);
    let messages: Vec<NewMessage> = bodies.iter().map(message).collect();
    scene.table.insert(&messages);
}

fn a_pool_is_added() {
    let scene = Scene::of(Pool::new(&[]));
    let first = scene.daemon.has_workers(1);
    send_to(&scene, "second", &["for the second"]);
    scene.send(&["mode:wait:go"]);
    scene.begun(&["mode:wait:go"]);
    reload(&scene, &[Pool::new(&[]), named("second")]);
    scene.daemon.eventually("the new pool's message", || {
        scene.table.count("second") == 0
    });
    scene.site.touch("go");
    scene.all_done();
    scene
        .record()
        .assert_done_once(&["for the second", "mode:wait:go"]);
    assert_eq!(scene.daemon.has_workers(2)[0], first[0]);
    scene.finish();
}

fn a_pool_is_removed_after_what_it_has_in_hand() {
    let stays = Pool::new(&[]);
    let scene = Scene::with(&[stays.clone(), named("second")]);
    send_to(&scene, "second", &["mode:wait:go", "left"]);
    scene.begun(&["mode:wait:go"]);
    reload(&scene, &[stays]);
    scene.send(&["meanwhile"]);
    scene.all_done();
    scene.site.touch("go");
    scene
        .daemon
        .logs("pool stopped", |record| field(record, "pool") == "second");
    scene.daemon.has_workers(1);
    scene
        .record()
        .assert_done_once(&["mode:wait:go", "meanwhile"]);
    let left = scene.table.messages("second");
    assert_eq!(left.len(), 1, "{left:#?}");
    assert_eq!(
        (left[0].body.as_str(), left[0].attempts, left[0].claimed),
        ("left", 0, false)
    );
    scene.finish();
}

fn a_pool_moves_to_another_queue_after_what_it_has_in_hand() {
    let scene = Scene::of(Pool::new(&[]));
    scene.send(&["mode:wait:go", "left"]);
    scene.begun(&["mode:wait:go"]);
    send_to(&scene, "elsewhere", &["a", "b"]);
    reload(&scene, &[Pool::new(&[]).text("queue", "elsewhere")]);
    scene
        .daemon
        .eventually("what is not in hand to go back", || {
            let rows = scene.table.messages("work");
            rows.iter().filter(|row| row.claimed).count() == 1
        });
    assert_eq!(scene.table.count("elsewhere"), 2, "one pool, one queue");
    scene.site.touch("go");
    scene.daemon.eventually("the other queue's messages", || {
        scene.table.count("elsewhere") == 0
    });
    scene.record().assert_done_once(&["mode:wait:go", "a", "b"]);
    let left = &scene.table.messages("work");
    assert_eq!(left.len(), 1, "{left:#?}");
    assert_eq!((left[0].body.as_str(), left[0].attempts), ("left", 0));
    scene.finish();
}

/// While it finishes what it has on the old queue, its successor's settings change once more.
fn a_pool_that_is_moving_may_change_again() {
    let scene = Scene::of(Pool::new(&[]));
    scene.send(&["mode:wait:go"]);
    scene.begun(&["mode:wait:go"]);
    let moved = Pool::new(&[]).text("queue", "elsewhere");
    reload(&scene, std::slice::from_ref(&moved));
    reload(&scene, &[moved.set("workers", "3")]);
    scene.site.touch("go");
    scene.daemon.has_workers(3);
    send_to(&scene, "elsewhere", &["a"]);
    scene.daemon.eventually("the other queue's message", || {
        scene.table.count("elsewhere") == 0
    });
    scene.record().assert_done_once(&["mode:wait:go", "a"]);
    scene.finish();
}

/// What they have done can't be written down when they are told to go. That is no reason to stop the
/// others; and it is written once it can be.
fn a_pool_whose_database_is_away_can_be_removed_or_moved() {
    let tables = ["main", "other"].map(|name| {
        let url = if name == "main" { "queue" } else { name };
        format!("[sources.{name}]\nkind = \"table\"\nurl = \"sqlite:{url}.db\"\n")
    });
    let site = Workspace::with_sections(&tables.concat());
    let on = |source: &str, name: &str| named(name).text("source", source);
    let stays = on("main", "work");
    let before = [stays.clone(), on("other", "goes"), on("other", "moves")];
    let scene = Scene::at(site, &before);
    let other = Table::open(&scene.site.path("other.db"));
    let held = ["mode:wait:go 1", "mode:wait:go 2"];
    let to = |body: &str, queue: &str| NewMessage::new(body).to(queue);
    other.insert(&[to(held[0], "goes"), to(held[1], "moves")]);
    scene.begun(&held);
    other.0.execute_batch("BEGIN IMMEDIATE").unwrap();
    scene.site.touch("go");
    for pool in ["goes", "moves"] {
        let is_its = |record: &Value| field(record, "pool") == pool;
        scene
            .daemon
            .logs("the table can't be used; intake pauses", is_its);
    }
    reload(&scene, &[stays, on("main", "moves")]);
    send_to(&scene, "moves", &["moved"]);
    for pool in ["goes", "moves"] {
        let is_its = |record: &Value| field(record, "pool") == pool;
        let message = "a pool that the reload stopped failed; the others continue";
        scene.daemon.logs(message, is_its);
    }
    scene.daemon.eventually("the moved pool's message", || {
        scene.table.count("moves") == 0
    });
    scene.send(&["still there"]);
    scene.all_done();
    other.0.execute_batch("COMMIT").unwrap();
    scene.daemon.eventually("what was done to be written", || {
        other.count("goes") + other.count("moves") == 0
    });
    let done = [held[0], held[1], "moved", "still there"];
    scene.record().assert_done_once(&done);
    scene.finish();
}

fn rules_change_in_place_for_the_next_messages() {
    let pool = Pool::new(&[]).attempts(3);
    let scene = Scene::of(pool.clone());
    let worker = scene.daemon.has_workers(1);
    scene.send(&["mode:answer:500 before"]);
    assert_eq!(scene.one_dead().attempts, 3);
    let strict = pool.attempts(1).text("timeout", "500ms");
    let strict = strict.set("statuses", r#"{ 299 = "done" }"#);
    reload(&scene, &[strict.text("timeout_grace", "50ms")]);
    scene.send(&["mode:answer:500 after", "mode:answer:299"]);
    scene.settled();
    assert_eq!(scene.daemon.workers_up(), worker, "the worker stays");
    let dead = scene.table.dead();
    assert_eq!((dead.len(), dead[1].attempts), (2, 1), "{dead:#?}");
    scene.send(&["mode:hang"]);
    scene.settled();
    let dead = scene.table.dead();
    assert_eq!(dead.len(), 3, "{dead:#?}");
    assert_eq!(
        (dead[2].reason.as_str(), dead[2].attempts),
        ("timed_out", 1)
    );
    scene.finish();
}

fn the_file_is_watched_if_asked_for() {
    let site = Workspace::new();
    let launch = Launch {
        args: &["--watch"],
        ..Launch::default()
    };
    let pool = Pool::new(&[]);
    let daemon = site.launch(std::slice::from_ref(&pool), launch);
    let first = daemon.has_workers(1);
    fs::write(daemon.config(), "no TOML").unwrap();
    daemon.logged(REFUSED);
    site.reconfigure(&daemon, &[pool.set("workers", "3")]);
    let more = daemon.has_workers(3);
    assert!(more.contains(&first[0]));
    daemon.stop();
}

fn a_rolling_restart_under_load() {
    let scene = Scene::of(versioned("1"));
    let mut all = BTreeSet::from_iter(scene.daemon.has_workers(3));
    let bodies = bodies("message", 1_500);
    scene.send(&bodies);
    for round in 1..=2 {
        a_part_is_done(&scene, 100 * round);
        scene.daemon.signal(Signal::SIGUSR2);
        scene.daemon.eventually("all to be new", || {
            scene.daemon.times_logged(ROLLED) == round
        });
        let new = scene.daemon.has_workers(3);
        assert!(new.iter().all(|pid| all.insert(*pid)), "{all:?}, {new:?}");
    }
    assert!(scene.table.count("work") > 0, "the load was too small");
    never_fewer_than(3, 4, &scene.daemon);
    nothing_lost_nothing_twice(&scene, &bodies);
    scene.finish();
}

fn the_status_report_tells_of_each_pool_and_worker() {
    let busy = Pool::new(&["--v2=1"]).set("workers", "2").attempts(1);
    let broken = Pool::new(&["--start=exit:1"]).text("name", "broken");
    let scene = Scene::with(&[busy, broken.text("queue", "none")]);
    scene.daemon.has_workers(2);
    scene.send(&[
        "mode:reply:answers",
        "mode:answer:400",
        "mode:answer:503:10",
    ]);
    scene.settled();
    let held = "mode:progress:half,wait:go";
    scene.send(&[held]);
    scene.begun(&[held]);
    let degraded = "pool degraded: its workers keep failing; starting one at a time";
    scene.daemon.logged(degraded);
    // What the worker says of its progress may come a moment later.
    let report = scene.daemon.eventually_some("the whole report", || {
        scene.daemon.signal(Signal::SIGUSR1);
        let report = |record: &Value| {
            said(record, "status of the worker") && field(record, "progress") == "half"
        };
        scene.daemon.records(report).pop()
    });
    let began = scene.record().of(Event::Began, held)[0].pid;
    assert_eq!(report["pid"], Value::from(began));
    let told = ["pool", "state", "in_flight", "window"].map(|name| field(&report, name));
    assert_eq!(told, ["work", "busy", "1", "1"], "{report}");
    assert!(!field(&report, "message_age").is_empty(), "{report}");
    each_worker_is_told(&scene.daemon);
    let pool = scene.daemon.logs("status of the pool", |record| {
        field(record, "pool") == "work" && field(record, "out") == "1"
    });
    let counts = ["state", "workers", "workers_wanted", "done", "dead"];
    let counts = counts.map(|name| field(&pool, name));
    assert_eq!(counts, ["running", "2", "2", "1", "2"], "{pool}");
    scene.daemon.logs("status of the pool", |record| {
        field(record, "pool") == "broken" && field(record, "state") == "degraded"
    });
    scene.site.touch("go");
    scene.settled();
    scene.finish();
}

/// Both slots, with the processes in them; the other pool's with none.
fn each_worker_is_told(daemon: &Daemon) {
    let mut up = daemon.workers_up();
    up.sort_unstable();
    let reports = daemon.records(|record| said(record, "status of the worker"));
    let of = |pool: &'static str| {
        let reports = reports.iter().filter(move |r| field(r, "pool") == pool);
        reports.map(|report| (field(report, "worker"), report["pid"].as_i64()))
    };
    let slots: BTreeSet<String> = of("work").map(|(slot, _)| slot).collect();
    assert_eq!(slots, BTreeSet::from(["0".to_owned(), "1".to_owned()]));
    let pids: BTreeSet<i64> = of("work").filter_map(|(_, pid)| pid).collect();
    assert_eq!(pids, up.into_iter().map(i64::from).collect());
    assert!(of("broken").any(|(slot, pid)| slot == "0" && pid.is_none()));
}
