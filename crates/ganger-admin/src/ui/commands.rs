//! Commands that do what a page does, to copy. Each is one that the command line takes as it stands: a test runs those of
//! all pages.

use ganger_core::shell::word;
use maud::{Markup, html};

use super::query::Fields;
use super::shown::text;

/// Options of the commands that pages show, each with whether a value follows. Another word that begins with `-` is a
/// name.
const OPTIONS: [(&str, bool); 21] = [
    ("--all", false),
    ("--body", true),
    ("--by-day", false),
    ("--by-error", false),
    ("--dead", true),
    ("--dry-run", false),
    ("--follow", false),
    ("--from", true),
    ("--note", true),
    ("--online", false),
    ("--pool", true),
    ("--reason", true),
    ("--results", true),
    ("--send-alert", false),
    ("--set", true),
    ("--source", true),
    ("--to", true),
    ("--unresolved", false),
    ("--workers", false),
    ("--zone", true),
    ("-n", true),
];

/// Sign after which no word is an option.
const NO_OPTIONS: &str = " -- ";

/// Returns the command of these words, the first of which is the one after `ganger`. Names that begin with `-` come
/// last, where they are not taken for options.
pub(super) fn command(words: &[&str]) -> String {
    let mut command = "ganger".to_owned();
    let mut names = Vec::new();
    let mut words = words.iter();
    while let Some(text) = words.next() {
        let option = OPTIONS.iter().find(|(name, _)| name == text);
        match option {
            Some((name, true)) => command.push_str(&option_of(name, words.next().unwrap_or(&""))),
            None if text.starts_with('-') || !names.is_empty() => names.push(word(text)),
            Some((_, false)) | None => command.push_str(&format!(" {}", word(text))),
        }
    }
    if !names.is_empty() {
        command.push_str(NO_OPTIONS);
        command.push_str(&names.join(" "));
    }
    command
}

/// Returns an option with its value, as further words of a command.
fn option_of(name: &str, value: &str) -> String {
    let between = if value.starts_with('-') { '=' } else { ' ' };
    format!(" {name}{between}{}", word(value))
}

/// Returns a command with the fields of a query as its options.
pub(super) fn with_options(command: &str, fields: &Fields) -> String {
    let (command, names) = command.split_at(end_of_options(command));
    let mut command = command.to_owned();
    for (name, value) in fields.iter() {
        command.push_str(&option_of(&format!("--{}", name.replace('_', "-")), value));
    }
    command + names
}

/// Returns the place in a command at which options end: before the names that begin with `-`, or its end.
fn end_of_options(command: &str) -> usize {
    let mut is_quoted = false;
    let mut signs = command.char_indices();
    while let Some((at, sign)) = signs.next() {
        match sign {
            '\'' => is_quoted = !is_quoted,
            '\\' if !is_quoted => drop(signs.next()),
            _ if !is_quoted && command[at..].starts_with(NO_OPTIONS) => return at,
            _ => {}
        }
    }
    command.len()
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

    #[test]
    fn what_begins_with_a_hyphen_is_no_option() {
        for (words, expected) in [
            (
                &["waiting", "-q", "--source", "main"][..],
                "ganger waiting --source main -- -q",
            ),
            (
                &["send", "-q", "BODY", "--source", "-m"],
                "ganger send --source=-m -- -q BODY",
            ),
            (
                &["schedule", "trigger", "--help", "--reason", "TEXT"],
                "ganger schedule trigger --reason TEXT -- --help",
            ),
            (&["cancel", "p", "-1"], "ganger cancel p -- -1"),
            (&["check", "--online"], "ganger check --online"),
            (
                &["schedule", "pause", "--all", "--reason", "TEXT"],
                "ganger schedule pause --all --reason TEXT",
            ),
        ] {
            assert_eq!(command(words), expected);
        }
    }

    #[test]
    fn options_stay_before_names_that_begin_with_a_hyphen() {
        let fields = Fields::from([("error", "-x y"), ("body", r"it's \ -- 'b"), ("at", "1")]);
        let options = r"--error='-x y' --body 'it'\''s \ -- '\''b' --at 1";
        let add = with_options(&command(&["schedule", "add", "-a"]), &fields);
        assert_eq!(add, format!("ganger schedule add {options} -- -a"));
        let more = with_options(&add, &Fields::from([("tag", "-t")]));
        let expected = format!("ganger schedule add {options} --tag=-t -- -a");
        assert_eq!(more, expected);
    }
}
