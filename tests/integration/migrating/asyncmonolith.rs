//! The page for who comes from AsyncMonolith: its rows are taken over, and what its applications go on
//! sending reaches their consumers. Its producers' statements are written by hand.

use std::process::Command;

use super::{run, top};
use crate::harness::postgres::PgDatabase;
use crate::harness::{Pool, Workspace, trials};
use crate::sdk::dotnet;

trials![
    its_rows_are_taken_over,
    what_is_sent_through_it_is_sent_in_its_transaction,
];

/// Its tables, with the columns and the index that it has.
const TABLES: &str = "
    CREATE TABLE consumer_messages (
      id text PRIMARY KEY, created_at bigint NOT NULL, available_after bigint NOT NULL,
      attempts integer NOT NULL, consumer_type text NOT NULL, payload_type text NOT NULL,
      payload text NOT NULL, insert_id text NOT NULL, trace_id text, span_id text);
    CREATE UNIQUE INDEX ON consumer_messages (insert_id, consumer_type);
    CREATE TABLE poisoned_messages (LIKE consumer_messages);";

const TAKEOVER: &str = include_str!("../../../samples/migrating/asyncmonolith/takeover.sql");
const BRIDGE: &str = include_str!("../../../samples/migrating/asyncmonolith/bridge.sql");

/// A database of an application with its tables and ganger's.
fn site() -> Workspace {
    let database = PgDatabase::shared();
    database.ask(TABLES);
    let site = Workspace::on("", "schema = \"ganger\"", Some(database));
    site.configure_commands(&[pool("Mailer", &site)]);
    let schema = site.ganger(&["schema", "--source", "main"]).good();
    site.postgres().ask(&schema);
    compile(&site);
    site
}

/// The pool of one of the consumers, in a folder that has their program.
fn pool(consumer: &str, site: &Workspace) -> Pool {
    let program = site.path("Consumers.exe");
    let libraries = dotnet::compiled();
    let libraries = libraries.parent().unwrap().to_str().unwrap();
    let pool = Pool::of_program("mono", &[program.to_str().unwrap()]).env("MONO_PATH", libraries);
    let pool = pool.text("cwd", site.path("").to_str().unwrap());
    pool.text("name", consumer).text("queue", consumer)
}

fn compile(site: &Workspace) {
    let mut compile = Command::new("mcs");
    compile.args(["-langversion:7.2", "-warnaserror"]);
    compile.arg(format!("-r:{}", dotnet::compiled().display()));
    compile.arg(format!("-out:{}", site.path("Consumers.exe").display()));
    compile.arg(top("samples/migrating/asyncmonolith/ConsumerWorker.cs"));
    run(compile.arg(top("tests/integration/migrating/AsyncMonolith.cs")));
}

/// As its producer for PostgreSQL does it, `seconds` from now.
fn produce(id: &str, consumer: &str, payload: &str, insert_id: &str, seconds: i32) -> String {
    format!(
        "INSERT INTO consumer_messages (id, created_at, available_after, attempts, consumer_type,
           payload_type, payload, insert_id, trace_id, span_id)
         VALUES ('{id}', floor(extract(epoch FROM now())),
           floor(extract(epoch FROM now())) + {seconds}, 0, '{consumer}', 'Mail', '{payload}',
           '{insert_id}', '0af7651916cd43dd8448eb211c80319c', 'b7ad6b7169203331')
         ON CONFLICT (insert_id, consumer_type) DO NOTHING;"
    )
}

fn mailed(site: &Workspace) -> Vec<String> {
    let mailed = std::fs::read_to_string(site.path("mailed")).unwrap_or_default();
    let mut lines: Vec<String> = mailed.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn its_rows_are_taken_over() {
    let site = site();
    let server = site.postgres();
    server.ask(&produce("m-1", "Mailer", "now", "i-1", 0));
    server.ask(&produce("m-2", "Mailer", "later", "i-2", 3600));
    server.ask(&produce("m-3", "Broken", "tried", "i-3", 0));
    server.ask("UPDATE consumer_messages SET attempts = 1 WHERE id = 'm-3'");
    server.ask(&produce("m-4", "Mailer", "poisoned", "i-4", 0));
    server.ask(
        "INSERT INTO poisoned_messages SELECT * FROM consumer_messages WHERE id = 'm-4';
         DELETE FROM consumer_messages WHERE id = 'm-4'",
    );
    server.ask(TAKEOVER);
    let left = "SELECT count(*) FROM consumer_messages";
    assert_eq!(server.ask(left), "0");
    let delayed =
        "SELECT message_id, available_after BETWEEN (extract(epoch FROM now()) + 3500) * 1000
                     AND (extract(epoch FROM now()) + 3600) * 1000
                   FROM ganger.consumer_messages WHERE available_after > 0";
    assert_eq!(server.ask(delayed), "m-2|t");
    let daemon = site.start(&[pool("Mailer", &site), pool("Broken", &site)]);
    daemon.eventually("the first is done", || !mailed(&site).is_empty());
    assert_eq!(mailed(&site), ["m-1|Mail|0|now"]);
    // The second of its two attempts.
    let dead = || site.ganger(&["dead", "list", "--output", "json"]).good();
    daemon.eventually("the other is given up", || dead().contains("Broken"));
    site.ganger(&["dead", "retry", "--pool", "Mailer", "--all"])
        .good();
    daemon.eventually("the poisoned one is done", || mailed(&site).len() == 2);
    assert_eq!(mailed(&site)[1], "m-4|Mail|0|poisoned");
    daemon.stop();
}

fn what_is_sent_through_it_is_sent_in_its_transaction() {
    let site = site();
    let server = site.postgres();
    server.ask(BRIDGE);
    // While nothing works on them, the second of one insert id finds the first.
    for (id, payload) in [("m-1", "first"), ("m-2", "second")] {
        server.ask(&produce(id, "Mailer", payload, "page:7", 0));
    }
    for (id, end) in [("m-3", "ROLLBACK"), ("m-4", "COMMIT")] {
        let sent = produce(id, "Mailer", end, id, 0);
        server.ask(&format!("BEGIN; {sent} {end};"));
    }
    assert_eq!(server.ask("SELECT count(*) FROM consumer_messages"), "0");
    let daemon = site.start(&[pool("Mailer", &site)]);
    daemon.eventually("both are done", || mailed(&site).len() == 2);
    assert_eq!(mailed(&site), ["m-1|Mail|0|first", "m-4|Mail|0|COMMIT"]);
    let left = "SELECT count(*) FROM ganger.consumer_messages";
    daemon.eventually("nothing is left", || server.ask(left) == "0");
    server.ask(&produce("m-5", "Mailer", "again", "page:7", 0));
    daemon.eventually("the third is done", || mailed(&site).len() == 3);
    daemon.stop();
}
