//! The page for who comes from AsyncMonolith: its rows are taken over, and what its applications go on
//! sending reaches their consumers. Its producers' statements are written by hand.

use std::process::Command;

use super::{run, top};
use crate::harness::{Database, Pool, Workspace, trials_on};
use crate::sdk::dotnet;

trials_on![
    its_rows_are_taken_over,
    what_can_not_be_taken_over_stays_and_is_taken_the_next_time,
    what_is_sent_through_it_is_sent_in_its_transaction,
    the_application_needs_no_more_rights_than_the_page_says,
];

/// What is a server's own.
struct Dialect {
    /// AsyncMonolith's tables, with the columns and the index that they have.
    tables: &'static str,
    /// What the source has in the page's configuration, and what is before ganger's tables by that.
    source: &'static str,
    prefix: &'static str,
    takeover: &'static str,
    bridge: &'static str,
    /// What is a row of its that nobody is to find any more.
    left: &'static str,
    seconds_now: &'static str,
    or_nothing: &'static str,
}

const POSTGRES: Dialect = Dialect {
    tables: "
    CREATE TABLE consumer_messages (
      id text PRIMARY KEY, created_at bigint NOT NULL, available_after bigint NOT NULL,
      attempts integer NOT NULL, consumer_type text NOT NULL, payload_type text NOT NULL,
      payload text NOT NULL, insert_id text NOT NULL, trace_id text, span_id text);
    CREATE UNIQUE INDEX ON consumer_messages (insert_id, consumer_type);
    CREATE TABLE poisoned_messages (LIKE consumer_messages);",
    source: "schema = \"ganger\"",
    prefix: "ganger.",
    takeover: include_str!("../../../samples/migrating/asyncmonolith/postgres/takeover.sql"),
    bridge: include_str!("../../../samples/migrating/asyncmonolith/postgres/bridge.sql"),
    left: "false",
    seconds_now: "floor(extract(epoch FROM now()))",
    or_nothing: "ON CONFLICT (insert_id, consumer_type) DO NOTHING",
};

/// In an old database texts are not in UTF-8.
const MARIADB: Dialect = Dialect {
    tables: "
    CREATE TABLE consumer_messages (
      id varchar(255) PRIMARY KEY, created_at bigint NOT NULL, available_after bigint NOT NULL,
      attempts int NOT NULL, consumer_type varchar(255) NOT NULL, payload_type longtext NOT NULL,
      payload longtext NOT NULL, insert_id varchar(255) NOT NULL, trace_id longtext, span_id longtext,
      UNIQUE KEY (insert_id, consumer_type)) CHARACTER SET latin1;
    CREATE TABLE poisoned_messages (
      id varchar(255) PRIMARY KEY, created_at bigint NOT NULL, available_after bigint NOT NULL,
      attempts int NOT NULL, consumer_type longtext NOT NULL, payload_type longtext NOT NULL,
      payload longtext NOT NULL, insert_id longtext NOT NULL, trace_id longtext, span_id longtext)
      CHARACTER SET latin1;",
    source: "table_prefix = \"ganger_\"",
    prefix: "ganger_",
    takeover: include_str!("../../../samples/migrating/asyncmonolith/mysql/takeover.sql"),
    bridge: include_str!("../../../samples/migrating/asyncmonolith/mysql/bridge.sql"),
    left: "available_after = 9223372036854775807",
    seconds_now: "UNIX_TIMESTAMP()",
    or_nothing: "ON DUPLICATE KEY UPDATE id = id",
};

/// An application's database with its tables and ganger's.
struct Application {
    site: Workspace,
    dialect: &'static Dialect,
}

impl Application {
    fn new() -> Self {
        let database = Database::shared();
        let dialect = match database {
            Database::Postgres(_) => &POSTGRES,
            Database::Mariadb(_) => &MARIADB,
        };
        database.ask(dialect.tables);
        let site = Workspace::on("", dialect.source, Some(database));
        site.configure_commands(&[pool("Mailer", &site)]);
        let schema = site.ganger(&["schema", "--source", "main"]).good();
        site.database().ask(&schema);
        compile(&site);
        Self { site, dialect }
    }

