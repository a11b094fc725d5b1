//! Behind PgBouncer in transaction mode, where no session is ours.

use crate::harness::postgres::PgDatabase;
use crate::harness::{Daemon, Event, NewMessage, Pool, Workspace, trials};
use crate::ledger;
use crate::servers::pgbouncer::Bouncer;

trials![
    messages_go_their_way_behind_a_pooler,
    a_killed_daemons_messages_come_again_after_its_lease,
    topics_reach_their_queues_behind_a_pooler,
    commands_work_behind_a_pooler,
    each_slot_is_one_occurrence_behind_a_pooler,
    a_pooler_that_nobody_has_told_of_is_found_out,
];

/// A database behind a pooler, and a directory whose source says so or not.
fn pooled(source: &str) -> (PgDatabase, Bouncer, Workspace) {
    let database = PgDatabase::shared();
    let bouncer = Bouncer::before(&database);
    let url = database.url_at(bouncer.port());
    let site = Workspace::with_sections(&format!(
        "[sources.main]\nkind = \"table\"\nurl = \"{url}\"\n{source}"
    ));
    (database, bouncer, site)
}

fn bodies(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{what} {n}")).collect()
}

fn started(site: &Workspace, pool: &Pool) -> Daemon {
    site.start(std::slice::from_ref(pool))
}

fn messages_go_their_way_behind_a_pooler() {
    let (database, _bouncer, site) = pooled("pgbouncer = true");
    let pools = [
        Pool::new(&["--v2=1", "--mode=reply:answers"])
            .set("workers", "2")
            .set("prefetch", "16"),
        Pool::new(&[])
            .text("name", "other")
            .text("queue", "other")
            .attempts(1),
    ];
    let daemon = site.start(&pools);
    daemon.logged(
        "connected through a pooler: new messages are found by polling, and dead daemons by their lease only",
    );
    let table = database.table();
    let all = bodies("message", 400);
    table.insert(
        &all.iter()
            .map(|body| NewMessage::new(body))
            .collect::<Vec<_>>(),
    );
    table.insert(&[NewMessage::new("mode:answer:500 no").to("other")]);
    daemon.eventually("everything to be done", || {
        table.count("work") == 0 && table.count("other") == 0
    });
    site.record().assert_done_once(&all);
    assert_eq!(table.count("answers"), 400);
    assert_eq!(table.dead().len(), 1);
    assert_eq!(
        daemon.times_logged("the table can't be used; intake pauses"),
        0
    );
    daemon.stop();
    assert_eq!(database.ask("SELECT count(*) FROM owners"), "0");
    // The server's other databases have daemons of other tests.
    let locks = "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
                 WHERE locktype = 'advisory' AND datname = current_database()";
    assert_eq!(database.ask(locks), "0");
}

fn a_killed_daemons_messages_come_again_after_its_lease() {
    let (database, _bouncer, site) = pooled("pgbouncer = true\nlease = \"2s\"");
    let pool = Pool::new(&[]).set("workers", "2");
    let daemon = started(&site, &pool);
    let table = database.table();
    let held = bodies("mode:wait:go", 2);
    table.insert(
        &held
            .iter()
            .map(|body| NewMessage::new(body))
            .collect::<Vec<_>>(),
    );
    daemon.eventually("both to be begun", || {
        site.record().all(Event::Began).len() == 2
    });
    let other = started(&site, &pool);
    other.has_workers(2);
    // For longer than the grace: one that lives loses nothing.
    let beats = "SELECT count(*) FROM owners WHERE heartbeat > 8";
    other.eventually("both to beat", || database.ask(beats) == "2");
    assert_eq!(site.record().all(Event::Began).len(), 2);
    daemon.crash();
    other.eventually("the other to begin what was in hand", || {
        site.record().all(Event::Began).len() == 4
    });
    site.touch("go");
    other.eventually("everything to be done", || table.count("work") == 0);
    assert_eq!(table.dead(), []);
    other.stop();
}

fn topics_reach_their_queues_behind_a_pooler() {
    let (database, bouncer, site) = pooled("pgbouncer = true");
    let subscription =
        |queue: &str| format!("[[subscriptions]]\ntopic = \"placed\"\nqueue = \"{queue}\"\n");
    let subscriptions = subscription("work") + &subscription("other");
    let pool = Pool::new(&["--v2=1"]).after(&subscriptions);
    site.configure_commands(std::slice::from_ref(&pool));
    let check = || site.ganger(&["check", "--online", "-o", "json"]).json();
    assert_eq!(check()["subscriptions"][0]["subscribed"], false);
    let daemon = started(&site, &pool);
    daemon.eventually("the subscriptions", || {
        daemon.times_logged("subscribed the queue to the topic") == 2
    });
    assert_eq!(check()["subscriptions"][0]["subscribed"], true);
    // The sender's transaction goes through the pooler, too.
    let shop = database.table_at(bouncer.port());
    shop.run("CREATE TABLE orders (id integer)").unwrap();
    for (number, end) in [(1, "ROLLBACK"), (2, "COMMIT")] {
        let placed = format!(
            "BEGIN; INSERT INTO orders VALUES ({number});
             INSERT INTO published_messages (topic, body) VALUES ('placed', 'order {number}'); {end}"
        );
        shop.run(&placed).unwrap();
    }
    site.ganger(&["send", "--topic", "placed", "sent"]).good();
    let table = database.table();
    daemon.eventually("both to be done", || {
        table.count("work") == 0 && site.record().all(Event::Done).len() == 2
    });
    site.record().assert_done_once(&["order 2", "sent"]);
    let other = table.messages("other");
    let bodies: Vec<&str> = other.iter().map(|message| &*message.body).collect();
    assert_eq!(bodies, ["order 2", "sent"]);
    let nobody = site.ganger(&["send", "--topic", "paid", "x"]).bad(1);
    assert!(nobody.contains("no queue is subscribed"), "{nobody}");
    daemon.stop();
}

fn commands_work_behind_a_pooler() {
    let (database, _bouncer, site) = pooled("pgbouncer = true");
    let pool = Pool::new(&["--mode=reply"]).attempts(1);
    site.configure_commands(std::slice::from_ref(&pool));
    site.ganger(&["check", "--online"]).good();
    let daemon = started(&site, &pool);
    let answered = site.ganger(&["send", "work", "a", "--reply"]).good();
    assert!(answered.contains("re: a"), "{answered}");
    site.ganger(&["send", "work", "mode:answer:500 b"]).good();
    let table = database.table();
    daemon.eventually("it to be dead", || table.dead().len() == 1);
    let listed = site.ganger(&["dead", "list"]).good();
    assert!(listed.contains("failed"), "{listed}");
    site.ganger(&["dead", "drop", "--all"]).good();
    assert_eq!(table.dead(), []);
    daemon.stop();
}

fn each_slot_is_one_occurrence_behind_a_pooler() {
    let (_database, _bouncer, site) = pooled("pgbouncer = true\nlease = \"2s\"");
    ledger::three_daemons(&site, ledger::BLOWS);
}

fn a_pooler_that_nobody_has_told_of_is_found_out() {
    let (_database, _bouncer, site) = pooled("");
    site.configure_commands(&[Pool::new(&[])]);
    for command in [&["check", "--online"][..], &["run"]] {
        let complaint = site.ganger(command).bad(1);
        assert!(complaint.contains("`pgbouncer = true`"), "{complaint}");
    }
}
