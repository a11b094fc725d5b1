//! The other commands: the demo, checking and printing the configuration, completions, and what
//! every command line has in common.

use std::fs;

use serde_json::Value;

use crate::harness::postgres::PgDatabase;
use crate::harness::{Api, Event, Pool, Seat, Workspace, trials};
use crate::modes_worker;

trials![
    the_demo_kills_workers_and_loses_nothing,
    the_demo_of_schedules_loses_no_slot,
    the_demo_for_people,
    the_demo_on_a_terminal,
    the_demo_in_a_browser,
    the_demo_with_ones_own_worker,
    the_demo_with_a_worker_that_fails,
    the_demo_on_a_server,
    the_demo_where_there_is_no_server,
    a_good_configuration,
    every_problem_is_told_at_once,
    errors_are_one_line_where_there_is_no_terminal,
    a_program_that_is_not_there,
    a_database_that_can_not_be_opened,
    a_printed_configuration_says_the_same,
    no_secret_is_printed,
    the_schema_is_json,
    completions_for_each_shell,
    help_and_version,
    a_command_line_that_makes_no_sense,
    a_missing_configuration_is_named,
    a_daemon_that_can_not_start_says_why,
];

/// What scripts rely on.
const DEMO_KEYS: [&str; 10] = [
    "sent",
    "done",
    "lost",
    "retried",
    "duplicates",
    "workers_killed",
    "seconds",
    "messages_per_second",
    "p50_ms",
    "p99_ms",
];

fn demo(more: &[&str]) -> Value {
    let args = [&["demo", "--output", "json"], more].concat();
    let told = Workspace::new().ganger(&args).json();
    for key in DEMO_KEYS {
        assert!(told[key].is_number(), "{key} in {told}");
    }
    told
}

fn the_demo_kills_workers_and_loses_nothing() {
    let told = demo(&[
        "--messages",
        "300",
        "--workers",
        "3",
        "--kill-every",
        "100ms",
        "--burst",
        "100",
    ]);
    assert_eq!(told["lost"], 0, "{told}");
    assert_eq!((&told["sent"], &told["done"]), (&300.into(), &300.into()));
    let killed = told["workers_killed"].as_u64().unwrap();
    assert!(killed >= 1, "{told}");
    // One message at a time in each worker's hands.
    let again = ["retried", "duplicates"].map(|key| told[key].as_u64().unwrap());
    assert!(again.iter().all(|count| *count <= killed), "{told}");
    assert!(told["p50_ms"].as_f64() <= told["p99_ms"].as_f64(), "{told}");
    assert_eq!(told["burst"]["messages"], 100, "{told}");
    let burst = ["seconds", "messages_per_second"].map(|key| told["burst"][key].as_f64().unwrap());
    assert!(burst[0] > 0.001, "they take their time: {told}");
    assert!((burst[0] * burst[1] - 100.0).abs() < 1.0, "{told}");
}

fn the_demo_of_schedules_loses_no_slot() {
    let told = demo(&[
        "--messages",
        "205",
        "--schedules",
        "100",
        "--kill-every",
        "100ms",
        "--burst",
        "0",
    ]);
    assert_eq!(
        (&told["sent"], &told["schedules"]),
        (&205.into(), &100.into())
    );
    assert_eq!(
        (&told["done"], &told["lost"]),
        (&205.into(), &0.into()),
        "{told}"
    );
    assert!(told["workers_killed"].as_u64().unwrap() >= 1, "{told}");
    assert!(told["seconds"].as_f64().unwrap() > 2.0, "two slots: {told}");
}

