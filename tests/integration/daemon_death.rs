//! The daemon itself dies or stands still: nothing is lost, no worker is left behind, another
//! daemon takes over, and a message that takes the daemon down is found out.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::{
    Daemon, Entry, Event, NewMessage, Pool, Scene, Waiting, Workspace, field, said, trials,
};

trials![
    killed_in_mid_run_and_started_again,
    killed_while_its_workers_start,
    another_daemon_has_the_dead_ones_messages_at_once,
    a_message_that_takes_the_daemon_down_is_found_and_its_neighbours_are_not_charged,
    a_thousand_suspects_at_the_head_starve_nobody,
    a_suspect_holds_up_only_the_suspects_of_other_pools,
    a_stopped_daemons_messages_are_taken_over_and_its_late_settlements_are_void,
];

fn bodies(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{what} {n}")).collect()
}

fn killed_in_mid_run_and_started_again() {
    let (workers, prefetch) = (4, 8);
    let pool = Pool::new(&["--mode=sleep:1"])
        .set("workers", &workers.to_string())
        .set("prefetch", &prefetch.to_string())
        .set("pipeline", "4");
    let mut scene = Scene::of(pool.clone());
    let bodies = bodies("message", 2_000);
    scene.send(&bodies);
    let deaths = 3;
    for death in 1..=deaths {
        let enough = bodies.len() * death / (deaths + 1);
        scene.daemon.eventually("a part of it to be done", || {
            scene.record().all(Event::Done).len() >= enough
        });
        scene.daemon.crash();
        scene.daemon = scene.site.start(std::slice::from_ref(&pool));
    }
    scene.all_done();
    let twice = scene.record().assert_none_lost(&bodies);
    // What was answered and not settled yet is done again, too: it is among what was fetched.
    let most = deaths * workers * prefetch;
    assert!(twice <= most, "{twice} done twice by {deaths} deaths");
    scene.finish();
}

fn killed_while_its_workers_start() {
    let pool = Pool::new(&["--start=idle"]).set("workers", "4");
    let scene = Scene::of(pool);
    scene.send(&["a"]);
    scene.daemon.eventually("the workers to be started", || {
        scene.daemon.processes().len() == 4
    });
    scene.daemon.crash();
    let left = &scene.table.messages("work")[0];
    assert_eq!((left.attempts, left.claimed), (0, false));
}

/// Poll and lease are too long to explain it: only the wake-up is left.
fn another_daemon_has_the_dead_ones_messages_at_once() {
    let site = Workspace::with_source("poll_interval = \"1m\"\nlease = \"1h\"");
    let pool = Pool::new(&["--v2=1"]).set("workers", "2");
    let scene = Scene::at(site, std::slice::from_ref(&pool));
    let held = bodies("mode:wait:go", 2);
    scene.send(&held);
    scene.begun(&held);
    let waiting = bodies("waiting", 10);
    scene.send(&waiting);
    let other = scene.site.start(&[pool]);
    other.has_workers(2);
    scene.daemon.crash();
    other.eventually("the other to begin what was in hand", || {
        let record = scene.record();
        held.iter()
            .all(|body| record.of(Event::Began, body).len() == 2)
    });
    scene.site.touch("go");
    other.eventually("everything to be done", || scene.table.count("work") == 0);
    assert_eq!(scene.table.dead(), []);
    let record = scene.record();
    record.assert_done_once(&held);
    record.assert_done_once(&waiting);
    let uncharged = |entry: &&Entry| entry.attempt == Some(1);
    assert!(record.all(Event::Began).iter().all(uncharged), "{record:?}");
    other.stop();
}

