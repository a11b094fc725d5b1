//! A daemon dies, the server dies, the network fails between them: nothing is lost, what is done twice
//! is counted, and it goes on by itself.

use std::time::Duration;

use tokio::time::Instant;

use crate::harness::{
    Database, Event, Flow, NewMessage, Pool, Proxy, Scene, Workspace, look, trials_on,
};

trials_on![
    a_killed_daemons_messages_are_with_another_within_five_seconds,
    a_server_that_is_killed_costs_nobody_his_messages,
    a_server_that_stands_still_is_waited_for,
    a_daemon_that_is_cut_off_loses_its_messages_and_settles_none_of_them,
    a_connection_that_is_cut_at_any_moment_loses_nothing,
    a_server_that_is_away_at_the_start_is_waited_for,
    a_row_that_cannot_be_taken_back_waits_alone,
    a_daemon_that_is_cut_off_for_half_a_lease_cancels_its_workers,
    a_failover_to_a_server_that_followed_loses_nothing,
    a_host_that_is_silent_is_left_for_the_next,
];

const LATE: &str = "settled too late: the claim was taken back, so the message may run twice";

fn bodies(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{what} {n}")).collect()
}

/// A scene on a server of its own.
fn alone(source: &str, pool: &Pool) -> Scene {
    let site = Workspace::on("", source, Some(Database::alone()));
    Scene::at(site, std::slice::from_ref(pool))
}

fn is_well(scene: &Scene) {
    scene.daemon.eventually("the table to be usable again", || {
        let over = scene
            .daemon
            .times_logged("resolved: the table can't be used; intake pauses");
        let begun = scene
            .daemon
            .times_logged("the table can't be used; intake pauses");
        over == begun
    });
}

fn a_killed_daemons_messages_are_with_another_within_five_seconds() {
    let site = Workspace::on("", "lease = \"1h\"", Some(Database::shared()));
    let pool = Pool::new(&["--v2=1"]).set("workers", "2");
    let scene = Scene::at(site, std::slice::from_ref(&pool));
    let held = bodies("mode:wait:go", 2);
    scene.send(&held);
    scene.begun(&held);
    let other = scene.site.start(&[pool]);
    other.has_workers(2);
    scene.daemon.crash();
    let died = Instant::now();
    other.eventually("the other to begin what was in hand", || {
        let record = scene.record();
        held.iter()
            .all(|body| record.of(Event::Began, body).len() == 2)
    });
    let took = died.elapsed();
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    scene.site.touch("go");
    other.eventually("everything to be done", || scene.table.count("work") == 0);
    assert_eq!(scene.table.dead(), []);
    other.stop();
    assert_eq!(
        scene.site.database().ask("SELECT count(*) FROM owners"),
        "0"
    );
}

/// Every lock is free and every heartbeat old when it is back: each owner has time to be back, too.
fn a_server_that_is_killed_costs_nobody_his_messages() {
    // Of version 1, so that none is told to give up what it has meanwhile.
    let pool = Pool::new(&[]).set("workers", "2").set("prefetch", "1");
    let scene = alone("lease = \"1s\"", &pool);
    let other = scene.site.start(&[pool]);
    let held = bodies("mode:wait:go", 4);
    scene.send(&held);
    scene.begun(&held);
    let server = scene.site.database();
    let beaten = server.ask("SELECT max(heartbeat) FROM owners");
    server.kill();
    server.start_again();
    // Four times a second: for longer than anybody is waited for.
    let beats = format!("SELECT count(*) FROM owners WHERE heartbeat > {beaten} + 16");
    scene
        .daemon
        .eventually("both to beat on", || server.ask(&beats) == "2");
    scene.site.touch("go");
    let table = server.table();
    scene
        .daemon
        .eventually("everything to be done", || table.count("work") == 0);
    assert_eq!(table.dead(), []);
    scene.record().assert_done_once(&held);
    assert_eq!(
        scene.daemon.times_logged(LATE) + other.times_logged(LATE),
        0
    );
    other.stop();
    scene.daemon.stop();
}

fn a_server_that_stands_still_is_waited_for() {
    let pool = Pool::new(&["--mode=sleep:1"])
        .set("workers", "2")
        .set("prefetch", "8");
    let scene = alone("", &pool);
    let all = bodies("message", 300);
    scene.send(&all);
    scene.daemon.eventually("some to be done", || {
        scene.record().all(Event::Done).len() > 20
    });
    let server = scene.site.database();
    server.freeze();
    scene
        .daemon
        .logged("the table can't be used; intake pauses");
    server.thaw();
    is_well(&scene);
    scene.all_done();
    scene.record().assert_none_lost(&all);
    scene.finish();
}

