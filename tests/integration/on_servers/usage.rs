//! What a producer and an operator do with it.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::harness::{
    DEADLINE, Daemon, Database, Event, NewMessage, Pool, Scene, Workspace, trials_on,
};

trials_on![
    what_is_rolled_back_was_never_sent,
    commands_send_and_move_dead_letters,
    a_pause_of_all_daemons_is_followed_by_each,
    bytes_that_are_no_text_stay_as_they_are,
    rows_that_cannot_be_claimed_hold_nobody_up,
    a_row_that_cannot_be_claimed_holds_nobody_up_after_trouble_either,
    a_suspect_that_another_program_has_locked_is_looked_for_now_and_then,
    one_that_cannot_be_claimed_among_many_holds_nobody_up,
    a_row_that_another_program_changes_is_not_waited_for,
    rows_that_another_program_has_locked_wait_alone_to_be_settled,
    transactions_that_wait_for_a_program_hold_up_no_other_queue,
];

fn what_is_rolled_back_was_never_sent() {
    let scene = Scene::of(Pool::new(&[]));
    let server = scene.site.database();
    server.ask("CREATE TABLE orders (id int)");
    for (body, end) in [("never", "ROLLBACK"), ("once", "COMMIT")] {
        server.ask(&format!(
            "BEGIN; INSERT INTO orders VALUES (1);
             INSERT INTO consumer_messages (queue, body) VALUES ('work', '{body}'); {end}"
        ));
    }
    scene.all_done();
    scene.record().assert_done_once(&["once"]);
    assert_eq!(scene.record().all(Event::Began).len(), 1);
    scene.finish();
}

fn commands_send_and_move_dead_letters() {
    let scene = Scene::of(Pool::new(&[]).attempts(1));
    scene.site.configure_commands(&[Pool::new(&[])]);
    let send = |body: &str| {
        scene.site.ganger(&["send", "work", body]).good();
    };
    send("mode:answer:500 a");
    let dead = scene.one_dead();
    assert_eq!((dead.reason.as_str(), dead.attempts), ("failed", 1));
    let listed = scene.site.ganger(&["dead", "list"]).good();
    assert!(listed.contains("failed"), "{listed}");
    scene.site.ganger(&["dead", "retry", "--all"]).good();
    let again = scene.daemon.eventually_some("it to be dead again", || {
        let dead = scene.table.dead();
        dead.into_iter().next()
    });
    assert_eq!(again.attempts, 1);
    scene.site.ganger(&["dead", "drop", "--all"]).good();
    assert_eq!(scene.table.dead(), []);
    scene.finish();
}

fn a_pause_of_all_daemons_is_followed_by_each() {
    let scene = Scene::of(Pool::new(&[]));
    let second = scene.site.start(&[Pool::new(&[])]);
    let ask = |daemon: &Daemon, args: &[&str]| {
        let config = daemon.config().to_str().unwrap();
        scene.site.ganger(&[args, &["--config", config]].concat())
    };
    let is = |daemon: &Daemon, state: &str| {
        daemon.eventually(state, || {
            let status = ask(daemon, &["status", "-o", "json"]).json();
            status["pools"][0]["state"] == state
        });
    };
    is(&second, "running");
    let told = ask(&scene.daemon, &["pause", "work", "--all"]).good();
    assert!(told.contains("on 2 of 2 daemon(s)"), "{told}");
    is(&scene.daemon, "paused");
    is(&second, "paused");
    scene.send(&["first"]);
    scene.daemon.stop();
    let third = scene.site.start(&[Pool::new(&[])]);
    is(&third, "paused");
    assert_eq!(scene.table.count("work"), 1);
    ask(&third, &["resume", "work", "--all"]).good();
    third.eventually("it to be done", || scene.table.count("work") == 0);
    is(&second, "running");
    scene.record().assert_done_once(&["first"]);
    second.stop();
    third.stop();
}

fn bytes_that_are_no_text_stay_as_they_are() {
    let scene = Scene::of(Pool::new(&[]).attempts(1));
    scene
        .table
        .insert(&[NewMessage::binary(b"mode:answer:500 \xff\0")]);
    let dead = scene.one_dead();
    assert_eq!(dead.body, b"mode:answer:500 \xff\0".to_vec().into());
    scene.finish();
}