/// The daemon is killed whenever a worker has begun the one message, until it is given up.
fn a_message_that_takes_the_daemon_down_is_found_and_its_neighbours_are_not_charged() {
    let pool = Pool::new(&["--v2=1"])
        .set("workers", "6")
        .set("crashes_max", "1")
        .set("lapses_max", "5")
        .attempts(2);
    let mut scene = Scene::of(pool.clone());
    let culprit = "mode:hang the culprit";
    let neighbours = bodies("mode:wait:go neighbour", 3);
    scene.send(&[&neighbours[0], culprit, &neighbours[1], &neighbours[2]]);
    scene.begun(&neighbours);
    let mut deaths = 0;
    while brings_the_daemon_down(&scene, culprit, deaths) {
        deaths += 1;
        no_neighbour_is_charged(&scene, culprit);
        if deaths == 2 {
            scene.site.touch("go");
        }
        scene.daemon = scene.site.start(std::slice::from_ref(&pool));
        let fresh = format!("after death {deaths}");
        scene.send(&[&fresh]);
        // Whatever suspects there are, it waits for none of them.
        scene.daemon.eventually("the fresh one to be done", || {
            scene.record().of(Event::Done, &fresh).len() == 1
        });
    }
    let dead = scene.one_dead();
    assert_eq!(dead.body, culprit.to_owned().into());
    assert_eq!((dead.reason.as_str(), dead.crashes), ("crashed", 0));
    assert_eq!(dead.error, "took the daemon down 5 times in a row");
    scene.daemon.logs("message dead-lettered", |record| {
        field(record, "error") == dead.error
    });
    // Neither its crashes nor its attempts were what gave it up.
    assert_eq!((deaths, dead.attempts), (5, 3));
    let record = scene.record();
    assert_eq!(record.of(Event::Began, culprit).len(), deaths);
    assert_eq!(record.assert_none_lost(&neighbours), 0);
    for body in &neighbours {
        let began = record.of(Event::Began, body);
        assert!(
            began.iter().all(|entry| entry.attempt == Some(1)),
            "{began:#?}"
        );
    }
    scene.finish();
}

/// Waits until a worker has begun it once more, and kills the daemon; false once it is dead.
fn brings_the_daemon_down(scene: &Scene, culprit: &str, times: usize) -> bool {
    let is_begun = scene.daemon.eventually_some("the culprit's fate", || {
        let begun = scene.record().of(Event::Began, culprit).len() > times;
        let buried = !scene.table.dead().is_empty();
        (begun || buried).then_some(begun)
    });
    if is_begun {
        scene.daemon.crash();
    }
    is_begun
}

fn no_neighbour_is_charged(scene: &Scene, culprit: &str) {
    let mut rows = scene.table.messages("work");
    rows.retain(|row| row.body != culprit);
    // A claim that is still in the table counts as an attempt until it is taken back.
    let charged = |row: &Waiting| row.crashes > 0 || row.attempts > u32::from(row.claimed);
    assert!(!rows.iter().any(charged), "{rows:#?}");
}

/// All are suspects of what some of them did; one runs at a time, and what is fresh behind them
/// flows on.
fn a_thousand_suspects_at_the_head_starve_nobody() {
    let pool = Pool::new(&["--v2=1"]).set("workers", "3");
    let site = Workspace::new();
    let scene = Scene::at(site, std::slice::from_ref(&pool));
    let suspects = bodies("suspect", 1_000);
    let first = "mode:wait:go the first suspect";
    let all = [first]
        .into_iter()
        .chain(suspects.iter().map(String::as_str));
    scene
        .table
        .insert_suspects("work", 9, &all.collect::<Vec<_>>());
    scene.begun(&["mode:wait:go the first suspect"]);
    let fresh = bodies("fresh", 500);
    scene.send(&fresh);
    scene.daemon.eventually("the fresh ones to be done", || {
        scene.table.count("work") == 1_001
    });
    assert_eq!(scene.record().all(Event::Began).len(), 501);
    scene.site.touch("go");
    scene.all_done();
    let record = scene.record();
    record.assert_done_once(&fresh);
    record.assert_done_once(&suspects);
    scene.finish();
}

