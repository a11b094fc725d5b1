//! Bytes to lines, and lines to log records: what a worker printed, cut to size and understood
//! where it is JSON. Pure; nothing here reads or logs.

use serde_json::{Map, Value};
use tracing::Level;

/// The longest line that is kept, in bytes; the rest of it is dropped.
pub(super) const LINE_BYTES_MAX: usize = 8 * 1024;

/// Splits a stream into lines, never holding more than 8 KiB of one.
#[derive(Debug, Default)]
pub struct Splitter {
    partial: Vec<u8>,
    dropped: usize,
}

/// One line, without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What is kept of it; bytes that are no UTF-8 are replaced.
    pub text: String,
    /// How many bytes of it were dropped.
    pub dropped: usize,
}

impl Splitter {
    /// Takes in the next bytes and tells each line that ends in them.
    pub fn feed(&mut self, mut bytes: &[u8], mut tell: impl FnMut(Line)) {
        while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
            self.keep(&bytes[..end]);
            tell(self.take());
            bytes = &bytes[end + 1..];
        }
        self.keep(bytes);
    }

    /// The last line, if the stream ended without ending it.
    pub fn finish(&mut self) -> Option<Line> {
        (!self.partial.is_empty()).then(|| self.take())
    }

    fn keep(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(LINE_BYTES_MAX - self.partial.len());
        self.partial.extend_from_slice(&bytes[..kept]);
        self.dropped += bytes.len() - kept;
    }

    fn take(&mut self) -> Line {
        let kept = self.partial.strip_suffix(b"\r").unwrap_or(&self.partial);
        let line = Line {
            text: String::from_utf8_lossy(kept).into_owned(),
            dropped: self.dropped,
        };
        self.partial.clear();
        self.dropped = 0;
        line
    }
}

/// What the log makes of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) level: Level,
    pub(super) message: String,
    /// What else a JSON line held, as JSON.
    pub(super) fields: Option<String>,
}

/// Reads a line as a log record: a JSON object with a level and a message is taken at its word,
/// anything else is text.
pub(super) fn understand(line: Line) -> Record {
    if line.dropped == 0
        && line.text.starts_with('{')
        && let Some(record) = structured(&line.text)
    {
        return record;
    }
    let message = if line.dropped == 0 {
        line.text
    } else {
        format!("{}… ({} bytes cut)", line.text, line.dropped)
    };
    Record {
        level: Level::INFO,
        message,
        fields: None,
    }
}

fn structured(text: &str) -> Option<Record> {
    let mut object: Map<String, Value> = serde_json::from_str(text).ok()?;
    let level = level(object.get("level")?)?;
    let key = ["message", "msg"]
        .into_iter()
        .find(|key| object.get(*key).is_some_and(Value::is_string))?;
    let message = object.remove(key)?.as_str()?.to_owned();
    object.remove("level");
    Some(Record {
        level,
        message,
        fields: (!object.is_empty()).then(|| Value::Object(object).to_string()),
    })
}

/// The names in common use, and the numbers that bunyan and pino write.
fn level(value: &Value) -> Option<Level> {
    if let Some(number) = value.as_u64() {
        return Some(match number {
            0..20 => Level::TRACE,
            20..30 => Level::DEBUG,
            30..40 => Level::INFO,
            40..50 => Level::WARN,
            50.. => Level::ERROR,
        });
    }
    match value.as_str()?.to_ascii_lowercase().as_str() {
        "trace" | "verbose" => Some(Level::TRACE),
        "debug" => Some(Level::DEBUG),
        "info" | "information" | "notice" => Some(Level::INFO),
        "warn" | "warning" => Some(Level::WARN),
        "error" | "err" | "critical" | "fatal" | "panic" => Some(Level::ERROR),
        _ => None,
    }
}

/// At most `bytes_max` of a text, cut between characters.
pub fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(chunks: &[&[u8]]) -> Vec<Line> {
        let mut splitter = Splitter::default();
        let mut lines = Vec::new();
        for chunk in chunks {
            splitter.feed(chunk, |line| lines.push(line));
            assert!(splitter.partial.len() <= LINE_BYTES_MAX);
        }
        lines.extend(splitter.finish());
        lines
    }

    fn line(text: &str) -> Line {
        Line {
            text: text.into(),
            dropped: 0,
        }
    }

    #[test]
    fn a_stream_is_split() {
        let cases: [(&[u8], &[&str]); 6] = [
            (b"", &[]),
            (b"a", &["a"]),
            (b"a\n", &["a"]),
            (b"a\r\n\nb", &["a", "", "b"]),
            (b"\n\n", &["", ""]),
            (b"\xff\xfe\n", &["\u{fffd}\u{fffd}"]),
        ];
        for (bytes, expected) in cases {
            let expected: Vec<Line> = expected.iter().map(|text| line(text)).collect();
            assert_eq!(lines(&[bytes]), expected);
        }
    }

    #[test]
    fn a_long_line_is_cut_and_the_next_is_whole() {
        let long = "x".repeat(LINE_BYTES_MAX + 5);
        let found = lines(&[long.as_bytes(), b"yz\nnext\n"]);
        assert_eq!(found[0].text.len(), LINE_BYTES_MAX);
        assert_eq!(found[0].dropped, 7);
        assert_eq!(found[1], line("next"));
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_the_bytes_arrive(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
            at in 0usize..200,
        ) {
            let (left, right) = bytes.split_at(at.min(bytes.len()));
            prop_assert_eq!(lines(&[left, right]), lines(&[&bytes]));
        }
    }

    #[test]
    fn json_lines_are_understood() {
        let record = |level, message: &str, fields: Option<&str>| Record {
            level,
            message: message.into(),
            fields: fields.map(Into::into),
        };
        let cases = [
            ("plain", record(Level::INFO, "plain", None)),
            (
                r#"{"level":"WARNING","message":"hot"}"#,
                record(Level::WARN, "hot", None),
            ),
            (
                r#"{"level":50,"msg":"bad","n":1,"at":{"x":[2]}}"#,
                record(Level::ERROR, "bad", Some(r#"{"at":{"x":[2]},"n":1}"#)),
            ),
            (
                r#"{"level":"loud","message":"a"}"#,
                record(Level::INFO, r#"{"level":"loud","message":"a"}"#, None),
            ),
            (
                r#"{"level":"info","message":3}"#,
                record(Level::INFO, r#"{"level":"info","message":3}"#, None),
            ),
            ("{not json", record(Level::INFO, "{not json", None)),
        ];
        for (text, expected) in cases {
            assert_eq!(understand(line(text)), expected);
        }
    }

    #[test]
    fn a_cut_line_says_so() {
        let cut = Line {
            text: "{\"level".into(),
            dropped: 9,
        };
        assert_eq!(understand(cut).message, "{\"level… (9 bytes cut)");
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
        assert_eq!(cut("", 3), "");
    }
}
