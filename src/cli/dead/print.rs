//! Output of dead letters as they are read: as a table, each in full, or as JSON, with no more than a sheet
//! of the table in memory; and of their counts.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::ControlFlow;

use serde::Serialize;
use serde_json::Value;

use crate::cli::common::Format;
use crate::cli::output::{self, shortened};
use ganger_core::foreign;
use ganger_queue::client::shown::DeadLetterJson;
use ganger_queue::dead_letter::{DeadLetter, Group};

/// Number of rows that are grouped at a time.
const SHEET_ROWS: usize = 1000;

const HEADER: [&str; 7] = [
    "ID",
    "ATTEMPTS",
    "CRASHES",
    "LAST FAILED",
    "NAME",
    "ERROR",
    "BODY",
];

const GROUPS_HEADER: [&str; 7] = [
    "COUNT",
    "POOL",
    "REASON",
    "FIRST FAILED",
    "LAST FAILED",
    "OLDEST",
    "ERROR",
];

/// A list that is being printed.
#[derive(Debug)]
pub(super) struct Print {
    form: Form,
    /// True if dead letters need their source's name to be told apart.
    several: bool,
    is_empty: bool,
}

#[derive(Debug)]
enum Form {
    /// Rows by origin and reason.
    Table(BTreeMap<String, Vec<Vec<String>>>),
    Whole,
    Json(output::Array),
}

impl Print {
    /// Returns a list of which nothing is printed yet.
    pub(super) fn new(format: Format, full: bool, several: bool) -> Self {
        let form = match (format, full) {
            (Format::Json, _) => Form::Json(output::Array::default()),
            (Format::Text, true) => Form::Whole,
            (Format::Text, false) => Form::Table(BTreeMap::new()),
        };
        Self {
            form,
            several,
            is_empty: true,
        }
    }

    /// Returns whether there was no dead letter.
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Takes the next dead letter. Breaks if nobody reads any more.
    pub(super) fn letter(
        &mut self,
        source: &str,
        letter: &DeadLetter,
    ) -> miette::Result<ControlFlow<()>> {
        self.is_empty = false;
        match &mut self.form {
            Form::Json(array) => array.push(&DeadLetterJson::new(source, letter)),
            Form::Whole => output::next_line(as_text(source, letter)),
            Form::Table(groups) => {
                let (queue, reason) = (&letter.queue, &letter.reason);
                let group = if self.several {
                    format!("{queue} of {source}: {reason}")
                } else {
                    format!("{queue}: {reason}")
                };
                groups.entry(group).or_default().push(row(letter));
                let rows: usize = groups.values().map(Vec::len).sum();
                if rows < SHEET_ROWS {
                    return Ok(ControlFlow::Continue(()));
                }
                sheet(std::mem::take(groups))
            }
        }
    }

    /// Prints the end. `is_all` means that nothing is left out.
    pub(super) fn end(self, is_all: bool) -> miette::Result<()> {
        match self.form {
            Form::Json(array) => array.end(),
            Form::Table(_) | Form::Whole if self.is_empty && is_all => {
                output::line("no dead letters")
            }
            Form::Table(groups) => sheet(groups).map(drop),
            Form::Whole => Ok(()),
        }
    }
}

fn sheet(groups: BTreeMap<String, Vec<Vec<String>>>) -> miette::Result<ControlFlow<()>> {
    for (group, rows) in groups {
        let (group, count) = (foreign::line(&group), rows.len());
        let table = output::table(&HEADER, rows);
        if output::next_line(format!("{group} ({count})\n{table}\n"))?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Returns the correlation id, else the message id, else the source's own name.
fn name_of(letter: &DeadLetter) -> &str {
    match letter.correlation_id.as_str() {
        "" => letter
            .message_id
            .as_deref()
            .or(letter.message_name.as_deref())
            .unwrap_or_default(),
        id => id,
    }
}

fn row(letter: &DeadLetter) -> Vec<String> {
    // A little more than is shown, so that it is seen whether there is more.
    let head = letter.body.len().min(4 * (output::TEXT_CHARS_MAX + 1));
    vec![
        foreign::line(&letter.id).into_owned(),
        letter.attempts.to_string(),
        letter.crashes.to_string(),
        letter.last_failed_at.clone(),
        shortened(name_of(letter)),
        shortened(&letter.error),
        shortened(&String::from_utf8_lossy(&letter.body[..head])),
    ]
}

/// Prints the errors of dead letters, most frequent first.
pub(super) fn groups(
    mut groups: Vec<(String, Group)>,
    format: Format,
    several: bool,
) -> miette::Result<()> {
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.count));
    match format {
        Format::Json => {
            let groups = groups
                .into_iter()
                .map(|(source, group)| InSource { source, group });
            output::json(&groups.collect::<Vec<_>>())
        }
        Format::Text if groups.is_empty() => output::line("no dead letters"),
        Format::Text => {
            let rows = groups
                .iter()
                .map(|(source, group)| group_row(source, group, several));
            output::line(output::table(&GROUPS_HEADER, rows))
        }
    }
}

/// A group with its source, as JSON has it.
#[derive(Debug, Serialize)]
struct InSource {
    source: String,
    #[serde(flatten)]
    group: Group,
}

fn group_row(source: &str, group: &Group, several: bool) -> Vec<String> {
    let pool = match several {
        true => format!("{} of {source}", group.pool),
        false => group.pool.clone(),
    };
    vec![
        group.count.to_string(),
        shortened(&pool),
        shortened(&group.reason),
        shortened(&group.first_failed_at),
        shortened(&group.last_failed_at),
        foreign::line(&group.id).into_owned(),
        shortened(&group.error),
    ]
}

/// Formats a dead letter in full for people: a line for each field, escaped since others wrote it.
pub(super) fn as_text(source: &str, letter: &DeadLetter) -> String {
    let Ok(Value::Object(fields)) = serde_json::to_value(DeadLetterJson::new(source, letter))
    else {
        return String::new();
    };
    let mut text = String::new();
    let mut line = |line: std::fmt::Arguments<'_>| {
        writeln!(text, "{line}").expect("writing to a String does not fail");
    };
    for (name, value) in &fields {
        match value {
            Value::Null => {}
            Value::String(text) if text.is_empty() => {}
            Value::Array(lines) if lines.is_empty() => {}
            Value::String(text) => line(format_args!("{name}: {}", foreign::line(text))),
            Value::Array(lines) => {
                line(format_args!("{name}:"));
                for one in lines {
                    let one = one.as_str().unwrap_or_default();
                    line(format_args!("  {}", foreign::line(one)));
                }
            }
            other => {
                let other = other.to_string();
                line(format_args!("{name}: {}", foreign::line(&other)));
            }
        }
    }
    text
}
