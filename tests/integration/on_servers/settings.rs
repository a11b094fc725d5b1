//! What the owner of a server has set for his sessions, which may be anything.

use rusqlite::types::Value;

use crate::harness::{Base, Database, Dead, NewMessage, Pool, Workspace, trials_on};

trials_on![what_a_servers_owner_has_set_changes_no_statement,];

/// Whose sessions begin as badly as they can: by what PostgreSQL sets for a role, and by what MySQL and MariaDB do
/// at each connection. Where one of them takes the server's value again, it gets no better one.
const OF_POSTGRES: &[&str] = &[
    "CREATE ROLE somebody LOGIN SUPERUSER",
    "ALTER ROLE somebody SET statement_timeout = '1s'",
    "ALTER ROLE somebody SET lock_timeout = '1ms'",
    "ALTER ROLE somebody SET idle_in_transaction_session_timeout = '1ms'",
    "ALTER ROLE somebody SET default_transaction_isolation = 'serializable'",
    "ALTER ROLE somebody SET default_transaction_deferrable = on",
    "ALTER ROLE somebody SET search_path = 'nowhere'",
    "ALTER ROLE somebody SET client_encoding = 'LATIN1'",
    "ALTER ROLE somebody SET standard_conforming_strings = off",
    "ALTER ROLE somebody SET backslash_quote = off",
    "ALTER ROLE somebody SET transform_null_equals = on",
    "ALTER ROLE somebody SET array_nulls = off",
    "ALTER ROLE somebody SET bytea_output = 'escape'",
    "ALTER ROLE somebody SET extra_float_digits = -15",
    "ALTER ROLE somebody SET IntervalStyle = 'sql_standard'",
    "ALTER ROLE somebody SET DateStyle = 'German'",
    "ALTER ROLE somebody SET TimeZone = 'Asia/Kathmandu'",
    "ALTER ROLE somebody SET plan_cache_mode = 'force_custom_plan'",
    "ALTER ROLE somebody SET row_security = off",
];
const IDLE_OF_POSTGRES_14: &str = "ALTER ROLE somebody SET idle_session_timeout = '100ms'";

const OF_MARIADB: &[&str] = &[
    "CREATE USER somebody@'%' IDENTIFIED BY ''",
    "GRANT ALL ON *.* TO somebody@'%'",
    "REVOKE SUPER ON *.* FROM somebody@'%'",
    "SET GLOBAL sql_select_limit = 2",
    "SET GLOBAL init_connect = \"
       SET NAMES latin1;
       SET SESSION sql_select_limit = 0, autocommit = 0, sql_safe_updates = 1, sql_auto_is_null = 1,
         max_join_size = 1, unique_checks = 0, completion_type = 1, time_zone = '+05:30',
         innodb_lock_wait_timeout = 1, lock_wait_timeout = 1, wait_timeout = 1, net_write_timeout = 1,
         group_concat_max_len = 4, sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT';
       SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE;
       SET SESSION TRANSACTION READ ONLY\"",
];
/// Who has it is not bothered by `init_connect`.
const ADMIN_OF_MARIADB: &str = "REVOKE CONNECTION ADMIN ON *.* FROM somebody@'%'";
const ADMIN_OF_MYSQL: &str = "REVOKE CONNECTION_ADMIN ON *.* FROM somebody@'%'";

/// The address of somebody whose sessions are spoilt.
fn spoilt(database: &Database) -> String {
    let statements = match Base::of_this_test() {
        Base::Postgres => OF_POSTGRES,
        Base::Mariadb => OF_MARIADB,
        Base::Sqlite => panic!("a test that is about servers"),
    };
    for statement in statements {
        database.ask(statement);
    }
    let further = match database.ask("SELECT version()").as_str() {
        version if version.contains("MariaDB") => ADMIN_OF_MARIADB,
        version if version.starts_with("PostgreSQL 12") => "",
        version if version.starts_with("PostgreSQL 13") => "",
        version if version.starts_with("PostgreSQL") => IDLE_OF_POSTGRES_14,
        _ => ADMIN_OF_MYSQL,
    };
    if !further.is_empty() {
        database.ask(further);
    }
    let url = database.url();
    let (scheme, rest) = url.split_once("://").unwrap();
    let (_, place) = rest.split_once('@').unwrap();
    format!("{scheme}://somebody@{place}")
}

/// Claims and settlements of many rows, replies, retries, dead letters, a reply that is waited for, unique keys and
/// topics.
fn what_a_servers_owner_has_set_changes_no_statement() {
    let database = Database::alone();
    // Its own session is as it is to be.
    let table = database.table();
    let url = spoilt(&database);
    let site = Workspace::make(
        "",
        &format!("[sources.main]\nkind = \"table\"\nurl = \"{url}\""),
    );
    let subscribed = "[[subscriptions]]\ntopic = \"placed\"\nqueue = \"work\"\n";
    let pool = Pool::new(&["--v2=20"]).set("prefetch", "100");
    let pool = pool.attempts(2).after(subscribed);
    site.configure_commands(std::slice::from_ref(&pool));
    let daemon = site.start(std::slice::from_ref(&pool));
    daemon.has_workers(1);
    let bodies: Vec<String> = (0..60)
        .map(|n| format!("mode:reply:answers it's {n} \\"))
        .collect();
    let messages: Vec<NewMessage> = bodies.iter().map(|body| NewMessage::new(body)).collect();
    table.insert(&messages);
    let failing: Vec<String> = (0..20).map(|n| format!("mode:answer:500 ü{n}")).collect();
    let messages: Vec<NewMessage> = failing.iter().map(|body| NewMessage::new(body)).collect();
    table.insert(&messages);
    daemon.logged("subscribed the queue to the topic");
    site.ganger(&["send", "--topic", "placed", "once"]).sent(1);
    let unique = ["send", "later", "a", "--unique", "it's \\"];
    site.ganger(&unique).sent(1);
    let said = site.ganger(&unique).good();
    assert!(said.starts_with("sent 0"), "{said}");
    let reply = ["send", "work", "mode:reply x", "--reply"];
    assert_eq!(site.ganger(&reply).good(), "re: mode:reply x\n");
    daemon.eventually("all to be settled", || table.count("work") == 0);
    let record = site.record();
    record.assert_done_once(&bodies);
    record.assert_done_once(&["once"]);
    assert_eq!((table.count("answers"), table.count("later")), (60, 1));
    let dead = table.dead();
    assert_eq!(dead.len(), 20);
    assert!(dead.iter().all(|letter| letter.attempts == 2), "{dead:#?}");
    let text = |letter: &Dead| match &letter.body {
        Value::Text(body) => body.clone(),
        other => panic!("no text: {other:?}"),
    };
    let mut texts: Vec<String> = dead.iter().map(text).collect();
    texts.sort_unstable();
    let mut failing = failing;
    failing.sort_unstable();
    assert_eq!(texts, failing);
    let again = site.ganger(&["dead", "drop", "--all"]).good();
    assert!(again.contains("20"), "{again}");
    let trouble = daemon.times_logged("the table can't be used; intake pauses");
    assert_eq!(trouble, 0);
    daemon.stop();
}
