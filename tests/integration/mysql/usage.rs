//! What a producer, an operator and a DBA do with it.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::harness::mariadb::MariaDatabase;
use crate::harness::tls::{Authority, quoted};
use crate::harness::{Event, NewMessage, Pool, Scene, Workspace, trials};

trials![
    messages_one_after_the_other_are_found_at_once,
    an_insert_does_not_wait_for_a_claim,
    a_claim_does_not_wait_for_one_who_was_refused_a_key,
    a_claim_reads_no_more_than_it_takes,
    a_source_at_rest_opens_no_transaction,
    tables_that_are_missing_are_named_and_can_be_made_by_hand,
    tables_behind_a_prefix_stand_beside_anothers_of_the_same_names,
    who_may_make_no_trigger_has_all_but_topics,
    no_sender_gives_a_message_its_number,
    a_long_transaction_holds_up_no_start,
    a_password_goes_to_the_server_as_that_asks,
    what_no_message_may_be_is_refused_at_the_insert,
    what_no_waiting_mends_refuses_the_start,
    a_server_that_is_too_old_is_refused_by_name,
    the_server_is_checked_as_ssl_mode_says,
    a_body_of_ten_megabytes_goes_its_way,
    what_no_packet_holds_is_refused_and_holds_nobody_up,
];

fn site(source: &str) -> Workspace {
    Workspace::on("", source, Some(MariaDatabase::shared()))
}

/// Nobody tells of them, and to look once a minute would take an hour for all.
fn messages_one_after_the_other_are_found_at_once() {
    let scene = Scene::at(site("poll_interval = \"1m\""), &[Pool::new(&[])]);
    let all: Vec<String> = (0..60).map(|n| format!("message {n}")).collect();
    scene.daemon.has_workers(1);
    let began = Instant::now();
    for body in &all {
        scene.send(&[body]);
        scene.all_done();
    }
    let took = began.elapsed();
    assert!(took < Duration::from_mins(2), "they took {took:?}");
    scene.record().assert_done_once(&all);
    scene.finish();
}

/// A trigger holds the claim up while it has its rows locked.
fn an_insert_does_not_wait_for_a_claim() {
    let site = site("");
    let pool = Pool::new(&[]).set("prefetch", "4");
    site.configure_commands(std::slice::from_ref(&pool));
    for body in ["a", "b", "c"] {
        site.ganger(&["send", "work", body]).good();
    }
    let server = site.mariadb();
    let table = site.table();
    // Locks of this kind are the whole server's.
    let gate = table.ask("SELECT CONCAT('gate of ', DATABASE())");
    server.ask(&format!(
        "DELIMITER //
         CREATE TRIGGER gate BEFORE UPDATE ON consumer_messages FOR EACH ROW
         BEGIN
           DO GET_LOCK('{gate}', 60);
           DO RELEASE_LOCK('{gate}');
         END //"
    ));
    assert_eq!(table.ask(&format!("SELECT GET_LOCK('{gate}', 0)")), "1");
    let daemon = site.start(&[pool]);
    let waits = "SELECT count(*) FROM information_schema.processlist
                 WHERE db = DATABASE() AND state = 'User lock'";
    daemon.eventually("a claim to be held up", || server.ask(waits) != "0");
    let producer = server.table();
    producer.run("SET innodb_lock_wait_timeout = 1").unwrap();
    for priority in [-1, 0, 1] {
        let insert = format!(
            "INSERT INTO consumer_messages (queue, body, priority)
             VALUES ('work', 'beside {priority}', {priority})"
        );
        producer.run(&insert).unwrap();
    }
    assert_ne!(server.ask(waits), "0", "it is held up all the time");
    table.ask(&format!("SELECT RELEASE_LOCK('{gate}')"));
    daemon.eventually("everything to be done", || table.count("work") == 0);
    let all = ["a", "b", "c", "beside -1", "beside 0", "beside 1"];
    site.record().assert_done_once(&all);
    daemon.stop();
}

