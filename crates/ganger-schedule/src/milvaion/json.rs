//! JSON that others wrote: its values as they were written, and the place of each in the file.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::problem::{Problem, quoted};

/// Place in a file, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePlace {
    /// Line.
    pub line: usize,
    /// Column, in bytes.
    pub column: usize,
}

/// Something of a file that is not taken over, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileNote {
    /// Its place.
    pub place: FilePlace,
    /// The mistake, and the remedy.
    pub problem: Problem,
}

/// A text with the beginning of each of its lines.
pub(super) struct LineStarts<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> LineStarts<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(ends.map(|(at, _)| at + 1));
        let starts = starts.collect();
        Self { text, starts }
    }

    /// Returns the place of a value of the text.
    pub(super) fn place(&self, value: &RawValue) -> FilePlace {
        let at = value.get().as_ptr().addr() - self.text.as_ptr().addr();
        let line = self.starts.partition_point(|start| *start <= at);
        let start = self.starts[line - 1];
        let column = at - start + 1;
        FilePlace { line, column }
    }
}

/// Returns the note about a text that is not JSON.
pub(super) fn invalid(error: &serde_json::Error) -> FileNote {
    let place = FilePlace {
        line: error.line(),
        column: error.column(),
    };
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    let right = "save the answer of Milvaion's API as it is";
    let problem = Problem::new(format!("the file is not JSON: {message}"), right);
    FileNote { place, problem }
}

/// Reads the values of a list.
pub(super) fn values(value: &RawValue) -> Result<Vec<&RawValue>, Problem> {
    serde_json::from_str(value.get()).map_err(|_| mismatch(value, "a list"))
}

/// Reads a text that a configuration can hold.
pub(super) fn text(value: &RawValue) -> Result<String, Problem> {
    let text: String = serde_json::from_str(value.get()).map_err(|_| mismatch(value, "text"))?;
    match text.contains('\0') {
        true => Err(Problem::new(
            "has a NUL character",
            "remove it: a configuration can't hold it",
        )),
        false => Ok(text),
    }
}

fn mismatch(value: &RawValue, kind: &str) -> Problem {
    let wrong = format!("{} is not {kind}", quoted(value.get()));
    Problem::new(wrong, format!("write {kind}, or null"))
}

/// Members of an object that are not null. Their names are compared without regard to case.
#[derive(Debug)]
pub(super) struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Reads an object.
    pub(super) fn of(value: &'a RawValue) -> Result<Self, Problem> {
        let Written(mut all) =
            serde_json::from_str(value.get()).map_err(|_| mismatch(value, "an object"))?;
        let mut names: Vec<String> = all.iter().map(|(name, _)| name.to_lowercase()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let wrong = format!("{} is there twice", quoted(&twice[0]));
            return Err(Problem::new(wrong, "remove one of the two"));
        }
        all.retain(|(_, value)| value.get() != "null");
        Ok(Self(all))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0
            .iter()
            .any(|(other, _)| other.eq_ignore_ascii_case(name))
    }

    /// Removes a member, and returns its value.
    pub(super) fn take(&mut self, name: &str) -> Option<&'a RawValue> {
        let mut names = self.0.iter().map(|(other, _)| other);
        let at = names.position(|other| other.eq_ignore_ascii_case(name))?;
        Some(self.0.swap_remove(at).1)
    }

    /// Returns a text without removing it, if there is one.
    pub(super) fn peek(&self, name: &str) -> Option<String> {
        let is = |(other, _): &&(String, _)| other.eq_ignore_ascii_case(name);
        text(self.0.iter().find(is)?.1).ok()
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, Problem> {
        let value = self.take(name).map(text).transpose();
        value.map_err(|problem| problem.under(name))
    }

    /// Reads a number that is not negative.
    pub(super) fn number(&mut self, name: &str) -> Result<Option<u64>, Problem> {
        self.read(name, "a whole number from 0")
    }

    pub(super) fn boolean(&mut self, name: &str) -> Result<Option<bool>, Problem> {
        self.read(name, "true or false")
    }

    /// Reads a list of words, or a text that has them between commas.
    pub(super) fn list(&mut self, name: &str) -> Result<Vec<String>, Problem> {
        let Some(value) = self.take(name) else {
            return Ok(Vec::new());
        };
        let of_name = |problem: Problem| problem.under(name);
        let words: Vec<String> = match value.get().starts_with('[') {
            true => {
                let words = values(value).map_err(of_name)?;
                let words: Result<_, _> = words.into_iter().map(text).collect();
                words.map_err(of_name)?
            }
            false => {
                let text = text(value).map_err(of_name)?;
                text.split(',').map(str::to_owned).collect()
            }
        };
        let words = words.iter().map(|word| word.trim().to_owned());
        Ok(words.filter(|word| !word.is_empty()).collect())
    }

    /// Returns the names of the members that are left, in their order, but for some that are known (in
    /// lower case).
    pub(super) fn others(&self, known: &[&str]) -> Vec<String> {
        let names = self.0.iter().map(|(name, _)| name.clone());
        let mut names: Vec<String> = names
            .filter(|name| !known.contains(&name.to_lowercase().as_str()))
            .map(|name| quoted(&name))
            .collect();
        names.sort_unstable();
        names
    }

    fn read<T: Deserialize<'a>>(&mut self, name: &str, kind: &str) -> Result<Option<T>, Problem> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let read = serde_json::from_str(value.get());
        read.map(Some)
            .map_err(|_| mismatch(value, kind).under(name))
    }
}

/// Members as they were written, in their order.
struct Written<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Written<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor).map(Written)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(member) = map.next_entry()? {
            all.push(member);
        }
        Ok(all)
    }
}
