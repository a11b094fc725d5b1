//! Commands that do what a page does, to copy. Each is one that the command line takes as it stands: a test runs those of
//! all pages.

use ganger_core::shell::word;
use maud::{Markup, html};

use super::query::Fields;
use super::shown::text;

/// Returns the command of these words, the first of which is the one after `ganger`.
pub(super) fn command(words: &[&str]) -> String {
    let words = words.iter().map(|text| word(text));
    let words: Vec<String> = std::iter::once("ganger".to_owned()).chain(words).collect();
    words.join(" ")
}

/// Returns a command with the fields of a query as its options.
pub(super) fn with_options(command: &str, fields: &Fields) -> String {
    let mut command = command.to_owned();
    for (name, value) in fields.iter() {
        command.push_str(&format!(" --{} {}", name.replace('_', "-"), word(value)));
    }
    command
}

/// Shows commands.
pub(super) fn commands(lines: &[String]) -> Markup {
    html! {
        details.commands {
            summary { @if lines.len() == 1 { "As a command" } @else { "As commands" } }
            pre { @for line in lines { (text(line)) "\n" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_options_and_names_are_words() {
        let fields = Fields::from([("schedule", "it's"), ("correlation_id", "1")]);
        assert_eq!(
            with_options(&command(&["occurrence", "list", "a b"]), &fields),
            r"ganger occurrence list 'a b' --schedule 'it'\''s' --correlation-id 1"
        );
    }
}