    fn ask(&self, sql: &str) -> String {
        self.site.database().ask(sql)
    }

    /// What its producer does to send, `seconds` from now.
    fn insertion(
        &self,
        id: &str,
        to: &str,
        payload: &str,
        insert_id: &str,
        seconds: i32,
    ) -> String {
        let Dialect {
            seconds_now,
            or_nothing,
            ..
        } = self.dialect;
        format!(
            "INSERT INTO consumer_messages (id, created_at, available_after, attempts, consumer_type,
               payload_type, payload, insert_id, trace_id, span_id)
             VALUES ('{id}', {seconds_now}, {seconds_now} + {seconds}, 0, '{to}', 'Mail', '{payload}',
               '{insert_id}', '0af7651916cd43dd8448eb211c80319c', 'b7ad6b7169203331')
             {or_nothing};"
        )
    }

    fn send(&self, id: &str, to: &str, payload: &str, insert_id: &str, seconds: i32) {
        self.ask(&self.insertion(id, to, payload, insert_id, seconds));
    }

    /// Sends a message, and gives it up.
    fn poison(&self, id: &str, to: &str, payload: &str) {
        self.send(id, to, payload, id, 0);
        self.ask(&format!(
            "INSERT INTO poisoned_messages SELECT * FROM consumer_messages WHERE id = '{id}';
             DELETE FROM consumer_messages WHERE id = '{id}'"
        ));
    }

    /// The messages and the dead letters that are AsyncMonolith's, and those that are ganger's.
    fn counts(&self) -> String {
        let Dialect { prefix, left, .. } = self.dialect;
        self.ask(&format!(
            "SELECT (SELECT count(*) FROM consumer_messages WHERE NOT {left}),
               (SELECT count(*) FROM poisoned_messages),
               (SELECT count(*) FROM {prefix}consumer_messages),
               (SELECT count(*) FROM {prefix}poisoned_messages)"
        ))
    }

    fn mailed(&self) -> Vec<String> {
        let mailed = std::fs::read_to_string(self.site.path("mailed")).unwrap_or_default();
        let mut lines: Vec<String> = mailed.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }
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

fn its_rows_are_taken_over() {
    let application = Application::new();
    let site = &application.site;
    application.send("m-1", "Mailer", "grün", "i-1", 0);
    application.send("m-2", "Mailer", "later", "i-2", 3600);
    application.send("m-3", "Broken", "tried", "i-3", 0);
    application.ask("UPDATE consumer_messages SET attempts = 1 WHERE id = 'm-3'");
    application.poison("m-4", "Mailer", "poisoned");
    application.ask(application.dialect.takeover);
    assert_eq!(application.counts(), "0|0|3|1");
    let Dialect {
        prefix,
        seconds_now,
        ..
    } = application.dialect;
    let delayed = format!(
        "SELECT message_id FROM {prefix}consumer_messages WHERE available_after
           BETWEEN ({seconds_now} + 3500) * 1000 AND ({seconds_now} + 3600) * 1000"
    );
    assert_eq!(application.ask(&delayed), "m-2");
    let daemon = site.start(&[pool("Mailer", site), pool("Broken", site)]);
    daemon.eventually("the first is done", || !application.mailed().is_empty());
    assert_eq!(application.mailed(), ["m-1|Mail|0|grün"]);
    // The second of its two attempts.
    let dead = || site.ganger(&["dead", "list", "--output", "json"]).good();
    daemon.eventually("the other is given up", || dead().contains("Broken"));
    site.ganger(&["dead", "retry", "--pool", "Mailer", "--all"])
        .good();
    daemon.eventually("the poisoned one is done", || {
        application.mailed().len() == 2
    });
    assert_eq!(application.mailed()[1], "m-4|Mail|0|poisoned");
    daemon.stop();
}

