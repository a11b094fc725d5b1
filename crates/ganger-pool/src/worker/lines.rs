//! Conversion of a worker's output into lines, and of lines into log records: limited in size, and parsed if
//! they are JSON. Pure; nothing here reads or logs.

use serde_json::Value;
use tracing::Level;

use ganger_telemetry::Fields;

/// Maximum length of a line that is kept, in bytes; the rest of it is dropped.
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
    /// Text that is kept; invalid UTF-8 is replaced.
    pub text: String,
    /// Number of bytes that were dropped.
    pub dropped: usize,
}

impl Splitter {
    /// Takes in the next bytes and passes on each line that they complete.
    pub fn feed(&mut self, mut bytes: &[u8], mut tell: impl FnMut(Line)) {
        while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
            self.keep(&bytes[..end]);
            tell(self.take());
            bytes = &bytes[end + 1..];
        }
        self.keep(bytes);
    }

    /// Returns the last line, if the stream ended without ending it.
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

/// Log record made of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) level: Level,
    pub(super) message: String,
    /// Other fields of a JSON line.
    pub(super) fields: Fields,
}

/// Parses a line as a log record: a JSON object with a level and a message is used as it is; any other line
/// is text, which may begin with its level. An indented text continues the previous line: it gets the level
/// of a preceding warning or error, as the lines of a stack trace should.
pub(super) fn understand(line: Line, before: Level) -> Record {
    if line.dropped == 0
        && line.text.starts_with('{')
        && let Some(record) = structured(&line.text)
    {
        return record;
    }
    let (level, text) = match line.text.starts_with([' ', '\t']) {
        // Not the level of a lower one: a program without log levels prints indented text, too.
        true => (before.min(Level::INFO), line.text),
        false => level_of_text(line.text),
    };
    let message = match line.dropped {
        0 => text,
        dropped => format!("{text}… ({dropped} bytes cut)"),
    };
    Record {
        level,
        message,
        fields: Fields::new(),
    }
}

/// Returns the level of a text that begins with it: in systemd's form (`<3>`), which is then removed, or as a
/// name with a colon, as .NET's console logger writes it.
fn level_of_text(mut text: String) -> (Level, String) {
    let mut priority = text.bytes().take(3);
    if let (Some(b'<'), Some(digit @ b'0'..=b'7'), Some(b'>')) =
        (priority.next(), priority.next(), priority.next())
    {
        text.drain(..3);
        let level = match digit {
            b'0'..=b'3' => Level::ERROR,
            b'4' => Level::WARN,
            b'7' => Level::DEBUG,
            _ => Level::INFO,
        };
        return (level, text);
    }
    let name = text.split_once(':').map_or("", |(name, _)| name);
    (named_level(name).unwrap_or(Level::INFO), text)
}

/// Keys of the level and the text in common loggers, the most significant first.
const LEVEL_KEYS: [&str; 7] = [
    "level_name",
    "levelname",
    "level",
    "LogLevel",
    "severity",
    "log.level",
    "@l",
];
const MESSAGE_KEYS: [&str; 6] = ["message", "msg", "Message", "@m", "@mt", "event"];

fn structured(text: &str) -> Option<Record> {
    let mut object: Fields = serde_json::from_str(text).ok()?;
    let level = take(&mut object, &LEVEL_KEYS, level);
    // Serilog omits the level if it is Information.
    let level = level.or_else(|| object.contains_key("@t").then_some(Level::INFO))?;
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let message = take(&mut object, &MESSAGE_KEYS, text).or_else(|| {
        // In the form of Rust's tracing.
        take(
            object.get_mut("fields")?.as_object_mut()?,
            &["message"],
            text,
        )
    })?;
    Some(Record {
        level,
        message,
        fields: object,
    })
}

/// Takes out the value of the first of these keys that can be read.
fn take<T>(object: &mut Fields, keys: &[&str], read: impl Fn(&Value) -> Option<T>) -> Option<T> {
    let mut keys = keys.iter();
    let (key, value) = keys.find_map(|key| Some((key, read(object.get(*key)?)?)))?;
    object.remove(*key);
    Some(value)
}

/// Parses a level by its name, or by the number that bunyan and pino write.
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
    named_level(value.as_str()?)
}

/// Parses the level names in common use, those of .NET's console among them.
pub(super) fn named_level(name: &str) -> Option<Level> {
    match name.to_ascii_lowercase().as_str() {
        "trace" | "trce" | "verbose" => Some(Level::TRACE),
        "debug" | "dbug" => Some(Level::DEBUG),
        "info" | "information" | "notice" => Some(Level::INFO),
        "warn" | "warning" => Some(Level::WARN),
        "error" | "err" | "fail" | "crit" | "critical" | "fatal" | "panic" => Some(Level::ERROR),
        _ => None,
    }
}

/// Returns at most `bytes_max` bytes of a text, cut between characters.
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
            fields: fields.map_or_else(Fields::new, |json| serde_json::from_str(json).unwrap()),
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
            (
                r#"{"level":200,"level_name":"INFO","message":"monolog"}"#,
                record(Level::INFO, "monolog", Some(r#"{"level":200}"#)),
            ),
            (
                r#"{"EventId":7,"LogLevel":"Critical","Category":"A.B","Message":".NET"}"#,
                record(
                    Level::ERROR,
                    ".NET",
                    Some(r#"{"Category":"A.B","EventId":7}"#),
                ),
            ),
            (
                r#"{"@t":"2026-01-01T00:00:00Z","@mt":"serilog","n":1}"#,
                record(
                    Level::INFO,
                    "serilog",
                    Some(r#"{"@t":"2026-01-01T00:00:00Z","n":1}"#),
                ),
            ),
            (
                r#"{"level":"WARN","fields":{"message":"tracing","n":1},"target":"a"}"#,
                record(
                    Level::WARN,
                    "tracing",
                    Some(r#"{"fields":{"n":1},"target":"a"}"#),
                ),
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(understand(line(text), Level::ERROR), expected);
        }
    }

    #[test]
    fn a_text_may_begin_with_its_level() {
        let cases = [
            ("warn: My.Worker[0]", Level::WARN, "warn: My.Worker[0]"),
            ("fail: My.Worker[0]", Level::ERROR, "fail: My.Worker[0]"),
            ("dbug: My.Worker[0]", Level::DEBUG, "dbug: My.Worker[0]"),
            ("WARNING:root:hot", Level::WARN, "WARNING:root:hot"),
            (
                "<3>as systemd reads it",
                Level::ERROR,
                "as systemd reads it",
            ),
            ("<6>likewise", Level::INFO, "likewise"),
            ("<8>no level", Level::INFO, "<8>no level"),
            ("<", Level::INFO, "<"),
            ("      goes on", Level::WARN, "      goes on"),
            ("\tat Main.java", Level::WARN, "\tat Main.java"),
            (
                "warning without a colon",
                Level::INFO,
                "warning without a colon",
            ),
            ("order: 7", Level::INFO, "order: 7"),
        ];
        for (text, level, message) in cases {
            let record = understand(line(text), Level::WARN);
            assert_eq!((record.level, record.message.as_str()), (level, message));
        }
        let after_debug = understand(line("  total: 5"), Level::DEBUG);
        assert_eq!(after_debug.level, Level::INFO);
    }

    #[test]
    fn a_cut_line_says_so() {
        let cut = Line {
            text: "{\"level".into(),
            dropped: 9,
        };
        let record = understand(cut, Level::INFO);
        assert_eq!(record.message, "{\"level… (9 bytes cut)");
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
        assert_eq!(cut("", 3), "");
    }
}
