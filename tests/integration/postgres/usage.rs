//! What a producer, an operator and a DBA do with it.

use std::time::Duration;

use tokio::time::Instant;

use crate::harness::postgres::PgDatabase;
use crate::harness::tls::quoted;
use crate::harness::{Event, Pool, Scene, Workspace, field, trials};

trials![
    a_commit_wakes_an_idle_daemon,
    tables_that_are_missing_are_named_and_can_be_made_by_hand,
    what_no_waiting_mends_refuses_the_start,
    a_role_that_may_only_read_is_waited_for,
    the_server_is_checked_as_sslmode_says,
    tables_behind_a_prefix_stand_beside_anothers_of_the_same_names,
    a_role_that_sends_has_enough_of_what_the_page_grants,
];

fn scene(source: &str, pool: &Pool) -> Scene {
    let site = Workspace::on("", source, Some(PgDatabase::shared()));
    Scene::at(site, std::slice::from_ref(pool))
}

/// The poll is too rare to explain it.
fn a_commit_wakes_an_idle_daemon() {
    let scene = scene("poll_interval = \"1m\"", &Pool::new(&[]));
    scene.daemon.has_workers(1);
    let sent = Instant::now();
    scene.send(&["a"]);
    scene.all_done();
    let took = sent.elapsed();
    assert!(took < Duration::from_secs(10), "it took {took:?}");
    scene.finish();
}

fn tables_that_are_missing_are_named_and_can_be_made_by_hand() {
    let source = "schema = \"jobs \\\"x\\\"\"\ndeclare = false";
    let site = Workspace::on("", source, Some(PgDatabase::shared()));
    site.configure_commands(&[Pool::new(&[])]);
    let statements = site.ganger(&["schema", "--source", "main"]).good();
    let lacks = |version: usize| {
        let checked = site.ganger(&["check", "--online"]).bad(1);
        let says = format!("lacks version {version} of ganger's tables, and `declare = false`");
        let what_to_do = format!("`ganger schema` from `-- Version {version}` on");
        assert!(
            checked.contains(&says) && checked.contains(&what_to_do),
            "{checked}"
        );
    };
    lacks(1);
    let server = site.postgres();
    let (earlier, later) = statements.split_once("-- Version 4").unwrap();
    server.ask(earlier);
    lacks(4);
    server.ask(&format!("--{later}"));
    site.ganger(&["check", "--online"]).good();
    // What is there is not done again.
    let titles = statements.match_indices("-- Version ").map(|(at, _)| at);
    for at in titles {
        let (step, _) = statements[at..].split_once("COMMIT;").unwrap();
        let refused = site.table().run(&format!("{step}COMMIT;"));
        assert!(refused.is_err(), "{step}");
    }
    site.ganger(&["check", "--online"]).good();
    site.ganger(&["send", "work", "a"]).good();
    let count = "SELECT count(*) FROM \"jobs \"\"x\"\"\".consumer_messages";
    assert_eq!(site.postgres().ask(count), "1");
}

