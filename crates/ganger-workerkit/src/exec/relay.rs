//! What programs print, on its way to this worker's own stdout and stderr, and with that to the
//! daemon's log; and the last lines of it, which say why one has failed.

use std::collections::VecDeque;
use std::io::{self, Write};

use ganger_pool::worker::lines::{Line, Splitter, cut};
use ganger_protocol::Task;
use ganger_queue::delivery::{Property, write_numbers};

/// The last lines that are kept, in bytes: about what the daemon shows of a reason.
const LAST_BYTES_MAX: usize = 1_800;
/// What of a correlation id goes before a line, in characters.
const PREFIX_CHARS_MAX: usize = 64;

/// Where lines go.
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
    /// With several programs at once, `prefix` tells whose line it is.
    pub(super) fn to(own: Own, prefix: String) -> Self {
        Self {
            own,
            prefix,
            splitter: Splitter::default(),
        }
    }

    /// Passes on the lines that end in these bytes, and tells each.
    pub(super) fn take(&mut self, bytes: &[u8], mut tell: impl FnMut(&str)) {
        let mut whole = String::new();
        let prefix = &self.prefix;
        self.splitter.feed(bytes, |line| {
            tell(&line.text);
            whole.push_str(&shown(&line, prefix));
        });
        self.pass_on(&whole);
    }

    /// Passes on what is left at the end.
    pub(super) fn finish(&mut self, tell: impl FnOnce(&str)) {
        if let Some(line) = self.splitter.finish() {
            tell(&line.text);
            self.pass_on(&shown(&line, &self.prefix));
        }
    }

    /// If nobody takes them the daemon is gone, and there is nobody to tell.
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

/// A line that is JSON stays what it is: the daemon understands it.
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

/// What tells a message's lines from another's.
pub(super) fn prefix_of(task: &Task) -> String {
    let name = match task.correlation_id.as_str() {
        "" => name_of(task),
        id => id.to_owned(),
    };
    let tame = |c: char| if c.is_control() { '?' } else { c };
    let name: String = name.chars().take(PREFIX_CHARS_MAX).map(tame).collect();
    format!("[{name}] ")
}

/// The name by which its source knows a message without a correlation id, or the number that the daemon
/// has given it.
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

/// The last lines of a stream.
#[derive(Debug, Default)]
pub(super) struct LastLines {
    lines: VecDeque<String>,
    bytes: usize,
}

impl LastLines {
    /// Lines without text say nothing.
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

    /// The very last one.
    pub(super) fn last(&self) -> Option<&str> {
        self.lines.back().map(String::as_str)
    }

    /// As one text.
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
