//! `[[schedules]]`, `[calendars]` and `[ledger]`.

use std::time::Duration;

use ganger_schedule::occurrence::OccurrenceState;
use ganger_schedule::zone::Zones;

use super::super::{Environment, parse, stored_schedule};
use crate::model::{Config, Keep, LogLimits};

const BEGIN: &str = "\
[sources.main]
kind = \"table\"
url = \"sqlite:a.db\"
[[pools]]
name = \"p\"
queue = \"q\"
source = \"main\"
command = \"true\"
";

fn config(lines: &str) -> Result<Config, Vec<String>> {
    let text = format!("{BEGIN}{lines}");
    parse(&text, "test.toml", &Environment::new()).map_err(|problems| {
        let problems = problems.messages().iter();
        problems.map(|problem| problem.one_line()).collect()
    })
}

fn schedule(lines: &str) -> Result<Config, Vec<String>> {
    config(&format!(
        "[[schedules]]\nname = \"s\"\nqueue = \"q\"\n{lines}"
    ))
}

#[test]
fn a_schedule_is_read_with_its_defaults() {
    let config = schedule("cron = \"30 2 * * *\"\nzone = \"Europe/Berlin\"").unwrap();
    let ledger = config.ledger.unwrap();
    assert_eq!(ledger.source, "main");
    let [schedule] = &config.schedules[..] else {
        panic!("{:?}", config.schedules);
    };
    assert_eq!(schedule.name(), "s");
    assert_eq!(schedule.spec.timing.zone.name(), "Europe/Berlin");
    assert_eq!(
        schedule.definition,
        r#"{"cron":"30 2 * * *","queue":"q","zone":"Europe/Berlin"}"#
    );
}

#[test]
fn what_is_stored_is_read_as_the_same() {
    let table = [
        "cron = [\"0 8 * * *\", \"0 20 * * *\"]",
        "every = \"5m\"\noffset = \"1m\"\njitter = \"10s\"",
        "at = \"2027-01-31T08:00:00[Europe/Istanbul]\"",
        "cron = \"@daily\"\nonly = \"office\"\ntags = [\"a\"]\ndescription = \"d\"",
        "cron = \"@daily\"\nonly = { days = [\"SUN\"], outside = \"next\" }",
        "cron = \"@daily\"\nmisfire = { policy = \"skip\", grace = \"1h\" }\noverlap = \"allow\"",
        "cron = \"@daily\"\noverlap = \"replace\"\ntimeout = \"2h\"\nretry = { attempts = 3 }",
        "cron = \"@daily\"\nauto_disable = { failures = 3, retry_after = \"1h\" }\nlimit = 5",
        "cron = \"@daily\"\ndst = { gap = \"skip\", fold = \"both\" }\nstart = \"2026-12-01\"",
        "cron = \"@daily\"\nbody = \"{{ slot | date }} $${x}\"\nheaders = { tenant = \"blue\" }",
        "cron = \"@daily\"\noverlap = \"queue\"\nexpect = { within = \"10m\", every = \"26h\" }",
        "cron = \"@daily\"\nkey = \"k\"\npriority = 7\ncontent_type = \"text/plain\"",
    ];
    for lines in table {
        let office = "[calendars.office]\ndays = [\"MON-FRI\"]\n";
        let one = config(&format!(
            "{office}[[schedules]]\nname = \"s\"\nqueue = \"q\"\n{lines}"
        ));
        let written = one.unwrap().schedules.remove(0);
        let stored = stored_schedule("s", &written.definition, &Zones::load()).unwrap();
        assert_eq!(stored, written, "{lines}");
    }
}

