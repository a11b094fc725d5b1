//! The server goes away in ways of its own: nothing is lost, and it goes on by itself.

use crate::harness::mariadb::MariaDatabase;
use crate::harness::{Event, NewMessage, Pool, Scene, Workspace, trials};

trials![
    a_server_that_may_only_be_read_is_waited_for,
    connections_that_an_administrator_ends_are_made_anew,
];

fn bodies(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("message {n}")).collect()
}

fn a_server_that_may_only_be_read_is_waited_for() {
    let site = Workspace::on("", "", Some(MariaDatabase::alone()));
    let scene = Scene::at(site, &[Pool::new(&[]).set("workers", "2")]);
    let held = ["mode:wait:go 1", "mode:wait:go 2"];
    scene.send(&held);
    scene.begun(&held);
    let server = scene.site.mariadb();
    server.read_only(true);
    scene.site.touch("go");
    let paused = scene
        .daemon
        .logged("the table can't be used; intake pauses");
    // Of a statement, or of the next connection.
    let why = paused.to_string();
    assert!(why.contains("read-only"), "{why}");
    assert_eq!(scene.table.count("work"), 2, "it can't be settled");
    server.read_only(false);
    scene.send(&["mode:wait:go 3"]);
    scene.all_done();
    scene
        .record()
        .assert_done_once(&["mode:wait:go 1", "mode:wait:go 2", "mode:wait:go 3"]);
    scene.finish();
}

/// Locks by which a daemon is known to live end with them.
fn connections_that_an_administrator_ends_are_made_anew() {
    let site = Workspace::on("", "", Some(MariaDatabase::shared()));
    let pool = Pool::new(&["--mode=sleep:1"])
        .set("workers", "2")
        .set("prefetch", "16");
    let scene = Scene::at(site, std::slice::from_ref(&pool));
    let other = scene.site.start(&[pool]);
    let all = bodies(1_500);
    let messages: Vec<NewMessage> = all.iter().map(|body| NewMessage::new(body)).collect();
    scene.table.insert(&messages);
    let server = scene.site.mariadb();
    let sessions = "SELECT CONCAT('KILL ', id, ';') FROM information_schema.processlist
                    WHERE db = DATABASE() AND id NOT IN (CONNECTION_ID(), {})";
    let ours = scene.table.ask("SELECT CONNECTION_ID()");
    let times = 5;
    for time in 1..=times {
        let enough = all.len() * time / (times + 1);
        scene.daemon.eventually("a part of it to be done", || {
            scene.record().all(Event::Done).len() >= enough
        });
        let kills = server.ask(&sessions.replace("{}", &ours));
        // One may have ended by itself since.
        drop(server.try_sql("", &kills));
    }
    scene.all_done();
    let twice = scene.record().assert_none_lost(&all);
    assert_eq!(twice, 0, "its rows were ours all the time");
    other.stop();
    scene.finish();
}
