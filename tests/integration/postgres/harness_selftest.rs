//! What other tests stand on: a server that can be stopped, killed and frozen, and keeps what it has
//! committed.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::harness::postgres::PgDatabase;
use crate::harness::trials;

trials![
    each_test_has_a_database_of_its_own,
    a_killed_server_has_what_it_committed,
    a_frozen_server_answers_nobody_until_it_goes_on,
];

fn each_test_has_a_database_of_its_own() {
    let (one, other) = (PgDatabase::shared(), PgDatabase::shared());
    one.ask("CREATE TABLE orders AS SELECT 7 AS id");
    assert_eq!(one.ask("SELECT id, 'x' FROM orders"), "7|x");
    assert_eq!(other.ask("SELECT to_regclass('orders') IS NULL"), "t");
    assert_eq!(one.port(), other.port(), "one server for all");
    assert_ne!(one.url(), other.url());
}

fn a_killed_server_has_what_it_committed() {
    let database = PgDatabase::alone();
    database.ask("CREATE TABLE orders (id int)");
    database.ask("INSERT INTO orders SELECT generate_series(1, 100)");
    database.kill();
    TcpStream::connect((Ipv4Addr::LOCALHOST, database.port())).unwrap_err();
    database.start_again();
    assert_eq!(database.ask("SELECT count(*) FROM orders"), "100");
    database.stop();
    database.start_again();
    assert_eq!(database.ask("SELECT count(*) FROM orders"), "100");
    let socket = format!(".s.PGSQL.{}", database.port());
    UnixStream::connect(database.socket_directory().join(socket)).unwrap();
}

/// What a client sends that wants TLS; a server without it answers `N`.
const WANTS_TLS: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

fn a_frozen_server_answers_nobody_until_it_goes_on() {
    let database = PgDatabase::alone();
    database.freeze();
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, database.port())).unwrap();
    client.write_all(&WANTS_TLS).unwrap();
    let (mut answer, soon) = ([0], Duration::from_millis(200));
    client.set_read_timeout(Some(soon)).unwrap();
    let nothing = client.read(&mut answer).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    database.thaw();
    client.set_read_timeout(None).unwrap();
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"N");
}