/// Keys of a schedule, each with the mistake in them.
const MISTAKES: [(&str, &str); 21] = [
    (
        "cron = \"@daily\"\nheaders = { X-Ganger-Occurrence = \"1\" }",
        "schedules.s.headers.X-Ganger-Occurrence is a header that ganger sets",
    ),
    (
        "cron = \"30 24 * * *\"",
        "test.toml:12: schedules.s.cron: hour `24` is out of range (write 0 to 23)",
    ),
    (
        "cron = [\"0 0 * * *\", \"0 0 31 2 *\"]",
        "test.toml:12: schedules.s.cron[1]: ",
    ),
    (
        "",
        "test.toml:9: schedules.s: schedule has no time (write one of `cron`, `every` and `at`)",
    ),
    (
        "cron = \"@daily\"\nevery = \"5m\"",
        "schedules.s: schedule has cron and every",
    ),
    (
        "cron = \"@daily\"\nzone = \"Berlin\"",
        "test.toml:13: schedules.s.zone: time zone `Berlin` is unknown",
    ),
    (
        "cron = \"@daily\"\nstart = \"2027-01-02\"\nend = \"2027-01-01\"",
        "test.toml:14: schedules.s.end: ",
    ),
    (
        "cron = \"@daily\"\nbody = \"{{ slott }}\"",
        "test.toml:13: schedules.s.body: `slott` does not exist",
    ),
    (
        "cron = \"@daily\"\nonly = \"ofice\"",
        "test.toml:13: schedules.s.only must be one of the calendars: `\"ofice\"` (write [calendars.ofice]",
    ),
    (
        "cron = \"@daily\"\nonly = { days = [\"MON\", \"Montag\"] }",
        "schedules.s.only.days[1]: invalid day of the week `Montag`",
    ),
    (
        "cron = \"@daily\"\nmisfire = { policy = \"all\" }",
        "schedules.s.misfire.policy: policy `all` with overlap `skip`",
    ),
    (
        "cron = \"@daily\"\nexpect = {}",
        "schedules.s.expect expects nothing: `{}` (write expect = { within = \"10m\" }, or `finish`, or `every`)",
    ),
    (
        "cron = \"@daily\"\nsource = \"other\"",
        "schedules.s.source must be one of the sources: `\"other\"` (the sources are: main)",
    ),
    (
        "cron = \"@daily\"\ntimeout = \"0s\"",
        "schedules.s.timeout must be within 1ms..=",
    ),
    (
        "cron = \"@daily\"\ntimeout = \"1h\"\nheaders = { TimeoutMilliseconds = \"5\" }",
        "schedules.s.timeout is also given by a header: `\"1h\"` (leave one of the two out)",
    ),
    (
        "cron = \"@daily\"\nretry = { attempts = 1001 }",
        "schedules.s.retry.attempts must be within 1..=1000",
    ),
    (
        "cron = \"@daily\"\nretry = {}",
        "schedules.s.retry.attempts is missing",
    ),
    (
        "cron = \"@daily\"\nrouting_key = \"k\"",
        "schedules.s.routing_key needs an `exchange`",
    ),
    (
        "cron = \"@daily\"\nqueu = \"x\"",
        "schedules.s.queu is not a known key",
    ),
    ("every = \"0s\"", "schedules.s.every must be within 1s..="),
    (
        "cron = \"@daily\"\n[[schedules]]\nname = \"s\"\nqueue = \"q\"\nevery = \"1m\"",
        "schedules.s.name is taken: `\"s\"`",
    ),
];

#[test]
fn a_mistake_is_told_with_its_place_and_remedy() {
    for (lines, expected) in MISTAKES {
        let problems = schedule(lines).unwrap_err();
        let [problem] = &problems[..] else {
            panic!("{lines}: {problems:?}");
        };
        assert!(problem.contains(expected), "{lines}: {problem}");
    }
}

#[test]
fn a_calendar_that_nothing_uses_is_checked() {
    let problems = config("[calendars.office]\nhours = [\"9-5pm\"]").unwrap_err();
    assert!(
        problems[0].contains("calendars.office.hours[0]: invalid hours `9-5pm`"),
        "{problems:?}"
    );
}

#[test]
fn the_ledger_is_the_only_table_or_is_named() {
    let second = "[sources.second]\nkind = \"table\"\nurl = \"sqlite:b.db\"\n";
    let cron = "[[schedules]]\nname = \"s\"\nqueue = \"q\"\ncron = \"@daily\"\n";
    let problems = config(&format!("{second}{cron}")).unwrap_err();
    assert!(
        problems[0].contains("schedules.s.source is missing (name one of: main, second"),
        "{problems:?}"
    );
    let named = config(&format!("{second}[ledger]\nsource = \"second\"\n{cron}")).unwrap();
    assert_eq!(named.ledger.unwrap().source, "second");
    let problems = config(&format!("[ledger]\nsource = \"mains\"\n{cron}")).unwrap_err();
    assert!(
        problems[0].contains("ledger.source must be a source of kind `table`")
            && problems[0].contains("did you mean `main`?"),
        "{problems:?}"
    );
    assert_eq!(config("").unwrap().ledger, None);
    let limits = |keys: &str| {
        let limited = config(&format!("[ledger]\nsource = \"main\"\n{keys}{cron}"));
        limited.map(|config| config.ledger.unwrap().log)
    };
    assert_eq!(limits("").unwrap(), LogLimits::default());
    let few = LogLimits {
        lines: 0,
        ..LogLimits::default()
    };
    assert_eq!(limits("log = { lines = 0 }\n").unwrap(), few);
    let problems = limits("log = { bytes = \"1\" }\n").unwrap_err();
    assert!(problems[0].contains("ledger.log.bytes"), "{problems:?}");
}

