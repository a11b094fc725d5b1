//! The keys of `[[schedules]]` and of `[calendars.NAME]`.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value as Json};

use ganger_core::names::{
    ATTEMPTS_MAX, OWN_HEADER_PREFIX, SCHEDULE_HEADER, SLOT_HEADER, TIMEOUT_HEADER,
};
use ganger_core::suggest::nearest;
use ganger_schedule::auto_disable;
use ganger_schedule::calendar::Outside;
use ganger_schedule::cron::Dialect;
use ganger_schedule::definition::{CalendarDefinition, Definition};
use ganger_schedule::expect::Expect;
use ganger_schedule::overlap::Overlap;
use ganger_schedule::spec::{Misfire, Policy, Spec};
use ganger_schedule::template::Template;
use ganger_schedule::wall::{Dst, Fold, Gap};
use ganger_schedule::zone::Zones;

use super::ledger;
use super::shared::{MILLISECOND, MONTH, ReadContext, YEAR};
use crate::model::{LedgerConfig, PoolConfig, Record, RunLimits, ScheduleConfig, SourceConfig};
use crate::problem::{Problems, Report};
use crate::reader::Reader;
use crate::reader::either::Either;
use crate::tree::{Node, Table};
use crate::value_types::choice::choice;
use crate::value_types::compound::{hinted, list_of, off_or, one_or_more};
use crate::value_types::{Wrong, check_name, duration, integer, name, text, word};
use ganger_schedule::problem::Problem;

/// Meaning of `source`.
pub(super) const SOURCE: &str = "Source of the queue. If omitted, that of the ledger; if the ledger is a file of its own, the \
     only source.";

/// Longest period and longest catch-up.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
const WEEK: Duration = Misfire::GRACE_MAX;
const SECOND: Duration = Duration::from_secs(1);

/// Calendars by name, each with its keys as they were written.
type Calendars = BTreeMap<String, (CalendarDefinition, Json)>;

/// Reads the schedules, and the ledger if there are any.
pub(super) fn read_all(
    t: &mut Reader<'_>,
    sources: &BTreeMap<String, SourceConfig>,
    pools: &[Arc<PoolConfig>],
    around: ReadContext<'_>,
) -> (Option<LedgerConfig>, Vec<ScheduleConfig>) {
    let zones = LazyCell::new(Zones::load);
    let calendars = calendars(t, &zones);
    let records = |pool: &Arc<PoolConfig>| {
        pool.record
            .is_some_and(|record| record != Record::Scheduled)
    };
    let is_needed = t.has("schedules") || pools.iter().any(records);
    let ledger = ledger::read(t, sources, is_needed, around);
    let mut taken = BTreeSet::new();
    let meaning = "Messages that are sent at times, each kind in its own `[[schedules]]`.";
    let schedules = t.list("schedules", meaning, |t| {
        let source = source(t, sources, ledger.as_ref());
        let schedule = read(t, source, Some(&calendars), &zones)?;
        if !taken.insert(schedule.name().to_owned()) {
            let help = "give each schedule a name of its own";
            t.wrong("name", &Wrong::new("is taken", help));
        }
        check_exchange(t, &schedule, sources);
        Some(schedule)
    });
    (ledger, schedules.into_iter().flatten().collect())
}

/// Checks that an exchange is one of RabbitMQ.
pub(super) fn check_exchange(
    t: &mut Reader<'_>,
    schedule: &ScheduleConfig,
    sources: &BTreeMap<String, SourceConfig>,
) {
    let kind = schedule.source.as_ref().and_then(|name| sources.get(name));
    if schedule.exchange.is_some() && !matches!(kind, Some(SourceConfig::RabbitMq(_))) {
        let help = "name the queue with `queue`, on Kafka the topic";
        t.wrong(
            "exchange",
            &Wrong::new("has an effect with RabbitMQ only", help),
        );
    }
}