/// His transaction goes on, and with it his lock on the key.
fn a_claim_does_not_wait_for_one_who_was_refused_a_key() {
    let site = site("");
    let pool = Pool::new(&[]);
    site.configure_commands(std::slice::from_ref(&pool));
    site.ganger(&["send", "work", "a", "--unique", "k"]).good();
    site.ganger(&["send", "work", "b"]).good();
    let producer = site.table();
    let refused = producer.run(
        "BEGIN;
         INSERT INTO consumer_messages (queue, body, unique_key) VALUES ('work', 'again', 'k')",
    );
    assert!(refused.unwrap_err().starts_with("Duplicate entry"));
    let daemon = site.start(&[pool]);
    let table = site.table();
    daemon.eventually("the other one to be done", || table.count("work") == 1);
    site.record().assert_done_once(&["b"]);
    producer.run("COMMIT").unwrap();
    daemon.eventually("both to be done", || table.count("work") == 0);
    site.record().assert_done_once(&["a", "b"]);
    daemon.stop();
}

/// What is sorted before some of it is taken is locked as a whole.
fn a_claim_reads_no_more_than_it_takes() {
    let site = Workspace::on("", "", Some(MariaDatabase::alone()));
    let pool = Pool::new(&["--v2=1"]);
    site.configure_commands(std::slice::from_ref(&pool));
    site.ganger(&["send", "work", "first"]).good();
    let server = site.mariadb();
    server.ask(
        "INSERT INTO consumer_messages (queue, body, priority)
         WITH RECURSIVE seq (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM seq WHERE n < 1000)
         SELECT 'work', a.n, a.n % 3 FROM seq a CROSS JOIN (SELECT 0 UNION ALL SELECT 1) b",
    );
    let sorted = || server.ask("SHOW GLOBAL STATUS LIKE 'Sort_rows'");
    let before = sorted();
    let daemon = site.start(&[pool]);
    let table = site.table();
    daemon.eventually("everything to be done", || table.count("work") == 0);
    assert_eq!(sorted(), before);
    daemon.stop();
}

/// It looks all the same.
fn a_source_at_rest_opens_no_transaction() {
    let site = Workspace::on("", "", Some(MariaDatabase::alone()));
    let scene = Scene::at(site, &[Pool::new(&[])]);
    scene.send(&["first"]);
    scene.all_done();
    let server = scene.site.mariadb();
    let often = |what: &str| {
        let status = server.ask(&format!("SHOW GLOBAL STATUS LIKE '{what}'"));
        let (_, often) = status.split_once('|').unwrap();
        often.parse::<u32>().unwrap()
    };
    let looks = || {
        let before = often("Com_select");
        let looked = || often("Com_select") > before + 20;
        scene.daemon.eventually("it to have looked", looked);
    };
    // The claim that finds nothing more is over by then.
    looks();
    let begun = often("Com_begin");
    looks();
    looks();
    assert_eq!(often("Com_begin"), begun);
    scene.finish();
}

fn tables_that_are_missing_are_named_and_can_be_made_by_hand() {
    let site = site("declare = false");
    site.configure_commands(&[Pool::new(&[])]);
    let checked = site.ganger(&["check", "--online"]).bad(1);
    let says = "lacks version 1 of ganger's tables, and `declare = false` forbids creating them";
    assert!(checked.contains(says), "{checked}");
    let statements = site.ganger(&["schema", "--source", "main"]).good();
    site.mariadb().ask(&statements);
    site.ganger(&["check", "--online"]).good();
    site.ganger(&["send", "work", "a"]).good();
    assert_eq!(site.table().count("work"), 1);
}

