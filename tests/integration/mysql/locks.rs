//! What the sources of one queue lock of each other's.

use crate::harness::mariadb::MariaDatabase;
use crate::harness::{NewMessage, Pool, Workspace, trials};

trials![daemons_on_one_queue_do_not_wait_for_each_others_locks];

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
