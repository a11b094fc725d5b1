//! Mistakes in what a person wrote: what is wrong, where it stands, and what would be right.

use std::fmt;
use std::ops::Range;

/// Number of characters of a foreign text that a message quotes.
const QUOTED_MAX: usize = 40;

/// A mistake in a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Key of the definition, as in the configuration: `cron[1]`, `misfire.max`. Empty if the text
    /// belongs to no key.
    pub key: String,
    /// Place within the value, in bytes.
    pub at: Option<Range<usize>>,
    /// The mistake: "hour `24` is out of range".
    pub wrong: String,
    /// The remedy: "write 0 to 23".
    pub right: String,
}

impl Problem {
    /// Creates a problem of no key and no place.
    pub fn new(wrong: impl Into<String>, right: impl Into<String>) -> Self {
        Self {
            key: String::new(),
            at: None,
            wrong: wrong.into(),
            right: right.into(),
        }
    }

    /// Adds the place within the value, in bytes.
    #[must_use]
    pub fn at(mut self, at: Range<usize>) -> Self {
        self.at = Some(at);
        self
    }

    /// Puts the key into a table of this key.
    #[must_use]
    pub fn within(mut self, table: &str) -> Self {
        self.key = format!("{table}.{}", self.key);
        self
    }

    /// Adds the key.
    #[must_use]
    pub fn under(mut self, key: impl Into<String>) -> Self {
        self.key = key.into();
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.wrong)?;
        if let Some(at) = &self.at {
            write!(f, " (byte {})", at.start)?;
        }
        write!(f, ": {}", self.right)
    }
}

impl std::error::Error for Problem {}

/// A schedule whose next slot can't be worked out. Nothing is wrong with the definition as it is
/// written; the schedule is set aside with an alert, and no other is held up by it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("next slot can't be worked out: {0}")]
pub struct Broken(pub String);

/// Quotes a foreign text: cut to a few words, and without control characters.
pub(crate) fn quoted(text: &str) -> String {
    let shown: String = text.chars().take(QUOTED_MAX).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    format!("`{}{more}`", shown.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_key_place_and_remedy() {
        let bare = Problem::new("hour `24` is out of range", "write 0 to 23");
        assert_eq!(bare.to_string(), "hour `24` is out of range: write 0 to 23");
        assert_eq!(
            bare.at(2..4).under("cron[1]").to_string(),
            "cron[1]: hour `24` is out of range (byte 2): write 0 to 23"
        );
    }

    #[test]
    fn foreign_text_can_not_steer_a_terminal() {
        assert_eq!(quoted("a\u{1b}[2J"), r"`a\u{1b}[2J`");
        assert_eq!(quoted(&"x".repeat(41)), format!("`{}…`", "x".repeat(40)));
    }
}
