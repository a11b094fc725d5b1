//! Hides secrets in text for people. Hidden text keeps its length in bytes, so that spans into it still
//! hold. Nothing here knows a key or a file.

use std::ops::Range;

/// Parts of the name of a secret, in capitals.
const SECRET_WORDS: [&str; 14] = [
    "INTEGRATION_KEY",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "SECRET",
    "TOKEN",
    "CREDENTIAL",
    "APIKEY",
    "API_KEY",
    "AUTHORIZATION",
    "PRIVATE_KEY",
    "KEY_PEM",
    "OAUTHBEARER_CONFIG",
    "WEBHOOK",
];
/// Words that mark a secret when they stand between underscores; inside other names they may mean
/// anything.
const SHORT_WORDS: [&str; 3] = ["PASS", "PW", "PWD"];
/// The working directory, as shells name it.
const WORKING_DIRECTORY: &str = "PWD";
/// Number of characters of a word for each that may be mistyped.
const LETTERS_PER_SLIP: usize = 5;

/// Returns whether a variable or a key of this name, mistyped or not, holds a secret.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase().replace(['-', '.'], "_");
    let is_nearly =
        |part: &str, word: &str| strsim::osa_distance(part, word) <= word.len() / LETTERS_PER_SLIP;
    let hides = |part: &str| {
        SHORT_WORDS.contains(&part) || SECRET_WORDS.iter().any(|word| is_nearly(part, word))
    };
    SECRET_WORDS.iter().any(|word| name.contains(word))
        || (name != WORKING_DIRECTORY && name.split('_').any(hides))
}

/// Returns the text with an asterisk for every byte of a password before an `@`, and of a value that is
/// given to a secret's name.
pub(super) fn redact(text: &str) -> String {
    let found = logins(text).into_iter().chain(assigned(text));
    masked(text, found.chain(flags(text)))
}

/// Returns the words of a command line as [`redact`] shows them, each by itself and after the word before
/// it.
pub(super) fn words(words: &[String]) -> Vec<String> {
    let is_flag = |word: &String| {
        word.starts_with('-') && !word.contains('=') && is_secret(word.trim_start_matches('-'))
    };
    let before = std::iter::once(false).chain(words.iter().map(is_flag));
    let shown = |(word, is_secret): (&String, bool)| match is_secret {
        true => "*".repeat(word.len()),
        false => redact(word),
    };
    words.iter().zip(before).map(shown).collect()
}

/// Returns the text with an asterisk for every byte of these parts. Line ends stay, so that line numbers
/// do.
pub(super) fn masked(text: &str, parts: impl IntoIterator<Item = Range<usize>>) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for part in parts {
        let part = bytes.get_mut(part).into_iter().flatten();
        part.filter(|byte| **byte != b'\n')
            .for_each(|byte| *byte = b'*');
    }
    // A masked range begins and ends beside ASCII, so no character is cut.
    String::from_utf8(bytes).unwrap_or_default()
}

/// Finds passwords between a user and an `@`, in a URL or not: from the first colon to the last `@` of a
/// word. A path with an `@` makes the range too large rather than too small.
fn logins(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = 0;
    for word in text.split([' ', '\t', '\n', '"', '\'', '`']) {
        found.extend(login(word).map(|part| start + part.start..start + part.end));
        start += word.len() + 1;
    }
    found
}

fn login(word: &str) -> Option<Range<usize>> {
    let scheme = word.find("://").map(|at| at + "://".len());
    let start = scheme.unwrap_or(0);
    let host = start + word[start..].rfind('@')?;
    let password = start + word[start..host].find(':')? + 1;
    // Without a scheme it may be a list of paths.
    let is_one = scheme.is_some() || !word[password..host].contains('/');
    is_one.then_some(password..host)
}

/// Finds values of secret names: `NAME = value`, `--name=value`, `?name=value`, `name: value`.
fn assigned(text: &str) -> Vec<Range<usize>> {
    let assigns =
        |(at, sign): &(usize, &str)| *sign == "=" || text[at + 1..].starts_with([' ', '\t']);
    text.match_indices(['=', ':'])
        .filter(assigns)
        .filter(|(at, _)| is_secret(name_before(&text[..*at])))
        .map(|(at, sign)| value_after(text, at + 1, sign == ":"))
        .collect()
}

