//! Texts from others, such as bodies, errors and a worker's output, made safe to show: a terminal
//! would obey control characters in them, and a log would take their lines for records. Also the
//! files that others wrote for us, read as they are meant.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::io::{self, Read};

/// The byte order mark, which some editors put before a text.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// Returns the bytes without a byte order mark before them.
pub fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(MARK).unwrap_or(bytes)
}

/// Reads a text of at most so many bytes, without the byte order mark that may be before it.
///
/// # Errors
/// If the text can't be read, is longer, or is not UTF-8.
pub fn text(from: impl Read, bytes_max: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!(
            "it has more than {bytes_max} bytes"
        )));
    }
    String::from_utf8(without_mark(&bytes).to_vec())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

/// Returns whether a character is not visible, or changes the direction of others. Tabs count as
/// visible.
fn acts(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (c.is_control() && c != '\t')
}

/// Returns the text with control and direction characters escaped; its lines stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    spelt_out(text, |c| acts(c) && c != '\n')
}

/// Returns the text with control and direction characters escaped, as one line.
pub fn line(text: &str) -> Cow<'_, str> {
    spelt_out(text, acts)
}

fn spelt_out(text: &str, acts: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Returns equivalent JSON with control and direction characters escaped as JSON allows. Its lines
/// stay.
pub fn json(json: &str) -> Cow<'_, str> {
    // Characters below U+0020 can only be between the values, and all others only within texts.
    let acts = |c: char| acts(c) && !c.is_ascii_whitespace();
    if !json.contains(acts) {
        return Cow::Borrowed(json);
    }
    let mut shown = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if acts(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                write!(shown, "\\u{unit:04x}").expect("writing to a String does not fail");
            }
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Writer that passes its input on as one line with control and direction characters escaped.
pub struct EscapedLine<W>(pub W);

impl<W> fmt::Debug for EscapedLine<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Line")
    }
}

impl<W: Write> Write for EscapedLine<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_str(&line(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_told_nothing_by_what_others_wrote() {
        let table = [
            ("plain, ä, 漢\tand\nlines", "plain, ä, 漢\tand\nlines"),
            ("\u{1b}[2J\r\u{7}\0", "\\u{1b}[2J\\r\\u{7}\\u{0}"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}"),
            (
                "a\u{202e}b\u{2066}c\u{200f}",
                "a\\u{202e}b\\u{2066}c\\u{200f}",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(lines(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_text() {
        for (bytes, expected) in [
            (&b"abc"[..], Ok("abc")),
            (b"\xef\xbb\xbfabc", Ok("abc")),
            (b"\xef\xbb\xbf", Ok("")),
            (b"", Ok("")),
            (b"\xef\xbb\xbfabcd", Err("it has more than 6 bytes")),
            (b"\xff\xfea", Err("it is not UTF-8")),
        ] {
            let text = text(bytes, 6).map_err(|error| error.to_string());
            assert_eq!(text.as_deref().map_err(String::as_str), expected);
        }
        let within = "a\u{feff}b";
        assert_eq!(text(within.as_bytes(), 9).unwrap(), within);
    }

    #[test]
    fn a_line_stays_one() {
        assert_eq!(line("a\tb\nc\r\u{2028}d"), "a\tb\\nc\\r\\u{2028}d");
        let mut written = String::new();
        write!(EscapedLine(&mut written), "{}\n\u{1b}", 1).unwrap();
        assert_eq!(written, "1\\n\\u{1b}");
    }

    #[test]
    fn json_says_the_same() {
        let value = serde_json::json!({ "a": "\u{9b}2J\u{7f}\u{202e}\n\u{1b}ä" });
        let shown = json(&serde_json::to_string_pretty(&value).unwrap()).into_owned();
        assert!(!shown.contains(|c: char| acts(c) && c != '\n'), "{shown:?}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&shown).unwrap(),
            value
        );
    }
}