/// As they are in AsyncMonolith's database.
fn tables_behind_a_prefix_stand_beside_anothers_of_the_same_names() {
    let site = site("table_prefix = \"q7_\"");
    let server = site.mariadb();
    server.ask(
        "CREATE TABLE consumer_messages (id text, consumer_type text, payload text);
         CREATE TABLE poisoned_messages (id text, payload text);
         CREATE TABLE owners (id text); CREATE TABLE ganger_version (version int)",
    );
    let pool = Pool::new(&[]).attempts(1);
    site.configure_commands(std::slice::from_ref(&pool));
    let config = std::fs::read_to_string(site.path("ganger.toml")).unwrap();
    let without = config.replace("table_prefix = \"q7_\"", "");
    site.put("without.toml", &without, false);
    let complaint = site.ganger(&["run", "--config", "without.toml"]).bad(1);
    assert!(
        complaint.contains("the table `consumer_messages` in database"),
        "{complaint}"
    );
    assert!(
        complaint.contains("belongs to another program") && complaint.contains("`table_prefix`"),
        "{complaint}"
    );

    let daemon = site.start(&[pool]);
    site.ganger(&["send", "work", "a"]).good();
    site.ganger(&["send", "work", "mode:answer:500 b"]).good();
    let left = "SELECT (SELECT count(*) FROM q7_consumer_messages), \
                (SELECT count(*) FROM q7_poisoned_messages), (SELECT count(*) FROM q7_owners), \
                (SELECT count(*) FROM consumer_messages)";
    daemon.eventually("one to be done and one to be dead", || {
        server.ask(left) == "0|1|1|0"
    });
    site.record().assert_done_once(&["a"]);
    site.ganger(&["dead", "drop", "--all"]).good();
    assert_eq!(server.ask(left), "0|0|1|0");
    daemon.stop();
    let shown = site.ganger(&["schema", "--source", "main"]).good();
    assert!(
        shown.contains("CREATE TABLE IF NOT EXISTS q7_consumer_messages ("),
        "{shown}"
    );
}

/// As it is on MySQL with its own settings for who is no administrator.
fn who_may_make_no_trigger_has_all_but_topics() {
    let settings = ["log-bin-trust-function-creators=OFF".to_owned()];
    let database = MariaDatabase::alone_with(|_| settings.into());
    let site = Workspace::on("", "", Some(database));
    let scene = Scene::at(site, &[Pool::new(&[])]);
    scene.site.configure_commands(&[Pool::new(&[])]);
    scene.send(&["a"]);
    scene.all_done();
    let publish = ["send", "--topic", "x", "--drop-unsubscribed", "b"];
    let complaint = scene.site.ganger(&publish).bad(1);
    let says = "log_bin_trust_function_creators";
    assert!(complaint.contains(says), "{complaint}");
    let insert = "INSERT INTO published_messages (topic, body) VALUES ('x', 'c')";
    let error = scene.table.run(insert).unwrap_err();
    assert!(error.contains("doesn't exist"), "{error}");

    let server = scene.site.mariadb();
    server.ask("SET GLOBAL log_bin_trust_function_creators = ON");
    scene.site.ganger(&publish).good();
    server.ask("INSERT INTO subscriptions (topic, queue) VALUES ('x', 'work')");
    scene.table.run(insert).unwrap();
    scene.all_done();
    scene.record().assert_done_once(&["a", "c"]);
    let left = "SELECT count(*) FROM published_messages";
    let removed = || scene.table.ask(left) == "0";
    scene
        .daemon
        .eventually("what was published to be gone", removed);
    scene.finish();
}

/// Behind the greatest number there is no next one.
fn no_sender_gives_a_message_its_number() {
    let scene = Scene::at(site(""), &[Pool::new(&[])]);
    let numbered = |table: &str, columns: &str| {
        let insert = format!(
            "INSERT INTO {table} (id, {columns}) VALUES (9223372036854775807, 'work', 'a')"
        );
        scene.table.run(&insert).unwrap();
    };
    numbered("consumer_messages", "queue, body");
    scene.site.configure_commands(&[Pool::new(&[])]);
    let server = scene.site.mariadb();
    server.ask("INSERT INTO subscriptions (topic, queue) VALUES ('work', 'work')");
    numbered("published_messages", "topic, body");
    scene.send(&["b"]);
    scene
        .table
        .run("INSERT INTO published_messages (topic, body) VALUES ('work', 'b')")
        .unwrap();
    scene.all_done();
    assert_eq!(scene.record().all(Event::Done).len(), 4);

    let page = include_str!("../../../docs/mysql.md");
    let (_, grant) = page.split_once("```sql\nGRANT INSERT ").unwrap();
    let (grant, _) = grant.split_once(';').unwrap();
    let url = server.url();
    let (_, database) = url.rsplit_once('/').unwrap();
    let user = format!("'{}_sender'@'%'", database);
    let grant = grant.replace(" shop.", &format!(" {database}."));
    let grant = grant.replace("'sender'@'%'", &user);
    server.ask(&format!("CREATE USER {user}; GRANT INSERT {grant}"));
    let granted = "SELECT count(*), SUM(column_name IN ('id', 'attempts', 'owner'))
        FROM information_schema.column_privileges WHERE table_schema = DATABASE()";
    assert_eq!(server.ask(granted), "13|0");
    server.ask(&format!("DROP USER {user}"));
    scene.finish();
}

