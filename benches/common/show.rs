//! Tables and numbers for people, JSON for programs. The only file here that prints.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "printing is what this file is for"
)]

use std::fmt::Display;
use std::fs::{self, File};
use std::path::Path;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use miette::IntoDiagnostic;
use serde::Serialize;

/// Reports progress.
pub(crate) fn note(text: impl Display) {
    eprintln!("… {text}");
}

/// Prints a line of the report.
pub(crate) fn line(text: impl Display) {
    println!("{text}");
}

/// Prints a table of the report, unless it has no rows.
pub(crate) fn table(title: &str, header: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header);
    table.add_rows(rows);
    if table.is_empty() {
        return;
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("\n{title}\n{}", table.trim_fmt());
}

/// Writes a report as JSON and prints the path.
pub(crate) fn write(report: &impl Serialize, json: &Path) -> miette::Result<()> {
    if let Some(directory) = json.parent() {
        fs::create_dir_all(directory).into_diagnostic()?;
    }
    let file = File::create(json).into_diagnostic()?;
    serde_json::to_writer_pretty(file, report).into_diagnostic()?;
    println!("\nwritten to {}", json.display());
    Ok(())
}

/// Formats a count with three digits and a unit.
pub(crate) fn number(value: f64) -> String {
    if value >= 10_000.0 {
        format!("{:.1} k", value / 1000.0)
    } else {
        format!("{value:.0}")
    }
}

pub(crate) fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

pub(crate) fn percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

pub(crate) fn milliseconds(value: f64) -> String {
    format!("{value:.2} ms")
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(crate) fn megabytes(kib: u64) -> String {
    format!("{:.1} MB", kib as f64 * 1024.0 / 1e6)
}
