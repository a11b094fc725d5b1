//! The keys of `[[schedules]]`, of `[calendars.NAME]` and of `[ledger]`.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value as Json};

use ganger_core::names::{OWN_HEADER_PREFIX, SCHEDULE_HEADER, SLOT_HEADER};
use ganger_schedule::auto_disable;
use ganger_schedule::calendar::Outside;
use ganger_schedule::cron::Dialect;
use ganger_schedule::definition::{CalendarDefinition, Definition};
use ganger_schedule::overlap::Overlap;
use ganger_schedule::spec::{Misfire, Policy, Spec};
use ganger_schedule::template::Template;
use ganger_schedule::wall::{Dst, Fold, Gap};
use ganger_schedule::zone::Zones;

use super::shared::{DAY, HOUR, YEAR};
use crate::model::{Database, LedgerConfig, ScheduleConfig, SourceConfig};
use crate::problem::{Origin, Problems, Report};
use crate::reader::Reader;
use crate::reader::either::Either;
use crate::tree::{Node, Table};
use crate::value_types::choice::choice;
use crate::value_types::compound::{hinted, list_of, off_or, one_or_more};
use crate::value_types::{Wrong, duration, integer, name, text, word};

/// Longest period and longest catch-up.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
const WEEK: Duration = Misfire::GRACE_MAX;
/// Name of a configuration, if it gives none.
const GROUP: &str = "main";
/// Time for which occurrences are kept, if there is no `[ledger]`.
const KEEP: Duration = Duration::from_secs(90 * DAY.as_secs());
const SECOND: Duration = Duration::from_secs(1);

/// Calendars by name, each with its keys as they were written.
type Calendars = BTreeMap<String, (CalendarDefinition, Json)>;

/// Reads the schedules, and the ledger if there are any.
pub(super) fn read_all(
    t: &mut Reader<'_>,
    sources: &BTreeMap<String, SourceConfig>,
) -> (Option<LedgerConfig>, Vec<ScheduleConfig>) {
    let zones = LazyCell::new(Zones::load);
    let calendars = calendars(t, &zones);
    let has_schedules = t.has("schedules");
    let ledger = ledger(t, sources, has_schedules);
    let mut taken = BTreeSet::new();
    let meaning = "Messages that are sent at times, each kind in its own `[[schedules]]`.";
    let schedules = t.list("schedules", meaning, |t| {
        t.maybe(
            "source",
            word(),
            "Source of the queue: that of the ledger, which is also the default.",
        )
        .filter(|source| {
            ledger
                .as_ref()
                .is_some_and(|ledger| ledger.source != *source)
        })
        .inspect(|_| {
            let help = "a schedule's messages go to queues of the ledger's database: leave it out";
            t.wrong(
                "source",
                &Wrong::new("must be the source of the ledger", help),
            );
        });
        let schedule = read(t, &calendars, &zones);
        if let Some(schedule) = &schedule
            && !taken.insert(schedule.name().to_owned())
        {
            let help = "give each schedule a name of its own";
            t.wrong("name", &Wrong::new("is taken", help));
        }
        schedule
    });
    (ledger, schedules.into_iter().flatten().collect())
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
    let mut t = Reader::new(&table, Origin::default(), &report);
    let schedule = read(&mut t, &Calendars::new(), &zones);
    t.finish();
    match schedule.filter(|_| report.is_clean()) {
        Some(schedule) => Ok(schedule),
        None => Err(report.into_problems()),
    }
}