/// Two pools of one daemon on two queues: the suspect of one waits for that of the other, and is
/// named; all else in both goes on.
fn a_suspect_holds_up_only_the_suspects_of_other_pools() {
    let pool = |name: &str| {
        let pool = Pool::new(&["--v2=1"]).set("workers", "2");
        pool.text("name", name).text("queue", name)
    };
    let scene = Scene::with(&[pool("slow"), pool("fast")]);
    let suspect = |queue: &str, body: &str| {
        scene.table.insert_suspects(queue, 0, &[body]);
    };
    suspect("slow", "mode:wait:go");
    scene.begun(&["mode:wait:go"]);
    suspect("fast", "a suspect");
    let waits = scene
        .daemon
        .logged("suspect message held until others are settled; other messages unaffected");
    assert_eq!(field(&waits, "pool"), "fast", "{waits}");
    let message = |n: usize| NewMessage::new(&format!("message {n}"));
    for queue in ["slow", "fast"] {
        let messages: Vec<NewMessage> = (0..100).map(|n| message(n).to(queue)).collect();
        scene.table.insert(&messages);
    }
    scene.daemon.eventually("all but the suspects", || {
        scene.table.count("slow") + scene.table.count("fast") == 2
    });
    scene.daemon.signal(Signal::SIGUSR1);
    let of_fast = |record: &Value| field(record, "pool") == "fast";
    let status = scene.daemon.logs("status of the pool", of_fast);
    let waits_for = "the suspect of pool `slow` to end";
    assert_eq!(field(&status, "waits_for"), waits_for, "{status}");
    assert!(scene.record().of(Event::Began, "a suspect").is_empty());
    scene.site.touch("go");
    scene.begun(&["a suspect"]);
    scene.daemon.eventually("the suspects, too", || {
        scene.table.count("slow") + scene.table.count("fast") == 0
    });
    scene.finish();
}

fn a_stopped_daemons_messages_are_taken_over_and_its_late_settlements_are_void() {
    let site = Workspace::with_source(r#"lease = "1s""#);
    let pool = Pool::new(&["--v2=1"])
        .set("workers", "2")
        .set("prefetch", "1");
    let scene = Scene::at(site, std::slice::from_ref(&pool));
    let held = ["mode:wait:go,reply a", "mode:wait:go,reply b"];
    let message = |body: &&str| NewMessage::new(body).reply_to("answers");
    let messages: Vec<NewMessage> = held.iter().map(message).collect();
    scene.table.insert(&messages);
    scene.begun(&held);
    scene.daemon.signal(Signal::SIGSTOP);
    let other = scene.site.start(std::slice::from_ref(&pool));
    other.eventually("the other to take them over", || {
        scene.record().all(Event::Began).len() == 4
    });
    scene.site.touch("go");
    other.eventually("the other to settle them", || {
        scene.table.count("work") == 0
    });
    // The stopped daemon's workers, which are not stopped, have answered too.
    other.eventually("all four to be done", || {
        scene.record().all(Event::Done).len() == 4
    });
    scene.daemon.signal(Signal::SIGCONT);
    let late = "settled too late: the claim was taken back, so the message may run twice";
    scene
        .daemon
        .eventually("both to be told", || scene.daemon.times_logged(late) == 2);
    assert_eq!(scene.table.count("answers"), 2, "one answer each");
    assert_eq!(scene.table.dead(), []);
    likely_duplicates_are_counted(&scene.daemon, "2");
    both_go_on(&scene, &other);
    other.stop();
    scene.finish();
}

fn likely_duplicates_are_counted(daemon: &Daemon, count: &str) {
    daemon.signal(Signal::SIGUSR1);
    let status = daemon.logged("status of the pool");
    assert_eq!(field(&status, "likely_duplicates"), count, "{status}");
}

/// With all workers of both in use, four messages are begun at once.
fn both_go_on(scene: &Scene, other: &Daemon) {
    scene.daemon.logs(
        "other daemons took this one for dead and took over its messages; it continues under a new id",
        |_| true,
    );
    let more = bodies("mode:wait:more", 4);
    scene.send(&more);
    other.eventually("all four workers to have one", || {
        scene.record().all(Event::Began).len() == 8
    });
    scene.site.touch("more");
    scene.all_done();
    scene.record().assert_done_once(&more);
    assert!(
        other
            .records(|record| said(record, "attempt failed"))
            .is_empty()
    );
}
