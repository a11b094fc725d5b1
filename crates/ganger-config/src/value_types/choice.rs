//! The kind of value that takes one of a few words.

use serde_json::{Value as Json, json};

use super::{Kind, Node, VARIABLE, Wrong, print};

/// One of a few words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice<T: 'static>(&'static [(&'static str, T)]);

pub(crate) const fn choice<T>(words: &'static [(&'static str, T)]) -> Choice<T> {
    Choice(words)
}

impl<T> Choice<T> {
    fn words(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(word, _)| *word)
    }

    fn list(&self) -> String {
        let quoted: Vec<String> = self.words().map(|word| format!("`\"{word}\"`")).collect();
        match quoted.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => String::new(),
        }
    }
}

impl<T: Copy + PartialEq> Kind for Choice<T> {
    type Value = T;

    fn read(&self, node: &Node) -> Result<T, Wrong> {
        let text = node.as_text();
        let found = self.0.iter().find(|(word, _)| Some(*word) == text);
        let rule = || Wrong::new(format!("must be {}", self.list()), "");
        found.map(|(_, value)| *value).ok_or_else(rule)
    }

    fn show(&self, value: &T) -> String {
        let words = self.0.iter();
        let mut words = words.filter(|(_, other)| other == value);
        print::text(words.next().map_or("", |(word, _)| word))
    }

    fn describe(&self) -> String {
        self.list()
    }

    fn schema(&self) -> Json {
        json!({ "anyOf": [
            { "enum": self.words().collect::<Vec<_>>() },
            { "type": "string", "pattern": VARIABLE },
        ] })
    }
}
