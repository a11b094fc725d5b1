//! Output of the commands: one place for JSON, tables and errors.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use comfy_table::{ContentArrangement, Table, presets};
use miette::{IntoDiagnostic, miette};
use serde::Serialize;

use ganger_config::{Problem, Problems};
use ganger_core::foreign;

/// Prints a text unchanged. Breaks if nobody reads any more. A reader that has closed its end, as `head`
/// does, is no failure: the exit code is for the command's work.
fn print(text: &[u8]) -> miette::Result<ControlFlow<()>> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(miette!("writing to stdout failed: {error}")),
    }
}

/// Prints a line of text. Breaks if nobody reads any more.
pub(super) fn next_line(text: impl std::fmt::Display) -> miette::Result<ControlFlow<()>> {
    print(format!("{text}\n").as_bytes())
}

/// Prints a line of text.
pub(super) fn line(text: impl std::fmt::Display) -> miette::Result<()> {
    next_line(text).map(drop)
}

/// Prints a text unchanged.
pub(super) fn bytes(text: &[u8]) -> miette::Result<()> {
    print(text).map(drop)
}

/// Prints a line of text to stderr, if possible: it is not the requested output.
pub(super) fn note(text: impl std::fmt::Display) {
    let text = text.to_string();
    let shown = if io::stderr().is_terminal() {
        foreign::lines(&text)
    } else {
        Cow::Borrowed(text.as_str())
    };
    drop(writeln!(io::stderr(), "{shown}"));
}

/// Asks a person for an answer, on a line that stays open.
pub(super) fn prompt(text: impl std::fmt::Display) {
    let mut err = io::stderr();
    drop(write!(err, "{text}").and_then(|()| err.flush()));
}

/// Returns a body that others wrote as it may go to stdout: unchanged, but escaped for a terminal, which
/// would interpret control sequences in it.
pub(super) fn foreign_bytes(bytes: &[u8]) -> Cow<'_, [u8]> {
    if io::stdout().is_terminal() {
        let text = String::from_utf8_lossy(bytes);
        Cow::Owned(foreign::lines(&text).into_owned().into_bytes())
    } else {
        Cow::Borrowed(bytes)
    }
}

/// Formats a value as JSON for stdout: indented on a terminal.
fn as_json(value: &impl Serialize) -> miette::Result<String> {
    let text = if io::stdout().is_terminal() {
        serde_json::to_string_pretty(value).map(|text| foreign::json(&text).into_owned())
    } else {
        serde_json::to_string(value)
    };
    text.into_diagnostic()
}

/// Prints a value as JSON, indented on a terminal.
pub(super) fn json(value: &impl Serialize) -> miette::Result<()> {
    line(as_json(value)?)
}

/// Prints a value as JSON, indented on a terminal. Breaks if nobody reads any more.
pub(super) fn next_json(value: &impl Serialize) -> miette::Result<ControlFlow<()>> {
    next_line(as_json(value)?)
}

/// Prints a JSON array, one value after the other: it may be longer than memory.
#[derive(Debug, Default)]
pub(super) struct Array {
    has_begun: bool,
}

impl Array {
    /// Prints the next value. Breaks if nobody reads any more.
    pub(super) fn push(&mut self, value: &impl Serialize) -> miette::Result<ControlFlow<()>> {
        let before = if self.has_begun { "," } else { "[" };
        self.has_begun = true;
        let value = as_json(value)?;
        if io::stdout().is_terminal() {
            let value = value.replace('\n', "\n  ");
            return print(format!("{before}\n  {value}").as_bytes());
        }
        print(format!("{before}{value}").as_bytes())
    }

    /// Prints the end of the array.
    pub(super) fn end(self) -> miette::Result<()> {
        match (self.has_begun, io::stdout().is_terminal()) {
            (false, _) => line("[]"),
            (true, false) => line("]"),
            (true, true) => line("\n]"),
        }
    }
}

/// Maximum number of characters of a text in a table for people.
pub(super) const TEXT_CHARS_MAX: usize = 60;

/// Returns the beginning of a text for a cell of a table.
pub(super) fn shortened(text: &str) -> String {
    let end = text.char_indices().nth(TEXT_CHARS_MAX).map(|(at, _)| at);
    let kept = text[..end.unwrap_or(text.len())].replace('\t', " ");
    let more = if end.is_some() { "…" } else { "" };
    format!("{}{more}", foreign::line(&kept))
}

