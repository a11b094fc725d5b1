//! Messages that an operator cancels, and what workers and pools are asked to say.

use super::{api, command, pool, scene};
use crate::harness::{Event, NewMessage, Pool, trials};

trials![
    a_message_that_runs_is_given_up_and_does_not_run_again,
    what_is_done_all_the_same_is_done,
    a_worker_that_does_not_give_up_is_killed_and_the_others_go_on,
    a_message_that_waits_is_cancelled_by_any_of_its_names,
    a_message_that_waits_in_the_daemon_is_found_wherever_it_is,
    what_a_worker_has_printed_last_is_shown,
    the_level_of_the_log_is_changed_for_all_and_for_one_pool,
];

fn a_message_that_runs_is_given_up_and_does_not_run_again() {
    let scene = scene(Pool::new(&["--v2=2"]).attempts(20));
    let body = "mode:until-cancelled,answer:500";
    let message = NewMessage::new(body).correlation_id("order 7");
    scene.table.insert(&[message]);
    scene.begun(&[body]);
    let shown = command(&scene, &["status", "--workers"]).good();
    assert!(shown.contains("order 7"), "{shown}");
    let done = command(&scene, &["cancel", "work", "order 7"]).good();
    assert_eq!(
        done,
        "pool `work`: 1 message(s) in hand and 0 waiting are cancelled\n"
    );
    let dead = scene.one_dead();
    assert_eq!((dead.reason.as_str(), dead.attempts), ("cancelled", 1));
    let told = "cancelled on request; the worker answered 500";
    assert!(dead.error.starts_with(told), "{}", dead.error);
    assert_eq!(scene.record().texts(Event::Told), ["__cancel__ 1"]);
    scene.send(&["and on"]);
    scene.settled();
    let record = scene.record();
    let pids: Vec<i32> = record.all(Event::Began).iter().map(|one| one.pid).collect();
    assert_eq!(pids.len(), 2, "it did not run again");
    assert_eq!(pids[0], pids[1], "the worker is kept");
    scene.finish();
}

fn what_is_done_all_the_same_is_done() {
    let scene = scene(Pool::new(&["--v2=2"]));
    let body = "mode:until-cancelled";
    scene
        .table
        .insert(&[NewMessage::new(body).message_id("m-1")]);
    scene.begun(&[body]);
    command(&scene, &["cancel", "work", "m-1"]).good();
    scene.all_done();
    scene.record().assert_done_once(&[body]);
    scene.finish();
}

/// A version 1 worker can't be told of one message: it has `timeout_grace`, like after a timeout.
fn a_worker_that_does_not_give_up_is_killed_and_the_others_go_on() {
    let pool = Pool::new(&[])
        .attempts(1)
        .set("pipeline", "4")
        .text("timeout_grace", "100ms");
    let scene = scene(pool);
    let hangs = NewMessage::new("mode:complain:stuck,hang").correlation_id("hangs");
    let behind: Vec<String> = (0..3).map(|n| format!("behind {n}")).collect();
    let others = behind.iter().map(|body| NewMessage::new(body));
    let all: Vec<NewMessage> = [hangs].into_iter().chain(others).collect();
    scene.table.insert(&all);
    scene.begun(&["mode:complain:stuck,hang"]);
    command(&scene, &["cancel", "work", "hangs"]).good();
    let dead = scene.one_dead();
    assert_eq!((dead.reason.as_str(), dead.crashes), ("cancelled", 0));
    assert!(dead.error.contains("was killed"), "{}", dead.error);
    assert_eq!(dead.stderr, ["stuck"]);
    scene.settled();
    scene.record().assert_done_once(&behind);
    let ends = &pool_details(&scene)["worker_ends"];
    assert_eq!((&ends["asked"], &ends["killed"]), (&1.into(), &0.into()));
    scene.finish();
}

fn pool_details(scene: &crate::harness::Scene) -> serde_json::Value {
    pool(&api(&scene.daemon))["details"].clone()
}