/// Finds values of secret options that are words of their own: `--name value`, also as a list.
fn flags(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices('-') {
        let begins = text[..at].ends_with([' ', '\t', '\n', '"', '\'', '`', '[', ',']) || at == 0;
        let name = text[at..].trim_start_matches('-');
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
        let (name, rest) = name.split_at(end.unwrap_or(name.len()));
        let value = rest.trim_start_matches([' ', '\t', '\n', '"', '\'', '`', ',']);
        if !begins || !is_secret(name) || value.len() == rest.len() {
            continue;
        }
        let start = text.len() - value.len();
        let quoted = ["\"", "'"]
            .into_iter()
            .find(|quote| text[..start].ends_with(quote));
        let len = match quoted {
            Some(quote) => quoted_len(value, quote),
            None => value
                .find([' ', '\n', '"', '\'', '`', ',', ']'])
                .unwrap_or(value.len()),
        };
        found.push(start..start + len);
    }
    found
}

fn name_before(text: &str) -> &str {
    let text = text.trim_end_matches([' ', '\t']);
    let text = text.trim_end_matches(['"', '\'']);
    let start = text
        .rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-')
        .map_or(0, |at| {
            at + text[at..].chars().next().map_or(1, char::len_utf8)
        });
    &text[start..]
}

/// Returns the range of the value after a name. `is_header`: the value may be several words.
fn value_after(text: &str, from: usize, is_header: bool) -> Range<usize> {
    let start = from + text[from..].len() - text[from..].trim_start_matches([' ', '\t']).len();
    let rest = &text[start..];
    let quote = ["\"\"\"", "'''", "\"", "'"]
        .into_iter()
        .find(|quote| rest.starts_with(quote));
    // An authentication scheme comes before the secret, as in `authorization=Bearer TOKEN`.
    let scheme = ["Bearer ", "Basic "]
        .into_iter()
        .find(|scheme| rest.starts_with(scheme));
    let ends: &[char] = match is_header {
        true => &['"', '\'', '\n'],
        false => &[',', '}', ']', '"', '\n', ' ', '&'],
    };
    let before = scheme.map_or(0, str::len);
    match quote {
        Some(quote) => {
            let start = start + quote.len();
            start..start + quoted_len(&text[start..], quote)
        }
        None if rest.starts_with(['[', '{']) => start..start + nested_len(rest),
        None if begins_line(&text[..from]) => start..start + rest.find('\n').unwrap_or(rest.len()),
        None => {
            let end = rest[before..].find(ends);
            start..start + end.map_or(rest.len(), |end| before + end)
        }
    }
}

/// Returns whether `NAME =`, at the end of the text, is the first on its line. A value without quotes
/// after it is a mistake or a number, so the whole line is hidden.
fn begins_line(text: &str) -> bool {
    let line = text.rfind('\n').map_or(text, |at| &text[at + 1..]);
    let name = line.trim_end_matches(['=', ':']).trim();
    name.trim_matches(['"', '\'']) == name_before(line.trim_end_matches(['=', ':']))
}

/// Returns the length of a list or a table: to its closing bracket, or to the end of the text if that is
/// missing. Brackets within quotes do not count.
fn nested_len(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if c == open && !escaped => quote = None,
            Some(_) => escaped = c == '\\' && !escaped,
            None if matches!(c, '"' | '\'') => quote = Some(c),
            None if matches!(c, '[' | '{') => depth += 1,
            None if matches!(c, ']' | '}') && depth == 1 => return at + 1,
            None if matches!(c, ']' | '}') => depth -= 1,
            None => {}
        }
    }
    text.len()
}