/// Formats a time that was measured in milliseconds.
pub(super) fn millis(millis: u64) -> String {
    match millis {
        0 => "0ms".to_owned(),
        millis => format!("{:.1?}", Duration::from_millis(millis)),
    }
}

/// Formats a table without lines, readable for people and for `awk`.
pub(super) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for row in rows {
        // Others may have written it, and a line feed would begin what looks like another row.
        table.add_row(row.iter().map(|cell| foreign::line(cell)));
    }
    table.trim_fmt()
}

/// Returns a line of a text with its label, both of which others may have written.
pub(super) fn labelled(label: &str, text: &str) -> String {
    format!("{:<12}  {}", foreign::line(label), foreign::line(text))
}

/// Prints an error with all its causes.
pub(super) fn complain(report: &miette::Report) {
    drop(writeln!(io::stderr(), "{}", complaint(report)));
}

/// Joins an error into one line, for logs and scripts: text on lines of its own is a part of it.
fn error_line(text: &str) -> String {
    let parts = text.split(['\n', '\r']).map(str::trim);
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    format!("error: {}", foreign::line(&parts.join("; ")))
}

fn problem_line(problem: &Problem) -> String {
    let Problem {
        file,
        message,
        help,
        ..
    } = problem;
    let place = match (problem.line, problem.column) {
        (Some(line), Some(column)) => format!("{file}:{line}:{column}: "),
        (Some(line), None) => format!("{file}:{line}: "),
        (None, _) if file.is_empty() => String::new(),
        (None, _) => format!("{file}: "),
    };
    let help = match help.is_empty() {
        true => String::new(),
        false => format!("; {help}"),
    };
    error_line(&format!("{place}{message}{help}"))
}

/// Prints the parser's error about a command line, and exits.
pub(super) fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || io::stderr().is_terminal() {
        error.exit();
    }
    let text = error.render().to_string();
    let text = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "a subcommand is missing",
        _ => {
            let end = ["\n\nUsage:", "\n\nFor more information"];
            let end = end.iter().filter_map(|part| text.find(*part)).min();
            text[..end.unwrap_or(text.len())].trim_start_matches("error: ")
        }
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    drop(writeln!(
        io::stderr(),
        "{}",
        error_line(&format!("{}; see --help", words.join(" ")))
    ));
    ExitCode::from(2)
}

/// Formats an error with all its causes for stderr.
pub(super) fn complaint(report: &miette::Report) -> String {
    let causes: Vec<String> = report.chain().map(ToString::to_string).collect();
    let is_tame = |cause: &String| matches!(foreign::line(cause), Cow::Borrowed(_));
    match report.downcast_ref::<Problems>() {
        Some(problems) if !io::stderr().is_terminal() => {
            let lines = problems.messages().iter().map(problem_line);
            return lines.collect::<Vec<_>>().join("\n");
        }
        None if !io::stderr().is_terminal() => return error_line(&causes.join(": ")),
        // What is wrong with a configuration is shown in the user's own text.
        Some(_) => return format!("{report:?}"),
        None if causes.iter().all(is_tame) => return format!("{report:?}"),
        None => {}
    }
    let mut shown = causes.iter().rev().map(|cause| foreign::line(cause));
    let first = miette!("{}", shown.next().unwrap_or_default());
    let told = shown.fold(first, |told, cause| told.wrap_err(cause.into_owned()));
    format!("{told:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_below_a_millisecond_is_none() {
        let shown = [0, 1, 1500].map(millis);
        assert_eq!(shown, ["0ms", "1.0ms", "1.5s"]);
    }

    #[test]
    fn what_others_wrote_begins_no_line() {
        let forged = "failed\nERROR forged\u{9b}";
        let rows = table(&["ERROR"], [vec![forged.to_owned()]]);
        assert_eq!(rows, " ERROR\n failed\\nERROR forged\\u{9b}");
        let line = labelled("\u{1b}[2J", forged);
        assert_eq!(line, "\\u{1b}[2J     failed\\nERROR forged\\u{9b}");
        let complaint = complaint(&miette!("{forged}").wrap_err("it did not work"));
        assert!(
            complaint.ends_with("failed; ERROR forged\\u{9b}"),
            "{complaint}"
        );
    }
}
