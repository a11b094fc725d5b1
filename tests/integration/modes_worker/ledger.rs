//! A ledger in a database that a test has prepared: what a message books is booked once, however
//! often the message comes.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior, params};

/// What a test makes the database of.
pub(crate) const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    CREATE TABLE accounts (account TEXT PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0));
    CREATE TABLE entries (account TEXT, number INTEGER, amount INTEGER, PRIMARY KEY (account, number));
";

/// Books `ACCOUNT NUMBER AMOUNT`. False where the account does not hold so much.
pub(super) fn book(database: &Path, entry: &str) -> bool {
    let mut words = entry.split(' ');
    let account = words.next().unwrap();
    let [number, amount] = [(); 2].map(|()| words.next().unwrap().parse::<i64>().unwrap());
    let mut connection = open(database);
    let behaviour = TransactionBehavior::Immediate;
    let transaction = connection.transaction_with_behavior(behaviour).unwrap();
    let booked = transaction
        .execute(
            "INSERT OR IGNORE INTO entries VALUES (?1, ?2, ?3)",
            params![account, number, amount],
        )
        .unwrap();
    let add = "UPDATE accounts SET balance = balance + ?2 WHERE account = ?1";
    if booked == 1 && transaction.execute(add, params![account, amount]).is_err() {
        return false;
    }
    transaction.commit().unwrap();
    true
}

fn open(database: &Path) -> Connection {
    let connection = Connection::open(database).unwrap();
    connection.busy_timeout(Duration::from_secs(30)).unwrap();
    // The machine does not lose its power in a test.
    connection
        .pragma_update(None, "synchronous", "OFF")
        .unwrap();
    connection
}
