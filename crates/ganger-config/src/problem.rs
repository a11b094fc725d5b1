//! Problems of a configuration: all at once, each with its place. Nothing here knows a key.

use std::cell::{LazyCell, RefCell};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};
use serde::Serialize;

use super::redact;

/// Maximum length of an excerpt of a value in a message, in characters.
const SHOWN_CHARS_MAX: usize = 60;

/// All problems of a configuration, or of a definition that is read alone; at least one.
#[derive(Debug, Clone)]
pub struct Problems {
    subject: &'static str,
    all: Vec<Problem>,
}

impl Problems {
    /// Returns the problems in the order of the files and their lines, for people who read no colours and
    /// for programs: each is serialisable.
    pub fn messages(&self) -> &[Problem] {
        &self.all
    }

    /// Names what has these problems, if it is not the configuration.
    pub(super) fn of(self, subject: &'static str) -> Self {
        Self { subject, ..self }
    }

    /// Makes one problem that has no place in a text, such as a missing file.
    pub fn of_file(file: &str, message: String, help: &str) -> Self {
        Self::in_configuration(vec![Problem::of_file(file, message, help)])
    }

    fn in_configuration(all: Vec<Problem>) -> Self {
        Self {
            subject: "configuration",
            all,
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = self.subject;
        match self.all.len() {
            1 => write!(f, "the {subject} has a problem"),
            many => write!(f, "the {subject} has {many} problems"),
        }
    }
}

impl std::error::Error for Problems {}

impl Diagnostic for Problems {
    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        Some(Box::new(self.all.iter().map(|p| p as &dyn Diagnostic)))
    }
}

/// One problem of a configuration.
#[derive(Debug, Clone, Serialize)]
pub struct Problem {
    /// Key that it is about, such as `pools.email.workers`; empty if it is about none.
    pub path: String,
    /// The file, or the environment variable that overrides the key.
    pub file: String,
    /// The line in the file, counted from 1; none if the file could not be read.
    pub line: Option<usize>,
    /// The column in characters, counted from 1.
    pub column: Option<usize>,
    /// Rule that is broken.
    pub message: String,
    /// Remedy.
    pub help: String,
    #[serde(skip)]
    place: Option<SourceSpan>,
}

impl Problem {
    /// Makes a problem that has no place in a text.
    pub(super) fn of_file(file: &str, message: String, help: &str) -> Self {
        Self {
            path: String::new(),
            file: file.into(),
            line: None,
            column: None,
            message,
            help: help.into(),
            place: None,
        }
    }

    /// Returns place, rule and remedy in one line.
    pub fn one_line(&self) -> String {
        let line = self
            .line
            .map_or_else(String::new, |line| format!(":{line}"));
        let help = match self.help.as_str() {
            "" => String::new(),
            help => format!(" ({help})"),
        };
        format!("{}{line}: {}{help}", self.file, self.message)
    }
}

#[derive(Debug, Clone)]
struct SourceSpan {
    source: Arc<NamedSource<String>>,
    span: Range<usize>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

impl Diagnostic for Problem {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        (!self.help.is_empty()).then(|| Box::new(&self.help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.place.as_ref().map(|p| &p.source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let place = self.place.as_ref()?;
        let label = LabeledSpan::underline(place.span.clone());
        Some(Box::new(std::iter::once(label)))
    }
}

/// A range of one of the texts that the configuration is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Origin {
    /// Number of the text, as [`Report::text`] gave it.
    pub(super) text: usize,
    /// Byte range in the text.
    pub(super) span: Range<usize>,
}

/// The texts of a configuration, secrets hidden, and the problems found so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    texts: Vec<SourceText>,
    found: RefCell<Vec<(Origin, Problem)>>,
    hidden: RefCell<Vec<Origin>>,
}

#[derive(Debug)]
struct SourceText {
    /// The text is a variable's value, not a file.
    variable: bool,
    /// Made when there is a problem: to look for secrets costs more than to read a text.
    source: LazyCell<Arc<NamedSource<String>>, HideSecrets>,
}

/// Makes the text that is shown.
type HideSecrets = Box<dyn FnOnce() -> Arc<NamedSource<String>>>;

impl Report {
    /// Adds a file's text, with its secrets hidden. Returns its number.
    pub(super) fn file(&mut self, name: &str, text: &str) -> usize {
        self.text(name, text, redact::redact, false)
    }

    /// Adds a variable's value, hidden where it is a secret. Returns its number.
    pub(super) fn variable(&mut self, name: &str, value: &str) -> usize {
        let hide = match redact::is_secret(name) {
            true => |value: &str| "*".repeat(value.len()),
            false => redact::redact,
        };
        self.text(name, value, hide, true)
    }