/// Returns the length of a quoted value: to its closing quote, or to the end of the line if that is
/// missing. An escaped quote does not end it.
fn quoted_len(text: &str, quote: &str) -> usize {
    let end = |at: &usize| quote.starts_with('\'') || !text[..*at].ends_with('\\');
    text.match_indices(quote)
        .map(|(at, _)| at)
        .find(end)
        .or_else(|| text.find('\n'))
        .unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn secrets_are_masked_and_nothing_else() {
        for (text, hidden) in [
            ("sqlite:ganger.db", "sqlite:ganger.db"),
            ("amqp://host:5672/", "amqp://host:5672/"),
            ("amqp://user@host:5672/", "amqp://user@host:5672/"),
            ("user:hunter2@host:9092", "user:*******@host:9092"),
            ("brokers = \"u:p@h:1,g\"", "brokers = \"u:*@h:1,g\""),
            ("PATH=/bin:/opt/node@20/bin", "PATH=/bin:/opt/node@20/bin"),
            ("--password abc -v", "--password *** -v"),
            ("[\"--password\", \"a b\"]", "[\"--password\", \"***\"]"),
            ("[\"-api-key\",\n 'abc']", "[\"-api-key\",\n '***']"),
            ("--no-color --password", "--no-color --password"),
            (
                "-H \"Authorization: Bearer abc\" x",
                "-H \"Authorization: **********\" x",
            ),
            (
                "H: api-key=abc,authorization=Bearer d,x=1",
                "H: api-key=***,authorization=********,x=1",
            ),
            ("pasword = \"abc\"", "pasword = \"***\""),
            (
                "DB_PASS = \"abc\", PWD = \"/srv\"",
                "DB_PASS = \"***\", PWD = \"/srv\"",
            ),
            ("amqp://user:hunter2@host", "amqp://user:*******@host"),
            ("amqp://u:p@ss@host", "amqp://u:****@host"),
            ("url = \"a://u:pé@h\" # b@c", "url = \"a://u:***@h\" # b@c"),
            ("API_TOKEN = \"abc\" # d", "API_TOKEN = \"***\" # d"),
            ("\"api.token\"='abc'", "\"api.token\"='***'"),
            ("PASSWORD = \"a\\\"b\"", "PASSWORD = \"****\""),
            (
                "db_password = \"\"\"a\nb\"\"\"",
                "db_password = \"\"\"*\n*\"\"\"",
            ),
            (
                "TOKEN = \"unterminated\nx = 1",
                "TOKEN = \"************\nx = 1",
            ),
            (
                "args = [\"--password=abc\", \"x\"]",
                "args = [\"--password=***\", \"x\"]",
            ),
            (
                "postgres://h/db?password=abc&x=1",
                "postgres://h/db?password=***&x=1",
            ),
            ("{ TOKEN = 1, LOG = 2 }", "{ TOKEN = *, LOG = 2 }"),
            ("LOG = \"debug\"", "LOG = \"debug\""),
            ("TOKEN = [\"a]b\"]\nx = 1", "TOKEN = *******\nx = 1"),
            ("TOKEN = [\n\"a\"]\nx = 1", "TOKEN = *\n****\nx = 1"),
            (
                "{ TOKEN = [\"\\\"]\"], LOG = 2 }",
                "{ TOKEN = *******, LOG = 2 }",
            ),
            ("SECRET = { a = \"b\" }", "SECRET = ***********"),
            ("SECRET = {{\"b\"}", "SECRET = ******"),
            (
                "a = 1\n PASSWORD=my pass, word\nb",
                "a = 1\n PASSWORD=*************\nb",
            ),
        ] {
            assert_eq!(redact(text), hidden);
        }
    }

    #[test]
    fn a_name_is_known_though_it_is_mistyped() {
        for (name, expected) in [
            ("password", true),
            ("sasl.pasword", true),
            ("PASSWROD", true),
            ("secert", true),
            ("API-TOKNE", true),
            ("mysql_pwd", true),
            ("pass", true),
            ("PWD", false),
            ("compass", false),
            ("broken", false),
            ("section", false),
            ("name", false),
        ] {
            assert_eq!(is_secret(name), expected, "{name}");
        }
    }

    #[test]
    fn the_word_after_a_secret_option_is_hidden() {
        let all = [
            "run",
            "--password",
            "a b",
            "--token=c",
            "-v",
            "d",
            "--secret",
        ];
        let shown = words(&all.map(str::to_owned));
        let expected = [
            "run",
            "--password",
            "***",
            "--token=*",
            "-v",
            "d",
            "--secret",
        ];
        assert_eq!(shown, expected);
    }

    proptest! {
        #[test]
        fn lengths_and_lines_stay(text in "(://|:|: |@|token|--|password|=|,|\"|'''|\n|é| |\\\\|a){0,20}") {
            let hidden = redact(&text);
            prop_assert_eq!(hidden.len(), text.len());
            prop_assert_eq!(hidden.lines().count(), text.lines().count());
        }
    }
}
