//! What a server tells of the statements that were run: their texts, how many rows each has read, and how
//! many of these were for something.

use std::fmt;

use serde_json::Value;

use crate::harness::mariadb::MariaDatabase;
use crate::harness::postgres::PgDatabase;
use crate::harness::{Base, Database};
use crate::statements::in_one_line;

/// The tables that may be large.
const LARGE: [&str; 11] = [
    "consumer_messages",
    "poisoned_messages",
    "finished_messages",
    "published_messages",
    "occurrences",
    "occurrence_events",
    "occurrence_logs",
    "schedule_outbox",
    "schedules",
    "schedule_versions",
    "ledger_audit",
];

/// A statement may read ten times what it returns, and so many rows on top: it has to look at something to
/// see that there is nothing.
const READ_PER_RETURNED: u64 = 10;
const READ_FOR_NOTHING: u64 = 200;

/// Rows that MariaDB may read where it counts some, of which it says that it returned one.
const COUNTED: u64 = 45_000;

/// One run of a statement.
pub(super) struct Run {
    pub(super) text: String,
    read: u64,
    returned: u64,
    /// How the server went about it, where it says so.
    how: String,
}

impl Run {
    pub(super) fn is_excessive(&self) -> bool {
        self.read > READ_PER_RETURNED * self.returned + READ_FOR_NOTHING
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            text,
            read,
            returned,
            how,
        } = self;
        writeln!(f, "{read} rows read for {returned}: {text}\n{how}")
    }
}

/// A server that tells what it is asked, and how it went about it, with the statistics that it is told to
/// have.
pub(super) fn telling() -> Database {
    match Base::of_this_test() {
        Base::Postgres => PgDatabase::alone_with(|_| {
            let settings = [
                "autovacuum=off",
                "session_preload_libraries=auto_explain",
                "auto_explain.log_min_duration=0",
                "auto_explain.log_analyze=on",
                "auto_explain.log_timing=off",
                "auto_explain.log_nested_statements=on",
                "auto_explain.log_format=json",
                "log_line_prefix=%a ",
            ];
            settings.map(str::to_owned).into()
        })
        .into(),
        _ => {
            let server = MariaDatabase::alone_with(|_| {
                let settings = [
                    "innodb-stats-auto-recalc=OFF",
                    "performance-schema=ON",
                    "performance-schema-consumer-events-statements-current=ON",
                    "performance-schema-consumer-events-statements-history-long=ON",
                    "performance-schema-events-statements-history-long-size=20000",
                    "performance-schema-max-sql-text-length=4096",
                    "performance-schema-max-digest-length=0",
                ];
                settings.map(str::to_owned).into()
            });
            // What the test asks is none of it.
            server.ask(
                "UPDATE performance_schema.setup_actors SET ENABLED = 'NO', HISTORY = 'NO';
                 INSERT INTO performance_schema.setup_actors VALUES ('%', 'ganger', '%', 'YES', 'YES')",
            );
            server.into()
        }
    }
}

/// What the daemon and the commands have had it run since they were asked for last, or ever.
pub(super) fn told(server: &Database) -> Vec<Run> {
    match server {
        Database::Postgres(server) => told_by_postgres(server),
        Database::Mariadb(server) => told_by_mariadb(server),
    }
}

fn told_by_postgres(server: &PgDatabase) -> Vec<Run> {
    let log = server.log();
    let plans = log.split("\nganger").skip(1);
    let plans = plans.filter_map(|record| record.split_once("  plan:\n"));
    plans.map(|(_, plan)| run_of(plan)).collect()
}

fn run_of(plan: &str) -> Run {
    let lines = plan.lines();
    let lines: Vec<&str> = lines.map_while(|line| line.strip_prefix('\t')).collect();
    let told: Value = serde_json::from_str(&lines.join("\n")).unwrap();
    let plan = &told["Plan"];
    Run {
        text: in_one_line(told["Query Text"].as_str().unwrap()),
        read: sum(plan, &read),
        returned: of_use(plan) + sum(plan, &counted),
        how: plan.to_string(),
    }
}

/// Adds up what is so of a node and of all below it.
fn sum(node: &Value, of: &impl Fn(&Value) -> u64) -> u64 {
    let below = node["Plans"].as_array().into_iter().flatten();
    of(node) + below.map(|node| sum(node, of)).sum::<u64>()
}

/// Rows of a large table that a node has read.
fn read(node: &Value) -> u64 {
    let is_large = LARGE.iter().any(|table| node["Relation Name"] == *table);
    let removed = ["Rows Removed by Filter", "Rows Removed by Index Recheck"];
    match node["Node Type"].as_str() {
        Some(kind) if kind.ends_with("Scan") && is_large => {
            let removed = removed.iter().map(|removed| number(&node[*removed]));
            let each = number(&node["Actual Rows"]) + removed.sum::<f64>();
            whole(each * number(&node["Actual Loops"]))
        }
        _ => 0,
    }
}

/// Rows that a node has put together, where it counts them.
fn counted(node: &Value) -> u64 {
    match node["Node Type"] == "Aggregate" {
        true => of_what_is_below(node),
        false => 0,
    }
}

/// Rows that come out of a node, or are changed by it.
fn of_use(node: &Value) -> u64 {
    match node["Node Type"] == "ModifyTable" {
        true => of_what_is_below(node),
        false => whole(number(&node["Actual Rows"]) * number(&node["Actual Loops"])),
    }
}

fn of_what_is_below(node: &Value) -> u64 {
    let below = node["Plans"].as_array().into_iter().flatten();
    let inputs = below.filter(|node| node["Parent Relationship"] == "Outer");
    inputs.map(of_use).sum()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of rows"
)]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

fn told_by_mariadb(server: &MariaDatabase) -> Vec<Run> {
    let told = server.ask(
        "SELECT rows_examined, rows_sent + rows_affected,
           REPLACE(REPLACE(CONVERT(sql_text USING utf8mb4), CHAR(10), ' '), 'NULL', 'null')
         FROM performance_schema.events_statements_history_long
         WHERE sql_text IS NOT NULL AND event_name <> 'statement/sql/show_variables';
         TRUNCATE TABLE performance_schema.events_statements_history_long",
    );
    let run = |line: &str| {
        let mut columns = line.splitn(3, '|');
        let mut number = || columns.next().unwrap().parse::<u64>().unwrap();
        let (read, returned) = (number(), number());
        // Behind it is what was told at once with it, which comes by itself, too.
        let text = columns.next().unwrap().split(';').next();
        let text = in_one_line(text.unwrap_or_default());
        let returned = match text.contains("COUNT(*)") {
            true => COUNTED / READ_PER_RETURNED,
            false => returned,
        };
        let how = String::new();
        Run {
            text,
            read,
            returned,
            how,
        }
    };
    told.lines().map(run).collect()
}
