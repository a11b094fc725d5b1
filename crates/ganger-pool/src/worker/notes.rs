//! LOG and PROGRESS frames of a worker, under the limits of its stdout: records per second and bytes per
//! record, each a single line.

use std::fmt::Write;
use std::sync::Arc;

use tokio::time::Instant;
use tracing::Level;

use super::flood::{Admission, Flood};
use super::lines::{LINE_BYTES_MAX, cut, named_level};
use super::subject::Subject;
use super::{Identity, subject};
use ganger_core::foreign;
use ganger_protocol::output::Output;
use ganger_queue::delivery::{LogName, LogStream};
use ganger_telemetry as telemetry;
use ganger_telemetry::Fields;

/// Maximum length of a progress text, in bytes.
const PROGRESS_BYTES_MAX: usize = 1024;
/// Maximum length of an origin's name, in bytes.
const ORIGIN_BYTES_MAX: usize = 256;

/// One worker's LOG frames on their way to the log.
#[derive(Debug)]
pub struct Notes {
    identity: Identity,
    flood: Flood,
}

impl Notes {
    /// Creates the notes of a worker.
    pub fn new(identity: Identity, now: Instant) -> Self {
        Self {
            identity,
            flood: Flood::new(now),
        }
    }

    /// Logs a LOG frame, unless the rate limit is exceeded.
    pub fn log(&mut self, output: &Output, subject: Subject<'_>, now: Instant) {
        match self.flood.admit(now) {
            Admission::Log { suppressed } => {
                self.log_suppressed(suppressed);
                let record = NoteRecord::of(output);
                self.write(&record, &LogName::of(subject.message));
                if let Some(run) = subject.run {
                    let NoteRecord { text, fields, .. } = &record;
                    subject::log(run, LogStream::Log, record.level(), text, fields);
                }
            }
            Admission::Suppress => {
                if let Some(run) = subject.run {
                    run.dropped();
                }
            }
        }
    }

    /// Returns the time at which the number of suppressed records is reported if the worker stays silent.
    pub fn calm_at(&self) -> Option<Instant> {
        self.flood.is_suppressing().then(|| self.flood.calm_at())
    }

    /// Logs the number of suppressed records, if any.
    pub fn tell_suppressed(&mut self) {
        let suppressed = self.flood.take_suppressed();
        self.log_suppressed(suppressed);
    }

    fn log_suppressed(&self, records: u64) {
        if records > 0 {
            let record = NoteRecord {
                level: "warn",
                origin: None,
                text: format!("{records} records suppressed: the worker logs too fast"),
                fields: Fields::new(),
            };
            self.write(&record, &LogName::default());
        }
    }

    fn write(&self, record: &NoteRecord<'_>, name: &LogName) {
        let NoteRecord {
            origin,
            text,
            fields,
            ..
        } = record;
        let Identity { pool, slot } = &self.identity;
        let pool = Arc::as_ref(pool);
        let (correlation_id, message_name) = (name.correlation_id(), name.message());
        let _with = telemetry::with_fields(fields);
        macro_rules! write {
            ($level:ident) => {
                tracing::event!(
                    target: "worker::log", Level::$level,
                    pool, worker = slot, correlation_id, message_name, origin, "{text}"
                )
            };
        }
        match record.level() {
            Level::TRACE => write!(TRACE),
            Level::DEBUG => write!(DEBUG),
            Level::INFO => write!(INFO),
            Level::WARN => write!(WARN),
            Level::ERROR => write!(ERROR),
        }
    }
}

/// Returns the text of a PROGRESS frame, for a status line.
pub fn progress(output: &Output) -> String {
    one_line(&output.message, PROGRESS_BYTES_MAX)
}

/// Content of a LOG frame.
#[derive(Debug, PartialEq, Eq)]
struct NoteRecord<'a> {
    level: &'a str,
    origin: Option<&'a str>,
    text: String,
    fields: Fields,
}

impl<'a> NoteRecord<'a> {
    fn of(output: &'a Output) -> Self {
        let mut record = Self {
            level: "info",
            origin: None,
            text: cut_to(&output.message, LINE_BYTES_MAX),
            fields: Fields::new(),
        };
        let mut room = LINE_BYTES_MAX;
        for (name, value) in output.headers.iter().flatten() {
            match name.as_str() {
                "level" => record.level = value,
                "target" => record.origin = Some(cut(value, ORIGIN_BYTES_MAX)),
                _ if room == 0 => {}
                _ => {
                    let kept = cut(name, room);
                    room -= kept.len();
                    let value = cut_to(value.as_bytes(), room);
                    room = room.saturating_sub(value.len());
                    record.fields.insert(kept.to_owned(), value.into());
                }
            }
        }
        record
    }

    fn level(&self) -> Level {
        named_level(self.level).unwrap_or(Level::INFO)
    }
}

/// Returns a text of limited length. Its line breaks are kept: the log escapes characters that would end a
/// record.
fn cut_to(bytes: &[u8], bytes_max: usize) -> String {
    // The removed part is not decoded, except for a character that the cut may split.
    let head = &bytes[..bytes.len().min(bytes_max + 4)];
    let text = String::from_utf8_lossy(head);
    let mut kept = cut(&text, bytes_max).to_owned();
    let dropped = bytes.len().saturating_sub(bytes_max);
    if dropped > 0 {
        write!(kept, "… ({dropped} bytes cut)").expect("writing to a String does not fail");
    }
    kept
}

/// Returns a text of limited length as one line, without characters that end a line or move a cursor.
fn one_line(bytes: &[u8], bytes_max: usize) -> String {
    foreign::line(&cut_to(bytes, bytes_max)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_protocol::status::Status;

    fn logged(message: &str, headers: &[(&str, &str)]) -> Output {
        let header = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut output = Output::new(Status::LOG, None, message.to_owned());
        output.headers = Some(headers.iter().map(header).collect());
        output
    }

    #[test]
    fn a_record_is_of_bounded_length_with_its_lines() {
        let long = "x".repeat(LINE_BYTES_MAX + 7);
        let cases = [
            ("plain", "plain".to_owned()),
            (
                "two\nlines\r\u{1b}[2J\tends",
                "two\nlines\r\u{1b}[2J\tends".to_owned(),
            ),
            (&long, format!("{}… (7 bytes cut)", &long[7..])),
        ];
        for (text, kept) in cases {
            assert_eq!(NoteRecord::of(&logged(text, &[])).text, kept);
        }
        let shown = progress(&logged("two\nlines\r\u{1b}[2J\tends", &[]));
        assert_eq!(shown, "two\\nlines\\r\\u{1b}[2J\tends");
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
        let origin = record.origin.map(str::len);
        assert_eq!((record.level, origin), ("warn", Some(ORIGIN_BYTES_MAX)));
        assert_eq!(record.fields["a"], "1");
        let kept = record.fields["b"].as_str().unwrap();
        assert!(kept.ends_with("bytes cut)") && kept.len() < LINE_BYTES_MAX + 100);
        assert!(!record.fields.contains_key("c"), "there is no room");
    }

    #[test]
    fn a_cut_does_not_split_a_character() {
        assert_eq!(one_line("aéb".as_bytes(), 2), "a… (2 bytes cut)");
        assert_eq!(one_line(b"\xff", 9), "\u{fffd}");
    }
}
