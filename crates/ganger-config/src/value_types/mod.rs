//! The kinds of value that a key may take: how each is read, its error messages, and its description in
//! the reference and the schema. Nothing here knows a key.

pub(super) mod address;
pub(super) mod choice;
pub(super) mod compound;

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::filter::Targets;

use super::model::Argument;
use super::print;
use super::problem::Origin;
use super::tree::{Broken, Node, Value};
use ganger_core::names::{NAME_RULE, is_name};
use ganger_core::units;

/// A kind of value.
pub(super) trait Kind {
    /// Result of reading it.
    type Value;
    /// Reads a value, or says which rule it breaks.
    fn read(&self, node: &Node) -> Result<Self::Value, Wrong>;
    /// Writes a value so that `read` accepts it.
    fn show(&self, value: &Self::Value) -> String;
    /// Its name and bounds, for the reference.
    fn describe(&self) -> String;
    /// Its JSON Schema.
    fn schema(&self) -> Json;
}

/// Problem of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    /// The rule that it breaks, as in "must be within 1..=1024".
    pub(super) rule: String,
    /// Remedy; may be empty.
    pub(super) help: String,
    /// Index and place of the wrong element, if the value is a list and one element breaks the rule.
    pub(super) element: Option<(usize, Origin)>,
}

impl Wrong {
    pub(super) fn new(rule: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            rule: rule.into(),
            help: help.into(),
            element: None,
        }
    }

    /// Returns the problem of a value that is found before its kind is known.
    pub(super) fn of(node: &Node) -> Option<Self> {
        match &node.value {
            Value::Broken(Broken { rule, help }) => Some(Self::new(rule, *help)),
            Value::List(list) => list.iter().enumerate().find_map(|(index, node)| {
                let element = Some((index, node.origin.clone()));
                Self::of(node).map(|wrong| Self { element, ..wrong })
            }),
            Value::Text(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Table(_)
            | Value::Date => None,
        }
    }
}

/// Pattern that matches a variable, for the schemas of values that are not plain text.
pub(crate) const VARIABLE: &str = r"\$\{";

fn show_range<T>(range: &RangeInclusive<T>, show: impl Fn(&T) -> String) -> String {
    format!("{}..={}", show(range.start()), show(range.end()))
}

fn within<T: PartialOrd>(
    range: &RangeInclusive<T>,
    value: T,
    show: impl Fn(&T) -> String,
) -> Result<T, Wrong> {
    if range.contains(&value) {
        Ok(value)
    } else {
        let rule = format!("must be within {}", show_range(range, show));
        Err(Wrong::new(rule, ""))
    }
}

/// Text that follows a rule.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text {
    description: &'static str,
    pattern: Option<&'static str>,
    rule: &'static str,
    holds: fn(&str) -> bool,
}

/// Makes the kind for any text, including the empty one.
pub(super) fn text() -> Text {
    Text {
        description: "text",
        pattern: None,
        rule: "must be text",
        holds: |_| true,
    }
}

/// Makes the kind for text that is not empty.
pub(super) fn word() -> Text {
    Text {
        description: "text",
        pattern: Some("."),
        rule: "must not be empty",
        holds: |text| !text.is_empty(),
    }
}

/// Makes the kind for a log filter, in the syntax of [`Targets`].
pub(super) fn log_filter() -> Text {
    Text {
        description: "text",
        pattern: Some("."),
        rule: "must be a level, such as `info`, or a filter, such as `info,ganger_pool=debug`",
        holds: is_log_filter,
    }
}

/// Makes the kind for the URL of an OpenTelemetry collector, `auto` or `off`.
pub(super) fn collector() -> Text {
    Text {
        description: "URL, `auto` or `off`",
        pattern: Some(r"^(auto|off|https?://.+)$|\$\{"),
        rule: "must be `auto`, `off` or a URL with http:// or https://",
        holds: |text| matches!(text, "auto" | "off") || is_web(text),
    }
}

/// Rule for the URL of a web server.
pub(super) const WEB_RULE: &str = "must be a URL with http:// or https:// and a host";

/// Makes the kind for the URL of a web server.
pub(super) fn web_url() -> Text {
    Text {
        description: "URL",
        pattern: Some(r"^https?://.+$|\$\{"),
        rule: WEB_RULE,
        holds: is_web,
    }
}