fn a_daemon_that_is_cut_off_loses_its_messages_and_settles_none_of_them() {
    let database = Database::shared();
    let proxy = Proxy::to(database.port());
    let way = database.url_at(proxy.port());
    let pool = Pool::new(&["--v2=1"])
        .set("workers", "1")
        .set("prefetch", "1");
    let site = Workspace::on("", "lease = \"1s\"", Some(database));
    let cut_off = site.start_elsewhere(&way, std::slice::from_ref(&pool));
    let table = site.table();
    table.insert(&[NewMessage::new("mode:wait:go,reply a").reply_to("answers")]);
    cut_off.eventually("it to be begun", || {
        site.record().all(Event::Began).len() == 1
    });
    let stalled = Flow {
        up_is_stalled: true,
        down_is_stalled: true,
        ..Flow::default()
    };
    proxy.flow(stalled);
    let other = site.start(std::slice::from_ref(&pool));
    other.eventually("the other to take it over", || {
        site.record().all(Event::Began).len() == 2
    });
    site.touch("go");
    other.eventually("it to be done", || table.count("work") == 0);
    proxy.cut();
    proxy.flow(Flow::default());
    cut_off.eventually("the late settlement to be told", || {
        cut_off.times_logged(LATE) == 1
    });
    assert_eq!(table.count("answers"), 1, "one answer");
    assert_eq!(table.dead(), []);
    other.stop();
    cut_off.stop();
}

fn a_connection_that_is_cut_at_any_moment_loses_nothing() {
    let database = Database::shared();
    let proxy = Proxy::to(database.port());
    let way = database.url_at(proxy.port());
    let pool = Pool::new(&["--mode=sleep:1"])
        .set("workers", "2")
        .set("prefetch", "16");
    let site = Workspace::on("", "", Some(database));
    let daemon = site.start_elsewhere(&way, std::slice::from_ref(&pool));
    let table = site.table();
    let all = bodies("message", 3_000);
    let message = |body: &String| NewMessage::new(body);
    table.insert(&all.iter().map(message).collect::<Vec<_>>());
    let cuts = 12;
    for cut in 1..=cuts {
        let enough = all.len() * cut / (cuts + 1);
        daemon.eventually("a part of it to be done", || {
            site.record().all(Event::Done).len() >= enough
        });
        proxy.cut();
    }
    daemon.eventually("everything to be done", || table.count("work") == 0);
    assert_eq!(table.dead(), []);
    // Its rows were ours all the time: what was begun was settled, and nothing came twice.
    let twice = site.record().assert_none_lost(&all);
    assert_eq!(twice, 0);
    daemon.stop();
}

fn a_server_that_is_away_at_the_start_is_waited_for() {
    let database = Database::alone();
    database.stop();
    let site = Workspace::on("", "", Some(database));
    let daemon = site.start(&[Pool::new(&[])]);
    daemon.logged("the table can't be used; intake pauses");
    site.database().start_again();
    let table = look(|| {
        let made = "SELECT count(*) FROM information_schema.tables
                    WHERE table_name = 'consumer_messages'";
        (site.database().ask(made) == "1").then(|| site.table())
    });
    let table = table.expect("the tables are made");
    table.insert(&[NewMessage::new("a")]);
    daemon.eventually("it to be done", || table.count("work") == 0);
    daemon.stop();
}

/// Someone's trigger wills it.
fn a_row_that_cannot_be_taken_back_waits_alone() {
    let pool = Pool::new(&["--v2=1"]).set("workers", "5");
    let site = Workspace::on("", "lease = \"1h\"", Some(Database::shared()));
    let scene = Scene::at(site, std::slice::from_ref(&pool));
    let held = bodies("mode:wait:go", 5);
    scene.send(&held);
    scene.begun(&held);
    let server = scene.site.database();
    server.refuse_changes(&format!("OLD.body = '{}' AND NEW.owner IS NULL", held[2]));
    scene.daemon.crash();
    scene.site.touch("go");
    let other = scene.site.start(std::slice::from_ref(&pool));
    other.eventually("all but the one to be done", || {
        scene.table.count("work") == 1
    });
    let refused = other.logged("a message of a dead owner can't be taken back; retried later");
    let problem = refused["problem"].as_str().unwrap();
    assert!(problem.contains("not this one"), "{refused}");
    assert_eq!(refused["row"].as_i64(), scene.table.oldest("work"));
    // Who counts daemons counts the dead one no more.
    assert_eq!(server.ask("SELECT count(*) FROM owners"), "1");
    other.stop();
    server.accept_changes();
    let next = scene.site.start(&[pool]);
    next.eventually("the last to be done", || scene.table.count("work") == 0);
    next.stop();
}

