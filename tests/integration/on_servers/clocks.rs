//! Clocks that differ, and that are set: whose heart beats is known by the beats, and what is due by the
//! server's clock alone.

use crate::harness::{
    AHEAD, BEHIND, Daemon, Database, Event, Launch, Pool, Scene, Workspace, trials_on,
};

trials_on![
    a_server_whose_clock_is_set_takes_nothing_from_anybody,
    hearts_that_beat_seldom_outlive_a_clock_that_is_set,
    a_daemon_whose_clock_is_wrong_takes_nothing_from_anybody,
];

const LATE: &str = "settled too late: the claim was taken back, so the message may run twice";

/// Waits until that many owners have beaten for longer than one who is silent would be waited for: their
/// hearts beat four times in a lease.
fn beat_on(scene: &Scene, owners: u32) {
    let database = scene.site.database();
    let beaten = database.ask("SELECT max(heartbeat) FROM owners");
    let beats = format!("SELECT count(*) FROM owners WHERE heartbeat > {beaten} + 16");
    scene.daemon.eventually("the owners to beat on", || {
        database.ask(&beats) == owners.to_string()
    });
}

const HELD: [&str; 2] = ["mode:wait:go 1", "mode:wait:go 2"];

/// On a server whose clock can be set two daemons with one of these in hand each. Their workers are of version
/// 1, so that none is told to give up what it has meanwhile.
fn two_at_work(lease: &str) -> (Scene, Pool, Daemon) {
    let database = Database::alone();
    database.stop();
    database.set_clock("+0");
    database.start_again();
    let site = Workspace::on("", &format!("lease = \"{lease}\""), Some(database));
    let pool = Pool::new(&[]).set("workers", "1").set("prefetch", "1");
    let scene = Scene::at(site, std::slice::from_ref(&pool));
    let other = scene.site.start(std::slice::from_ref(&pool));
    scene.send(&HELD);
    scene.begun(&HELD);
    (scene, pool, other)
}

/// Sets it by much.
fn set_clock(scene: &Scene, offset: &str) {
    let database = scene.site.database();
    let before = database.now_ms();
    database.set_clock(offset);
    scene.daemon.eventually("the clock to be set", || {
        (database.now_ms() - before).abs() > 1_800_000
    });
}

fn begun_again(scene: &Scene, body: &str) {
    scene.daemon.eventually("it to be begun again", || {
        scene.record().of(Event::Began, body).len() == 2
    });
}

fn everything_was_done_once(scene: &Scene, daemons: &[&Daemon], bodies: &[&str]) {
    scene
        .daemon
        .eventually("everything to be done", || scene.table.count("work") == 0);
    scene.record().assert_done_once(bodies);
    assert_eq!(scene.table.dead(), []);
    for daemon in daemons {
        assert_eq!(daemon.times_logged(LATE), 0);
    }
}

fn a_server_whose_clock_is_set_takes_nothing_from_anybody() {
    let (scene, pool, other) = two_at_work("1s");
    for offset in ["+3600", "-3600"] {
        set_clock(&scene, offset);
        beat_on(&scene, 2);
    }
    scene.site.touch("go");
    everything_was_done_once(&scene, &[&scene.daemon, &other], &HELD);
    // Who dies is missed whatever the clock.
    let held = ["mode:wait:gone 3", "mode:wait:gone 4"];
    scene.send(&held);
    scene.begun(&held);
    other.crash();
    let again = scene.site.start(&[pool]);
    scene
        .daemon
        .eventually("the dead one's to be begun again", || {
            scene.record().all(Event::Began).len() == 5
        });
    scene.site.touch("gone");
    everything_was_done_once(&scene, &[&scene.daemon, &again], &held);
    again.stop();
}

/// By the clock each is silent for longer than its lease, until its next heartbeat.
fn hearts_that_beat_seldom_outlive_a_clock_that_is_set() {
    let (scene, _, other) = two_at_work("20s");
    set_clock(&scene, "+3600");
    let database = scene.site.database();
    let all_beat = "SELECT count(*) FROM owners WHERE heartbeat > ";
    let beaten = database.ask("SELECT max(heartbeat) FROM owners");
    scene.daemon.eventually("both to beat on", || {
        database.ask(&format!("{all_beat}{beaten} + 1")) == "2"
    });
    scene.site.touch("go");
    everything_was_done_once(&scene, &[&scene.daemon, &other], &HELD);
    other.stop();
    scene.daemon.stop();
}

fn a_daemon_whose_clock_is_wrong_takes_nothing_from_anybody() {
    let site = Workspace::on("", "lease = \"1s\"", Some(Database::shared()));
    let retry = r#"{ attempts = 2, initial = "10ms", max = "20ms", jitter = 0.0 }"#;
    let pool = Pool::new(&["--v2=1"]).set("workers", "1");
    let pool = pool.set("prefetch", "1").set("retry", retry);
    let scene = Scene::at(site, std::slice::from_ref(&pool));
    let first = ["mode:wait:go first"];
    scene.send(&first);
    scene.begun(&first);
    let wrong = |through| {
        let launch = Launch {
            through,
            ..Launch::default()
        };
        scene.site.launch(std::slice::from_ref(&pool), launch)
    };
    let ahead = wrong(AHEAD);
    // A day later by the clock of whoever has it now, it is tried again at once all the same.
    let second = ["mode:until-attempt:2:503,wait:go second"];
    scene.send(&second);
    begun_again(&scene, second[0]);
    let behind = wrong(BEHIND);
    let third = ["mode:until-attempt:2:503,wait:go third"];
    scene.send(&third);
    begun_again(&scene, third[0]);
    beat_on(&scene, 3);
    scene.site.touch("go");
    let all = [first[0], second[0], third[0]];
    everything_was_done_once(&scene, &[&scene.daemon, &ahead, &behind], &all);
    ahead.stop();
    behind.stop();
}