/// Reads the source of a schedule's queue; none for the source that has the ledger.
pub(super) fn source(
    t: &mut Reader<'_>,
    sources: &BTreeMap<String, SourceConfig>,
    ledger: Option<&LedgerConfig>,
) -> Option<String> {
    let given = t.maybe("source", word(), SOURCE);
    if sources.is_empty() {
        // That is an error of its own.
        return given;
    }
    let own = ledger.filter(|ledger| !ledger.is_embedded);
    let own = own.map(|ledger| ledger.source.as_str());
    let only = || match sources.keys().collect::<Vec<_>>()[..] {
        [only] => Some(only.clone()),
        _ => None,
    };
    let names = || sources.keys().map(String::as_str);
    match given {
        Some(name) if Some(name.as_str()) == own => None,
        Some(name) => {
            if !sources.contains_key(&name) {
                let help = match nearest(&name, names()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!(
                        "the sources are: {}",
                        names().collect::<Vec<_>>().join(", ")
                    ),
                };
                t.wrong("source", &Wrong::new("must be one of the sources", help));
            }
            Some(name)
        }
        None if own.is_some() || t.is_describing() || t.has("source") => None,
        None => only().or_else(|| {
            let names: Vec<&str> = names().collect();
            let help = format!("name one of: {}; or the ledger: [ledger]", names.join(", "));
            t.missing("source", &help);
            None
        }),
    }
}

/// Reads a schedule of the ledger: its keys but the name, as JSON.
///
/// # Errors
/// Every problem.
pub fn stored(name: &str, definition: &str, zones: &Zones) -> Result<ScheduleConfig, Problems> {
    let place = format!("schedule {name}");
    let of_text = |message: String| {
        let help = "write a JSON object with the keys of [[schedules]]";
        Problems::of_file(&place, message, help)
    };
    let keys: Map<String, Json> = serde_json::from_str(definition)
        .map_err(|error| of_text(format!("the definition is not a JSON object: {error}")))?;
    let mut report = Report::default();
    report.file(&place, definition);
    let mut table: Table = Node::table_of(&keys);
    table.insert("name".to_owned(), Node::entry_of(&Json::from(name)));
    let zones = LazyCell::new(|| zones.clone());
    let mut t = Reader::of_values(&table, &report);
    // Another daemon may know the source, if this one does not.
    let source = t.maybe("source", word(), SOURCE);
    let schedule = read(&mut t, source, None, &zones);
    t.finish();
    match schedule.filter(|_| report.is_clean()) {
        Some(schedule) => Ok(schedule),
        None => Err(report.into_problems().of("definition")),
    }
}

fn calendars(t: &mut Reader<'_>, zones: &LazyCell<Zones, impl FnOnce() -> Zones>) -> Calendars {
    let meaning = "Calendars that schedules are bound to with `only`.";
    t.tables("calendars", meaning, check_name, |t| {
        let calendar = calendar(t);
        // Its zone may be that of the schedule: here UTC stands for it.
        if !t.is_describing() {
            let utc = ganger_schedule::zone::Zone::default();
            let problems = calendar.calendar(&utc, zones).err();
            problems
                .into_iter()
                .flatten()
                .for_each(|problem| t.problem(&problem));
        }
        (calendar, Json::Object(t.given()))
    })
}

fn calendar(t: &mut Reader<'_>) -> CalendarDefinition {
    CalendarDefinition {
        zone: t.maybe(
            "zone",
            word(),
            "Time zone of days and hours; if omitted, the schedule's.",
        ),
        days: t.or(
            "days",
            list_of(word()),
            "[]",
            "Days of the week, as in `[\"MON-FRI\"]`; none are all.",
        ),
        hours: t.or(
            "hours",
            list_of(word()),
            "[]",
            "Parts of a day, as in `[\"09:00-17:30\"]`; none are the whole day.",
        ),
        except: t.or(
            "except",
            list_of(word()),
            "[]",
            "Days that are left out, as in `[\"2026-12-24..2026-12-26\"]`.",
        ),
        outside: t.or(
            "outside",
            choice(&[("skip", Outside::Skip), ("next", Outside::Next)]),
            "skip",
            "What becomes of a slot outside: it is skipped, or runs when the calendar opens.",
        ),
    }
}