#[test]
fn the_ledger_keeps_occurrences_by_their_states() {
    let keep = |keep: &str| {
        let keys = format!("[ledger]\nkeep = {keep}\n");
        config(&keys).map(|config| config.ledger.unwrap().keep)
    };
    let hours = |keep: Keep| keep.times.map(|(_, time)| time.as_secs() / 3600);
    assert_eq!(
        keep("\"2h\"").unwrap(),
        Keep::all(Duration::from_secs(7200))
    );
    let table = keep("{ completed = \"1h\", failed = \"3h\", skipped = \"1d\" }").unwrap();
    assert_eq!(table.longest(), Duration::from_secs(90 * 86_400));
    assert_eq!(table.times.map(|(state, _)| state), OccurrenceState::ENDS);
    assert_eq!(hours(table), [1, 3, 3, 90 * 24, 24]);
    let counted = keep("{ timed_out = \"2h\", per_schedule = 7 }").unwrap();
    assert_eq!(counted.per_schedule, Some(7));
    assert_eq!(hours(counted)[2], 2);
    for (wrong, problem) in [
        (
            "{ complete = \"1h\" }",
            "ledger.keep.complete is not a known key (did you mean `completed`?)",
        ),
        ("{ failed = \"1s\" }", "ledger.keep.failed must be"),
        ("{ per_schedule = 0 }", "ledger.keep.per_schedule must be"),
        ("7", "ledger.keep must be a duration"),
    ] {
        let problems = keep(wrong).unwrap_err();
        assert!(problems[0].contains(problem), "{problems:?}");
    }
}

const RABBIT: &str = "[sources.rabbit]\nkind = \"rabbitmq\"\nurl = \"amqp://h/\"\n";
const KAFKA: &str = "[sources.kafka]\nkind = \"kafka\"\nbrokers = \"h:9092\"\ngroup = \"g\"\n";

/// Reads a configuration of these sources, with a pool on the first, in that environment.
fn without_tables(
    sources: &[&str],
    lines: &str,
    set: &[(&str, &str)],
) -> Result<Config, Vec<String>> {
    let name = sources[0].split(['.', ']']).nth(1).unwrap();
    let sources = sources.concat();
    let text = format!(
        "{sources}[[pools]]\nname = \"p\"\nqueue = \"q\"\nsource = \"{name}\"\ncommand = \"true\"\n{lines}"
    );
    let set = set
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let environment: Environment = set.collect();
    parse(&text, "/etc/ganger/test.toml", &environment).map_err(|problems| {
        let problems = problems.messages().iter();
        problems.map(|problem| problem.one_line()).collect()
    })
}

#[test]
fn without_a_table_the_ledger_is_a_file_of_its_own() {
    let schedule = "[[schedules]]\nname = \"s\"\nqueue = \"q\"\ncron = \"@daily\"\n";
    let state = ("STATE_DIRECTORY", "/var/lib/ganger:/var/lib/other");
    let user = ("XDG_STATE_HOME", "/home/u/.local/state");
    for (set, expected) in [
        (&[][..], "/etc/ganger/ledger.db"),
        (&[user], "/home/u/.local/state/ganger/ledger.db"),
        (&[state, user], "/var/lib/ganger/ledger.db"),
        (
            &[("XDG_STATE_HOME", "relative"), ("STATE_DIRECTORY", "")],
            "/etc/ganger/ledger.db",
        ),
    ] {
        let config = without_tables(&[RABBIT], schedule, set).unwrap();
        let ledger = config.ledger.unwrap();
        assert!(ledger.is_embedded);
        let place = crate::model::Database::Sqlite(expected.into());
        assert_eq!(ledger.table.database, place);
        let schedule = &config.schedules[0];
        assert_eq!(schedule.source.as_deref(), Some("rabbit"));
        assert_eq!(
            schedule.definition,
            r#"{"cron":"@daily","queue":"q","source":"rabbit"}"#
        );
    }
    // Without schedules there is none, unless it is asked for.
    assert_eq!(without_tables(&[RABBIT], "", &[]).unwrap().ledger, None);
    let asked = without_tables(&[RABBIT], "[ledger]\ngroup = \"g\"\n", &[]).unwrap();
    assert!(asked.ledger.unwrap().is_embedded);
}

