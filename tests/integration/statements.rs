//! The SQL that stands in source files, and whether it was run: so a test that looks at what is run knows
//! what it has missed. Read by the tests of servers and by those of SQLite's source.

use std::fs;
use std::path::Path;

/// Words that hardly anything but SQL has in capitals.
const WORDS: [&str; 14] = [
    "SELECT",
    "INSERT",
    "UPDATE",
    "DELETE",
    "FROM",
    "WHERE",
    "AND",
    "SET",
    "VALUES",
    "RETURNING",
    "LIMIT",
    "EXISTS",
    "JOIN",
    "UNION",
];

/// Shorter ones say nothing of which statement they are a part.
const CHARS_MIN: usize = 12;

/// The texts in these files that are parts of statements, with the names of the files. What is behind the
/// beginning of a file's own tests is not read.
pub(crate) fn written<P: AsRef<Path>>(files: &[P]) -> Vec<(String, String)> {
    let mut parts = Vec::new();
    for file in files {
        let file = file.as_ref();
        let text = fs::read_to_string(file).unwrap();
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
        let is_sql = |text: &str| {
            let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            text.len() >= CHARS_MIN && words.any(|word| WORDS.contains(&word))
        };
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let texts = texts(code).into_iter().map(|text| in_one_line(&text));
        parts.extend(
            texts
                .filter(|text| is_sql(text))
                .map(|text| (name.clone(), text)),
        );
    }
    parts
}

/// Whether a part of a statement is in one that was run. Where it has a place for a value or, between braces,
/// for another text, anything may stand.
pub(crate) fn is_in(part: &str, statement: &str) -> bool {
    let mut rest = statement;
    part.split('?').all(|piece| {
        let mut pieces = piece.split('{').map(|piece| match piece.split_once('}') {
            Some((_name, piece)) => piece.trim(),
            None => piece.trim(),
        });
        pieces.all(|piece| {
            let found = rest.find(piece);
            rest = found.map_or("", |found| &rest[found + piece.len()..]);
            found.is_some()
        })
    })
}

/// With single spaces.
pub(crate) fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The texts of a source file, in its order, as the compiler would have them.
fn texts(code: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find(['"', '/', '\'']) {
        let (before, found) = rest.split_at(at);
        let is_raw = before.ends_with("r#");
        rest = if is_raw {
            let end = found[1..].find("\"#").unwrap() + 1;
            texts.push(found[1..end].to_owned());
            &found[end + 2..]
        } else if found.starts_with('"') {
            let end = end_of_text(found);
            texts.push(without_escapes(&found[1..end]));
            &found[end + 1..]
        } else if found.starts_with("//") {
            found.split_once('\n').map_or("", |(_, rest)| rest)
        } else if let Some(rest) = found.strip_prefix("'\"'") {
            rest
        } else {
            &found[1..]
        };
    }
    texts
}

fn end_of_text(found: &str) -> usize {
    let mut escaped = false;
    let end = found[1..].find(|c: char| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.unwrap() + 1
}

fn without_escapes(text: &str) -> String {
    text.replace("\\\n", "")
        .replace("\\n", "\n")
        .replace("\\\"", "\"")
}