fn rows_that_cannot_be_claimed_hold_nobody_up() {
    let scene = Scene::of(Pool::new(&[]));
    let server = scene.site.database();
    server.refuse_changes("OLD.body = 'bad'");
    server.ask("INSERT INTO consumer_messages (queue, body, priority) VALUES ('work', 'bad', 9)");
    scene.send(&["good", "better"]);
    scene.daemon.eventually("all but the one to be done", || {
        scene.table.count("work") == 1
    });
    scene.record().assert_done_once(&["good", "better"]);
    scene.daemon.logged(
        "this message can't be claimed or dead-lettered: rejected by the database; skipped for 5 minutes",
    );
    scene.finish();
}

/// While there is trouble each claim is a probe as well.
fn a_row_that_cannot_be_claimed_holds_nobody_up_after_trouble_either() {
    let site = Workspace::on("", "", Some(Database::alone()));
    let pool = Pool::new(&[]);
    site.configure_commands(std::slice::from_ref(&pool));
    for body in ["bad", "good"] {
        site.ganger(&["send", "work", body]).good();
    }
    site.database().refuse_changes("OLD.body = 'bad'");
    site.database().stop();
    let daemon = site.start(&[pool]);
    daemon.logged("the table can't be used; intake pauses");
    site.database().start_again();
    let table = site.table();
    daemon.eventually("the other to be done", || table.count("work") == 1);
    site.record().assert_done_once(&["good"]);
    daemon.logged("resolved: the table can't be used; intake pauses");
    daemon.stop();
}

fn a_suspect_that_another_program_has_locked_is_looked_for_now_and_then() {
    let site = Workspace::on("", "lease = \"1s\"", Some(Database::alone()));
    let pool = Pool::new(&[]);
    site.configure_commands(std::slice::from_ref(&pool));
    site.ganger(&["send", "work", "suspect"]).good();
    let (program, server) = (site.table(), site.database());
    server.ask("UPDATE consumer_messages SET lapses = 2");
    program
        .run("BEGIN; UPDATE consumer_messages SET priority = 9")
        .unwrap();
    let daemon = site.start(&[pool]);
    let beaten = || {
        let beaten = server.ask("SELECT COALESCE(max(heartbeat), 0) FROM owners");
        beaten.parse::<i64>().unwrap()
    };
    daemon.eventually("the heart to beat", || beaten() > 4);
    let (beats, begun) = (beaten(), server.transactions());
    // Four times a second, and each is a transaction, too.
    daemon.eventually("three seconds to pass", || beaten() > beats + 12);
    let looks = server.transactions() - begun;
    assert!(looks < 60, "{looks} transactions");
    program.run("COMMIT").unwrap();
    daemon.eventually("it to be done", || program.count("work") == 0);
    site.record().assert_done_once(&["suspect"]);
    daemon.stop();
}

/// Behind more of them than are tried one by one: among those that are due, and one that is a suspect, which
/// come after all others.
fn one_that_cannot_be_claimed_among_many_holds_nobody_up() {
    let site = Workspace::new();
    let pool = Pool::new(&["--v2=1"]).set("prefetch", "100");
    site.configure_commands(std::slice::from_ref(&pool));
    site.ganger(&["send", "work", "first"]).good();
    let server = site.database();
    server.refuse_changes("OLD.body = 'bad'");
    let due: Vec<String> = (1..=600)
        .map(|n| format!("('work', 'due', {n}, 0)"))
        .collect();
    let ready = vec!["('work', 'ready', 0, 0)"; 600].join(", ");
    let due = due.join(", ");
    server.ask(&format!(
        "INSERT INTO consumer_messages (queue, body, available_after, lapses)
         VALUES {ready}, {due}, ('work', 'bad', 601, 0), ('work', 'bad', 0, 30)"
    ));
    let daemon = site.start(&[pool]);
    let table = site.table();
    daemon.eventually("all but the two to be done", || table.count("work") == 2);
    assert_eq!(table.dead(), []);
    daemon.stop();
}

/// Its transaction is open all the while.
fn a_row_that_another_program_changes_is_not_waited_for() {
    let site = Workspace::new();
    let pool = Pool::new(&[]);
    site.configure_commands(std::slice::from_ref(&pool));
    site.ganger(&["send", "work", "changed"]).good();
    site.ganger(&["send", "work", "free"]).good();
    let (program, table) = (site.table(), site.table());
    let first = program.oldest("work").unwrap();
    let change = format!("BEGIN; UPDATE consumer_messages SET priority = 9 WHERE id = {first}");
    program.run(&change).unwrap();
    let daemon = site.start(&[pool]);
    daemon.eventually("the other to be done", || table.count("work") == 1);
    site.record().assert_done_once(&["free"]);
    program.run("COMMIT").unwrap();
    daemon.eventually("both to be done", || table.count("work") == 0);
    site.record().assert_done_once(&["free", "changed"]);
    daemon.stop();
}

