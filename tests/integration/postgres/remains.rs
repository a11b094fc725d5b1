//! What is gone leaves its entries in the index until the server cleans up, which it can't as long as
//! anyone's transaction is open.

use crate::harness::postgres::PgDatabase;
use crate::harness::{Pool, Workspace, look, trials};

trials![what_is_gone_is_not_stepped_over_for_each_message];

const GONE: u64 = 60_000;
const MESSAGES: usize = 300;

/// How many entries of the index that claims go by have been read, as told by connections that have
/// ended; and how many transactions there have been.
const READ: &str = "SELECT idx_tup_read FROM pg_stat_user_indexes \
                    WHERE indexrelname = 'consumer_messages_ready'";
// By these names PostgreSQL 12 has them, too.
const WRITES: &str = "SELECT txid_snapshot_xmax(txid_current_snapshot())";

/// Looks from the start are seldom then. All the same what comes in before the others is found, as what is
/// committed late, and what is more urgent.
fn what_is_gone_is_not_stepped_over_for_each_message() {
    let settings = ["max_prepared_transactions=1", "autovacuum=off"];
    let database = PgDatabase::alone_with(|_| settings.map(str::to_owned).into());
    let site = Workspace::on("", "", Some(database));
    let pool = Pool::new(&[]).set("workers", "1").set("prefetch", "1");
    let daemon = site.start(&[pool]);
    let (server, table) = (site.postgres(), site.table());
    server.ask("BEGIN; SELECT txid_current(); PREPARE TRANSACTION 'open'");
    // In one transaction, so that none is ever seen.
    server.ask(&format!(
        "INSERT INTO consumer_messages (queue, body)
         SELECT 'work', 'gone' FROM generate_series(1, {GONE}); DELETE FROM consumer_messages"
    ));
    let number = |sql| server.ask(sql).parse::<u64>().unwrap();
    let (read, writes) = (number(READ), number(WRITES));
    server.ask(&format!(
        "INSERT INTO consumer_messages (queue, body)
         SELECT 'work', 'message ' || n FROM generate_series(1, {MESSAGES}) AS n"
    ));
    daemon.eventually("all to be done", || table.count("work") == 0);
    let others = [
        "(1, 'work', 'late', 0)",
        "(2, 'work', 'urgent', 9)",
        "(3, 'work', 'patient', -9)",
    ];
    for other in others {
        server.ask(&format!(
            "INSERT INTO consumer_messages (id, queue, body, priority) OVERRIDING SYSTEM VALUE VALUES {other}"
        ));
        daemon.eventually("each other to be done", || table.count("work") == 0);
    }
    let mut bodies: Vec<String> = (1..=MESSAGES).map(|n| format!("message {n}")).collect();
    bodies.extend(["late", "urgent", "patient"].map(str::to_owned));
    site.record().assert_done_once(&bodies);
    daemon.stop();
    let left = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'ganger%'";
    let have_ended = look(|| (number(left) == 0).then_some(()));
    assert_eq!(have_ended, Some(()));
    let (read, writes) = (number(READ) - read, number(WRITES) - writes);
    assert!(
        read < writes * GONE / 4,
        "{read} entries were read for {writes} transactions"
    );
    server.ask("ROLLBACK PREPARED 'open'");
}
