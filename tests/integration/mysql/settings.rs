//! What a server is set to, which is others' business.

use crate::harness::mariadb::MariaDatabase;
use crate::harness::{Pool, Workspace, trials};

trials![what_the_server_is_set_to_holds_for_others,];

/// With a commit that begins another transaction no heartbeat would be seen. A trigger sees what holds.
fn what_the_server_is_set_to_holds_for_others() {
    let settings = ["completion-type=CHAIN", "innodb-lock-wait-timeout=1"].map(str::to_owned);
    let database = MariaDatabase::alone_with(|_| settings.into());
    let site = Workspace::on("", "", Some(database));
    let pool = Pool::new(&[]);
    site.configure_commands(std::slice::from_ref(&pool));
    let daemon = site.start(&[pool]);
    daemon.has_workers(1);
    let server = site.mariadb();
    server.ask("CREATE TABLE seen (what TEXT)");
    for table in ["owners", "consumer_messages"] {
        server.ask(&format!(
            "CREATE TRIGGER see_{table} BEFORE UPDATE ON {table} FOR EACH ROW
             INSERT INTO seen VALUES (CONCAT_WS(' ', '{table}', @@SESSION.completion_type,
               @@SESSION.innodb_lock_wait_timeout))"
        ));
    }
    assert_eq!(server.ask("SELECT @@completion_type"), "CHAIN");
    // Each asks in a session of its own: one that commits here sees nothing new after it.
    for body in ["a", "b"] {
        site.ganger(&["send", "work", body]).good();
    }
    let left = "SELECT count(*) FROM consumer_messages";
    daemon.eventually("all to be done", || server.ask(left) == "0");
    site.record().assert_done_once(&["a", "b"]);
    let seen = "SELECT GROUP_CONCAT(DISTINCT what ORDER BY what) FROM seen";
    let all = "consumer_messages NO_CHAIN 5,owners NO_CHAIN 5";
    daemon.eventually("a claim and a heartbeat", || server.ask(seen) == all);
    server.ask("DROP TRIGGER see_owners; DROP TRIGGER see_consumer_messages");
    daemon.stop();
}
