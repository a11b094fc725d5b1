//! The report on a worker as JUnit XML, for continuous integration: a suite for each part, a case for each
//! duty.

use std::fmt::Write;

use super::table::heading;
use ganger_workerkit::conformance::{DutyResult, Part, Report, Verdict};

/// Formats the whole report.
pub(super) fn of(report: &Report) -> String {
    let all: Vec<&DutyResult> = report.parts.iter().flat_map(|part| &part.duties).collect();
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    let name = escaped(&format!(
        "ganger worker check: {}",
        report.command.join(" ")
    ));
    add(
        &mut text,
        &format!("<testsuites name=\"{name}\" {}>", SuiteCounts::of(&all)),
    );
    for part in &report.parts {
        suite(&mut text, part);
    }
    add(&mut text, "</testsuites>");
    text
}

/// Numbers of a suite's cases.
struct SuiteCounts {
    tests: usize,
    failures: usize,
    skipped: usize,
    seconds: f64,
}

impl SuiteCounts {
    fn of(cases: &[&DutyResult]) -> Self {
        let count = |is: fn(Verdict) -> bool| cases.iter().filter(|one| is(one.verdict)).count();
        Self {
            tests: cases.len(),
            failures: count(|verdict| verdict == Verdict::Failed),
            skipped: count(is_skipped),
            seconds: cases.iter().map(|one| one.took.as_secs_f64()).sum(),
        }
    }
}

impl std::fmt::Display for SuiteCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            tests,
            failures,
            skipped,
            seconds,
        } = self;
        write!(
            f,
            "tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\" \
             time=\"{seconds:.3}\""
        )
    }
}

fn is_skipped(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::NotApplicable | Verdict::NotRun)
}

fn suite(text: &mut String, part: &Part) {
    let all: Vec<&DutyResult> = part.duties.iter().collect();
    let name = escaped(part.name);
    add(
        text,
        &format!("  <testsuite name=\"{name}\" {}>", SuiteCounts::of(&all)),
    );
    for tried in all {
        case(text, part, tried);
    }
    if let Some(remark) = &part.remark {
        add(
            text,
            &format!("    <system-out>{}</system-out>", escaped(remark)),
        );
    }
    add(text, "  </testsuite>");
}

fn case(text: &mut String, part: &Part, tried: &DutyResult) {
    let (name, class) = (escaped(tried.duty.name()), escaped(part.name));
    let seconds = tried.took.as_secs_f64();
    add(
        text,
        &format!("    <testcase name=\"{name}\" classname=\"{class}\" time=\"{seconds:.3}\">"),
    );
    let said = escaped(&tried.said);
    add(
        text,
        &match tried.verdict {
            Verdict::Failed => {
                let detail = escaped(&detail(tried));
                format!("      <failure message=\"{said}\">{detail}</failure>")
            }
            Verdict::NotApplicable | Verdict::NotRun => {
                format!("      <skipped message=\"{said}\"/>")
            }
            Verdict::Passed => format!("      <system-out>{said}</system-out>"),
            Verdict::Warned => {
                let detail = escaped(&detail(tried));
                format!("      <system-out>warned: {said}\n{detail}</system-out>")
            }
        },
    );
    add(text, "    </testcase>");
}

fn detail(tried: &DutyResult) -> String {
    let mut lines = vec![tried.title.to_owned()];
    lines.extend(tried.mend.as_ref().map(|mend| format!("mend: {mend}")));
    for piece in &tried.exchange {
        lines.push(heading(piece));
        lines.extend(piece.dump());
    }
    if !tried.stderr.is_empty() {
        lines.push("its stderr, at the end:".to_owned());
        lines.extend(tried.stderr.iter().cloned());
    }
    lines.join("\n")
}

fn add(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("writing to a String does not fail");
}

/// Escapes a text for XML, within quotes too. Characters that XML can't represent are spelt out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                out.extend(c.escape_default());
            }
            c => out.push(c),
        }
    }
    out
}
