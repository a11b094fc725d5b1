//! What other tests stand on: a server that can be stopped, killed and frozen, keeps what it has
//! committed, and can be followed.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use crate::harness::mariadb::MariaDatabase;
use crate::harness::{look, trials};

trials![
    each_test_has_a_database_of_its_own,
    a_killed_server_has_what_it_committed,
    a_frozen_server_greets_nobody_until_it_goes_on,
    who_follows_has_what_was_committed_and_may_be_promoted,
];

fn each_test_has_a_database_of_its_own() {
    let (one, other) = (MariaDatabase::shared(), MariaDatabase::shared());
    one.ask("CREATE TABLE orders AS SELECT 7 AS id, NULL AS nothing");
    assert_eq!(one.ask("SELECT id, 'x', nothing FROM orders"), "7|x|");
    assert_eq!(one.table().ask("SELECT id || 'x' FROM orders"), "7x");
    let tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = database()";
    assert_eq!(other.ask(tables), "0");
    assert_eq!(one.port(), other.port(), "one server for all");
    assert_ne!(one.url(), other.url());
}

fn a_killed_server_has_what_it_committed() {
    let database = MariaDatabase::alone();
    database.ask("CREATE TABLE orders (id int)");
    database.ask("INSERT INTO orders WITH RECURSIVE seq (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM seq WHERE n < 100)
         SELECT n FROM seq");
    database.kill();
    TcpStream::connect((Ipv4Addr::LOCALHOST, database.port())).unwrap_err();
    database.start_again();
    assert_eq!(database.ask("SELECT count(*) FROM orders"), "100");
    database.stop();
    database.start_again();
    assert_eq!(database.ask("SELECT count(*) FROM orders"), "100");
}

fn a_frozen_server_greets_nobody_until_it_goes_on() {
    let database = MariaDatabase::alone();
    database.freeze();
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, database.port())).unwrap();
    let (mut greeting, soon) = ([0; 5], Duration::from_millis(200));
    client.set_read_timeout(Some(soon)).unwrap();
    let nothing = client.read(&mut greeting).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    database.thaw();
    client.set_read_timeout(None).unwrap();
    client.read_exact(&mut greeting).unwrap();
    assert_eq!(greeting[4], 10, "the version of its protocol");
}

fn who_follows_has_what_was_committed_and_may_be_promoted() {
    let database = MariaDatabase::alone();
    database.ask("CREATE TABLE orders (id int)");
    let follower = database.replica();
    database.ask("INSERT INTO orders VALUES (1)");
    let there = || look(|| (follower.ask("SELECT id FROM orders") == "1").then_some(()));
    assert!(there().is_some(), "it does not follow");
    let insert = "INSERT INTO orders VALUES (2)";
    let refused = follower.table().run(insert).unwrap_err();
    assert!(refused.contains("read-only"), "{refused}");
    database.kill_followed(&follower);
    follower.promote();
    follower.table().run(insert).unwrap();
    assert_eq!(follower.ask("SELECT count(*) FROM orders"), "2");
}