/// Each of the page's rights is for something that does not go without.
fn a_role_that_sends_has_enough_of_what_the_page_grants() {
    const UNIQUE: &str = "INSERT INTO jobs.consumer_messages (queue, body, unique_key)
        VALUES ('work', 'a', 'k') ON CONFLICT (queue, unique_hold) WHERE unique_hold IS NOT NULL";
    let site = Workspace::on("", "schema = \"jobs\"", Some(PgDatabase::shared()));
    site.configure_commands(&[Pool::new(&[])]);
    let schema = site.ganger(&["schema", "--source", "main"]).good();
    let owner = site.postgres();
    owner.ask(&schema);
    let url = owner.url();
    let role = format!("\"sender_{}\"", url.rsplit_once('/').unwrap().1);
    owner.ask(&format!("CREATE ROLE {role}"));
    let sender = site.table();
    sender.run(&format!("SET ROLE {role}")).unwrap();
    let page = include_str!("../../../docs/postgres.md");
    let grants = page.lines().filter(|line| line.starts_with("GRANT "));
    let mut grants = grants.map(|line| line.replace(" shop;", &format!(" {role};")));
    let plain = "INSERT INTO jobs.consumer_messages (queue, body) VALUES ('work', 'a')";
    let replace = "DO UPDATE SET body = excluded.body, headers = excluded.headers,
        available_after = least(excluded.available_after, consumer_messages.created_at + 60000)
        WHERE consumer_messages.owner IS NULL";
    for (rights, statement) in [
        (2, plain.to_owned()),
        (1, format!("{plain} RETURNING id")),
        (1, format!("{UNIQUE} DO NOTHING")),
        (2, format!("{UNIQUE} {replace}")),
    ] {
        for _ in 0..rights {
            sender.run(&statement).unwrap_err();
            owner.ask(&grants.next().expect("a right of the page's"));
        }
        sender.run(&statement).unwrap();
    }
    assert_eq!(grants.next(), None);
    owner.ask(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

fn what_no_waiting_mends_refuses_the_start() {
    let site = Workspace::on("", "", Some(PgDatabase::shared()));
    site.configure_commands(&[Pool::new(&[])]);
    site.postgres().ask("CREATE TABLE owners (name text)");
    let complaint = site.ganger(&["run"]).bad(1);
    let says = "the table `owners` in schema `public` belongs to another program";
    assert!(complaint.contains(says), "{complaint}");
    for (instead, says) in [
        ("/nowhere", "database \"nowhere\" does not exist"),
        ("?sslmode=require", "server does not support TLS"),
    ] {
        let url = site.postgres().url();
        let (start, _) = url.rsplit_once('/').unwrap();
        let wrong = match instead.strip_prefix('/') {
            Some(name) => format!("{start}/{name}"),
            None => format!("{url}{instead}"),
        };
        let text = std::fs::read_to_string(site.path("ganger.toml")).unwrap();
        site.put("wrong.toml", &text.replace(&url, &wrong), false);
        let complaint = site.ganger(&["run", "--config", "wrong.toml"]).bad(1);
        assert!(complaint.contains(says), "{complaint}");
    }
}

/// Some have their databases set so while the disk is full.
fn a_role_that_may_only_read_is_waited_for() {
    let site = Workspace::on("", "", Some(PgDatabase::shared()));
    let pool = Pool::new(&[]);
    site.configure_commands(std::slice::from_ref(&pool));
    site.ganger(&["send", "work", "a"]).good();
    let url = site.postgres().url();
    let (_, name) = url.rsplit_once('/').unwrap();
    let set = |value: &str| {
        let set = format!("ALTER DATABASE {name} SET default_transaction_read_only = {value}");
        site.postgres().psql("postgres", &set);
    };
    set("on");
    let says = "the server is read-only: it is a standby, or `default_transaction_read_only` is on";
    let checked = site.ganger(&["check", "--online"]).bad(1);
    assert!(checked.contains(says), "{checked}");
    let daemon = site.start(&[pool]);
    let trouble = daemon.logged("the table can't be used; intake pauses");
    assert!(field(&trouble, "problem").contains(says), "{trouble}");
    set("off");
    daemon.eventually("it to be done", || {
        site.postgres()
            .ask("SELECT count(*) FROM consumer_messages")
            == "0"
    });
    daemon.stop();
}

fn the_server_is_checked_as_sslmode_says() {
    use crate::harness::tls::Authority;

    let (authority, other) = (Authority::shared(), Authority::called("somebody else"));
    let content = |file: &str| std::fs::read_to_string(authority.path(file)).unwrap();
    let database = PgDatabase::alone_with(|cluster| {
        let certificate = cluster.keep("server.pem", &content("server.pem"));
        let key = cluster.keep("server.key", &content("server.key"));
        vec![
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", certificate.display()),
            format!("ssl_key_file={}", key.display()),
        ]
    });
    let check = |mode: &str, ca_file: Option<&Authority>, host: &str| {
        let url = database.url().replace("127.0.0.1", host);
        let ca_file = ca_file.map(|by| format!("ca_file = {}", quoted(&by.path("ca.pem"))));
        let site = Workspace::with_sections(&format!(
            "[sources.main]\nkind = \"table\"\nurl = \"{url}?sslmode={mode}\"\n{}",
            ca_file.unwrap_or_default()
        ));
        site.configure_commands(&[Pool::new(&[])]);
        site.ganger(&["check", "--online"])
    };
    for (mode, ca_file, host) in [
        ("disable", None, "127.0.0.1"),
        ("prefer", None, "127.0.0.1"),
        ("require", None, "127.0.0.1"),
        ("require", Some(authority), "localhost"),
        ("verify-ca", Some(authority), "localhost"),
        ("verify-full", Some(authority), "127.0.0.1"),
    ] {
        check(mode, ca_file, host).good();
    }
    for (mode, ca_file, host) in [
        ("require", Some(&other), "127.0.0.1"),
        ("verify-ca", Some(&other), "127.0.0.1"),
        ("verify-full", Some(&other), "127.0.0.1"),
        ("verify-full", Some(authority), "localhost"),
        ("verify-full", None, "127.0.0.1"),
    ] {
        let complaint = check(mode, ca_file, host).bad(1);
        assert!(
            complaint.contains("certificate"),
            "{mode} {host}: {complaint}"
        );
    }
}

/// As they are in AsyncMonolith's database.
fn tables_behind_a_prefix_stand_beside_anothers_of_the_same_names() {
    let site = Workspace::on("", "table_prefix = \"q7_\"", Some(PgDatabase::shared()));
    let server = site.postgres();
    server.ask(
        "CREATE TABLE consumer_messages (id text, consumer_type text, payload text);
         CREATE TABLE poisoned_messages (id text, payload text);
         CREATE TABLE owners (id text); CREATE TABLE ganger_version (version int)",
    );
    let subscription = "[[subscriptions]]\ntopic = \"placed\"\nqueue = \"work\"\n";
    let pool = Pool::new(&[]).attempts(1).after(subscription);
    site.configure_commands(std::slice::from_ref(&pool));
    let config = std::fs::read_to_string(site.path("ganger.toml")).unwrap();
    let without = config.replace("table_prefix = \"q7_\"", "");
    site.put("without.toml", &without, false);
    let complaint = site.ganger(&["run", "--config", "without.toml"]).bad(1);
    let says = "the table `consumer_messages` in schema `public` belongs to another program";
    assert!(complaint.contains(says), "{complaint}");
    assert!(complaint.contains("`table_prefix`"), "{complaint}");

    site.ganger(&["check", "--online"]).good();
    let made = "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'q7%'";
    assert_eq!(server.ask(made), "0", "it only looks");

    let daemon = site.start(&[pool]);
    daemon.logged("subscribed the queue to the topic");
    site.ganger(&["send", "work", "a"]).good();
    site.ganger(&["send", "--topic", "placed", "mode:answer:500 b"])
        .good();
    let left = "SELECT (SELECT count(*) FROM q7_consumer_messages), \
                (SELECT count(*) FROM q7_poisoned_messages), (SELECT count(*) FROM q7_owners), \
                (SELECT count(*) FROM consumer_messages)";
    daemon.eventually("one to be done and one to be dead", || {
        server.ask(left) == "0|1|1|0"
    });
    site.record().assert_done_once(&["a"]);
    site.ganger(&["dead", "drop", "--all"]).good();
    assert_eq!(server.ask(left), "0|0|1|0");
    let listed = site.ganger(&["subscriptions", "list"]).good();
    assert!(listed.contains("placed"), "{listed}");
    // Whoever inserts has to know the tables' names alone.
    server.ask("INSERT INTO q7_published_messages (topic, body) VALUES ('placed', 'c')");
    daemon.eventually("it to be done", || {
        site.record().texts(Event::Done).contains(&"c") && server.ask(left) == "0|0|1|0"
    });
    site.ganger(&["subscriptions", "drop", "placed", "work"])
        .good();
    let nobody = site.ganger(&["send", "--topic", "placed", "d"]).bad(1);
    assert!(nobody.contains("no queue is subscribed"), "{nobody}");
    daemon.stop();
    let shown = site.ganger(&["schema", "--source", "main"]).good();
    assert!(
        shown.contains("CREATE TABLE q7_consumer_messages ("),
        "{shown}"
    );
    assert!(
        shown.contains("EXECUTE FUNCTION q7_ganger_wake()"),
        "{shown}"
    );
}