/// Reads one schedule; none if there is a problem.
pub(super) fn read(
    t: &mut Reader<'_>,
    source: Option<String>,
    calendars: Option<&Calendars>,
    zones: &LazyCell<Zones, impl FnOnce() -> Zones>,
) -> Option<ScheduleConfig> {
    let mut definition = definition(t);
    let mut given = t.given();
    given.remove("name");
    given.remove("source");
    let named = source.iter().map(|name| Json::from(name.as_str()));
    given.extend(named.map(|name| ("source".to_owned(), name)));
    definition.only = only(t, calendars, &mut given);
    definition.misfire = misfire(t);
    definition.auto_disable = auto_disable(t);
    definition.expect = expect(t);
    let (queue, exchange) = destination(t);
    let body = t.or(
        "body",
        text(),
        "",
        "Body of the message: a template with `{{ slot }}`, `{{ previous_slot }}`, \
         `{{ last_success }}`, `{{ schedule }}` and `{{ occurrence }}`.",
    );
    let content_type = t.maybe("content_type", word(), "MIME type of the body.");
    let headers = t.map("headers", "NAME", header, text(), "Headers of the message.");
    let key = t.maybe("key", word(), "Key of the message; RabbitMQ has none.");
    let priority = t.or(
        "priority",
        integer(i32::MIN..=i32::MAX),
        "0",
        "Priority of the message: higher ones are taken first. Kafka has none.",
    );
    let limits = limits(t, &headers);
    let tags = t.or("tags", list_of(word()), "[]", "Words by which you find it.");
    let description = t.maybe("description", text(), "Its purpose.");
    if t.is_describing() {
        return None;
    }
    // A time that could not be read is reported, and not missing besides.
    let times = [
        ("cron", definition.cron.is_empty()),
        ("every", definition.every.is_none()),
        ("at", definition.at.is_none()),
    ];
    if times
        .iter()
        .any(|(key, is_unread)| t.has(key) && *is_unread)
    {
        return None;
    }
    let spec = definition.spec(zones);
    let spec = spec.map_err(|problems| tell(t, &definition, &problems));
    let spec = spec.ok()?;
    if let Some(problem) = never_runs(&spec) {
        t.problem(&problem.under("name"));
        return None;
    }
    let body = Template::new(&body, &spec.timing.zone);
    let body = body
        .map_err(|problem| t.problem(&problem.under("body")))
        .ok()?;
    Some(ScheduleConfig {
        spec,
        source,
        queue: queue?,
        exchange,
        body,
        content_type,
        headers,
        key,
        priority,
        limits,
        tags,
        description,
        definition: Json::Object(given).to_string(),
    })
}

/// Reports the problems of a definition, but for that of a name that could not be read: it is reported already.
fn tell(t: &Reader<'_>, definition: &Definition, problems: &[Problem]) {
    let is_named = !definition.name.is_empty();
    let new = problems.iter();
    let new = new.filter(|problem| is_named || problem.key != "name");
    new.for_each(|problem| t.problem(problem));
}

/// Reads the time limit and the number of attempts of a run.
fn limits(t: &mut Reader<'_>, headers: &BTreeMap<String, String>) -> RunLimits {
    let timeout = t.maybe(
        "timeout",
        duration(MILLISECOND..=MONTH),
        "Time after which a worker is asked to stop working on a run, if the pool's `timeout` is not shorter.",
    );
    let meaning = "Attempts of a run, if not as many as the pool's `retry` says.";
    let attempts = t.table_if_given("retry", meaning, |t| {
        t.must(
            "attempts",
            integer(1..=ATTEMPTS_MAX),
            "Number of attempts, including the first.",
        )
    });
    if timeout.is_some() && headers.contains_key(TIMEOUT_HEADER) {
        let help = "leave one of the two out";
        t.wrong("timeout", &Wrong::new("is also given by a header", help));
    }
    RunLimits { timeout, attempts }
}

/// Reads where the messages go: to a queue, or with a routing key to an exchange.
fn destination(t: &mut Reader<'_>) -> (Option<String>, Option<String>) {
    let queue = t.maybe(
        "queue",
        word(),
        "Queue that gets a message for each slot; on Kafka a topic. Required without an `exchange`.",
    );
    let exchange = t.maybe(
        "exchange",
        word(),
        "Exchange of RabbitMQ that gets the messages instead of a queue.",
    );
    let key = t.maybe(
        "routing_key",
        text(),
        "Routing key with which the exchange gets them.",
    );
    let both = || Wrong::new("is not used with `exchange`", "leave one of the two out");
    match (t.has("queue"), t.has("exchange")) {
        (true, true) => t.wrong("queue", &both()),
        (false, false) => t.missing("queue", "write queue = \"NAME\""),
        (true, false) if t.has("routing_key") => {
            let help = "write exchange = \"NAME\" instead of the queue";
            t.wrong("routing_key", &Wrong::new("needs an `exchange`", help));
        }
        (true | false, _) => {}
    }
    match exchange {
        Some(exchange) => (Some(key.unwrap_or_default()), Some(exchange)),
        None => (queue, None),
    }
}

