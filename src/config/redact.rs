//! Hiding secrets in text that people will see. What is hidden keeps its length in bytes, so that
//! spans into the text still hold. Nothing here knows a key or a file.

use std::ops::Range;

/// What a name holds, in capitals, when its value is a secret.
const SECRET_WORDS: [&str; 12] = [
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "SECRET",
    "TOKEN",
    "CREDENTIAL",
    "APIKEY",
    "API_KEY",
    "PRIVATE_KEY",
    "KEY_PEM",
    "OAUTHBEARER_CONFIG",
    "WEBHOOK",
];

/// Whether a variable or a key of this name holds a secret.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase().replace(['-', '.'], "_");
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// The text with an asterisk for every byte of a URL's password and of a value assigned to a
/// secret's name.
pub(super) fn redact(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for range in url_passwords(text).into_iter().chain(assigned(text)) {
        mask(&mut bytes, range);
    }
    // What is masked begins and ends beside ASCII, so no character is cut.
    String::from_utf8(bytes).unwrap_or_default()
}

/// Line ends stay, so that line numbers do.
fn mask(bytes: &mut [u8], range: Range<usize>) {
    for byte in bytes[range].iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b'*';
    }
}

/// Where passwords stand in URLs: between the first colon and the last `@` of what follows `://`.
/// A path with an `@` makes that too much rather than too little.
fn url_passwords(text: &str) -> Vec<Range<usize>> {
    text.match_indices("://")
        .filter_map(|(at, _)| {
            let start = at + "://".len();
            let rest = &text[start..];
            let end = rest.find([' ', '\n', '"', '\'']).unwrap_or(rest.len());
            let host = rest[..end].rfind('@')?;
            let colon = rest[..host].find(':')?;
            Some(start + colon + 1..start + host)
        })
        .collect()
}

/// Where values of secret names stand: `NAME = value`, `--name=value`, `?name=value`.
fn assigned(text: &str) -> Vec<Range<usize>> {
    text.match_indices('=')
        .filter(|(at, _)| is_secret(name_before(&text[..*at])))
        .map(|(at, _)| value_after(text, at + 1))
        .collect()
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

fn value_after(text: &str, from: usize) -> Range<usize> {
    let start = from + text[from..].len() - text[from..].trim_start_matches([' ', '\t']).len();
    let rest = &text[start..];
    let quote = ["\"\"\"", "'''", "\"", "'"]
        .into_iter()
        .find(|quote| rest.starts_with(quote));
    match quote {
        Some(quote) => {
            let start = start + quote.len();
            start..start + quoted_len(&text[start..], quote)
        }
        None if rest.starts_with(['[', '{']) => start..start + nested_len(rest),
        None if begins_line(&text[..from]) => start..start + rest.find('\n').unwrap_or(rest.len()),
        None => {
            start
                ..start
                    + rest
                        .find([',', '}', ']', '"', '\n', ' ', '&'])
                        .unwrap_or(rest.len())
        }
    }
}

/// Whether `NAME =`, at the end of the text, is the first on its line. What follows it without
/// quotes is a mistake or a number, so the whole line goes.
fn begins_line(text: &str) -> bool {
    let line = text.rfind('\n').map_or(text, |at| &text[at + 1..]);
    let name = line.trim_end_matches('=').trim();
    name.trim_matches(['"', '\'']) == name_before(line.trim_end_matches('='))
}

/// How far a list or a table goes: to the bracket that closes it, or where that is missing to the
/// end of the text. Brackets within quotes are none.
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

/// How far a quoted value goes: to its quote, or where that is missing to the end of the line. An
/// escaped quote does not end it.
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

    proptest! {
        #[test]
        fn lengths_and_lines_stay(text in "(://|:|@|token|password|=|\"|'''|\n|é| |\\\\|a){0,20}") {
            let hidden = redact(&text);
            prop_assert_eq!(hidden.len(), text.len());
            prop_assert_eq!(hidden.lines().count(), text.lines().count());
        }
    }
}
