//! `ganger worker check`: tests a worker's conformance to the protocol.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use miette::{IntoDiagnostic, WrapErr, bail};

use super::subject::{WorkerStart, on_a_pool_thread};
use super::{junit, table};
use crate::cli::common::CommandResult;
use crate::cli::output;
use crate::cli::send::parse_header;
use ganger_queue::client::json::duration;
use ganger_workerkit::conformance::{self, Plan, Supplies, Version};

/// Default time for a worker to connect, as in a pool.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Default number of workers that run at once.
const JOBS: usize = 4;

const EXIT_CODES: &str = "\
Exit codes:
  0  all duties passed, some perhaps with a warning
  1  a duty failed, or the worker could not be tested
  2  the command line is wrong, or a message can't be read";

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct WorkerCheckArgs {
    /// The protocol version that the worker must speak; if omitted both are tried, and one that it does not
    /// speak is not a failure
    #[arg(long, value_name = "VERSION")]
    protocol: Option<Protocol>,
    /// File with the body of a message that the worker understands; several are sent in turn. Without any,
    /// the worker gets texts that it need not understand
    #[arg(long = "message", short = 'm', value_name = "FILE")]
    messages: Vec<PathBuf>,
    /// File with the body of a message that takes about a second, for the tests of a busy worker
    #[arg(long, value_name = "FILE")]
    slow_message: Option<PathBuf>,
    /// Add a header to every message
    #[arg(long = "header", short = 'H', value_name = "NAME=VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    /// Time for which the worker may be silent over a message
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = duration)]
    timeout: Duration,
    /// Number of workers that run at once, each for a duty
    #[arg(long, default_value_t = JOBS, value_name = "N")]
    jobs: usize,
    /// Format of the report
    // It was called `--format`, and its `text` was `table`.
    #[arg(
        long,
        short = 'o',
        alias = "format",
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    output: ReportFormat,
    #[command(flatten)]
    start: WorkerStart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Protocol {
    /// Version 1
    #[value(name = "1")]
    One,
    /// Version 2
    #[value(name = "2")]
    Two,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    /// For people
    #[default]
    #[value(alias = "table")]
    Text,
    /// For programs
    Json,
    /// For continuous integration: JUnit's XML
    Junit,
}

pub(super) fn run(args: &WorkerCheckArgs) -> CommandResult {
    let plan = match plan(args) {
        Ok(plan) => plan,
        Err(report) => {
            output::complain(&report);
            return Ok(ExitCode::from(2));
        }
    };
    let report = on_a_pool_thread(conformance::check(&plan))?;
    match args.output {
        ReportFormat::Text => output::bytes(table::of(&report).as_bytes())?,
        ReportFormat::Json => output::json(&report)?,
        ReportFormat::Junit => output::bytes(junit::of(&report).as_bytes())?,
    }
    Ok(match report.passed {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn plan(args: &WorkerCheckArgs) -> miette::Result<Plan> {
    let policy = args.start.policy(None, START_TIMEOUT)?;
    let bodies = args.messages.iter().map(|path| read(path));
    let supplies = Supplies {
        bodies: bodies.collect::<Result<_, _>>()?,
        slow: args.slow_message.as_deref().map(read).transpose()?,
        headers: args.headers.clone(),
        queue: policy.one_queue().to_owned(),
    };
    if args.protocol == Some(Protocol::One) && !supplies.are_text() {
        bail!("a version 1 worker can receive text only, and a message is not UTF-8");
    }
    Ok(Plan {
        policy,
        supplies,
        only: args.protocol.map(|protocol| match protocol {
            Protocol::One => Version::One,
            Protocol::Two => Version::Two,
        }),
        answer_within: args.timeout,
        jobs: args.jobs,
    })
}

fn read(path: &Path) -> miette::Result<Bytes> {
    let read = std::fs::read(path).into_diagnostic();
    let body = read.wrap_err_with(|| path.display().to_string())?;
    Ok(body.into())
}