/// As it would if a trigger that is missing waited for it. The next start makes that.
fn a_long_transaction_holds_up_no_start() {
    let site = site("");
    site.start(&[Pool::new(&[])]).stop();
    site.mariadb().ask("DROP TRIGGER consumer_messages_id");
    let table = site.table();
    table.run("START TRANSACTION").unwrap();
    table
        .run("INSERT INTO consumer_messages (queue, body) VALUES ('other', 'a')")
        .unwrap();
    let scene = Scene::at(site, &[Pool::new(&[])]);
    scene.send(&["b"]);
    scene.daemon.eventually("it to be done", || {
        !scene.record().of(Event::Done, "b").is_empty()
    });
    table.run("COMMIT").unwrap();
    let there = "SELECT count(*) FROM information_schema.triggers
        WHERE trigger_schema = DATABASE() AND trigger_name = 'consumer_messages_id'";
    let server = scene.site.mariadb();
    assert_eq!(server.ask(there), "0");
    scene.daemon.stop();
    scene.site.start(&[Pool::new(&[])]).stop();
    assert_eq!(server.ask(there), "1");
}

/// MySQL keeps passwords in a way of its own: the first time it must see one as it is, by its RSA key
/// where the network is not encrypted, and on the same machine by a socket; later a hash is enough.
fn a_password_goes_to_the_server_as_that_asks() {
    let site = site("");
    let server = site.mariadb();
    let ways: &[&str] = match server.is_mysql() {
        true => &["caching_sha2_password", "mysql_native_password"],
        false => &["mysql_native_password"],
    };
    let socket = server.socket().display().to_string().replace('/', "%2F");
    let url = server.url();
    let (_, database) = url.rsplit_once('/').unwrap();
    for way in ways {
        let user = format!("{database}_{way}").replace("_password", "");
        let by = match server.is_mysql() {
            true => format!("WITH {way} BY"),
            false => "BY".to_owned(),
        };
        server.ask(&format!(
            "CREATE USER {user}@'%' IDENTIFIED {by} 'as long as it is: it\\'s one';
             GRANT ALL ON {database}.* TO {user}@'%'"
        ));
        let password = "as%20long%20as%20it%20is%3A%20it%27s%20one";
        for host in [format!("127.0.0.1:{}", server.port()), socket.clone()] {
            // It is to see it once more.
            server.ask("FLUSH PRIVILEGES");
            let other = format!("mysql://{user}:{password}@{host}/{database}");
            site.configure_commands(&[Pool::new(&[])]);
            let text = std::fs::read_to_string(site.path("ganger.toml")).unwrap();
            site.put("other.toml", &text.replace(&url, &other), false);
            for _ in 0..2 {
                site.ganger(&["check", "--online", "--config", "other.toml"])
                    .good();
            }
        }
        server.ask(&format!("DROP USER {user}@'%'"));
    }
}

/// By MySQL before 8.0.16, too, which makes nothing of `CHECK`.
fn what_no_message_may_be_is_refused_at_the_insert() {
    let site = site("");
    site.configure_commands(&[Pool::new(&[])]);
    site.ganger(&["send", "work", "a"]).good();
    let table = site.table();
    table
        .run("INSERT INTO subscriptions (topic, queue) VALUES ('x', 'work')")
        .unwrap();
    let refused = |insert: &str| {
        let error = table.run(insert).unwrap_err();
        let says = ["constraint", "CONSTRAINT"];
        assert!(says.iter().any(|says| error.contains(says)), "{error}");
    };
    for (column, value) in [
        ("headers", "'{'"),
        ("headers", "'not JSON'"),
        ("available_after", "-1"),
    ] {
        refused(&format!(
            "INSERT INTO consumer_messages (queue, body, {column}) VALUES ('work', 'b', {value})"
        ));
        refused(&format!(
            "INSERT INTO published_messages (topic, body, {column}) VALUES ('x', 'b', {value})"
        ));
    }
    for (column, value) in [("headers", "'[1]'"), ("unsubscribed", "'perhaps'")] {
        refused(&format!(
            "INSERT INTO published_messages (topic, body, {column}) VALUES ('x', 'b', {value})"
        ));
    }
    assert_eq!(table.count("work"), 1);
}