/// Returns whether a text is the URL of a web server.
pub(super) fn is_web(text: &str) -> bool {
    let is_web = |url: url::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    url::Url::parse(text).is_ok_and(is_web)
}

/// Returns whether a text is a valid log filter. A bare word that is no level would be taken for the only
/// module to log: it is a mistake. So is a span, which would be taken for a module.
pub fn is_log_filter(text: &str) -> bool {
    let clear =
        |part: &str| part.contains(['=', ':']) || LevelFilter::from_str(part.trim()).is_ok();
    let names_modules = !text.is_empty() && !text.contains('[') && text.split(',').all(clear);
    names_modules && text.parse::<Targets>().is_ok()
}

/// Checks a name that a key has.
pub(super) fn check_name(name: &str) -> Result<(), Wrong> {
    match is_name(name) {
        true => Ok(()),
        false => Err(Wrong::new(NAME_RULE, "")),
    }
}

/// Makes the kind for the prefix of table names: they need no quotes, and still fit.
pub(super) fn table_prefix() -> Text {
    Text {
        description: "text",
        pattern: Some(r"^([a-z_][a-z0-9_]{0,29})?$|\$\{"),
        rule: "must be at most 30 of the characters a-z, 0-9 and `_`, no digit first",
        holds: |text| {
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            let begins = !text.starts_with(|c: char| c.is_ascii_digit());
            text.len() <= 30 && text.chars().all(fits) && begins
        },
    }
}

/// Makes the kind for a file mode in octal, not executable, as [`file_mode`] reads it.
pub(super) fn octal_mode() -> Text {
    Text {
        description: "mode",
        pattern: Some(r"^0*6[046][046]$|\$\{"),
        rule: "must be one of 0600, 0640, 0644, 0660, 0664 and 0666",
        holds: |text| file_mode(text) != 0,
    }
}

/// Returns the mode; 0 if the text is not a valid one.
pub(super) fn file_mode(text: &str) -> u32 {
    match text.trim_start_matches('0') {
        "600" => 0o600,
        "640" => 0o640,
        "644" => 0o644,
        "660" => 0o660,
        "664" => 0o664,
        "666" => 0o666,
        _ => 0,
    }
}

/// Makes the kind for a SHA-256 in hexadecimal, as [`bytes_of`] reads it.
pub(super) fn sha256() -> Text {
    Text {
        description: "64 hexadecimal digits",
        pattern: Some(r"^[0-9A-Fa-f]{64}$|\$\{"),
        rule: "must be the SHA-256 of the token, 64 hexadecimal digits: `ganger token new` prints one",
        holds: |text| bytes_of(text).is_some(),
    }
}

/// Returns the bytes of a SHA-256 in hexadecimal.
pub(super) fn bytes_of(hex: &str) -> Option<[u8; 32]> {
    let digits: Option<Vec<u32>> = hex.chars().map(|digit| digit.to_digit(16)).collect();
    let bytes = digits.filter(|digits| digits.len() == 64)?;
    let bytes = bytes.chunks(2).map(|pair| pair[0] << 4 | pair[1]);
    let bytes: Result<Vec<u8>, _> = bytes.map(u8::try_from).collect();
    bytes.ok()?.try_into().ok()
}

