//! Relays the output of programs to this worker's own stdout and stderr, and so to the daemon's log; keeps
//! its last lines, which explain a failure.

use std::collections::VecDeque;
use std::io::{self, Write};

use ganger_pool::worker::lines::{Line, Splitter, cut};
use ganger_protocol::Task;
use ganger_queue::delivery::{Property, write_numbers};

/// Maximum size of the last lines that are kept, in bytes: about as much as the daemon shows of a reason.
const LAST_BYTES_MAX: usize = 1_800;
/// Maximum length of a correlation id before a line, in characters.
const PREFIX_CHARS_MAX: usize = 64;

/// Destination of lines.
#[derive(Debug, Clone, Copy)]
pub(super) enum Own {
    Stdout,
    Stderr,
}

/// One stream of one program.
#[derive(Debug)]
pub(super) struct Relay {
    own: Own,
    prefix: String,
    splitter: Splitter,
}

impl Relay {
    /// Returns a relay. With several programs at once, `prefix` identifies a line's program.
    pub(super) fn to(own: Own, prefix: String) -> Self {
        Self {
            own,
            prefix,
            splitter: Splitter::default(),
        }
    }

    /// Relays the lines that end in these bytes, and passes each to `tell`.
    pub(super) fn take(&mut self, bytes: &[u8], mut tell: impl FnMut(&str)) {
        let mut whole = String::new();
        let prefix = &self.prefix;
        self.splitter.feed(bytes, |line| {
            tell(&line.text);
            whole.push_str(&shown(&line, prefix));
        });
        self.pass_on(&whole);
    }

    /// Relays the rest at the end.
    pub(super) fn finish(&mut self, tell: impl FnOnce(&str)) {
        if let Some(line) = self.splitter.finish() {
            tell(&line.text);
            self.pass_on(&shown(&line, &self.prefix));
        }
    }

    /// Writes the lines. If that fails the daemon is gone, and there is nobody to inform.
    fn pass_on(&self, lines: &str) {
        let lines = lines.as_bytes();
        drop(match self.own {
            Own::Stdout => {
                let mut own = io::stdout().lock();
                own.write_all(lines).and_then(|()| own.flush())
            }
            Own::Stderr => io::stderr().lock().write_all(lines),
        });
    }
}

/// Formats a line. One that is JSON is unchanged: the daemon understands it.
fn shown(line: &Line, prefix: &str) -> String {
    let prefix = if line.text.starts_with('{') {
        ""
    } else {
        prefix
    };
    match line.dropped {
        0 => format!("{prefix}{}\n", line.text),
        dropped => format!("{prefix}{} … ({dropped} bytes cut)\n", line.text),
    }
}

/// Returns the prefix that distinguishes a message's lines from another's.
pub(super) fn prefix_of(task: &Task) -> String {
    let name = match task.correlation_id.as_str() {
        "" => name_of(task),
        id => id.to_owned(),
    };
    let tame = |c: char| if c.is_control() { '?' } else { c };
    let name: String = name.chars().take(PREFIX_CHARS_MAX).map(tame).collect();
    format!("[{name}] ")
}

/// Returns the source's name for a message without a correlation id, or the number that the daemon has given
/// it.
fn name_of(task: &Task) -> String {
    let property = |name: &str| {
        let mut properties = task.properties.iter();
        let found = properties.find(|(other, _)| other == name);
        found.map(|(_, value)| value)
    };
    let integer = |name: &str| match property(name)? {
        Property::Integer(integer) => Some(*integer),
        Property::Text(_) | Property::Boolean(_) | Property::Bytes(_) => None,
    };
    let mut name = String::new();
    match property("message_id") {
        _ if write_numbers(&mut name, &task.queue, integer) => name,
        Some(Property::Text(id)) => id.clone(),
        _ => task.id.unwrap_or_default().to_string(),
    }
}

/// Last lines of a stream.
#[derive(Debug, Default)]
pub(super) struct LastLines {
    lines: VecDeque<String>,
    bytes: usize,
}

impl LastLines {
    /// Adds a line. Lines without text are ignored.
    pub(super) fn push(&mut self, line: &str) {
        let line = cut(line.trim_end(), LAST_BYTES_MAX);
        if line.is_empty() {
            return;
        }
        self.bytes += line.len() + 1;
        self.lines.push_back(line.to_owned());
        while self.bytes > LAST_BYTES_MAX + 1 {
            let first = self.lines.pop_front().unwrap_or_default();
            self.bytes -= first.len() + 1;
        }
    }

    /// Returns the last line.
    pub(super) fn last(&self) -> Option<&str> {
        self.lines.back().map(String::as_str)
    }

    /// Returns the lines as one text.
    pub(super) fn text(&self) -> String {
        let lines: Vec<&str> = self.lines.iter().map(String::as_str).collect();
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let mut last = LastLines::default();
        for n in 0..10_000 {
            last.push(&format!("line {n}"));
            last.push(" ");
        }
        let text = last.text();
        assert!((LAST_BYTES_MAX - 20..=LAST_BYTES_MAX).contains(&text.len()));
        assert!(text.ends_with("line 9998\nline 9999"), "{text}");
        last.push(&"ü".repeat(5_000));
        assert!(last.text().len() <= LAST_BYTES_MAX && last.text().starts_with('ü'));
    }

    #[test]
    fn a_prefix_is_tame() {
        let task = |correlation_id: &str, id| Task {
            message: Bytes::new(),
            binary: false,
            correlation_id: correlation_id.into(),
            queue: String::new(),
            headers: Vec::new(),
            id,
            attempt: None,
            milliseconds_left: None,
            properties: Vec::new(),
        };
        assert_eq!(prefix_of(&task("c-1", Some(7))), "[c-1] ");
        assert_eq!(prefix_of(&task("", Some(7))), "[7] ");
        let row = Task {
            queue: "orders".into(),
            properties: vec![("row_id".into(), Property::Integer(17))],
            ..task("", Some(7))
        };
        assert_eq!(prefix_of(&row), "[orders:17] ");
        assert_eq!(prefix_of(&task("a\n\x1b[2J", None)), "[a??[2J] ");
        assert_eq!(prefix_of(&task(&"x".repeat(500), None)).len(), 67);
    }

    #[test]
    fn lines_say_whose_they_are() {
        let line = |text: &str, dropped| Line {
            text: text.into(),
            dropped,
        };
        assert_eq!(shown(&line("hot", 0), "[7] "), "[7] hot\n");
        assert_eq!(shown(&line("{\"a\":1}", 0), "[7] "), "{\"a\":1}\n");
        assert_eq!(shown(&line("long", 9), ""), "long … (9 bytes cut)\n");
    }
}
