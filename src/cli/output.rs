//! How the commands print: one place for JSON, tables and complaints.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

/// What it means that something was printed, or was not. A reader that has seen enough, as `head`
/// has, is no failure: the exit code is for what was done.
fn printed(written: io::Result<()>) -> miette::Result<()> {
    match written.and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(miette::miette!("stdout can't be written: {error}"))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Prints a line of text.
pub(super) fn line(text: impl std::fmt::Display) -> miette::Result<()> {
    printed(writeln!(io::stdout(), "{text}"))
}

/// Prints a text as it is.
pub(super) fn bytes(text: &[u8]) -> miette::Result<()> {
    printed(io::stdout().write_all(text))
}

/// Prints a line of text to stderr, as far as that can be written: it is not what was asked for.
pub(super) fn note(text: impl std::fmt::Display) {
    drop(writeln!(io::stderr(), "{text}"));
}

/// A text that others wrote, such as a body or an error, as it may go to stdout: a terminal would
/// obey what it finds in it.
pub(super) fn foreign(text: &str) -> Cow<'_, str> {
    if io::stdout().is_terminal() {
        Cow::Owned(escaped(text))
    } else {
        Cow::Borrowed(text)
    }
}

/// Likewise a body: byte for byte, but to a terminal.
pub(super) fn foreign_bytes(bytes: &[u8]) -> Cow<'_, [u8]> {
    if io::stdout().is_terminal() {
        Cow::Owned(escaped(&String::from_utf8_lossy(bytes)).into_bytes())
    } else {
        Cow::Borrowed(bytes)
    }
}

/// Line ends and tabs stay; what else is no sign to be seen, or turns the others round, is spelt out.
fn escaped(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if (c.is_control() && !matches!(c, '\n' | '\t')) || turns(c) {
            escaped.extend(c.escape_unicode());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Prints a value as JSON, indented on a terminal.
pub(super) fn json(value: &impl Serialize) -> miette::Result<()> {
    let mut out = io::stdout().lock();
    let written = if out.is_terminal() {
        serde_json::to_writer_pretty(&mut out, value)
    } else {
        serde_json::to_writer(&mut out, value)
    };
    let written = written.map_err(io::Error::from);
    printed(written.and_then(|()| writeln!(out)))
}

/// Prints a table without lines, which is easy on the eye and on `awk`.
pub(super) fn table(
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> miette::Result<()> {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    line(table.trim_fmt())
}

/// Prints what went wrong, with all that caused it.
pub(super) fn complain(report: &miette::Report) {
    note(complaint(report));
}

/// What went wrong, with all that caused it.
pub(super) fn complaint(report: &miette::Report) -> String {
    format!("{report:?}")
}

/// A body as JSON has it: text where it is text, base64 else, with the field's name.
pub(super) fn body(bytes: &[u8]) -> (&'static str, String) {
    use base64::Engine;
    match std::str::from_utf8(bytes) {
        Ok(text) => ("body", text.to_owned()),
        Err(_) => (
            "body_base64",
            base64::engine::general_purpose::STANDARD.encode(bytes),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_told_nothing_by_what_others_wrote() {
        let table = [
            ("plain, ä, 漢\tand\nlines", "plain, ä, 漢\tand\nlines"),
            ("\u{1b}[2J\r\u{7}\0", "\\u{1b}[2J\\u{d}\\u{7}\\u{0}"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}"),
            (
                "a\u{202e}b\u{2066}c\u{200f}",
                "a\\u{202e}b\\u{2066}c\\u{200f}",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(escaped(text), expected, "{text:?}");
        }
    }
}