fn ledger(
    t: &mut Reader<'_>,
    sources: &BTreeMap<String, SourceConfig>,
    is_needed: bool,
) -> Option<LedgerConfig> {
    let tables = sources.iter().filter_map(|(name, source)| match source {
        SourceConfig::Table(table) => Some((name, table)),
        SourceConfig::RabbitMq(_) | SourceConfig::Kafka(_) => None,
    });
    let tables: BTreeMap<_, _> = tables.collect();
    let meaning = "The database that holds the schedules and their occurrences.";
    let given = t.table_if_given("ledger", meaning, |t| {
        let meaning =
            "Source of kind `table`, a SQLite file; may be omitted if there is only one.";
        let source = t.maybe("source", word(), meaning);
        let group = t.or(
            "group",
            name(),
            GROUP,
            "Name of this configuration. A daemon removes from the ledger what its configuration has \
             entered and no longer has: configurations with other schedules on the same ledger need \
             other names.",
        );
        let keep = t.or(
            "keep",
            duration(HOUR..=CENTURY),
            "90d",
            "Time for which occurrences are kept after they have ended; the newest of each schedule stays.",
        );
        (source, group, keep)
    });
    let only = || match tables.keys().collect::<Vec<_>>()[..] {
        [only] => Some(only.to_string()),
        _ => None,
    };
    if !is_needed && given.is_none() {
        return None;
    }
    let help = "name a source of kind `table`: [ledger] with source = \"main\"";
    let (source, group, keep) = given.unwrap_or_else(|| (None, GROUP.to_owned(), KEEP));
    let Some(source) = source.or_else(only) else {
        t.missing("ledger", help);
        return None;
    };
    let Some(table) = tables.get(&source) else {
        t.wrong(
            "ledger",
            &Wrong::new("must have a source of kind `table`", help),
        );
        return None;
    };
    if !matches!(table.database, Database::Sqlite(_)) {
        let help = "schedules are kept in SQLite only, so far";
        t.wrong(
            "ledger",
            &Wrong::new("must have a source that is a SQLite file", help),
        );
    }
    let table = (*table).clone();
    Some(LedgerConfig {
        source,
        table,
        group,
        keep,
    })
}

fn calendars(t: &mut Reader<'_>, zones: &LazyCell<Zones, impl FnOnce() -> Zones>) -> Calendars {
    let meaning = "Calendars that schedules are bound to with `only`.";
    let check = |text: &str| match ganger_core::names::is_name(text) {
        true => Ok(()),
        false => Err(Wrong::new(crate::value_types::NAME_RULE, "")),
    };
    t.tables("calendars", meaning, check, |t| {
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
fn read(
    t: &mut Reader<'_>,
    calendars: &Calendars,
    zones: &LazyCell<Zones, impl FnOnce() -> Zones>,
) -> Option<ScheduleConfig> {
    let mut definition = definition(t);
    let mut given = t.given();
    given.remove("name");
    given.remove("source");
    definition.only = only(t, calendars, &mut given);
    definition.misfire = misfire(t);
    definition.auto_disable = auto_disable(t);
    let queue = t.must("queue", word(), "Queue that gets a message for each slot.");
    let body = t.or(
        "body",
        text(),
        "",
        "Body of the message: a template with `{{ slot }}`, `{{ previous_slot }}`, \
         `{{ last_success }}`, `{{ schedule }}` and `{{ occurrence }}`.",
    );
    let content_type = t.maybe("content_type", word(), "MIME type of the body.");
    let headers = t.map("headers", "NAME", header, text(), "Headers of the message.");
    let key = t.maybe("key", word(), "Key of the message.");
    let priority = t.or(
        "priority",
        integer(i32::MIN..=i32::MAX),
        "0",
        "Priority of the message: higher ones are taken first.",
    );
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
    let spec = spec.map_err(|problems| problems.iter().for_each(|problem| t.problem(problem)));
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
        queue,
        body,
        content_type,
        headers,
        key,
        priority,
        tags,
        description,
        definition: Json::Object(given).to_string(),
    })
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
        overlap: t.or(
            "overlap",
            choice(&[("allow", Overlap::Allow), ("skip", Overlap::Skip)]),
            "skip",
            "What becomes of a slot while an occurrence of the schedule is open: it runs beside that, or \
             is skipped.",
        ),
        ..Definition::default()
    }
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
                "Time within which they must lie.",
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

/// Reads the calendar: its name, or its keys. In what is stored it stands with its keys.
fn only(
    t: &mut Reader<'_>,
    calendars: &Calendars,
    given: &mut Map<String, Json>,
) -> Option<CalendarDefinition> {
    let meaning =
        "Calendar to which the slots are bound: the name of one of `[calendars]`, or its keys.";
    match t.maybe_table("only", word(), meaning, calendar)? {
        Either::Table(calendar) => Some(calendar),
        Either::Value(name) => {
            let Some((calendar, keys)) = calendars.get(&name) else {
                let names = calendars.keys().map(String::as_str);
                let help = match ganger_core::suggest::nearest(&name, names) {
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