    fn text(&mut self, name: &str, text: &str, hide: fn(&str) -> String, variable: bool) -> usize {
        let (name, text) = (name.to_owned(), text.to_owned());
        let shown = move || Arc::new(NamedSource::new(name, hide(&text)));
        let source = LazyCell::new(Box::new(shown) as HideSecrets);
        self.texts.push(SourceText { variable, source });
        self.texts.len() - 1
    }

    /// Records that the key `path` does not keep `rule`, underlining `origin`.
    pub(super) fn add(&self, origin: &Origin, path: &str, message: String, help: &str) {
        let problem = self.problem(Some(origin), path, message, help);
        self.found.borrow_mut().push((origin.clone(), problem));
    }

    /// Hides the text at `origin`: under a meaningless name it may be a secret.
    pub(super) fn hide(&self, origin: &Origin) {
        self.hidden.borrow_mut().push(origin.clone());
    }

    /// Makes a problem of the key `path` at `origin`, without recording it.
    pub(super) fn problem(
        &self,
        origin: Option<&Origin>,
        path: &str,
        message: String,
        help: &str,
    ) -> Problem {
        let Some(origin) = origin else {
            let path = path.into();
            return Problem {
                path,
                ..Problem::of_file("", message, help)
            };
        };
        let text = &self.texts[origin.text].source;
        let (line, column) = position(text.inner(), origin.span.start);
        Problem {
            path: path.into(),
            line: Some(line),
            column: Some(column),
            place: Some(SourceSpan {
                source: Arc::clone(text),
                span: origin.span.clone(),
            }),
            ..Problem::of_file(text.name(), message, help)
        }
    }

    /// Returns the text at `origin` as written, secrets hidden, shortened if it is long.
    pub(super) fn shown(&self, origin: &Origin) -> String {
        let text = self.texts[origin.text].source.inner();
        let text = text.get(origin.span.clone()).unwrap_or_default();
        if self.hidden.borrow().contains(origin) {
            return "*".repeat(text.len());
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let line = words.join(" ");
        match line.char_indices().nth(SHOWN_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        }
    }

    /// Returns the place of `origin` in words.
    pub(super) fn place(&self, origin: &Origin) -> String {
        let text = &self.texts[origin.text];
        let name = text.source.name();
        let (line, _) = position(text.source.inner(), origin.span.start);
        if text.variable {
            format!("by {name}")
        } else {
            format!("in {name}:{line}")
        }
    }

    /// Returns whether `origin` is in a variable rather than in a file.
    pub(super) fn is_variable(&self, origin: &Origin) -> bool {
        self.texts[origin.text].variable
    }

    /// Returns whether there are no problems so far.
    pub(super) fn is_clean(&self) -> bool {
        self.found.borrow().is_empty()
    }

    /// Returns all problems, in the order of the texts.
    pub(super) fn into_problems(self) -> Problems {
        let hidden = self.hidden.into_inner();
        let shown = |(number, text): (usize, &SourceText)| {
            let parts = hidden.iter().filter(|origin| origin.text == number);
            let parts = parts.map(|origin| origin.span.clone());
            let shown = redact::masked(text.source.inner(), parts);
            Arc::new(NamedSource::new(text.source.name(), shown))
        };
        let shown: Vec<_> = self.texts.iter().enumerate().map(shown).collect();
        let mut found = self.found.into_inner();
        for (origin, problem) in &mut found {
            if let Some(place) = &mut problem.place {
                place.source = Arc::clone(&shown[origin.text]);
            }
        }
        found.sort_by_key(|(origin, _)| (origin.text, origin.span.start, origin.span.end));
        Problems::in_configuration(found.into_iter().map(|(_, problem)| problem).collect())
    }
}

/// Returns line and column of a byte, both counted from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_counted_from_one() {
        for (at, expected) in [
            (0, (1, 1)),
            (2, (1, 3)),
            (3, (2, 1)),
            (6, (2, 3)),
            (99, (2, 4)),
        ] {
            assert_eq!(position("ab\ncéd", at), expected, "byte {at}");
        }
    }

    #[test]
    fn what_is_hidden_is_not_in_what_is_shown() {
        let mut report = Report::default();
        let text = report.file("a.toml", "one = two");
        let origin = |span| Origin { text, span };
        report.add(&origin(0..3), "", "no key".into(), "");
        report.hide(&origin(6..9));
        let problems = report.into_problems();
        let place = problems.messages()[0].place.as_ref().unwrap();
        assert_eq!(place.source.inner(), "one = ***");
    }

    #[test]
    fn problems_come_in_the_order_of_the_text() {
        let mut report = Report::default();
        let text = report.file("a.toml", "one two");
        for span in [4..7, 0..3] {
            let origin = Origin { text, span };
            let message = report.shown(&origin);
            report.add(&origin, "", message, "");
        }
        let problems = report.into_problems();
        let messages: Vec<&str> = problems.messages().iter().map(|p| &*p.message).collect();
        assert_eq!(messages, ["one", "two"]);
    }
}
