//! What a worker says by LOG and PROGRESS frames, under the limits that its stdout has: so many
//! records a second, so many bytes of each, one line each.

use std::fmt::Write;
use std::sync::Arc;

use tokio::time::Instant;

use super::Identity;
use super::flood::{Admission, Flood};
use super::lines::{LINE_BYTES_MAX, cut};
use crate::foreign;
use crate::protocol::output::Output;

/// The longest word on a worker's progress, in bytes.
const PROGRESS_BYTES_MAX: usize = 1024;
/// The longest name of an origin.
const ORIGIN_BYTES_MAX: usize = 256;

/// One worker's LOG frames on their way to the log.
#[derive(Debug)]
pub struct Notes {
    identity: Identity,
    flood: Flood,
}

impl Notes {
    /// For that worker.
    pub fn new(identity: Identity, now: Instant) -> Self {
        Self {
            identity,
            flood: Flood::new(now),
        }
    }

    /// Logs what a LOG frame says, if there is room for it.
    pub fn log(&mut self, output: &Output, correlation_id: &str, now: Instant) {
        if let Admission::Log { suppressed } = self.flood.admit(now) {
            self.log_suppressed(suppressed);
            self.write(&NoteRecord::of(output), correlation_id);
        }
    }

    /// When the worker, if it stays silent, is to be told of by the number that was held back.
    pub fn calm_at(&self) -> Option<Instant> {
        self.flood.is_suppressing().then(|| self.flood.calm_at())
    }

    /// Tells how many were held back, if any were.
    pub fn tell_suppressed(&mut self) {
        let suppressed = self.flood.take_suppressed();
        self.log_suppressed(suppressed);
    }

    fn log_suppressed(&self, records: u64) {
        if records > 0 {
            let record = NoteRecord {
                level: "warn",
                origin: "",
                text: format!("{records} records suppressed: the worker logs too fast"),
                fields: String::new(),
            };
            self.write(&record, "");
        }
    }

    fn write(&self, record: &NoteRecord<'_>, correlation_id: &str) {
        let NoteRecord {
            level,
            origin,
            text,
            fields,
        } = record;
        let Identity { pool, slot } = &self.identity;
        let pool = Arc::as_ref(pool);
        macro_rules! write {
            ($level:ident) => {
                tracing::event!(
                    target: "worker::log", tracing::Level::$level,
                    pool, worker = slot, correlation_id, origin, fields, "{text}"
                )
            };
        }
        match level.to_ascii_lowercase().as_str() {
            "trace" => write!(TRACE),
            "debug" => write!(DEBUG),
            "warn" | "warning" => write!(WARN),
            "error" | "critical" | "fatal" => write!(ERROR),
            _ => write!(INFO),
        }
    }
}

/// What a PROGRESS frame says, for a status line.
pub fn progress(output: &Output) -> String {
    one_line(&output.message, PROGRESS_BYTES_MAX)
}

/// What a LOG frame says.
#[derive(Debug, PartialEq, Eq)]
struct NoteRecord<'a> {
    level: &'a str,
    origin: &'a str,
    text: String,
    fields: String,
}

impl<'a> NoteRecord<'a> {
    fn of(output: &'a Output) -> Self {
        let mut record = Self {
            level: "info",
            origin: "",
            text: one_line(&output.message, LINE_BYTES_MAX),
            fields: String::new(),
        };
        let mut room = LINE_BYTES_MAX;
        for (name, value) in output.headers.iter().flatten() {
            match name.as_str() {
                "level" => record.level = value,
                "target" => record.origin = cut(value, ORIGIN_BYTES_MAX),
                _ if room == 0 => {}
                _ => {
                    let field = [name, "=", value].concat();
                    let space = if record.fields.is_empty() { "" } else { " " };
                    record.fields += space;
                    record.fields += &one_line(field.as_bytes(), room);
                    room = room.saturating_sub(field.len());
                }
            }
        }
        record
    }
}

/// A text as one line: cut to size, and with nothing in it that ends a line or moves a cursor.
fn one_line(bytes: &[u8], bytes_max: usize) -> String {
    // What is cut is not even looked at, but for a character that the cut may split.
    let head = &bytes[..bytes.len().min(bytes_max + 4)];
    let text = String::from_utf8_lossy(head);
    let kept = cut(&text, bytes_max);
    let dropped = bytes.len().saturating_sub(bytes_max);
    let mut line = foreign::line(kept).into_owned();
    if dropped > 0 {
        write!(line, "… ({dropped} bytes cut)").expect("writing to a String does not fail");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::status::Status;

    fn logged(message: &str, headers: &[(&str, &str)]) -> Output {
        let header = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut output = Output::new(Status::LOG, None, message.to_owned());
        output.headers = Some(headers.iter().map(header).collect());
        output
    }

    #[test]
    fn a_record_is_one_line_of_bounded_length() {
        let long = "x".repeat(LINE_BYTES_MAX + 7);
        let cases = [
            ("plain", "plain".to_owned()),
            (
                "two\nlines\r\u{1b}[2J\tends",
                "two\\nlines\\r\\u{1b}[2J\tends".to_owned(),
            ),
            (&long, format!("{}… (7 bytes cut)", &long[7..])),
        ];
        for (text, line) in cases {
            assert_eq!(NoteRecord::of(&logged(text, &[])).text, line);
        }
    }

    #[test]
    fn what_goes_with_a_record_is_bounded_too() {
        let long = "y".repeat(3 * LINE_BYTES_MAX);
        let headers = [
            ("level", "warn"),
            ("a", "1"),
            ("b", &long),
            ("c", &long),
            ("target", &long),
        ];
        let output = logged("hot", &headers);
        let record = NoteRecord::of(&output);
        assert_eq!(
            (record.level, record.origin.len()),
            ("warn", ORIGIN_BYTES_MAX)
        );
        assert!(record.fields.starts_with("a=1 b=yyy"));
        assert!(record.fields.len() < LINE_BYTES_MAX + 100);
    }

    #[test]
    fn a_cut_does_not_split_a_character() {
        assert_eq!(one_line("aéb".as_bytes(), 2), "a… (2 bytes cut)");
        assert_eq!(one_line(b"\xff", 9), "\u{fffd}");
    }
}