/// Checks the name of a header: some are ganger's own.
fn header(name: &str) -> Result<String, Wrong> {
    let lower = name.to_ascii_lowercase();
    let is_own = lower.starts_with(OWN_HEADER_PREFIX);
    match is_own || [SCHEDULE_HEADER, SLOT_HEADER].contains(&lower.as_str()) {
        true => Err(Wrong::new(
            "is a header that ganger sets",
            "choose another name",
        )),
        false => Ok(name.to_owned()),
    }
}

/// Returns the mistake of a schedule that has no slot at all. One whose slots have passed is none: it
/// stays in the file.
fn never_runs(spec: &Spec) -> Option<ganger_schedule::problem::Problem> {
    spec.never_runs(jiff::Timestamp::UNIX_EPOCH)
}

fn definition(t: &mut Reader<'_>) -> Definition {
    Definition {
        name: t.must("name", name(), "Name, unique among the schedules of the ledger."),
        cron: t
            .maybe(
                "cron",
                one_or_more(word()),
                "Cron expression of 5 fields, 6 (second first) or 7 (year last), or several of them. \
                 A schedule has this, `every` or `at`.",
            )
            .unwrap_or_default(),
        dialect: t.or(
            "dialect",
            choice(&[("standard", Dialect::Standard), ("quartz", Dialect::Quartz)]),
            "standard",
            "Dialect of the expressions: in `quartz` Sunday is 1, and `?` stands for a day that is not \
             given.",
        ),
        every: t.maybe(
            "every",
            duration(SECOND..=CENTURY),
            "Period in absolute time: a day is 24 hours, whatever the clocks show.",
        ),
        offset: t.maybe(
            "offset",
            duration(Duration::ZERO..=CENTURY),
            "Offset of the period from 1970-01-01T00:00:00Z.",
        ),
        at: t.maybe(
            "at",
            word(),
            "The only slot: `2027-01-31T08:00:00` by the zone, or with `Z`, an offset or \
             `[Europe/Berlin]` at its end.",
        ),
        zone: Some(t.or(
            "zone",
            word(),
            "UTC",
            "Time zone of expressions and times, by its IANA name.",
        )),
        dst: dst(t),
        jitter: t.or(
            "jitter",
            duration(Duration::ZERO..=WEEK),
            "0s",
            "Time over which slots are spread, by a hash of name and slot.",
        ),
        start: t.maybe("start", word(), "No slot is before it: a day, or a time as in `at`."),
        end: t.maybe("end", word(), "No slot is after it: a day, which belongs to it, or a time."),
        limit: t.maybe(
            "limit",
            integer(1..=1_000_000_000),
            "Number of runs after which the schedule has ended.",
        ).map(|limit: u32| limit.into()),
        overlap: overlap(t),
        ..Definition::default()
    }
}

fn overlap(t: &mut Reader<'_>) -> Overlap {
    t.or(
        "overlap",
        choice(&[
            ("allow", Overlap::Allow),
            ("skip", Overlap::Skip),
            (
                "queue",
                Overlap::Queue {
                    max: Overlap::QUEUE_DEFAULT,
                },
            ),
            ("replace", Overlap::Replace),
        ]),
        "skip",
        "What becomes of a slot while an occurrence of the schedule is open: it runs beside that, is \
         skipped, waits until that has ended (at most 100 wait), or has that cancelled first.",
    )
}

fn dst(t: &mut Reader<'_>) -> Dst {
    let either = t.or_table(
        "dst",
        hinted(
            choice(&[("standard", Dst::Standard)]),
            "or as in { gap = \"skip\" }",
        ),
        "standard",
        "Rule for changes of the clock: Debian's cron is the standard.",
        |t| {
            let gap = t.or(
                "gap",
                choice(&[("after", Gap::After), ("skip", Gap::Skip)]),
                "after",
                "What becomes of a time that does not exist: it runs after the gap, or not.",
            );
            let fold = t.or(
                "fold",
                choice(&[
                    ("first", Fold::First),
                    ("last", Fold::Last),
                    ("both", Fold::Both),
                ]),
                "first",
                "At which pass a repeated time runs.",
            );
            Dst::Explicit { gap, fold }
        },
    );
    match either {
        Either::Value(dst) | Either::Table(dst) => dst,
    }
}

