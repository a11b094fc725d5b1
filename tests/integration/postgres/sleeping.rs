//! Who sends pays for telling of it, so that is done only while a daemon sleeps who waits for it. A
//! transaction that has told can't be prepared, by which it is seen here who tells.

use std::time::Duration;

use tokio::time::Instant;

use crate::harness::postgres::PgDatabase;
use crate::harness::{Daemon, Event, NewMessage, Pool, Scene, Workspace, trials};

trials![
    nobody_is_told_while_none_sleeps,
    what_is_sent_untold_is_found_when_it_is_committed,
    one_with_enough_to_do_is_not_told,
    another_sleeps_on_when_one_is_busy,
    another_sleeps_on_when_one_is_killed,
];

/// The poll is too rare to explain anything, and so is a lease.
const SETTINGS: &str = "poll_interval = \"1m\"\nlease = \"10m\"";
const SOON: Duration = Duration::from_secs(15);

/// How many sleep, as far as others are told because of them.
const SLEEPERS: &str =
    "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
                        WHERE locktype = 'advisory' AND objsubid = 2 AND classid = 1734438503
                          AND mode = 'ExclusiveLock' AND datname = current_database()";

fn place() -> Workspace {
    let prepares = |_: &_| vec!["max_prepared_transactions=2".to_owned()];
    Workspace::on("", SETTINGS, Some(PgDatabase::alone_with(prepares)))
}

fn pool() -> Pool {
    Pool::new(&[]).set("workers", "1").set("prefetch", "1")
}

/// Statements that send it in a transaction that is prepared, which one that has told can't be.
fn untold(body: &str) -> String {
    format!(
        "BEGIN; INSERT INTO consumer_messages (queue, body) VALUES ('work', '{body}');
         PREPARE TRANSACTION '{body}'"
    )
}

fn falls_asleep(daemon: &Daemon, site: &Workspace) {
    daemon.eventually("it to sleep", || site.postgres().ask(SLEEPERS) == "1");
}

fn wakes(daemon: &Daemon, site: &Workspace) {
    daemon.eventually("it to wake", || site.postgres().ask(SLEEPERS) == "0");
}

/// Sends it, told or not, and sees that it is begun at once.
fn is_begun_at_once(daemon: &Daemon, site: &Workspace, body: &str) {
    let sent = Instant::now();
    site.table().insert(&[NewMessage::new(body)]);
    let begun = || site.record().of(Event::Began, body).len() == 1;
    daemon.within(SOON, "it to be begun", begun);
    assert!(sent.elapsed() < SOON);
}

fn nobody_is_told_while_none_sleeps() {
    let site = place();
    site.configure_commands(&[pool()]);
    let server = site.postgres();
    server.ask(&site.ganger(&["schema", "--source", "main"]).good());
    for body in ["a", "b"] {
        server.ask(&untold(body));
    }
    for body in ["a", "b"] {
        server.ask(&format!("COMMIT PREPARED '{body}'"));
    }
    let daemon = site.start(&[pool()]);
    daemon.eventually("both to be done", || site.table().count("work") == 0);
    falls_asleep(&daemon, &site);
    let told = site.table().run(&untold("c")).unwrap_err();
    assert!(told.contains("NOTIFY"), "{told}");
    daemon.stop();
    server.ask(&untold("d"));
    server.ask("ROLLBACK PREPARED 'd'");
}

fn what_is_sent_untold_is_found_when_it_is_committed() {
    let site = place();
    site.configure_commands(&[pool()]);
    let server = site.postgres();
    server.ask(&site.ganger(&["schema", "--source", "main"]).good());
    server.ask(&untold("late"));
    let daemon = site.start(&[pool()]);
    daemon.has_workers(1);
    // It can't sleep, but others are served.
    is_begun_at_once(&daemon, &site, "other");
    assert_eq!(server.ask(SLEEPERS), "0");
    server.ask("COMMIT PREPARED 'late'");
    daemon.within(SOON, "what was late to be done", || {
        site.table().count("work") == 0
    });
    falls_asleep(&daemon, &site);
    site.record().assert_done_once(&["late", "other"]);
    daemon.stop();
}

fn one_with_enough_to_do_is_not_told() {
    let scene = Scene::at(place(), &[pool()]);
    falls_asleep(&scene.daemon, &scene.site);
    scene.send(&["mode:wait:go"]);
    scene.begun(&["mode:wait:go"]);
    wakes(&scene.daemon, &scene.site);
    let server = scene.site.postgres();
    server.ask(&untold("a"));
    server.ask("COMMIT PREPARED 'a'");
    scene.site.touch("go");
    scene.all_done();
    falls_asleep(&scene.daemon, &scene.site);
    scene.finish();
}

/// Whichever it is that takes the first.
fn another_sleeps_on_when_one_is_busy() {
    let site = place();
    let [one, other] = [(); 2].map(|()| site.start(&[pool()]));
    for daemon in [&one, &other] {
        daemon.has_workers(1);
    }
    falls_asleep(&one, &site);
    is_begun_at_once(&one, &site, "mode:wait:go");
    for body in ["a", "b", "c"] {
        is_begun_at_once(&other, &site, body);
        falls_asleep(&other, &site);
    }
    site.touch("go");
    one.eventually("all to be done", || site.table().count("work") == 0);
    one.stop();
    other.stop();
}

fn another_sleeps_on_when_one_is_killed() {
    let site = place();
    let one = site.start(&[pool()]);
    falls_asleep(&one, &site);
    let other = site.start(&[pool()]);
    other.has_workers(1);
    one.crash();
    is_begun_at_once(&other, &site, "a");
    other.stop();
}
