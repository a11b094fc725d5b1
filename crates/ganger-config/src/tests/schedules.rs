//! `[[schedules]]`, `[calendars]` and `[ledger]`.

use ganger_schedule::zone::Zones;

use super::super::{Environment, parse, stored_schedule};
use crate::model::Config;

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
        "cron = \"@daily\"\nauto_disable = { failures = 3, retry_after = \"1h\" }\nlimit = 5",
        "cron = \"@daily\"\ndst = { gap = \"skip\", fold = \"both\" }\nstart = \"2026-12-01\"",
        "cron = \"@daily\"\nbody = \"{{ slot | date }} $${x}\"\nheaders = { tenant = \"blue\" }",
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

#[test]
fn a_mistake_is_told_with_its_place_and_remedy() {
    let table: [(&str, &str); 15] = [
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
            "cron = \"@daily\"\nsource = \"other\"",
            "schedules.s.source must be the source of the ledger",
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
    for (lines, expected) in table {
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
    assert!(problems[0].contains("ledger is missing"), "{problems:?}");
    let named = config(&format!("{second}[ledger]\nsource = \"second\"\n{cron}")).unwrap();
    assert_eq!(named.ledger.unwrap().source, "second");
    let problems = config(&format!("[ledger]\nsource = \"nowhere\"\n{cron}")).unwrap_err();
    assert!(
        problems[0].contains("must have a source of kind `table`"),
        "{problems:?}"
    );
    assert_eq!(config("").unwrap().ledger, None);
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
