//! How the server goes about what the daemon asks of it: by an index, in the order of that, whatever else is
//! in the tables. A claim that sorts what waits locks all of it; a look twice a second that reads a table of
//! millions is what the server does then.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::harness::mariadb::MariaDatabase;
use crate::harness::postgres::PgDatabase;
use crate::harness::{Base, Database, Event, Pool, Workspace, trials_on};

trials_on![nothing_sorts_what_waits_or_reads_a_whole_table,];

/// The tables that may be large.
const LARGE: [&str; 3] = [
    "consumer_messages",
    "poisoned_messages",
    "finished_messages",
];

/// What makes each kind of work: rows that are due, suspect, or spent, with a key whose time is over, to be
/// answered, tried again, put back, given up, or refused.
const WORK: &str = "
INSERT INTO consumer_messages (queue, body, priority, available_after) VALUES ('work', 'due', 9, 1);
INSERT INTO consumer_messages (queue, body, priority, lapses) VALUES ('work', 'one', 9, 2), ('work', 'two', 9, 30);
INSERT INTO consumer_messages (queue, body, unique_key, unique_scope, unique_until)
VALUES ('other', 'over', 'over', 'until', 1);
INSERT INTO consumer_messages (queue, body, priority, message_id, reply_to) VALUES
  ('work', 'mode:reply', 9, 'a', 'answers'), ('work', 'mode:answer:500', 9, 'b', NULL),
  ('work', 'mode:unless:there:300', 9, 'c', NULL), ('work', 'refused', 9, 'd', NULL);
INSERT INTO consumer_messages (queue, body, priority) VALUES ('work', 'mode:wait:never', -9);
INSERT INTO published_messages (topic, body) VALUES ('placed', 'x');";

/// What there is left of these that is to be gone, or let go.
const LEFT: &str = "
SELECT (SELECT count(*) FROM consumer_messages WHERE queue = 'work' AND available_after < 4102444800000)
  + (SELECT count(*) FROM consumer_messages WHERE unique_key = 'over' AND unique_released = 0)
  + (SELECT count(*) FROM published_messages)
  + (SELECT count(*) FROM finished_messages WHERE expires_at = 1)";

/// Parts of the statements for a claim, a look, counts, keys, what is finished, what a dead daemon had, and
/// the search for what is refused.
const KINDS: [&str; 8] = [
    "m.requeues",
    "EXISTS (SELECT",
    "AS ready)",
    "unique_until <=",
    "DELETE FROM finished_messages",
    "CASE WHEN suspicion >",
    "owner NOT IN (SELECT id FROM owners)",
    "(headers) <>",
];

fn nothing_sorts_what_waits_or_reads_a_whole_table() {
    let site = Workspace::on(
        r#"drain_timeout = "1s""#,
        r#"lease = "2s""#,
        Some(logging()),
    );
    let pool = Pool::new(&["--v2=1"])
        .set("workers", "{ min = 1, max = 2 }")
        .set("idempotency", "{ window = \"1s\" }")
        .after("[[subscriptions]]\ntopic = \"placed\"\nqueue = \"work\"\n");
    let server = site.database();
    let mut daemon = site.start(std::slice::from_ref(&pool));
    daemon.logged("subscribed the queue to the topic");
    daemon.stop();
    server.refuse_changes("OLD.body = 'refused'");
    server.ask(&others());
    server.ask(WORK);
    daemon = site.start(std::slice::from_ref(&pool));
    let begun = |body: &str| site.record().of(Event::Began, body).len();
    daemon.eventually("it to be put back", || begun("mode:unless:there:300") > 0);
    site.touch("there");
    daemon.eventually("all to be done", || {
        begun("mode:wait:never") == 1 && server.ask(LEFT) == "2"
    });
    daemon.crash();
    daemon = site.start(std::slice::from_ref(&pool));
    daemon.eventually("it to be taken back", || begun("mode:wait:never") == 2);
    daemon.crash();
    // As it was, for one that is asked now.
    server.ask(&ready(2000));
    server.ask(WORK);
    let told = match server {
        Database::Postgres(server) => told_by_postgres(server),
        Database::Mariadb(server) => told_by_mariadb(server),
    };
    for one in KINDS {
        let asked = told.keys().any(|statement| statement.contains(one));
        assert!(asked, "nobody asked for {one}");
    }
    let bad: Vec<_> = told.iter().filter(|(_, plan)| !plan.is_empty()).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

/// So many numbers, as a table.
fn numbers(upto: u32) -> String {
    match Base::of_this_test() {
        // In words that MySQL has, too.
        Base::Mariadb => format!(
            "JSON_TABLE(CONCAT('[0', REPEAT(',0', {upto} - 1), ']'), '$[*]'
               COLUMNS (n FOR ORDINALITY)) AS numbers"
        ),
        _ => format!("generate_series(1, {upto}) AS numbers(n)"),
    }
}

/// Rows that are ready.
fn ready(rows: u32) -> String {
    let numbers = numbers(rows);
    format!(
        "INSERT INTO consumer_messages (queue, body, priority)
         SELECT 'work', 'x', n % 3 FROM {numbers};"
    )
}

