//! The report on a worker for people: a table of its duties, then the faults to fix.

use std::fmt::Write;

use crate::cli::output;
use ganger_core::foreign;
use ganger_workerkit::conformance::{Counts, Direction, DutyResult, Part, Piece, Report, Verdict};

const HEADER: [&str; 5] = ["PART", "DUTY", "VERDICT", "SECONDS", "SEEN"];

/// Formats the whole report.
pub(super) fn of(report: &Report) -> String {
    let tried = || {
        let parts = report.parts.iter();
        parts.flat_map(|part| part.duties.iter().map(move |tried| (part, tried)))
    };
    let looked_at = tried().filter(|(_, tried)| tried.verdict != Verdict::NotRun);
    let mut text = output::table(&HEADER, looked_at.map(|(part, tried)| row(part, tried)));
    text.push('\n');
    for part in &report.parts {
        remarks(&mut text, part);
    }
    for (part, tried) in tried().filter(|(_, tried)| tried.mend.is_some()) {
        text.push('\n');
        detail(&mut text, part, tried);
    }
    text.push('\n');
    line(&mut text, &summary(report.counts));
    text
}

/// Adds why a part is incomplete.
fn remarks(text: &mut String, part: &Part) {
    if let Some(remark) = &part.remark {
        line(text, &format!("{}: {remark}", part.name));
    }
    let not_run = |tried: &&DutyResult| tried.verdict == Verdict::NotRun;
    let mut left_out = part.duties.iter().filter(not_run);
    if let Some(first) = left_out.next() {
        let count = left_out.count() + 1;
        line(
            text,
            &format!("{}: {count} not run: {}", part.name, first.said),
        );
    }
}

fn row(part: &Part, tried: &DutyResult) -> Vec<String> {
    vec![
        part.name.to_owned(),
        tried.duty.name().to_owned(),
        word(tried.verdict).to_owned(),
        format!("{:.2}", tried.took.as_secs_f64()),
        foreign::line(&tried.said).into_owned(),
    ]
}

/// Returns the word for a verdict, in capitals if it is to be read first.
fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "passed",
        Verdict::Failed => "FAILED",
        Verdict::Warned => "warned",
        Verdict::NotApplicable => "n/a",
        Verdict::NotRun => "not run",
    }
}

fn detail(text: &mut String, part: &Part, tried: &DutyResult) {
    let DutyResult { duty, title, .. } = tried;
    let verdict = word(tried.verdict);
    line(
        text,
        &format!("{verdict}: {}, {}: {title}", part.name, duty.name()),
    );
    line(text, &format!("  seen: {}", tried.said));
    if let Some(mend) = &tried.mend {
        line(text, &format!("  mend: {mend}"));
    }
    for piece in &tried.exchange {
        line(text, &format!("  {}", heading(piece)));
        for bytes in piece.dump() {
            line(text, &format!("    {bytes}"));
        }
    }
    if !tried.stderr.is_empty() {
        line(text, "  its stderr, at the end:");
        for last in &tried.stderr {
            line(text, &format!("    {last}"));
        }
    }
}

/// Returns the writer and the length of a piece.
pub(super) fn heading(piece: &Piece) -> String {
    let way = match piece.direction {
        Direction::ToWorker => "to the worker",
        Direction::ToStdin => "to its stdin",
        Direction::FromWorker => "from the worker",
    };
    match piece.length {
        0 => format!("{way}: {}", piece.what),
        bytes => format!("{way}: {}, {bytes} bytes", piece.what),
    }
}

/// Formats the counts in words.
pub(super) fn summary(counts: Counts) -> String {
    let Counts {
        passed,
        failed,
        warned,
        not_applicable,
        not_run,
    } = counts;
    let not_run = match not_run {
        0 => String::new(),
        _ => format!(", {not_run} not run"),
    };
    format!(
        "{passed} passed, {failed} failed, {warned} warned, {not_applicable} not applicable{not_run}"
    )
}

/// Adds a line, escaped since others may have written some of it.
fn line(text: &mut String, line: &str) {
    let shown = foreign::line(line);
    writeln!(text, "{}", shown.trim_end()).expect("writing to a String does not fail");
}
