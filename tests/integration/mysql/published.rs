//! What is published there: by triggers, which a restored database may lack, and in a table of the first
//! version.

use crate::harness::mariadb::MariaDatabase;
use crate::harness::{Pool, Scene, Workspace, trials};

trials![
    what_was_published_without_a_trigger_is_kept_and_told_of,
    a_table_of_the_first_version_is_made_anew,
    a_table_of_the_first_version_serves_who_may_make_no_trigger,
];

fn site() -> Workspace {
    Workspace::on("", "", Some(MariaDatabase::shared()))
}

const LEFT: &str = "SELECT count(*) FROM published_messages";

fn subscribed(site: &Workspace) {
    site.mariadb()
        .ask("INSERT INTO subscriptions (topic, queue) VALUES ('x', 'work')");
}

/// As it is after a restore without them. What follows goes its way, and is removed.
fn what_was_published_without_a_trigger_is_kept_and_told_of() {
    let scene = Scene::at(site(), &[Pool::new(&[])]);
    scene.daemon.has_workers(1);
    subscribed(&scene.site);
    let server = scene.site.mariadb();
    server.ask(
        "RENAME TABLE published_messages TO before_it;
         CREATE TABLE published_messages LIKE before_it;
         INSERT INTO published_messages (topic, body) VALUES ('x', 'nobody''s')",
    );
    let record = scene.daemon.logged("published rows were not delivered");
    let problem = record["problem"].as_str().unwrap();
    assert!(problem.contains("published_messages_fan_out"), "{problem}");
    server.ask(
        "INSERT INTO before_it (topic, body) VALUES ('x', 'a');
         RENAME TABLE published_messages TO without_it, before_it TO published_messages;
         INSERT INTO published_messages (topic, body) SELECT topic, body FROM without_it",
    );
    // By its trigger it is a message now, and no row is left that is none.
    let gone = || server.ask(LEFT) == "0";
    scene
        .daemon
        .eventually("what has become messages to be gone", gone);
    assert_eq!(server.ask("SELECT count(*) FROM without_it"), "1");
    scene.all_done();
    scene.record().assert_done_once(&["a", "nobody's"]);
    scene.finish();
}

/// As the first version has left it, with a row that no daemon has removed yet.
fn make_first_version(site: &Workspace) {
    site.mariadb().ask(
        "DROP TABLE published_messages;
         CREATE TABLE published_messages (
           id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
           topic VARCHAR(255) NOT NULL,
           body LONGBLOB NOT NULL,
           unsubscribed VARCHAR(255) NOT NULL DEFAULT 'fail'
         ) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
         CREATE TRIGGER ganger_fan_out AFTER INSERT ON published_messages FOR EACH ROW
           INSERT INTO consumer_messages (queue, body) SELECT queue, NEW.body FROM subscriptions
           WHERE topic = NEW.topic;
         DELETE FROM ganger_version WHERE version > 1;
         INSERT INTO published_messages (topic, body) VALUES ('x', 'before')",
    );
}

/// Without a daemon yet.
fn a_table_of_the_first_version_is_made_anew() {
    let site = site();
    let pool = Pool::new(&[]);
    site.configure_commands(std::slice::from_ref(&pool));
    site.ganger(&["send", "work", "first"]).good();
    subscribed(&site);
    make_first_version(&site);
    let daemon = site.start(&[pool]);
    let table = site.table();
    daemon.eventually("all that was there to be done", || table.count("work") == 0);
    let marked = "SELECT count(*) FROM information_schema.columns
                  WHERE table_schema = DATABASE() AND column_name = 'fanned_out'";
    assert_eq!(table.ask(marked), "1");
    assert_eq!(table.ask("SELECT max(version) FROM ganger_version"), "3");
    table
        .run("INSERT INTO published_messages (topic, body) VALUES ('x', 'after')")
        .unwrap();
    let done = || table.count("work") == 0 && table.ask(LEFT) == "0";
    daemon.eventually("what was published to be done and gone", done);
    site.record()
        .assert_done_once(&["first", "before", "after"]);
    daemon.stop();
}

fn a_table_of_the_first_version_serves_who_may_make_no_trigger() {
    let database = MariaDatabase::alone();
    let site = Workspace::on("", "", Some(database));
    let pool = Pool::new(&[]);
    site.configure_commands(std::slice::from_ref(&pool));
    site.ganger(&["send", "work", "first"]).good();
    subscribed(&site);
    make_first_version(&site);
    let server = site.mariadb();
    server.ask("SET GLOBAL log_bin_trust_function_creators = OFF");
    let daemon = site.start(&[pool]);
    let record = daemon.logged("published rows were not delivered");
    let problem = record["problem"].as_str().unwrap();
    assert!(problem.contains("`ganger schema`"), "{problem}");
    let table = site.table();
    let done = || table.count("work") == 0 && table.ask(LEFT) == "0";
    daemon.eventually("what was published to be done and gone", done);
    let shown = site.ganger(&["schema", "--source", "main"]).good();
    server.ask(&shown);
    table
        .run("INSERT INTO published_messages (topic, body) VALUES ('x', 'after')")
        .unwrap();
    daemon.eventually("what was published to be done and gone", done);
    site.record()
        .assert_done_once(&["first", "before", "after"]);
    daemon.stop();
}