/// Rows that nobody is to read: another queue's, for a later time, with keys, given up, finished. Some that
/// are ready.
fn others() -> String {
    let (numbers, ready) = (numbers(10_000), ready(2000));
    let (key, token, zero, counts) = match Base::of_this_test() {
        Base::Mariadb => ("`key`", ", token", ", 0", "ANALYZE TABLE"),
        _ => ("key", "", "", "ANALYZE"),
    };
    format!(
        "{ready}
         INSERT INTO consumer_messages (queue, body, priority) SELECT 'other', 'x', n % 3 FROM {numbers};
         INSERT INTO consumer_messages (queue, body, available_after)
         SELECT 'work', 'x', 4102444800000 + n FROM {numbers};
         INSERT INTO consumer_messages (queue, body, unique_key, unique_scope, unique_until)
         SELECT 'other', 'x', n, 'until', 4102444800000 FROM {numbers};
         INSERT INTO poisoned_messages (pool, queue, reason, error, attempts, crashes, lapses, oom, stderr,
           first_failed_at, last_failed_at, body, headers, priority, created_at)
         SELECT 'work', 'work', 'failed', 'x', 1, 0, 0, 0, '[]', 1, 1, 'x', '{{}}', 0, 1 FROM {numbers};
         INSERT INTO finished_messages (source, queue, {key}, emit_id, step, finished_at, expires_at{token})
         SELECT 'main', 'work', n, '', 0, 1, CASE n WHEN 1 THEN 1 ELSE 4102444800000 END{zero} FROM {numbers};
         {counts} consumer_messages, poisoned_messages, finished_messages"
    )
}

/// A server that tells what it was asked, and, if it is PostgreSQL, how it went about it.
fn logging() -> Database {
    match Base::of_this_test() {
        Base::Postgres => PgDatabase::alone_with(|_| {
            let settings = [
                "session_preload_libraries=auto_explain",
                "auto_explain.log_min_duration=0",
                "auto_explain.log_format=json",
                "log_line_prefix=%a ",
            ];
            settings.map(str::to_owned).into()
        })
        .into(),
        _ => MariaDatabase::alone_with(|_| {
            let settings = ["general-log=ON", "log-output=TABLE"];
            settings.map(str::to_owned).into()
        })
        .into(),
    }
}

/// The statements of the daemon's connections, and what is wrong with their plans, as they were made then.
fn told_by_postgres(server: &PgDatabase) -> BTreeMap<String, Vec<String>> {
    let log = server.log();
    let mut told = BTreeMap::new();
    for record in log.split("\nganger").skip(1) {
        let Some((_, plan)) = record.split_once("  plan:\n") else {
            continue;
        };
        let lines: Vec<&str> = plan
            .lines()
            .map_while(|line| line.strip_prefix('\t'))
            .collect();
        let plan: Value = serde_json::from_str(&lines.join("\n")).unwrap();
        let problems: &mut Vec<String> = told
            .entry(plan["Query Text"].as_str().unwrap().to_owned())
            .or_default();
        if let Some(problem) = wrong_in_postgres(&plan["Plan"]) {
            problems.push(problem);
        }
    }
    told
}

fn wrong_in_postgres(node: &Value) -> Option<String> {
    let kind = node["Node Type"].as_str()?;
    let is_large = |node: &Value| LARGE.iter().any(|table| node["Relation Name"] == *table);
    let reads_all = kind == "Seq Scan" && is_large(node);
    let sorts = kind == "Sort" && any(node, &|below| is_large(below));
    let below = node["Plans"].as_array().into_iter().flatten();
    (reads_all || sorts)
        .then(|| node.to_string())
        .or_else(|| below.filter_map(wrong_in_postgres).next())
}

/// The same from a server that is asked for the plans now.
fn told_by_mariadb(server: &MariaDatabase) -> BTreeMap<String, Vec<String>> {
    let asked = server.ask(
        "SET GLOBAL general_log = OFF;
         SELECT DISTINCT REPLACE(REPLACE(CONVERT(argument USING utf8mb4), CHAR(10), ' '), 'NULL', 'null') FROM mysql.general_log
         WHERE command_type = 'Query' AND user_host LIKE 'ganger%'",
    );
    let mut told = BTreeMap::new();
    // What is told at once is one text there.
    for statement in asked
        .lines()
        .flat_map(|told| told.split(';'))
        .map(str::trim)
    {
        let verb = statement.split(' ').next().unwrap();
        let known = ["SELECT", "UPDATE", "DELETE"].contains(&verb);
        let known = known || statement.starts_with("INSERT") && statement.contains("SELECT");
        let shape = shape(statement);
        if !known || statement.contains("NEW.") || told.contains_key(&shape) {
            continue;
        }
        let plan = server.ask(&format!("EXPLAIN FORMAT=JSON {statement}"));
        let plan: Value = serde_json::from_str(&plan).unwrap();
        told.insert(shape, wrong_in_mariadb(&plan).into_iter().collect());
    }
    told
}

/// A statement without its values.
fn shape(statement: &str) -> String {
    let mut shape = String::new();
    for (place, part) in statement.split('\'').enumerate() {
        match place % 2 {
            0 => shape.extend(part.chars().filter(|c| !c.is_ascii_digit() && *c != ',')),
            _ => shape.push('?'),
        }
    }
    shape
}

fn wrong_in_mariadb(plan: &Value) -> Option<String> {
    // By their aliases, too.
    let is_large = |node: &Value| {
        let names = LARGE.iter().chain(&["m", "k"]);
        names.into_iter().any(|name| node["table_name"] == **name)
    };
    let reads_all = |node: &Value| is_large(node) && node["access_type"] == "ALL";
    // MariaDB has what it sorts within, MySQL says of each order whether it sorts for it.
    let sorts = |node: &Value| {
        any(&node["filesort"], &is_large) || node["using_filesort"] == true && any(node, &is_large)
    };
    any(plan, &|node| reads_all(node) || sorts(node)).then(|| plan.to_string())
}

/// Whether it is so of a value or of any in it.
fn any(value: &Value, is_so: &impl Fn(&Value) -> bool) -> bool {
    let within = match value {
        Value::Object(fields) => fields.values().any(|field| any(field, is_so)),
        Value::Array(values) => values.iter().any(|one| any(one, is_so)),
        _ => false,
    };
    is_so(value) || within
}