fn misfire(t: &mut Reader<'_>) -> Misfire {
    let meaning = "Slots that were missed: no daemon dispatched them in time.";
    t.table("misfire", meaning, |t| Misfire {
        policy: t.or(
            "policy",
            choice(&[
                ("once", Policy::Once),
                ("all", Policy::All),
                ("skip", Policy::Skip),
            ]),
            "once",
            "Which run: the newest, which stands for the others; all; or none.",
        ),
        grace: t.or(
            "grace",
            duration(Duration::ZERO..=WEEK),
            "60s",
            "Lateness up to which a slot is not missed.",
        ),
        catch_up: t.or(
            "catch_up",
            duration(Duration::ZERO..=CENTURY),
            "1d",
            "Lateness up to which a missed slot may still run.",
        ),
        max: t.or(
            "max",
            integer(0..=Misfire::MAX),
            "100",
            "Number of missed slots that run at once by policy `all`, the newest of them.",
        ),
    })
}

fn auto_disable(t: &mut Reader<'_>) -> Option<auto_disable::Rules> {
    let meaning = "Disables the schedule when its runs keep failing.";
    t.table_if_given("auto_disable", meaning, |t| {
        let failures: u32 = t.or(
            "failures",
            integer(1..=1000),
            "5",
            "Number of final failures in a row.",
        );
        auto_disable::Rules {
            failures: usize::try_from(failures).unwrap_or(usize::MAX),
            window: t.or(
                "window",
                duration(SECOND..=YEAR),
                "1h",
                "Time within which they must lie. It must span that many runs: `4d` for 3 failures of a nightly \
                 schedule.",
            ),
            retry_after: t.or(
                "retry_after",
                off_or(duration(SECOND..=YEAR)),
                "off",
                "Time after which one run is tried; if it completes, the schedule is enabled again.",
            ),
        }
    })
}

fn expect(t: &mut Reader<'_>) -> Expect {
    let meaning = "Expectations: an alert reports what does not happen in time.";
    let given = t.table_if_given("expect", meaning, |t| Expect {
        within: t.maybe(
            "within",
            duration(SECOND..=YEAR),
            "Time from when a slot is due to the start of its run.",
        ),
        finish: t.maybe(
            "finish",
            duration(SECOND..=YEAR),
            "Time from when a slot is due to the end of its run.",
        ),
        every: t.maybe(
            "every",
            duration(SECOND..=YEAR),
            "Time from one completed run to the next.",
        ),
    });
    if given == Some(Expect::default()) {
        let help = "write expect = { within = \"10m\" }, or `finish`, or `every`";
        t.wrong("expect", &Wrong::new("expects nothing", help));
    }
    given.unwrap_or_default()
}

/// Reads the calendar: its name, or its keys. In what is stored it stands with its keys. Outside a configuration there
/// are no calendars with names.
fn only(
    t: &mut Reader<'_>,
    calendars: Option<&Calendars>,
    given: &mut Map<String, Json>,
) -> Option<CalendarDefinition> {
    let meaning =
        "Calendar to which the slots are bound: the name of one of `[calendars]`, or its keys.";
    match t.maybe_table("only", word(), meaning, calendar)? {
        Either::Table(calendar) => Some(calendar),
        Either::Value(name) => {
            let Some(calendars) = calendars else {
                let help = "write its keys: `days`, `hours`, `except`, `zone`, `outside`";
                let rule = "must be a calendar itself: only a configuration names calendars";
                t.wrong("only", &Wrong::new(rule, help));
                return None;
            };
            let Some((calendar, keys)) = calendars.get(&name) else {
                let names = calendars.keys().map(String::as_str);
                let help = match nearest(&name, names) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("write [calendars.{name}] with days and hours"),
                };
                t.wrong("only", &Wrong::new("must be one of the calendars", help));
                return None;
            };
            given.insert("only".to_owned(), keys.clone());
            Some(calendar.clone())
        }
    }
}
