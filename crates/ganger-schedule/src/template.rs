//! The body of a schedule's message: a template in the syntax of Jinja with facts about the run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::fmt::strtime::BrokenDownTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Object;
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior, Value};

use crate::problem::{Broken, Problem};
use crate::zone::Zone;

/// Number of steps of one rendering: a loop in a loop may not take a daemon's time.
const STEPS_MAX: u64 = 100_000;
/// Longest body that a template may make, in bytes.
const BYTES_MAX: usize = 1 << 20;
/// Names that a template may use.
const NAMES: [&str; 5] = [
    "slot",
    "previous_slot",
    "last_success",
    "schedule",
    "occurrence",
];

/// Facts about a run.
#[derive(Debug, Clone, Copy)]
pub struct RunFacts<'a> {
    /// Name of the schedule.
    pub schedule: &'a str,
    /// Id of the occurrence, which is also that of its message.
    pub occurrence: &'a str,
    /// The slot; for a run that an operator has triggered, the time of that.
    pub slot: Timestamp,
    /// The slot before it, if there is one.
    pub previous_slot: Option<Timestamp>,
    /// Slot of the last run that has completed, if there is one.
    pub last_success: Option<Timestamp>,
}

/// A template, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    text: String,
    zone: Zone,
}

impl Template {
    /// Checks a template by rendering it. Dates are written in the zone.
    ///
    /// # Errors
    /// If it is none, if it uses a name or a filter that does not exist, or if it can't be rendered.
    pub fn new(text: &str, zone: &Zone) -> Result<Self, Problem> {
        let template = Self {
            text: text.to_owned(),
            zone: zone.clone(),
        };
        if !template.is_plain() {
            template.check().map_err(|error| problem(&error))?;
        }
        Ok(template)
    }

    /// Returns true if the template may use that name.
    pub fn uses(&self, name: &str) -> bool {
        !self.is_plain() && self.text.contains(name)
    }

    /// Returns true if the text is the body as it is.
    fn is_plain(&self) -> bool {
        !["{{", "{%", "{#"]
            .iter()
            .any(|mark| self.text.contains(mark))
    }

    fn check(&self) -> Result<(), Error> {
        let template = ENVIRONMENT.template_from_str(&self.text)?;
        let used: BTreeSet<String> = template.undeclared_variables(false).into_iter().collect();
        let is_unknown = |name: &&String| !NAMES.contains(&name.as_str()) && *name != "range";
        if let Some(unknown) = used.iter().find(is_unknown) {
            let wrong = format!("`{unknown}` does not exist");
            return Err(Error::new(ErrorKind::UndefinedError, wrong));
        }
        let slot = Timestamp::UNIX_EPOCH;
        let first = RunFacts {
            schedule: "schedule",
            occurrence: "00000000-0000-7000-8000-000000000000",
            slot,
            previous_slot: None,
            last_success: None,
        };
        let later = RunFacts {
            previous_slot: Some(slot),
            last_success: Some(slot),
            ..first
        };
        self.try_render(&first)?;
        self.try_render(&later).map(drop)
    }

    /// Returns the body for a run. Times are RFC 3339 in UTC; one that there is not is empty.
    ///
    /// # Errors
    /// If the template can't be rendered.
    pub fn render(&self, run: &RunFacts<'_>) -> Result<String, Broken> {
        if self.is_plain() {
            return Ok(self.text.clone());
        }
        let rendered = self.try_render(run);
        rendered.map_err(|error| Broken(format!("body: {}", shown(&error))))
    }

    fn try_render(&self, run: &RunFacts<'_>) -> Result<String, Error> {
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string()).unwrap_or_default();
        let facts = BTreeMap::from([
            ("slot", Value::from(run.slot.to_string())),
            ("previous_slot", time(run.previous_slot).into()),
            ("last_success", time(run.last_success).into()),
            ("schedule", run.schedule.into()),
            ("occurrence", run.occurrence.into()),
            (ZONE, Value::from_object(DateZone(self.zone.clone()))),
        ]);
        let mut body = Bounded(Vec::new());
        let template = ENVIRONMENT.template_from_str(&self.text)?;
        template.render_captured_to(facts, &mut body)?;
        let text = String::from_utf8(body.0);
        text.map_err(|_| Error::new(ErrorKind::InvalidOperation, "the body is not UTF-8"))
    }
}

/// Name under which a template's zone is known to filters. No template may use it.
const ZONE: &str = "zone of dates";

/// Zone of a template, for its filters.
#[derive(Debug)]
struct DateZone(Zone);

impl Object for DateZone {}

/// Environment of all templates: to make it costs more than to render one.
static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(STEPS_MAX));
    environment.set_syntax(syntax());
    environment.add_filter(
        "date",
        |state: &State<'_, '_>, time: String, format: Option<String>| {
            let zone = state.lookup(ZONE);
            let zone = zone.as_ref().and_then(|zone| zone.downcast_object_ref());
            let utc = DateZone(Zone::default());
            let DateZone(zone) = zone.unwrap_or(&utc);
            date(zone, &time, format.as_deref().unwrap_or("%Y-%m-%d"))
        },
    );
    environment.add_filter("unix", |time: String| {
        let seconds = |time: Timestamp| Value::from(time.as_second());
        Ok::<_, Error>(instant(&time)?.map_or(Value::from(""), seconds))
    });
    environment
});