fn what_no_waiting_mends_refuses_the_start() {
    let site = site("");
    site.configure_commands(&[Pool::new(&[])]);
    site.mariadb().ask("CREATE TABLE owners (name text)");
    let complaint = site.ganger(&["run"]).bad(1);
    let says = "the table `owners` in database";
    assert!(complaint.contains(says), "{complaint}");
    let url = site.mariadb().url();
    let (start, _) = url.rsplit_once('/').unwrap();
    for (wrong, says) in [
        (format!("{start}/nowhere"), "to database 'nowhere'"),
        (format!("{url}?ssl-mode=REQUIRED"), "TLS"),
        (url.replace("ganger:", "ganger:not-"), "Access denied"),
        // This machine, by a name that is not known for that.
        (
            url.replace("127.0.0.1", "0.0.0.0"),
            "any host that answers gets the password",
        ),
    ] {
        let text = std::fs::read_to_string(site.path("ganger.toml")).unwrap();
        site.put("wrong.toml", &text.replace(&url, &wrong), false);
        let complaint = site.ganger(&["run", "--config", "wrong.toml"]).bad(1);
        assert!(complaint.contains(says), "{complaint}");
    }
}

/// It says what it is told to say of its version. MySQL can't be told: there is nothing to test on it.
fn a_server_that_is_too_old_is_refused_by_name() {
    if MariaDatabase::shared().is_mysql() {
        return;
    }
    for (version, named) in [
        ("10.5.22-MariaDB", "MariaDB 10.5.22"),
        ("8.0.12", "MySQL 8.0.12"),
    ] {
        let old = MariaDatabase::alone_with(|_| vec![format!("version={version}")]);
        let site = Workspace::on("", "", Some(old));
        site.configure_commands(&[Pool::new(&[])]);
        let complaint = site.ganger(&["run"]).bad(1);
        let says = "table queues need MySQL 8.0.13 or MariaDB 10.6, or a later version";
        assert!(
            complaint.contains(named) && complaint.contains(says),
            "{complaint}"
        );
    }
}

/// That of Maven is built with OpenSSL 1.0, and has no TLS version in common with ganger.
const MYSQL_OF_OTHER_TLS: &str = "8.0.15";

fn the_server_is_checked_as_ssl_mode_says() {
    let (authority, other) = (Authority::shared(), Authority::called("somebody else"));
    let content = |file: &str| std::fs::read_to_string(authority.path(file)).unwrap();
    let database = MariaDatabase::alone_with(|server| {
        let certificate = server.keep("server.pem", &content("server.pem"));
        let key = server.keep("server.key", &content("server.key"));
        vec![
            format!("ssl-cert={}", certificate.display()),
            format!("ssl-key={}", key.display()),
        ]
    });
    let check = |mode: &str, ca_file: Option<&Authority>, host: &str| {
        let url = database.url().replace("127.0.0.1", host);
        let ca_file = ca_file.map(|by| format!("ca_file = {}", quoted(&by.path("ca.pem"))));
        let site = Workspace::with_sections(&format!(
            "[sources.main]\nkind = \"table\"\nurl = \"{url}?ssl-mode={mode}\"\n{}",
            ca_file.unwrap_or_default()
        ));
        site.configure_commands(&[Pool::new(&[])]);
        site.ganger(&["check", "--online"])
    };
    if database.version() == MYSQL_OF_OTHER_TLS {
        for mode in ["DISABLED", "PREFERRED"] {
            check(mode, None, "127.0.0.1").good();
        }
        for mode in ["REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"] {
            let complaint = check(mode, Some(authority), "127.0.0.1").bad(1);
            assert!(
                complaint.contains("no TLS version in common"),
                "{complaint}"
            );
        }
        return;
    }
    for (mode, ca_file, host) in [
        ("DISABLED", None, "127.0.0.1"),
        ("PREFERRED", None, "127.0.0.1"),
        ("REQUIRED", None, "127.0.0.1"),
        ("REQUIRED", Some(authority), "localhost"),
        ("VERIFY_CA", Some(authority), "localhost"),
        ("VERIFY_IDENTITY", Some(authority), "127.0.0.1"),
    ] {
        check(mode, ca_file, host).good();
    }
    for (mode, ca_file, host) in [
        ("REQUIRED", Some(&other), "127.0.0.1"),
        ("VERIFY_CA", Some(&other), "127.0.0.1"),
        ("VERIFY_IDENTITY", Some(&other), "127.0.0.1"),
        ("VERIFY_IDENTITY", Some(authority), "localhost"),
        ("VERIFY_IDENTITY", None, "127.0.0.1"),
    ] {
        let complaint = check(mode, ca_file, host).bad(1);
        assert!(
            complaint.contains("certificate"),
            "{mode} {host}: {complaint}"
        );
    }
}