fn a_message_that_waits_is_cancelled_by_any_of_its_names() {
    let scene = scene(Pool::new(&[]));
    command(&scene, &["pause", "work"]).good();
    let waiting = [
        NewMessage::new("a").correlation_id("same"),
        NewMessage::new("b").correlation_id("same"),
        NewMessage::new("c").message_id("one"),
        NewMessage::new("d"),
        NewMessage::new("e").correlation_id("same").to("elsewhere"),
        NewMessage::new("f"),
    ];
    scene.table.insert(&waiting);
    for (id, count) in [("same", 2), ("one", 1), ("work:4", 1)] {
        let done = command(&scene, &["cancel", "work", id]).good();
        let told = format!("0 message(s) in hand and {count} waiting are cancelled");
        assert!(done.contains(&told), "{done}");
    }
    for id in ["same", "work:5", "nobody"] {
        let none = command(&scene, &["cancel", "work", id]).bad(1);
        assert!(
            none.contains(&format!("has no message `{id}` in hand")),
            "{none}"
        );
    }
    let none = command(&scene, &["cancel", "play", "same"]).bad(2);
    assert!(none.contains("there is no pool `play`"), "{none}");
    let dead = scene.table.dead();
    assert!(dead.iter().all(|dead| dead.reason == "cancelled"));
    assert_eq!(dead.len(), 4);
    assert_eq!(scene.table.count("elsewhere"), 1);
    command(&scene, &["resume", "work"]).good();
    scene
        .daemon
        .eventually("the last", || scene.table.count("work") == 0);
    scene.record().assert_done_once(&["f"]);
    // Nothing is lost: a dead letter can be sent back.
    command(&scene, &["dead", "retry", "--all"]).good();
    scene
        .daemon
        .eventually("they are done", || scene.table.count("work") == 0);
    scene.record().assert_done_once(&["a", "b", "c", "d", "f"]);
    scene.finish();
}

/// Fetched ahead they are behind others in a pipe, at a worker's door, or on their way to the pool.
fn a_message_that_waits_in_the_daemon_is_found_wherever_it_is() {
    let pool = Pool::new(&[])
        .set("workers", "2")
        .set("pipeline", "2")
        .set("prefetch", "8");
    let scene = scene(pool);
    scene.daemon.has_workers(2);
    let slow = ["mode:wait:go a", "mode:wait:go b"];
    scene.send(&slow);
    scene.begun(&slow);
    let names: Vec<String> = (0..12).map(|n| format!("order {n}")).collect();
    let waiting = names
        .iter()
        .map(|name| NewMessage::new(name).correlation_id(name));
    scene.table.insert(&waiting.collect::<Vec<_>>());
    let all_claimed = || scene.table.messages("work").iter().all(|one| one.claimed);
    scene.daemon.eventually("all are taken in", all_claimed);
    for name in &names {
        let done = command(&scene, &["cancel", "work", name]).good();
        assert!(done.contains("1 message(s) in hand"), "{name}: {done}");
    }
    scene.site.touch("go");
    scene.settled();
    // One that was in a pipe already may have been faster than its turn to be given up.
    let dead = scene.table.dead();
    let record = scene.record();
    let done = names
        .iter()
        .filter(|name| !record.of(Event::Done, name).is_empty());
    assert_eq!(dead.len() + done.count(), names.len());
    assert!(dead.len() >= 10, "{dead:?}");
    record.assert_done_once(&slow);
    scene.finish();
}

fn what_a_worker_has_printed_last_is_shown() {
    let scene = scene(Pool::new(&[]));
    let body = "mode:print:one,complain:two,print:three,wait:go";
    scene.send(&[body]);
    scene.begun(&[body]);
    let shown = "stdout: one\nstdout: three\nstderr: two\n";
    scene.daemon.eventually("its lines", || {
        command(&scene, &["output", "work", "0"]).good() == shown
    });
    let lines = command(&scene, &["output", "work", "0", "--output", "json"]).good();
    let lines: serde_json::Value = serde_json::from_str(&lines).unwrap();
    assert_eq!(lines["stderr"], serde_json::json!(["two"]));
    let none = command(&scene, &["output", "work", "3"]).bad(1);
    assert!(none.contains("no running worker in slot 3"), "{none}");
    scene.site.touch("go");
    scene.all_done();
    scene.finish();
}

fn the_level_of_the_log_is_changed_for_all_and_for_one_pool() {
    let scene = scene(Pool::new(&["--v2=1"]));
    let shown = |args: &[&str]| command(&scene, &[&["log-level"], args].concat()).good();
    let before = shown(&[]);
    assert_eq!(
        shown(&["debug", "--pool", "work"]),
        format!("{before}work: debug\n")
    );
    scene.send(&["mode:log:debug:heard"]);
    scene
        .daemon
        .logs("heard", |record| record["level"] == "DEBUG");
    assert_eq!(shown(&["configured", "--pool", "work"]), before);
    assert_eq!(shown(&["warn"]), "warn\n");
    assert_eq!(shown(&["configured"]), before);
    for (wrong, told) in [
        (&["loud", "--pool", "work"][..], "must be off, error, warn"),
        (&["debug", "--pool", "play"], "there is no pool `play`"),
        (&["a=b=c"], "must be a level or a filter"),
        // It would keep the records of a module of that name, and no others.
        (&["debgu"], "must be a level or a filter"),
    ] {
        let refused = command(&scene, &[&["log-level"], wrong].concat()).bad(2);
        assert!(refused.contains(told), "{refused}");
    }
    assert_eq!(shown(&[]), before);
    scene.finish();
}