/// Returns Jinja's syntax, in which a text keeps its last line's end.
fn syntax() -> SyntaxConfig {
    let mut builder = SyntaxConfig::builder();
    builder.keep_trailing_newline(true);
    builder.build().unwrap_or_default()
}

/// A body that is written, up to a length.
struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + part.len() > BYTES_MAX {
            let error = format!("the body is longer than {BYTES_MAX} bytes");
            return Err(std::io::Error::other(error));
        }
        self.0.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Reads a time; none if there is none.
fn instant(time: &str) -> Result<Option<Timestamp>, Error> {
    if time.is_empty() {
        return Ok(None);
    }
    let invalid = |_| Error::new(ErrorKind::InvalidOperation, format!("`{time}` is no time"));
    time.parse().map(Some).map_err(invalid)
}

fn date(zone: &Zone, time: &str, format: &str) -> Result<String, Error> {
    let Some(time) = instant(time)? else {
        return Ok(String::new());
    };
    let zoned = BrokenDownTime::from(&zone.zoned(time));
    let mut text = String::new();
    let written = zoned.format(format, &mut text);
    let invalid = |_| {
        let wrong = format!("`{format}` is no format of a date");
        Error::new(ErrorKind::InvalidOperation, wrong)
    };
    written.map(|()| text).map_err(invalid)
}

fn problem(error: &Error) -> Problem {
    let names = NAMES.map(|name| format!("`{name}`")).join(", ");
    let right = format!(
        "write {{{{ slot }}}} or {{{{ slot | date }}}}; there are {names}, and `{{% raw %}}` for text \
         with braces"
    );
    Problem::new(shown(error), right)
}

fn shown(error: &Error) -> String {
    let mut text = match error.detail() {
        Some(detail) => detail.to_owned(),
        None => error.kind().to_string(),
    };
    if error.kind() == ErrorKind::OutOfFuel {
        text = format!("template takes more than {STEPS_MAX} steps");
    }
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    match error.line() {
        Some(line) if line > 1 => format!("{text} (line {line})"),
        Some(_) | None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone::Zones;

    fn berlin() -> Zone {
        Zones::bundled().get("Europe/Berlin").unwrap()
    }

    fn render(text: &str) -> String {
        let run = RunFacts {
            schedule: "invoices",
            occurrence: "id",
            slot: "2026-11-27T23:30:00Z".parse().unwrap(),
            previous_slot: None,
            last_success: "2026-11-26T23:30:00Z".parse().ok(),
        };
        Template::new(text, &berlin())
            .unwrap()
            .render(&run)
            .unwrap()
    }

    #[test]
    fn a_body_is_made_of_the_run() {
        for (text, expected) in [
            ("", ""),
            ("{}", "{}"),
            ("{{ slot }}", "2026-11-27T23:30:00Z"),
            ("{{ schedule }}\n", "invoices\n"),
            // In the zone it is the next day.
            ("{{ slot | date }}", "2026-11-28"),
            ("{{ slot | date('%H:%M %z') }}", "00:30 +0100"),
            ("{{ slot | unix }}", "1795822200"),
            ("[{{ previous_slot }}]", "[]"),
            ("{{ previous_slot | date }}", ""),
            ("{{ previous_slot | unix }}", ""),
            ("{{ last_success }}", "2026-11-26T23:30:00Z"),
            ("{{ schedule }} {{ occurrence }}", "invoices id"),
            (r#"{"n": {{ schedule | tojson }}}"#, r#"{"n": "invoices"}"#),
            ("{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
            ("<{{ '<&>' }}>", "<<&>>"),
            ("{{ previous_slot or 'first' }}", "first"),
        ] {
            assert_eq!(render(text), expected, "{text}");
        }
    }

    #[test]
    fn a_mistake_is_told_when_it_is_saved() {
        for (text, expected) in [
            ("{{ slott }}", "`slott` does not exist"),
            ("{{ slot | dat }}", "filter dat is unknown"),
            ("{{ slot", "unexpected end of input"),
            ("\n{% if slot %}", "unexpected end of input, expected"),
            ("{{ schedule | date }}", "`schedule` is no time"),
            ("{{ slot | date('%!') }}", "`%!` is no format of a date"),
            (
                "{% for a in range(999) %}{% for b in range(999) %}{% endfor %}{% endfor %}",
                "template takes more than 100000 steps",
            ),
            (
                "{% for a in range(9999) %}{{ slot * 99 }}{% endfor %}",
                "the body is longer than 1048576 bytes",
            ),
        ] {
            let problem = Template::new(text, &berlin()).unwrap_err();
            assert!(
                problem.wrong.contains(expected),
                "{text}: {}",
                problem.wrong
            );
        }
        let problem = Template::new("{{ slott }}", &berlin()).unwrap_err();
        assert!(problem.right.contains("`last_success`"), "{problem}");
    }
}