/// Nobody else is there to take anything over, and the connections are open: it goes by the heartbeat.
fn a_daemon_that_is_cut_off_for_half_a_lease_cancels_its_workers() {
    let database = Database::shared();
    let proxy = Proxy::to(database.port());
    let way = database.url_at(proxy.port());
    let pool = Pool::new(&["--v2=1"])
        .set("workers", "1")
        .set("prefetch", "2");
    let site = Workspace::on("", "lease = \"2s\"", Some(database));
    let daemon = site.start_elsewhere(&way, std::slice::from_ref(&pool));
    let table = site.table();
    let (slow, behind) = ("mode:until-cancelled,answer:429 slow", "behind");
    table.insert(&[slow, behind].map(NewMessage::new));
    daemon.eventually("the first to be begun", || {
        !site.record().of(Event::Began, slow).is_empty()
    });
    assert_eq!(site.record().all(Event::Told).len(), 0);
    proxy.flow(Flow {
        up_is_stalled: true,
        down_is_stalled: true,
        ..Flow::default()
    });
    let cut_off = Instant::now();
    daemon.eventually("the worker to be told", || {
        !site.record().all(Event::Told).is_empty()
    });
    let took = cut_off.elapsed();
    assert!(
        took < Duration::from_secs(10),
        "before it is given up: {took:?}"
    );
    let record = site.record();
    let told: Vec<&str> = record.texts(Event::Told);
    assert!(told[0].starts_with("__cancel__ "), "{told:?}");
    assert_eq!(record.of(Event::Began, behind).len(), 0);
    proxy.flow(Flow::default());
    daemon.eventually("it to be begun again", || {
        site.record().of(Event::Began, slow).len() > 1
    });
    daemon.crash();
    assert_eq!(table.dead(), []);
}

/// The one that may only be read is named first: it is left for the other, and taken once it is promoted.
fn a_failover_to_a_server_that_followed_loses_nothing() {
    let database = Database::alone();
    let standby = database.standby();
    let way = standby.url_before(&database);
    let pool = Pool::new(&["--mode=sleep:1"])
        .set("workers", "2")
        .set("prefetch", "8");
    let site = Workspace::on("", "", Some(database));
    let daemon = site.start_elsewhere(&way, std::slice::from_ref(&pool));
    let all = bodies("message", 600);
    let message = |body: &String| NewMessage::new(body);
    site.table()
        .insert(&all.iter().map(message).collect::<Vec<_>>());
    daemon.eventually("a part of it to be done", || {
        site.record().all(Event::Done).len() > 100
    });
    site.database().kill_followed(&standby);
    standby.promote();
    let left =
        "SELECT (SELECT count(*) FROM consumer_messages), (SELECT count(*) FROM poisoned_messages)";
    daemon.eventually("everything to be done", || standby.ask(left) == "0|0");
    site.record().assert_none_lost(&all);
    daemon.stop();
}

/// It takes connections, and says nothing.
fn a_host_that_is_silent_is_left_for_the_next() {
    let database = Database::shared();
    let silent = Proxy::to(database.port());
    silent.flow(Flow {
        up_is_stalled: true,
        down_is_stalled: true,
        ..Flow::default()
    });
    let way = database.url_behind(silent.port());
    let site = Workspace::on("", "", Some(database));
    let daemon = site.start_elsewhere(&way, &[Pool::new(&[])]);
    // Other tests have tables of that name on the same server.
    let schema = match site.database() {
        Database::Postgres(_) => "current_schema()",
        Database::Mariadb(_) => "DATABASE()",
    };
    let made = format!(
        "SELECT count(*) FROM information_schema.tables
         WHERE table_schema = {schema} AND table_name = 'consumer_messages'"
    );
    let table = daemon.eventually_some("the tables to be made", || {
        (site.database().ask(&made) == "1").then(|| site.table())
    });
    table.insert(&[NewMessage::new("a")]);
    daemon.eventually("it to be done", || table.count("work") == 0);
    site.record().assert_done_once(&["a"]);
    daemon.stop();
}
