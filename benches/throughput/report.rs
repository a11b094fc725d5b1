//! What was found, for people and for programs. The only file here that prints.
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

use crate::flow::Flow;
use crate::goals::{self, Goal};
use crate::latency::Latency;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::plan::Plan;
use crate::scaling::{Scaling, Size};
use crate::start::Starts;

/// Everything that was measured; what was not asked for is empty.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    plan: &'static str,
    rounds: usize,
    pub(crate) throughput: Vec<Flow>,
    pub(crate) latency: Vec<Latency>,
    pub(crate) memory: Vec<Memory>,
    pub(crate) start: Option<Starts>,
    pub(crate) scaling: Option<Scaling>,
    goals: Vec<Goal>,
}

impl Report {
    /// Nothing yet.
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            machine: Machine::this(),
            plan: plan.name,
            rounds: plan.rounds,
            throughput: Vec::new(),
            latency: Vec::new(),
            memory: Vec::new(),
            start: None,
            scaling: None,
            goals: Vec::new(),
        }
    }

    /// Sets the goals beside it.
    pub(crate) fn judge(&mut self) {
        self.goals = goals::compare(self);
    }

    /// Prints the tables and writes the JSON.
    pub(crate) fn publish(&self, json: &Path) -> miette::Result<()> {
        self.print();
        if let Some(directory) = json.parent() {
            fs::create_dir_all(directory).into_diagnostic()?;
        }
        let file = File::create(json).into_diagnostic()?;
        serde_json::to_writer_pretty(file, self).into_diagnostic()?;
        println!("\nwritten to {}", json.display());
        Ok(())
    }

    fn print(&self) {
        println!("{}", self.machine.describe());
        println!("{} plan, medians of {} rounds", self.plan, self.rounds);
        let flows = self.throughput.iter().map(Flow::row);
        table("throughput", Flow::HEADER, flows);
        let latencies = self.latency.iter().map(Latency::row);
        table("idle queue to handler", Latency::HEADER, latencies);
        let memory = self.memory.iter().map(Memory::row);
        table("memory of the daemon", Memory::HEADER, memory);
        let starts = self.start.iter().map(Starts::row);
        table("start to first message done", Starts::HEADER, starts);
        let workers = self.scaling.iter().flat_map(|scaling| &scaling.workers);
        table("more workers", Size::HEADER, workers.map(Size::row));
        let pools = self.scaling.iter().flat_map(|scaling| &scaling.pools);
        table("more pools", Size::HEADER, pools.map(Size::row));
        table("goals", Goal::HEADER, self.goals.iter().map(Goal::row));
    }
}

/// Tells how far it has come.
pub(crate) fn note(text: impl Display) {
    eprintln!("… {text}");
}

fn table(title: &str, header: &[&str], rows: impl Iterator<Item = Vec<String>>) {
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

/// A count of something, in three digits and a unit.
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
