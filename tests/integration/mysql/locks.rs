//! What the sources of one queue lock of each other's.

use std::time::Duration;

use tokio::time::Instant;

use crate::harness::mariadb::MariaDatabase;
use crate::harness::{DEADLINE, NewMessage, Pool, Workspace, trials};
use crate::ledger;

trials![
    daemons_on_one_queue_do_not_wait_for_each_others_locks,
    tables_that_another_daemon_upgrades_are_waited_for,
];

const DAEMONS: usize = 3;
const MESSAGES: usize = 3000;

/// A search that locks keeps a lock on what is behind its range, where another's claims begin.
fn daemons_on_one_queue_do_not_wait_for_each_others_locks() {
    let site = Workspace::on("", "", Some(MariaDatabase::alone()));
    let pool = Pool::new(&[]).set("workers", "2").set("prefetch", "8");
    let daemons: Vec<_> = (0..DAEMONS)
        .map(|_| site.start(std::slice::from_ref(&pool)))
        .collect();
    for daemon in &daemons {
        daemon.has_workers(2);
    }
    let waits = || -> u64 {
        let said = site
            .mariadb()
            .ask("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'");
        let number = said.trim().rsplit(|c: char| !c.is_ascii_digit()).next();
        number.unwrap().parse().unwrap()
    };
    let before = waits();
    let bodies: Vec<String> = (0..MESSAGES).map(|n| format!("message {n}")).collect();
    let messages: Vec<_> = bodies.iter().map(|body| NewMessage::new(body)).collect();
    let table = site.table();
    table.insert(&messages);
    daemons[0].eventually("all to be done", || table.count("work") == 0);
    let waits = waits() - before;
    assert!(waits < 50, "{waits} waits for a lock");
    site.record().assert_done_once(&bodies);
    for daemon in &daemons {
        daemon.stop();
    }
}

/// Meanwhile one of them lacks the column by which it is recognised.
fn tables_that_another_daemon_upgrades_are_waited_for() {
    let site = Workspace::on("", "", Some(MariaDatabase::shared()));
    let schedule = "at = \"2100-01-01T00:00:00\"\nbody = \"x\"";
    let pools = [Pool::new(&[]).after(&ledger::schedule("far", schedule))];
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    daemon.stop();
    for (table, column) in [("occurrences", "watched"), ("owners", "lock_name")] {
        let other = site.mariadb().table();
        other.ask(
            "SELECT GET_LOCK(CONCAT('ganger.', LEFT(SHA2(CONCAT(DATABASE(), '.ganger_version'), 256), 40)), 0)",
        );
        let rename = |from: &str, to: &str| {
            site.mariadb()
                .ask(&format!("ALTER TABLE {table} RENAME COLUMN {from} TO {to}"));
        };
        rename(column, "elsewhere");
        std::thread::scope(|scope| {
            let checked = scope.spawn(|| site.ganger(&["check", "--online"]));
            let waiting = "SELECT count(*) FROM information_schema.processlist
                           WHERE db = DATABASE() AND state = 'User lock'";
            let begin = Instant::now();
            while site.mariadb().ask(waiting) != "1" {
                let is_patient = !checked.is_finished() && begin.elapsed() < DEADLINE;
                assert!(is_patient, "the upgrade of {table} is not waited for");
                std::thread::park_timeout(Duration::from_millis(20));
            }
            rename("elsewhere", column);
            drop(other);
            checked.join().unwrap().good();
        });
    }
}