/// Makes the kind for an instant, in RFC 3339.
pub(super) fn instant() -> Text {
    Text {
        description: "time in RFC 3339",
        pattern: Some(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ].+$|\$\{"),
        rule: "must be a time with `Z` or an offset, such as `\"2027-06-30T00:00:00Z\"`",
        holds: |text| text.parse::<jiff::Timestamp>().is_ok(),
    }
}

/// Makes the kind for the name of an HTTP header.
pub(super) fn header_name() -> Text {
    Text {
        description: "header name",
        pattern: Some(r"^[A-Za-z0-9_-]{1,64}$|\$\{"),
        rule: "must be the name of an HTTP header, such as `X-Forwarded-User`",
        holds: |text| is_name(text) && !text.contains('.'),
    }
}

/// Makes the kind for a part of a message: a path into JSON, or the name of a header.
pub(super) fn message_part() -> Text {
    Text {
        description: "JSONPath or header name",
        pattern: Some(r"^\$.+$|^[A-Za-z0-9_.-]{1,128}$|\$\{"),
        rule: "must be a path into JSON, such as `$.customer.card` or `$..card`, or the name of a header",
        holds: |text| match text.starts_with('$') {
            true => text.len() > 1 && serde_json_path::JsonPath::parse(text).is_ok(),
            false => ganger_core::names::is_name(text),
        },
    }
}

/// Makes the kind for the name of a pool or a source.
pub(super) fn name() -> Text {
    Text {
        description: "name",
        pattern: Some(r"^(?!\.\.?$)[A-Za-z0-9_.-]{1,64}$|\$\{"),
        rule: NAME_RULE,
        holds: is_name,
    }
}

impl Kind for Text {
    type Value = String;

    fn read(&self, node: &Node) -> Result<String, Wrong> {
        let help = "write it between quotes";
        let text = node.as_text().ok_or(Wrong::new("must be text", help))?;
        if text.contains('\0') {
            return Err(Wrong::new("must not hold a NUL character", ""));
        }
        if !(self.holds)(text) {
            return Err(Wrong::new(self.rule, ""));
        }
        Ok(text.into())
    }

    fn show(&self, value: &String) -> String {
        print::text(value)
    }

    fn describe(&self) -> String {
        self.description.into()
    }

    fn schema(&self) -> Json {
        match self.pattern {
            Some(pattern) => json!({ "type": "string", "pattern": pattern }),
            None => json!({ "type": "string" }),
        }
    }
}

/// A whole number within bounds.
#[derive(Debug, Clone)]
pub(super) struct Integer<T>(RangeInclusive<T>);

pub(super) fn integer<T>(range: RangeInclusive<T>) -> Integer<T> {
    Integer(range)
}

impl<T> Kind for Integer<T>
where
    T: Copy + PartialOrd + Display + TryFrom<i64>,
    Json: From<T>,
{
    type Value = T;

    fn read(&self, node: &Node) -> Result<T, Wrong> {
        let Value::Integer(integer) = node.value else {
            return Err(Wrong::new(
                "must be a whole number",
                "write it without quotes",
            ));
        };
        // A number that does not fit the type is out of bounds as well.
        let rule = || format!("must be within {}", show_range(&self.0, T::to_string));
        let value = T::try_from(integer).map_err(|_| Wrong::new(rule(), ""))?;
        within(&self.0, value, T::to_string)
    }

    fn show(&self, value: &T) -> String {
        value.to_string()
    }

    fn describe(&self) -> String {
        format!("whole number, {}", show_range(&self.0, T::to_string))
    }

    fn schema(&self) -> Json {
        let (least, most) = (Json::from(*self.0.start()), Json::from(*self.0.end()));
        json!({ "anyOf": [
            { "type": "integer", "minimum": least, "maximum": most },
            { "type": "string", "pattern": VARIABLE },
        ] })
    }
}

/// A number within bounds.
#[derive(Debug, Clone)]
pub(super) struct Float(RangeInclusive<f64>);

pub(super) fn float(range: RangeInclusive<f64>) -> Float {
    Float(range)
}

impl Kind for Float {
    type Value = f64;

    fn read(&self, node: &Node) -> Result<f64, Wrong> {
        let value = match node.value {
            Value::Float(float) => float,
            // No bound is beyond an i32, so that a number which is breaks it in any case.
            Value::Integer(integer) => i32::try_from(integer).map_or(f64::INFINITY, f64::from),
            _ => return Err(Wrong::new("must be a number", "write it without quotes")),
        };
        within(&self.0, value, |bound| format!("{bound:?}"))
    }

    fn show(&self, value: &f64) -> String {
        print::float(*value)
    }

    fn describe(&self) -> String {
        let range = show_range(&self.0, |bound| format!("{bound:?}"));
        format!("number, {range}")
    }

    fn schema(&self) -> Json {
        json!({ "anyOf": [
            { "type": "number", "minimum": self.0.start(), "maximum": self.0.end() },
            { "type": "string", "pattern": VARIABLE },
        ] })
    }
}

/// A duration within bounds.
#[derive(Debug, Clone)]
pub(super) struct Span(RangeInclusive<Duration>);

pub(super) fn duration(range: RangeInclusive<Duration>) -> Span {
    Span(range)
}

impl Kind for Span {
    type Value = Duration;

    fn read(&self, node: &Node) -> Result<Duration, Wrong> {
        let help = match node.value {
            Value::Integer(number) if number >= 0 => {
                format!("give it a unit: write \"{number}s\" for seconds")
            }
            _ => r#"write a number and its unit, such as "250ms", "30s", "5m" or "1h 30m""#.into(),
        };
        let value = node.as_text().and_then(units::duration);
        let value = value.ok_or(Wrong::new("must be a duration", help))?;
        within(&self.0, value, |bound| units::show_duration(*bound))
    }

    fn show(&self, value: &Duration) -> String {
        print::text(&units::show_duration(*value))
    }

    fn describe(&self) -> String {
        let range = show_range(&self.0, |bound| units::show_duration(*bound));
        format!("duration, {range}")
    }

    fn schema(&self) -> Json {
        let pattern = format!(r"^\s*[0-9][0-9. ]*[a-zµ][0-9a-zµ., ]*$|{VARIABLE}");
        json!({ "type": "string", "pattern": pattern })
    }
}

/// A size in bytes within bounds.
#[derive(Debug, Clone)]
pub(super) struct Size(RangeInclusive<u64>);

pub(super) fn size(range: RangeInclusive<u64>) -> Size {
    Size(range)
}

impl Kind for Size {
    type Value = u64;

    fn read(&self, node: &Node) -> Result<u64, Wrong> {
        let help = match node.value {
            Value::Integer(number) if number >= 0 => {
                format!("give it a unit: write \"{number}B\" for bytes, or KiB, MiB, GiB")
            }
            _ => r#"write a whole number and its unit, such as "64KiB" or "512MiB""#.into(),
        };
        let value = node.as_text().and_then(units::size);
        let value = value.ok_or(Wrong::new("must be a size", help))?;
        within(&self.0, value, |bound| units::show_size(*bound))
    }

    fn show(&self, value: &u64) -> String {
        print::text(&units::show_size(*value))
    }

    fn describe(&self) -> String {
        let range = show_range(&self.0, |bound| units::show_size(*bound));
        format!("size, {range}")
    }

    fn schema(&self) -> Json {
        let pattern = format!(r"^\s*[0-9]+ *([KkMmGgTt][Ii]?)?[Bb]\s*$|{VARIABLE}");
        json!({ "type": "string", "pattern": pattern })
    }
}

/// True or false.
#[derive(Debug, Clone, Copy)]
pub(super) struct Boolean;

pub(super) fn boolean() -> Boolean {
    Boolean
}

impl Kind for Boolean {
    type Value = bool;

    fn read(&self, node: &Node) -> Result<bool, Wrong> {
        match node.value {
            Value::Boolean(value) => Ok(value),
            _ => Err(Wrong::new(
                "must be `true` or `false`",
                "write it without quotes",
            )),
        }
    }

    fn show(&self, value: &bool) -> String {
        value.to_string()
    }

    fn describe(&self) -> String {
        "`true` or `false`".into()
    }

    fn schema(&self) -> Json {
        json!({ "anyOf": [
            { "type": "boolean" },
            { "type": "string", "pattern": VARIABLE },
        ] })
    }
}

/// A value passed on unchanged to a system that knows its meaning: text, a whole number, true or false.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain;

pub(super) fn plain() -> Plain {
    Plain
}

impl Kind for Plain {
    type Value = Argument;

    fn read(&self, node: &Node) -> Result<Argument, Wrong> {
        match &node.value {
            Value::Text(text) if text.contains('\0') => {
                Err(Wrong::new("must not hold a NUL character", ""))
            }
            Value::Text(text) => Ok(Argument::Text(text.clone())),
            Value::Integer(integer) => Ok(Argument::Integer(*integer)),
            Value::Boolean(boolean) => Ok(Argument::Boolean(*boolean)),
            _ => Err(Wrong::new(
                "must be text, a whole number, `true` or `false`",
                "",
            )),
        }
    }

    fn show(&self, value: &Argument) -> String {
        match value {
            Argument::Text(text) => print::text(text),
            Argument::Integer(integer) => integer.to_string(),
            Argument::Boolean(boolean) => boolean.to_string(),
        }
    }

    fn describe(&self) -> String {
        "text, whole number, `true` or `false`".into()
    }

    fn schema(&self) -> Json {
        json!({ "type": ["string", "integer", "boolean"] })
    }
}
