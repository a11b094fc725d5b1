//! Texts of others as parts of a configuration: names, TOML, templates.

use std::collections::{BTreeMap, BTreeSet};

use ganger_core::foreign;

/// Longest name that is made of another text, without a number.
const NAME_MAX: usize = 48;

/// Returns a text as TOML, in which a dollar sign stands for itself.
pub(super) fn toml(text: &str) -> String {
    ::toml::Value::String(text.replace('$', "$$")).to_string()
}

/// Returns a text as a template, in which what looks like one is text.
pub(super) fn escaped(script: &str) -> String {
    let mut template = String::new();
    let mut rest = script;
    while let Some(at) = ["{{", "{%", "{#"]
        .iter()
        .filter_map(|mark| rest.find(mark))
        .min()
    {
        let (before, mark) = rest.split_at(at);
        let (mark, after) = mark.split_at(2);
        template += &format!("{before}{{{{ '{mark}' }}}}");
        rest = after;
    }
    template + rest
}

/// Returns a text as a comment of one line.
pub(super) fn comment(text: &str) -> String {
    format!("# {}", foreign::line(text))
}

/// Returns lines of a configuration as comments.
pub(super) fn commented_out(text: &str) -> String {
    let lines = text.lines().map(|line| match line {
        "" => "#\n".to_owned(),
        line => format!("# {line}\n"),
    });
    lines.collect()
}

/// Returns a text as a valid name.
pub(super) fn sanitised(text: &str) -> String {
    let name: String = text
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "_.-".contains(c) {
                c
            } else {
                '-'
            }
        })
        .take(NAME_MAX)
        .collect();
    match name.trim_matches(['-', '.']) {
        "" => "job".to_owned(),
        name => name.to_owned(),
    }
}

/// Names that are taken.
#[derive(Debug, Default)]
pub(super) struct TakenNames {
    taken: BTreeSet<String>,
    /// Last number that a name was given.
    numbers: BTreeMap<String, usize>,
}

impl TakenNames {
    /// Returns the name, with a number if it is taken, and takes it.
    pub(super) fn unique(&mut self, name: &str) -> String {
        if self.taken.insert(name.to_owned()) {
            return name.to_owned();
        }
        let last = self.numbers.entry(name.to_owned()).or_insert(1);
        loop {
            *last += 1;
            let numbered = format!("{name}-{last}");
            if self.taken.insert(numbered.clone()) {
                return numbered;
            }
        }
    }
}