/// A time that is no time stands for whatever goes wrong in the middle.
fn what_can_not_be_taken_over_stays_and_is_taken_the_next_time() {
    let application = Application::new();
    let database = application.site.database();
    application.send("m-1", "Mailer", "a", "i-1", 0);
    application.poison("m-2", "Mailer", "b");
    application.poison("m-3", "Mailer", "c");
    let spoil = "UPDATE poisoned_messages SET created_at = 9223372036854775807 WHERE id = 'm-3'";
    application.ask(spoil);
    let takeover = application.dialect.takeover;
    database.table().run(takeover).unwrap_err();
    assert_eq!(application.counts(), "1|2|0|0");
    // A client that goes on.
    let client = database.table();
    let ran: Vec<_> = takeover.split(";\n").map(|one| client.run(one)).collect();
    assert!(ran.iter().any(Result::is_err), "{ran:?}");
    drop(client);
    application.ask("UPDATE poisoned_messages SET created_at = 1 WHERE id = 'm-3'");
    application.ask(takeover);
    assert_eq!(application.counts(), "0|0|1|2");
}

/// On PostgreSQL with the rights that the page gives it; MariaDB's trigger has those of who made it.
fn the_application_needs_no_more_rights_than_the_page_says() {
    let application = Application::new();
    let database = application.site.database();
    if matches!(database, Database::Mariadb(_)) {
        return;
    }
    application.ask(application.dialect.bridge);
    let url = database.url();
    let role = format!("shop_{}", url.rsplit_once('/').unwrap().1);
    application.ask(&format!(
        "CREATE ROLE \"{role}\"; GRANT SELECT, INSERT, DELETE ON consumer_messages TO \"{role}\""
    ));
    let sender = database.table();
    sender.run(&format!("SET ROLE \"{role}\"")).unwrap();
    let insertion = application.insertion("m-1", "Mailer", "a", "i-1", 0);
    for rights in [
        "USAGE ON SCHEMA ganger",
        "INSERT ON ganger.consumer_messages",
        "SELECT (queue, unique_hold) ON ganger.consumer_messages",
    ] {
        sender.run(&insertion).unwrap_err();
        application.ask(&format!("GRANT {rights} TO \"{role}\""));
    }
    sender.run(&insertion).unwrap();
    assert_eq!(application.counts(), "0|0|1|0");
    application.ask(&format!("DROP OWNED BY \"{role}\"; DROP ROLE \"{role}\""));
}

fn what_is_sent_through_it_is_sent_in_its_transaction() {
    let application = Application::new();
    let site = &application.site;
    application.send("m-0", "Mailer", "before", "i-0", 0);
    application.ask(application.dialect.bridge);
    // While nothing works on them, the second of one insert id finds the first.
    for (id, payload) in [("m-1", "first"), ("m-2", "second")] {
        application.send(id, "Mailer", payload, "page:7", 0);
    }
    application.send("m-3", "Mailer", "later", "i-3", 3600);
    for (id, end) in [("m-4", "ROLLBACK"), ("m-5", "COMMIT")] {
        let sent = application.insertion(id, "Mailer", end, id, 0);
        application.ask(&format!("BEGIN; {sent} {end};"));
    }
    assert_eq!(application.counts(), "1|0|3|0");
    application.ask(application.dialect.takeover);
    assert_eq!(application.counts(), "0|0|4|0");
    let daemon = site.start(&[pool("Mailer", site)]);
    daemon.eventually("three are done", || application.mailed().len() == 3);
    let expected = ["m-0|Mail|0|before", "m-1|Mail|0|first", "m-5|Mail|0|COMMIT"];
    assert_eq!(application.mailed(), expected);
    daemon.eventually("the delayed one is left", || {
        application.counts() == "0|0|1|0"
    });
    application.send("m-6", "Mailer", "again", "page:7", 0);
    daemon.eventually("the last is done", || application.mailed().len() == 4);
    let rows = "SELECT count(*) FROM consumer_messages";
    daemon.eventually("nothing stays behind", || application.ask(rows) == "0");
    daemon.stop();
}