#[test]
fn a_schedule_goes_to_any_source() {
    let read = |lines: &str| {
        let lines = format!("[[schedules]]\nname = \"s\"\ncron = \"@daily\"\n{lines}");
        without_tables(&[RABBIT, KAFKA], &lines, &[])
    };
    let place = |lines: &str| {
        let schedule = read(lines).unwrap().schedules.remove(0);
        (schedule.source.unwrap(), schedule.exchange, schedule.queue)
    };
    let text = str::to_owned;
    assert_eq!(
        place("source = \"kafka\"\nqueue = \"t\""),
        (text("kafka"), None, text("t"))
    );
    assert_eq!(
        place("source = \"rabbit\"\nexchange = \"e\"\nrouting_key = \"a.b\""),
        (text("rabbit"), Some(text("e")), text("a.b"))
    );
    assert_eq!(
        place("source = \"rabbit\"\nexchange = \"e\""),
        (text("rabbit"), Some(text("e")), text(""))
    );
    for (lines, expected) in [
        (
            "queue = \"q\"",
            "schedules.s.source is missing (name one of: kafka, rabbit",
        ),
        (
            "source = \"rabit\"\nqueue = \"q\"",
            "schedules.s.source must be one of the sources: `\"rabit\"` (did you mean `rabbit`?)",
        ),
        ("source = \"rabbit\"", "schedules.s.queue is missing"),
        (
            "source = \"rabbit\"\nqueue = \"q\"\nexchange = \"e\"",
            "schedules.s.queue is not used with `exchange`",
        ),
        (
            "source = \"kafka\"\nexchange = \"e\"",
            "schedules.s.exchange has an effect with RabbitMQ only",
        ),
    ] {
        let problems = read(lines).unwrap_err();
        assert!(
            problems.len() == 1 && problems[0].contains(expected),
            "{lines}: {problems:?}"
        );
    }
}

#[test]
fn a_stored_schedule_may_name_a_source_that_this_daemon_does_not_know() {
    let definition = r#"{"cron":"@daily","exchange":"e","routing_key":"k","source":"elsewhere"}"#;
    let stored = stored_schedule("s", definition, &Zones::load()).unwrap();
    assert_eq!(stored.source.as_deref(), Some("elsewhere"));
    assert_eq!(
        (stored.exchange.as_deref(), &*stored.queue),
        (Some("e"), "k")
    );
    assert_eq!(stored.definition, definition);
}

#[test]
fn what_is_stored_wrongly_is_told_with_the_schedule() {
    let told = |definition: &str| {
        let problems = stored_schedule("s", definition, &Zones::load()).unwrap_err();
        problems.messages()[0].one_line()
    };
    assert!(told("nonsense").contains("schedule s: the definition is not a JSON object"));
    let cron = told(r#"{"queue": "q", "cron": "61 * * * *"}"#);
    assert!(cron.contains("schedule s:1: cron: minute `61`"), "{cron}");
}

#[test]
fn a_mistake_in_what_is_stored_is_told_once_and_without_an_empty_value() {
    let told = |name, definition| {
        let problems = stored_schedule(name, definition, &Zones::load()).unwrap_err();
        let lines = problems.messages().iter();
        lines.map(|line| line.one_line()).collect::<Vec<_>>()
    };
    let bad_name = told("bad name", r#"{"cron": "@daily", "queue": "q"}"#);
    let bad_priority = told(
        "s",
        r#"{"cron": "@daily", "queue": "q", "priority": 5000000000}"#,
    );
    for lines in [bad_name, bad_priority] {
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(!lines[0].contains("``"), "{lines:?}");
    }
}
