//! Command lines that are wrong, as far as only the command itself can tell. They end with exit
//! status 2, like those that the parser refuses and configurations that can't be used.

use std::fmt::Display;

use miette::Report;

/// A command line that is wrong.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("{0}")]
pub(super) struct WrongUsage(String);

/// Returns the report of a wrong command line: what is wrong, and what would be right.
pub(super) fn wrong(why: impl Display) -> Report {
    Report::new(WrongUsage(why.to_string()))
}

/// Lists names as errors show them.
pub(super) fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match quoted.is_empty() {
        true => "none".to_owned(),
        false => quoted.join(", "),
    }
}
