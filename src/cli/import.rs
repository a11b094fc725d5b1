//! `ganger schedule import`: turns a crontab, or the jobs of Milvaion, into a configuration.

mod crontab;
mod milvaion;
mod text;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use jiff::Timestamp;
use miette::bail;

use super::common::CommandResult;
use super::output;
use super::usage::wrong;
use ganger_core::foreign;
use ganger_schedule::crontab::{BadLine, Form, read};
use ganger_schedule::milvaion::{Export, FileNote};
use ganger_schedule::zone::Zones;

/// Longest crontab, in bytes.
const CRONTAB_MAX: u64 = 1 << 20;
/// Longest file in JSON, in bytes: that of some hundred thousand jobs.
const JSON_MAX: u64 = 256 << 20;

#[derive(Debug, clap::Args)]
pub(super) struct ImportArgs {
    /// A crontab, or the jobs of Milvaion as its API returns them in JSON: a file, or stdin with `-`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The crontab has the system's form, in which a user stands before the command, as in /etc/crontab
    #[arg(long)]
    system: bool,
    /// Time zone of a crontab's lines that CRON_TZ gives none; else this machine's, as for cron
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// Program that does the work of Milvaion's jobs, with its arguments; else a program of each job's class
    #[arg(last = true, value_name = "WORKER")]
    worker: Vec<String>,
}

pub(super) fn run(args: &ImportArgs) -> CommandResult {
    let text = match args.file.as_os_str() == "-" {
        true => foreign::text(std::io::stdin(), JSON_MAX),
        false => File::open(&args.file).and_then(|file| foreign::text(file, JSON_MAX)),
    };
    let name = args.file.display();
    let text = text.map_err(|error| miette::miette!("{name}: {error}"))?;
    // No line of a crontab begins with one of these.
    match text.trim_start().starts_with(['{', '[']) {
        true => jobs_of_milvaion(args, &text),
        false => lines_of_cron(args, &text),
    }
}

fn lines_of_cron(args: &ImportArgs, text: &str) -> CommandResult {
    let name = args.file.display();
    if text.len() as u64 > CRONTAB_MAX {
        bail!(
            "{name}: a crontab has at most {CRONTAB_MAX} bytes, and Milvaion's JSON begins with `{{` or `[`"
        );
    }
    if !args.worker.is_empty() {
        return Err(wrong(
            "a worker is for Milvaion's jobs: those of a crontab are programs themselves",
        ));
    }
    let zones = Zones::load();
    let form = match args.system {
        true => Form::System,
        false => Form::User,
    };
    let (jobs, bad) = read(text, form, &zones);
    let zone = match &args.zone {
        Some(zone) => zone.clone(),
        None => system_zone().ok_or_else(|| {
            wrong("the time zone of this machine is not known by name: name it with --zone")
        })?,
    };
    zones
        .get(&zone)
        .map_err(|problem| wrong(problem.under("--zone")))?;
    for BadLine { line, problem } in &bad {
        tell(&args.file, &line.to_string(), problem);
    }
    if jobs.is_empty() && bad.is_empty() {
        return Err(wrong(format!("{name} has no jobs")));
    }
    output::bytes(crontab::configuration(&jobs, &zone, crontab::home_of).as_bytes())?;
    if !bad.is_empty() {
        bail!(
            "{} of {} lines with jobs are not taken over",
            bad.len(),
            bad.len() + jobs.len()
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn jobs_of_milvaion(args: &ImportArgs, text: &str) -> CommandResult {
    let name = args.file.display();
    if args.system || args.zone.is_some() {
        let why = "--system and --zone are for crontabs: Milvaion's times are UTC; set `zone` in the output";
        return Err(wrong(why));
    }
    let read = ganger_schedule::milvaion::read(text, Timestamp::now(), &Zones::load());
    let place = |note: &FileNote| format!("{}:{}", note.place.line, note.place.column);
    let Export {
        jobs,
        bad,
        remarks,
        absent,
    } = read.map_err(|note| {
        let problem = note.problem.to_string();
        miette::miette!("{name}:{}: {}", place(&note), foreign::line(&problem))
    })?;
    let schedules = milvaion::schedules(&jobs);
    let of_jobs = schedules.iter().flat_map(milvaion::Schedule::notes);
    let of_jobs: Vec<FileNote> = of_jobs.collect();
    let mut notes: Vec<&FileNote> = bad.iter().chain(&remarks).chain(&of_jobs).collect();
    notes.sort_by_key(|note| (note.place.line, note.place.column));
    for note in notes {
        tell(&args.file, &place(note), &note.problem);
    }
    if jobs.is_empty() && bad.is_empty() {
        return Err(wrong(format!("{name} has no jobs")));
    }
    output::bytes(milvaion::configuration(&schedules, &args.worker).as_bytes())?;
    if absent > 0 {
        output::note(format!(
            "{name}: Milvaion has {absent} more jobs, on further pages: ask for all with `rowCount`"
        ));
    }
    let lost = bad.len() as u64 + absent;
    if lost > 0 {
        let all = lost + jobs.len() as u64;
        bail!("{lost} of {all} jobs are not taken over");
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what is not taken over, and the remedy.
fn tell(file: &Path, place: &str, problem: impl std::fmt::Display) {
    let problem = problem.to_string();
    let problem = foreign::line(&problem);
    output::note(format!("{}:{place}: {problem}", file.display()));
}

/// Returns the name of this machine's time zone, by the link that systems keep.
fn system_zone() -> Option<String> {
    let link = std::fs::canonicalize("/etc/localtime").ok()?;
    let text = link.to_str()?;
    let (_, name) = text.split_once("/zoneinfo/")?;
    Some(name.to_owned())
}
