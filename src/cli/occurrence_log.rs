//! `ganger occurrence log`: the lines of the log of a run, also while it goes on.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use miette::bail;

use super::backend::refusal;
use super::common::{CommandResult, Format};
use super::output;
use ganger_core::foreign;
use ganger_queue::ledger::shown::LogLineJson;
use ganger_queue::ledger::{LOG_LINES_MAX, LedgerClient, LogPlace};

/// Interval at which a log is read that is followed.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Prints the log of an occurrence; if it is followed, until the occurrence has ended.
pub(super) fn print(
    ledger: &mut dyn LedgerClient,
    id: &str,
    is_followed: bool,
    format: Format,
) -> CommandResult {
    let mut place = LogPlace::default();
    let mut printer = Printer::new(format, is_followed);
    loop {
        let after = place.after();
        let read = ledger.log(id, after, LOG_LINES_MAX).map_err(refusal)?;
        let Some(log) = read else {
            match after {
                None => bail!("there is no occurrence {}", foreign::line(id)),
                Some(_) => bail!("occurrence {} is gone", foreign::line(id)),
            }
        };
        for line in &log.lines {
            if printer.print(line)?.is_break() {
                return Ok(ExitCode::SUCCESS);
            }
        }
        let has_all = log.lines.len() < LOG_LINES_MAX as usize;
        let is_over = place.read(&log);
        if is_over || (has_all && !is_followed) {
            printer.end(log.dropped)?;
            return Ok(ExitCode::SUCCESS);
        }
        if has_all {
            std::thread::park_timeout(LOOK_EVERY);
        }
    }
}

/// Prints lines: for people, as an array, or, if they are followed, as an object each.
#[derive(Debug)]
struct Printer {
    format: Format,
    array: Option<output::Array>,
    /// Number of the next line, if none is dropped before it.
    next: i64,
}

impl Printer {
    fn new(format: Format, is_followed: bool) -> Self {
        let is_array = format == Format::Json && !is_followed;
        Self {
            format,
            array: is_array.then(output::Array::default),
            next: 0,
        }
    }

    fn print(&mut self, line: &LogLineJson) -> miette::Result<ControlFlow<()>> {
        let dropped = line.line - self.next;
        self.next = line.line + 1;
        match (&mut self.array, self.format) {
            (Some(array), _) => array.push(line),
            (None, Format::Json) => output::next_json(line),
            (None, Format::Text) => {
                if dropped > 0 && output::next_line(format!("… {dropped} dropped …"))?.is_break()
                {
                    return Ok(ControlFlow::Break(()));
                }
                output::next_line(text(line))
            }
        }
    }

    fn end(self, dropped: u64) -> miette::Result<()> {
        if let Some(array) = self.array {
            array.end()?;
        }
        if dropped > 0 && self.format == Format::Text {
            output::note(format!(
                "{dropped} lines of this log were dropped: `ledger.log` limits it"
            ));
        }
        Ok(())
    }
}

/// Returns a line as people read it. Further lines of its text are indented, so that none looks like another record.
fn text(line: &LogLineJson) -> String {
    let LogLineJson {
        at,
        attempt,
        stream,
        level,
        text,
        ..
    } = line;
    let level = level.as_deref().unwrap_or_default().to_uppercase();
    let text = foreign::lines(text);
    let mut lines = text.split('\n');
    let first = lines.next().unwrap_or_default();
    let first = format!("{at:<24} {attempt:>2} {stream:<6} {level:<5} {first}");
    let others = lines.map(|line| format!("\n{:<24} {line}", ""));
    let all = std::iter::once(first).chain(others).collect::<String>();
    all.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_worker_makes_no_other_record_and_moves_no_cursor() {
        let line = LogLineJson {
            line: 7,
            at: "2026-12-01T00:00:00.123Z".to_owned(),
            attempt: 2,
            stream: "log".to_owned(),
            level: Some("warn".to_owned()),
            text: "hot\u{1b}[2J\n2026-12-01T00:00:01.000Z  1 stdout INFO  forged".to_owned(),
        };
        let indent = " ".repeat(25);
        let expected = format!(
            "2026-12-01T00:00:00.123Z  2 log    WARN  hot\\u{{1b}}[2J\n{indent}2026-12-01T00:00:01.000Z  1 stdout INFO  forged"
        );
        assert_eq!(text(&line), expected);
    }
}