/// The server keeps a transaction waiting for 5 s, and no second one for the same program.
fn rows_that_another_program_has_locked_wait_alone_to_be_settled() {
    let site = Workspace::new();
    let daemon = site.start(&[Pool::new(&["--v2=1"]).set("workers", "3")]);
    let (program, table) = (site.table(), site.table());
    let held = ["mode:wait:first", "mode:wait:second"];
    table.insert(&held.map(|body| NewMessage::new(body).to("work")));
    daemon.eventually("both to be begun", || {
        site.record().all(Event::Began).len() == 2
    });
    let ids = table.ask("SELECT id FROM consumer_messages ORDER BY id");
    let ids: Vec<&str> = ids.split_whitespace().collect();
    let lock = |id: &str| {
        let lock = format!("UPDATE consumer_messages SET priority = 9 WHERE id = {id}");
        program.run(&lock).unwrap();
    };
    let mut others = Vec::new();
    let mut goes_on = |patience, left| {
        let body = format!("message {}", others.len());
        table.insert(&[NewMessage::new(&body).to("work")]);
        daemon.within(patience, &body, || table.count("work") == left);
        others.push(body);
    };
    program.run("BEGIN").unwrap();
    lock(ids[0]);
    site.touch("first");
    goes_on(DEADLINE, 2);
    let locked = "rows are locked; their settlements wait, other messages are unaffected";
    daemon.logged(locked);
    lock(ids[1]);
    site.touch("second");
    daemon.eventually("the second to be done", || {
        site.record().all(Event::Done).len() == 3
    });
    for _ in 0..3 {
        goes_on(Duration::from_secs(4), 2);
    }
    daemon.signal(Signal::SIGTERM);
    daemon.eventually("the workers to leave", || daemon.processes().is_empty());
    program.run("COMMIT").unwrap();
    assert!(daemon.exit().success());
    daemon.logged(&format!("resolved: {locked}"));
    assert_eq!(
        daemon.times_logged("the table can't be used; intake pauses"),
        0
    );
    assert_eq!(table.count("work"), 0);
    let record = site.record();
    record.assert_done_once(&held);
    record.assert_done_once(&others);
}

/// Sources of one daemon that have much to write take turns, but wait for none that the server keeps waiting.
fn transactions_that_wait_for_a_program_hold_up_no_other_queue() {
    const MANY: usize = 300;
    let stuck = ["stuck-1", "stuck-2", "stuck-3"];
    let site = Workspace::new();
    let many = |queue: &str| {
        let pool = Pool::new(&[]).set("workers", "1").set("prefetch", "300");
        pool.text("name", queue).text("queue", queue)
    };
    let mut pools = stuck.map(many).to_vec();
    pools.push(many("free"));
    let daemon = site.start(&pools);
    let (program, table) = (site.table(), site.table());
    let send = |queue: &str, first: &str| {
        let mut messages = vec![NewMessage::new(first).to(queue)];
        messages.resize_with(MANY, || NewMessage::new("behind").to(queue));
        table.insert(&messages);
    };
    for queue in stuck {
        send(queue, "mode:wait:open");
    }
    let out = "SELECT count(*) FROM consumer_messages WHERE owner IS NOT NULL";
    let all_are_out = || table.ask(out).trim() == (stuck.len() * MANY).to_string();
    daemon.eventually("all to be out", all_are_out);
    program.run("BEGIN").unwrap();
    for queue in stuck {
        let first = program.oldest(queue).unwrap();
        let change = format!("UPDATE consumer_messages SET priority = 9 WHERE id = {first}");
        program.run(&change).unwrap();
    }
    site.touch("open");
    send("free", "first");
    // The server lets the first of them wait for 5 s.
    let done = || table.count("free") == 0;
    daemon.within(Duration::from_secs(4), "the others to be done", done);
    assert!(all_are_out());
    program.run("COMMIT").unwrap();
    daemon.eventually("all to be done", || table.ask(out).trim() == "0");
    daemon.stop();
}
