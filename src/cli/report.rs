//! `ganger schedule report`: what became of the runs of a time.

use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::backend::{Address, ledger, refusal};
use super::common::{CommandResult, Format, Output, given_range};
use super::output;
use super::usage::wrong;
use ganger_queue::ledger::shown::{ReportOrder, ReportRowJson, SpreadJson};
use ganger_queue::ledger::{REPORT_MAX, REPORT_RUNS_MAX, ReportRange};
use ganger_schedule::zone::Zones;

/// Report on the runs of a time.
#[derive(Debug, clap::Args)]
pub(super) struct ReportArgs {
    /// Order: the most failures first, the latest starts, the longest runs, or the slowest single run
    #[arg(default_value = "failures", value_parser = order())]
    order: ReportOrder,
    /// Only runs that were entered at this time or later, such as 2027-01-31 or
    /// 2027-01-31T08:00:00, by --zone; else for a day
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Only runs that were entered before this time; else until now
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// Only runs of this schedule
    #[arg(long, value_name = "NAME")]
    schedule: Option<String>,
    /// Only runs and recorded messages of this queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Only runs of schedules that have this tag
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Count each day by itself
    #[arg(long)]
    by_day: bool,
    /// Time zone of the days, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", default_value = "UTC", requires = "by_day")]
    zone: String,
    /// Number of runs that are counted, the newest; a million if omitted
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(REPORT_RUNS_MAX)))]
    runs: Option<u32>,
    /// Number of rows
    #[arg(short = 'n', default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(REPORT_MAX)))]
    count: u32,
    #[command(flatten)]
    address: Address,
    #[command(flatten)]
    output: Output,
}

fn order() -> impl TypedValueParser<Value = ReportOrder> {
    let words = PossibleValuesParser::new(ReportOrder::WORDS);
    words.map(|word| ReportOrder::of(&word).unwrap_or_default())
}

pub(super) fn report(args: &ReportArgs) -> CommandResult {
    let zones = Zones::load();
    let zone = zones.get(&args.zone);
    let zone = zone.map_err(|problem| wrong(problem.under("--zone")))?;
    let range = given_range((args.from.as_deref(), args.to.as_deref()), &zone, &zones)?;
    let range = ReportRange {
        by_day: args.by_day.then_some(zone),
        runs: args.runs,
        from: range.0,
        to: range.1,
        schedule: args.schedule.clone(),
        queue: args.queue.clone(),
        tag: args.tag.clone(),
        order: args.order,
        limit: args.count,
        within: None,
    };
    let report = ledger(&args.address)?.report(&range).map_err(refusal)?;
    match args.output.format {
        Format::Json => output::json(&report)?,
        Format::Text if report.rows.is_empty() => output::line("no runs")?,
        Format::Text => {
            let day = args.by_day.then_some("DAY");
            let header: Vec<&str> = day.into_iter().chain(HEADER).collect();
            let table = output::table(&header, report.rows.iter().map(row));
            output::line(table.trim_end())?;
            if !report.is_complete {
                let from = &report.from;
                output::line(format!(
                    "there are too many runs: only those since {from} are counted"
                ))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

const HEADER: [&str; 12] = [
    "SCHEDULE",
    "QUEUE",
    "RUNS",
    "OPEN",
    "FAILED",
    "TIMED OUT",
    "SKIPPED",
    "LATE P95",
    "TOOK P50",
    "P95",
    "MAX",
    "SLOWEST",
];

fn row(row: &ReportRowJson) -> Vec<String> {
    let counts = [row.runs, row.open, row.failed, row.timed_out, row.skipped];
    let of = |spread: Option<SpreadJson>, figure: fn(SpreadJson) -> u64| {
        spread.map_or_else(|| "-".to_owned(), |spread| output::millis(figure(spread)))
    };
    let queue = match &row.source {
        Some(source) => format!("{} ({source})", row.queue),
        None => row.queue.clone(),
    };
    let schedule = row.schedule.as_deref().unwrap_or("-").to_owned();
    let times = [
        of(row.late, |late| late.p95_ms),
        of(row.took, |took| took.p50_ms),
        of(row.took, |took| took.p95_ms),
        of(row.took, |took| took.max_ms),
    ];
    let mut cells: Vec<String> = row.day.iter().cloned().collect();
    cells.extend([schedule, queue]);
    cells.extend(counts.map(|count| count.to_string()));
    cells.extend(times);
    cells.push(row.slowest.clone().unwrap_or_default());
    cells
}