const MEGABYTE: usize = 1_000_000;

/// As text that doubles where it is escaped, and as bytes of all kinds.
fn a_body_of_ten_megabytes_goes_its_way() {
    let pool = Pool::new(&["--v2=1"])
        .attempts(1)
        .text("frame_bytes_max", "64MiB");
    let scene = Scene::at(site(""), std::slice::from_ref(&pool));
    scene.site.configure_commands(&[pool]);
    let answered = format!("mode:reply-bytes:{} a", 10 * MEGABYTE);
    let quotes = format!("mode:answer:500 {}", "'\\\"".repeat(10 * MEGABYTE / 3));
    let line = json!({ "body": quotes }).to_string();
    scene.site.put("quotes", &line, false);
    scene
        .table
        .insert(&[NewMessage::new(&answered).reply_to("answers")]);
    scene.site.ganger(&["send", "work", "-f", "quotes"]).good();
    let bytes: Vec<u8> = (0..10 * MEGABYTE)
        .map(|n| u8::try_from(n % 251).unwrap())
        .collect();
    let bytes = [b"mode:answer:500 ".as_slice(), &bytes].concat();
    scene.table.insert(&[NewMessage::binary(&bytes)]);
    scene.settled();
    let length = "SELECT LENGTH(body) FROM consumer_messages WHERE queue = 'answers'";
    assert_eq!(scene.table.ask(length), (10 * MEGABYTE).to_string());
    let dead: Vec<_> = scene
        .table
        .dead()
        .into_iter()
        .map(|dead| dead.body)
        .collect();
    assert!(dead.contains(&quotes.into()), "the text is as it was");
    assert!(dead.contains(&bytes.into()), "the bytes are as they were");
    scene.finish();
}

fn what_no_packet_holds_is_refused_and_holds_nobody_up() {
    let pool = Pool::new(&["--v2=1"]).text("frame_bytes_max", "64MiB");
    let scene = Scene::at(site(""), std::slice::from_ref(&pool));
    scene.site.configure_commands(&[pool]);
    let line = json!({ "body": "y".repeat(17 * MEGABYTE) }).to_string();
    scene.site.put("large", &line, false);
    let send = ["send", "work", "-f", "large"];
    let complaint = scene.site.ganger(&send).bad(1);
    assert!(complaint.contains("`max_allowed_packet`"), "{complaint}");
    let answered = format!("mode:reply-bytes:{} a", 17 * MEGABYTE);
    scene
        .table
        .insert(&[NewMessage::new(&answered).reply_to("answers")]);
    scene.send(&["b"]);
    let dead = scene.one_dead();
    assert_eq!(dead.reason, "unroutable_reply");
    assert!(
        dead.error.contains("`max_allowed_packet`"),
        "{}",
        dead.error
    );
    assert_eq!(scene.record().of(Event::Done, "b").len(), 1);
    scene.finish();
}
