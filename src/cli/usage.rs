//! Errors in a command line that only the command itself can detect. They end with exit status 2,
//! like those that the parser finds and configurations that can't be used.

use std::fmt::Display;

use miette::Report;

/// A wrong command line.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("{0}")]
pub(super) struct WrongUsage(String);

/// Returns the report of a wrong command line: the error and its remedy.
pub(super) fn wrong(why: impl Display) -> Report {
    Report::new(WrongUsage(why.to_string()))
}

/// Lists names for error messages.
pub(super) fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match quoted.is_empty() {
        true => "none".to_owned(),
        false => quoted.join(", "),
    }
}