fn the_demo_for_people() {
    let site = Workspace::new();
    let args = [
        "demo",
        "--messages",
        "100",
        "--workers",
        "2",
        "--kill-every",
        "100ms",
        "--burst",
        "100",
    ];
    let ran = site.ganger(&args);
    assert!(
        ran.err.contains("100 messages, 2 worker processes"),
        "{ran:?}"
    );
    assert!(
        ran.err.contains("SIGKILL"),
        "it says whom it kills: {ran:?}"
    );
    assert!(
        ran.err.contains(" of 100 done, ") && ran.err.contains(" 0 lost, "),
        "how far it is, in lines: {ran:?}"
    );
    assert!(!ran.err.contains(['\r', '\u{1b}']), "plain lines: {ran:?}");
    let out = ran.good();
    let row = |name: &str| {
        let line = out.lines().find_map(|line| line.trim().strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {out}"))
            .trim()
            .to_owned()
    };
    assert_eq!(
        (row("sent"), row("done"), row("lost")),
        ("100".into(), "100".into(), "0".into())
    );
    for name in [
        "retried",
        "duplicates",
        "messages/s",
        "p50",
        "p99",
        "without work",
    ] {
        assert!(!row(name).is_empty());
    }
}

/// A line for each worker, one of which has just been killed, and a bar.
fn the_demo_on_a_terminal() {
    let text = Workspace::new().shown(&[
        "demo",
        "--messages",
        "300",
        "--workers",
        "14",
        "--kill-every",
        "100ms",
        "--burst",
        "0",
    ]);
    for part in [
        "300 messages, 14 worker processes",
        "worker 0 ",
        "worker 11 ",
        "and 2 more",
        "answered",
        "killed with SIGKILL, messages in hand: ",
        "/300 done, ",
        " 0 lost, ",
        "\u{1b}[",
    ] {
        assert!(text.contains(part), "{part:?} in {text:?}");
    }
    for part in ["worker 12 ", "without work"] {
        assert!(!text.contains(part), "{part:?} in {text:?}");
    }
}

/// It begins when somebody has the page open, and ends when they have seen enough.
fn the_demo_in_a_browser() {
    let site = Workspace::new();
    let args = ["demo", "--ui", "--messages", "300", "--burst", "0"];
    let mut seat = Seat::take(&site.path(""), (200, 50), &args, &[]);
    seat.shows("Open it, then press Enter");
    let text = seat.text();
    let (_, url) = text.split_once("http://127.0.0.1:").unwrap();
    let url = url.split_whitespace().next().unwrap();
    let (port, path) = url.split_once('/').unwrap();
    let browser = Api::Port(port.parse().unwrap());
    let page = browser.get(&format!("/{path}"));
    assert_eq!(page.status, 200, "{page:?}");
    let cookie = page
        .head
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = format!("Cookie: {}", cookie.unwrap().split(';').next().unwrap());
    let home = || browser.ask("GET", "/ui", &[&cookie], "").body;
    assert!(home().contains(" pool with "), "{}", home());
    seat.press("\n");
    seat.shows("Press Enter to end");
    let done = home();
    assert!(done.contains("All is well"), "{done}");
    seat.press("\n");
    assert!(seat.left().success());
}

/// The tests' own worker, told by a shell where to record.
fn the_demo_with_ones_own_worker() {
    let site = Workspace::new();
    let record = site.path("record");
    let worker = std::env::current_exe().unwrap();
    let script = format!(
        "RECORD='{}' exec '{}' {}",
        record.display(),
        worker.display(),
        modes_worker::NAME
    );
    let told = demo(&[
        "--messages",
        "50",
        "--kill-every",
        "never",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    assert_eq!((&told["lost"], &told["done"]), (&0.into(), &50.into()));
    assert_eq!(told["workers_killed"], 0);
    assert_eq!(site.record().all(Event::Done).len(), 50);
}

/// It gives up nothing silently: what is dead is not lost, and not done.
fn the_demo_with_a_worker_that_fails() {
    let site = Workspace::new();
    let record = site.path("record");
    let worker = std::env::current_exe().unwrap();
    let script = format!(
        "RECORD='{}' exec '{}' {} --mode=answer:400",
        record.display(),
        worker.display(),
        modes_worker::NAME
    );
    let told = demo(&[
        "--messages",
        "5",
        "--kill-every",
        "never",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    let counts = ["sent", "done", "dead", "lost"].map(|key| told[key].clone());
    assert_eq!(counts, [5, 0, 5, 0].map(Value::from));
}

/// What is there stays as it is, and nothing is left.
fn the_demo_on_a_server() {
    let database = PgDatabase::shared();
    let site = Workspace::new();
    let source = database.url();
    let told = site.ganger(&[
        "demo",
        "-o",
        "json",
        "--messages",
        "200",
        "--kill-every",
        "50ms",
        "--burst",
        "500",
        "--source",
        &source,
    ]);
    let told = told.json();
    let counts = ["sent", "done", "dead", "lost"].map(|key| told[key].clone());
    assert_eq!(counts, [200, 200, 0, 0].map(Value::from));
    assert_eq!(told["burst"]["messages"], 500);
    for table in ["consumer_messages", "poisoned_messages"] {
        let left = database.ask(&format!("SELECT count(*) FROM ganger_demo_{table}"));
        assert_eq!(left, "0", "{table}");
    }
    let others = "SELECT count(*) FROM pg_tables
        WHERE schemaname = 'public' AND tablename NOT LIKE 'ganger\\_demo\\_%'";
    assert_eq!(database.ask(others), "0");
}

fn the_demo_where_there_is_no_server() {
    let nowhere = "postgres://u@127.0.0.1:1/d?sslmode=disable";
    let wrong = Workspace::new()
        .ganger(&["demo", "--source", nowhere])
        .bad(1);
    assert!(wrong.contains("127.0.0.1:1"), "{wrong}");
    let wrong = Workspace::new()
        .ganger(&["demo", "--source", "amqp://h"])
        .bad(2);
    assert!(wrong.contains("must begin with"), "{wrong}");
}

fn configured(pools: &[Pool]) -> Workspace {
    let site = Workspace::new();
    site.configure_commands(pools);
    site
}

fn a_good_configuration() {
    let site = configured(&[Pool::new(&[])]);
    let out = site.ganger(&["check"]).good();
    let start = "the configuration is valid: 1 pool(s) on 1 source(s), 1 worker(s) of at most ";
    assert!(out.starts_with(start), "{out}");
    let told = site.ganger(&["check", "--online", "-o", "json"]).json();
    assert_eq!(told["valid"], true);
    assert_eq!(told["problems"], serde_json::json!([]));
    assert_eq!(told["workers"], 1);
    assert_eq!(told["warnings"], serde_json::json!([]));
    assert!(told["workers_max"].as_u64() > Some(100), "{told}");
}

fn every_problem_is_told_at_once() {
    let site = configured(&[
        Pool::new(&[]).set("workers", "0").set("wrokers", "1"),
        Pool::new(&[]).text("timeout", "soon").text("name", "a b"),
    ]);
    let wanted = [
        "pools.work.workers must be within 1..=1024: `0`",
        "wrokers is not a known key",
        "timeout must be a duration",
        "name must be 1 to 64 of the characters",
    ];
    let lines = site.ganger(&["check"]).err;
    let place = |line: &str| line.starts_with("error: ganger.toml:");
    assert!(lines.lines().all(place), "{lines}");
    let why = site.ganger(&["check"]).bad(2);
    let ran = site.ganger(&["check", "--output", "json"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(told["valid"], false);
    let problems = told["problems"].as_array().unwrap();
    assert_eq!(lines.lines().count(), problems.len(), "{lines}");
    for part in wanted {
        assert!(why.contains(part), "{part}: {why}");
        let is_it = |problem: &&Value| problem["message"].as_str().unwrap().contains(part);
        let problem = problems.iter().find(is_it);
        let problem = problem.unwrap_or_else(|| panic!("{part}: {told}"));
        assert!(problem["file"].as_str().unwrap().ends_with("ganger.toml"));
        assert!(problem["line"].is_u64() && problem["column"].is_u64());
    }
    assert!(why.contains("did you mean `workers`?"), "{why}");
}

/// Where no person reads them, as in a script or a journal.
fn errors_are_one_line_where_there_is_no_terminal() {
    let site = configured(&[Pool::new(&[])]);
    let cases: [(&[&str], i32, &str); 9] = [
        (&["dead"], 2, "a subcommand is missing"),
        (&["wrok"], 2, "unrecognized subcommand 'wrok'"),
        (&["send"], 2, "<QUEUE>"),
        (&["send", "work", "a", "-H", "x"], 2, "NAME=VALUE"),
        (&["send", "work", "-f", "absent"], 1, "absent"),
        (&["send", "work", "a", "--source", "third"], 2, "`third`"),
        (&["status", "--host", "ftp://x"], 2, "http://HOST:PORT"),
        (&["status"], 1, "no daemon answers at"),
        (&["check", "--config", "absent.toml"], 2, "absent.toml"),
    ];
    for (args, code, part) in cases {
        let ran = site.ganger(args);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        let is_one = ran.err.starts_with("error: ") && ran.err.lines().count() == 1;
        assert!(is_one && ran.err.contains(part), "{args:?}: {ran:?}");
    }
    // A person has room for more.
    let shown = site.shown(&["send", "work", "-f", "absent"]);
    assert!(shown.lines().count() > 1, "{shown}");
}

fn a_program_that_is_not_there() {
    let site = configured(&[Pool::of_program("no-such-program", &[])]);
    let why = site.ganger(&["check"]).bad(1);
    assert!(
        why.contains("pools.work.command") && why.contains("no-such-program"),
        "{why}"
    );
    let ran = site.ganger(&["check", "-o", "json"]);
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (ran.code, &told["valid"]),
        (Some(1), &false.into()),
        "{told}"
    );
    assert_eq!(told["problems"].as_array().unwrap().len(), 1, "{told}");
}

fn a_database_that_can_not_be_opened() {
    let site = configured(&[Pool::new(&[])]);
    site.put(
        "queue.db",
        "this is no database, and long enough to be seen as none",
        false,
    );
    site.ganger(&["check"]).good();
    let why = site.ganger(&["check", "--online"]).bad(1);
    assert!(
        why.contains("sources.main") && why.contains("queue.db"),
        "{why}"
    );
    let why = site.ganger(&["send", "work", "a"]).bad(1);
    assert!(why.contains("queue.db"), "{why}");
    let why = site.ganger(&["dead", "list"]).bad(1);
    assert!(why.contains("queue.db"), "{why}");
}

fn a_printed_configuration_says_the_same() {
    let pool = Pool::new(&["--mode=sleep:1"]).text("timeout", "90s");
    let site = configured(&[pool.set("recycle", r#"{ tasks = 7, age = "1h" }"#)]);
    let printed = site.ganger(&["config", "print"]).good();
    for part in [
        "timeout = \"1m 30s\"",
        "tasks = 7",
        "--mode=sleep:1",
        "stop_timeout",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    site.put("printed.toml", &printed, false);
    let again = site.ganger(&["config", "print", "--config", "printed.toml"]);
    assert_eq!(again.good(), printed);
    site.ganger(&["check", "--config", "printed.toml"]).good();
}

fn no_secret_is_printed() {
    let site = configured(&[Pool::new(&[]).env("API_TOKEN", "hunter2")]);
    let ran = site.ganger(&["config", "print"]);
    assert!(!ran.good().contains("hunter2"));
    let text = fs::read_to_string(site.path("ganger.toml")).unwrap();
    // Mistakes on the very line of the secret: it is underlined, and not shown.
    let mistakes = [
        r#""hunter2"#,
        r#""""hunter2"#,
        r#"["hunter2"]"#,
        r#"{ a = "hunter2" }"#,
        "my hunter2",
    ];
    for mistake in mistakes {
        let text = text.replace(r#""hunter2""#, mistake);
        fs::write(site.path("ganger.toml"), text).unwrap();
        for format in ["text", "json"] {
            let ran = site.ganger(&["check", "-o", format]);
            assert_eq!(ran.code, Some(2), "{ran:?}");
            assert!(!format!("{ran:?}").contains("hunter2"), "{ran:?}");
        }
    }
}

fn the_schema_is_json() {
    let schema = Workspace::new().ganger(&["config", "schema"]).json();
    assert!(schema["$schema"].is_string());
    let properties = schema["properties"].as_object().unwrap();
    let sections: Vec<&String> = properties.keys().collect();
    for section in ["daemon", "sources", "pools"] {
        assert!(sections.iter().any(|name| *name == section), "{sections:?}");
    }
}

fn completions_for_each_shell() {
    let site = Workspace::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = site.ganger(&["completions", shell]).good();
        for part in ["ganger", "demo", "retry", "kill-every"] {
            assert!(script.contains(part), "{shell}: {part}");
        }
    }
    site.ganger(&["completions", "cmd"]).bad(2);
}

fn help_and_version() {
    let site = Workspace::new();
    let version = site.ganger(&["--version"]).good();
    assert_eq!(version, format!("ganger {}\n", env!("CARGO_PKG_VERSION")));
    let help = site.ganger(&["--help"]).good();
    let commands = [
        "demo",
        "run",
        "check",
        "config",
        "send",
        "dead",
        "completions",
    ];
    for command in commands {
        let named = |line: &str| line.trim_start().starts_with(command);
        assert!(help.lines().any(named), "{command}: {help}");
        site.ganger(&[command, "--help"]).good();
    }
    assert!(help.contains("Exit codes:"), "{help}");
    assert!(!help.contains("demo-worker"), "{help}");
}

fn a_command_line_that_makes_no_sense() {
    let site = configured(&[Pool::new(&[])]);
    for args in [
        &[][..],
        &["dance"],
        &["run", "--fast"],
        &["run", "now"],
        &["check", "-o", "yaml"],
        &["config"],
        &["demo", "--messages", "0"],
        &["demo", "--workers", "0"],
        &["demo", "--kill-every", "sometimes"],
        &["demo", "--kill-every", "0s"],
    ] {
        let why = site.ganger(args).bad(2);
        assert!(
            why.contains("Usage: ganger") || why.contains("--help"),
            "{why}"
        );
    }
}

fn a_missing_configuration_is_named() {
    let site = Workspace::new();
    for args in [
        &["run"][..],
        &["check"],
        &["config", "print"],
        &["send", "work", "a"],
        &["dead", "list"],
    ] {
        let why = site.ganger(args).bad(2);
        assert!(why.contains("ganger.toml"), "{args:?}: {why}");
    }
}

/// Everything is opened before anything is started.
fn a_daemon_that_can_not_start_says_why() {
    let site = configured(&[Pool::new(&[])]);
    let config = site.path("ganger.toml");
    let text = fs::read_to_string(&config).unwrap();
    let text = text.replace("sqlite:queue.db", "sqlite:absent/queue.db");
    fs::write(&config, text).unwrap();
    let why = site.ganger(&["run"]).bad(1);
    for part in [
        "starting pool `work` failed",
        "source `main`",
        "absent/queue.db",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert!(!site.path("record").exists());
}
