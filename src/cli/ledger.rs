//! `ganger schedule` and `ganger occurrence`, as far as they are about the ledger: what is in it, and what
//! operators do to it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::Timestamp;
use miette::bail;
use serde_json::{Value as Json, json};

use super::backend::{Address, Site, ledger, refusal};
use super::common::{CommandResult, Format, Output, given_range, read_body};
use super::control::{self, ControlCommand};
use super::usage::wrong;
use super::{occurrence_log, output};
use ganger_core::{foreign, shell};
use ganger_queue::ledger::explain::{self, ExplainedSchedule};
use ganger_queue::ledger::shown::{
    DeadLetterNameJson, OccurrenceDetailsJson, OccurrenceJson, RunWorkerJson, ScheduleDetailsJson,
    UpcomingJson,
};
use ganger_queue::ledger::{
    LedgerClient, LedgerError, OccurrenceFilter, RESULTS_MAX, Triggered, UPCOMING_MAX,
    UpcomingRange, all_schedules, definition_of, left_of, overlap, some_occurrences,
};
use ganger_schedule::occurrence::{OccurrenceState, ScheduleState};
use ganger_schedule::spec::Spec;
use ganger_schedule::zone::Zones;

#[derive(Debug, Subcommand)]
pub(super) enum KeptCommand {
    /// List the schedules of the ledger
    List {
        /// Show the states of so many last runs of each, the newest at the right: completed `.`, failed `F`, timed out
        /// `T`, cancelled `C`, skipped `s`, open `o`
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=i64::from(RESULTS_MAX)))]
        results: u32,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
    /// List the coming slots of all active schedules, the earliest first
    Upcoming(UpcomingArgs),
    /// Show a schedule: its definition, its state, its last runs
    Show {
        /// The schedule
        name: String,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
    /// Pause a schedule, or with --all every one for every daemon; over restarts, until it is resumed
    Pause {
        #[command(flatten)]
        which: Which,
        /// Reason, which `list` shows
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        address: Address,
    },
    /// Let a schedule go on that is paused, disabled or broken: slots since then are skipped. With --all, end
    /// the pause of all: slots since then are missed ones
    Resume {
        #[command(flatten)]
        which: Which,
        /// Make up for the slots since then, by the schedule's rule for missed ones
        #[arg(long, conflicts_with = "all")]
        make_up: bool,
        #[command(flatten)]
        address: Address,
    },
    /// Send the message of a schedule now, whatever its state
    Trigger {
        /// The schedule
        name: String,
        /// Send this body instead: a file, or stdin with `-`
        #[arg(long, value_name = "FILE")]
        body: Option<PathBuf>,
        /// Reason, which the history of the occurrence shows
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Send it even while another occurrence of the schedule is open
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
    /// Remove a schedule that is not in the configuration; its occurrences stay
    Remove {
        /// The schedule
        name: String,
        #[command(flatten)]
        address: Address,
    },
}

/// Range of coming slots.
#[derive(Debug, clap::Args)]
pub(super) struct UpcomingArgs {
    /// Only slots after this time, such as 2027-01-31 or 2027-01-31T08:00:00, by --zone or in UTC; else after now
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Only slots until this time; else for a day
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// Time zone of the local times, such as Europe/Berlin; else that of each schedule
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// Number of slots
    #[arg(short = 'n', default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(UPCOMING_MAX)))]
    count: u32,
    #[command(flatten)]
    address: Address,
    #[command(flatten)]
    output: Output,
}

/// One schedule, or all.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct Which {
    /// The schedule
    name: Option<String>,
    /// All schedules of the ledger
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum OccurrenceCommand {
    /// List occurrences, the newest first
    List {
        /// Only those of this schedule
        #[arg(long, value_name = "NAME")]
        schedule: Option<String>,
        /// Only those in this state
        #[arg(long, value_name = "STATE", value_parser = state())]
        state: Option<OccurrenceState>,
        /// Only failures and timeouts that nobody has resolved
        #[arg(long, conflicts_with = "state")]
        unresolved: bool,
        /// Only those whose last error has this fingerprint
        #[arg(long, value_name = "DIGITS")]
        fingerprint: Option<String>,
        /// Only those whose messages have this correlation id
        #[arg(long, value_name = "ID")]
        correlation_id: Option<String>,
        /// Only those older than this one: the last one of the list before
        #[arg(long, value_name = "ID")]
        after: Option<String>,
        /// Maximum number of occurrences
        #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
    #[command(flatten)]
    Control(ControlCommand),
    /// Show an occurrence and the changes of its state
    Show {
        /// The id of the occurrence, as `list` shows it; also that of its message
        id: String,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
    /// Show the log of an occurrence: what its worker printed, and its LOG frames
    Log {
        /// The id of the occurrence, as `list` shows it; also that of its message
        id: String,
        /// Show further lines until the occurrence has ended. With `-o json` each is an object of its own
        #[arg(long, short)]
        follow: bool,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
}

fn state() -> impl TypedValueParser<Value = OccurrenceState> {
    PossibleValuesParser::new(OccurrenceState::WORDS)
        .try_map(|word| word.parse::<OccurrenceState>())
}

pub(super) fn run(command: &KeptCommand) -> CommandResult {
    match command {
        KeptCommand::List {
            results,
            address,
            output,
        } => list(&mut *ledger(address)?, *results, output.format),
        KeptCommand::Upcoming(args) => upcoming(args),
        KeptCommand::Show {
            name,
            address,
            output,
        } => show(&mut *ledger(address)?, name, output.format),
        KeptCommand::Pause {
            which,
            reason,
            address,
        } => {
            let mut ledger = ledger(address)?;
            let reason = reason.as_deref();
            let paused = match &which.name {
                Some(name) => ledger.pause(name, reason),
                None => ledger.set_hold(Some(reason.unwrap_or("paused by an operator"))),
            };
            paused.map_err(refusal)?;
            done("paused", which)
        }
        KeptCommand::Resume {
            which,
            make_up,
            address,
        } => resume(which, *make_up, &mut *ledger(address)?),
        KeptCommand::Trigger {
            name,
            body,
            reason,
            force,
            address,
            output,
        } => {
            let body = body.as_ref().map(read_body).transpose()?;
            let mut ledger = ledger(address)?;
            let (body, reason) = (body.as_deref(), reason.as_deref());
            let triggered = ledger.trigger(name, body, reason, *force);
            match triggered.map_err(refusal)? {
                Triggered::Overlaps => bail!(overlap(name)),
                Triggered::Sent(id) => match output.format {
                    Format::Json => output::json(&json!({ "occurrence": id }))?,
                    Format::Text => output::line(id)?,
                },
            }
            Ok(ExitCode::SUCCESS)
        }
        KeptCommand::Remove { name, address } => {
            let site = Site::at(address)?;
            // One that a configuration has left behind may be removed.
            let is_configured = site.configured(name).is_some();
            let removed = site.ledger()?.remove(name, !is_configured, None);
            removed.map_err(refusal)?;
            output::line(format!("removed {name}"))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

pub(super) fn occurrences(command: &OccurrenceCommand) -> CommandResult {
    match command {
        OccurrenceCommand::List {
            schedule,
            state,
            unresolved,
            fingerprint,
            correlation_id,
            after,
            limit,
            address,
            output,
        } => {
            let filter = OccurrenceFilter {
                schedule: schedule.clone(),
                state: *state,
                is_unresolved: *unresolved,
                fingerprint: fingerprint.clone(),
                correlation_id: correlation_id.clone(),
                before: after.clone(),
                limit: *limit,
            };
            let found = some_occurrences(&mut *ledger(address)?, &filter);
            let (found, has_more) = found.map_err(refusal)?;
            match output.format {
                Format::Json => output::json(&found)?,
                Format::Text if found.is_empty() => output::line("no occurrences")?,
                Format::Text => output::line(table_of(&found).trim_end())?,
            }
            if let Some(last) = found.last().filter(|_| has_more) {
                output::note(format!(
                    "there are more than {limit}: the next with --after {}",
                    last.id
                ));
            }
            Ok(ExitCode::SUCCESS)
        }
        OccurrenceCommand::Control(command) => control::run(command),
        OccurrenceCommand::Show {
            id,
            address,
            output,
        } => {
            let found = ledger(address)?.occurrence(id).map_err(refusal)?;
            let Some(found) = found else {
                bail!("there is no occurrence {}", foreign::line(id));
            };
            match output.format {
                Format::Json => output::json(&found)?,
                Format::Text => output::bytes(in_full(&found).as_bytes())?,
            }
            Ok(ExitCode::SUCCESS)
        }
        OccurrenceCommand::Log {
            id,
            follow,
            address,
            output,
        } => occurrence_log::print(&mut *ledger(address)?, id, *follow, output.format),
    }
}

/// Returns the spec of a schedule, with the limit that its runs have left: of the ledger, or of the configuration if that
/// is not entered yet.
pub(super) fn spec(address: &Address, name: &str, zones: &Zones) -> miette::Result<Spec> {
    let site = Site::at(address)?;
    match (site.ledger()?.schedule(name), site.configured(name)) {
        (Ok(shown), _) => {
            let schedule = definition_of(&shown, zones).map_err(refusal)?;
            Ok(left_of(&shown, &schedule.spec))
        }
        (Err(LedgerError::NoSchedule(_)), Some(configured)) => Ok(configured.spec.clone()),
        (Err(error), _) => Err(refusal(error)),
    }
}

/// Returns a schedule in words: of the ledger, or of the configuration if that is not entered yet.
pub(super) fn explained(
    address: &Address,
    name: &str,
    range: (Option<&str>, u32),
) -> miette::Result<ExplainedSchedule> {
    let site = Site::at(address)?;
    let shown = match (site.ledger()?.schedule(name), site.configured(name)) {
        (Ok(shown), _) => shown,
        (Err(LedgerError::NoSchedule(_)), Some(configured)) => explain::not_entered(configured),
        (Err(error), _) => return Err(refusal(error)),
    };
    explain::explained(&shown, range, &Zones::load(), Timestamp::now()).map_err(refusal)
}

fn resume(which: &Which, make_up: bool, ledger: &mut dyn LedgerClient) -> CommandResult {
    let Some(name) = &which.name else {
        ledger.set_hold(None).map_err(refusal)?;
        return done("resumed", which);
    };
    ledger.resume(name, make_up).map_err(refusal)?;
    // It is resumed, whether or not it can be shown.
    let shown = ledger.schedule(name).ok();
    let state = shown.map(|shown| shown.schedule.state);
    output::line(resumed_as(name, &state.unwrap_or_default()))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns what has become of a schedule that was to be resumed.
fn resumed_as(name: &str, state: &str) -> String {
    match state == ScheduleState::Ended.as_str() {
        true => format!(
            "{name} has ended and has no further slot: change its times, its end or its limit to have it run again"
        ),
        false => format!("resumed {name}"),
    }
}

fn done(what: &str, which: &Which) -> CommandResult {
    let name = which.name.as_deref().unwrap_or("all schedules");
    output::line(format!("{what} {name}"))?;
    Ok(ExitCode::SUCCESS)
}

fn list(ledger: &mut dyn LedgerClient, results: u32, format: Format) -> CommandResult {
    let all = all_schedules(ledger, results).map_err(refusal)?;
    if format == Format::Json {
        output::json(&all)?;
        return Ok(ExitCode::SUCCESS);
    }
    let hold = ledger.hold().map_err(refusal)?;
    if all.is_empty() {
        output::line("no schedules")?;
    } else {
        let has_results = results > 0;
        let lines = all.into_iter().map(|one| {
            let next_slot = one.next_slot.filter(|_| one.state == "active");
            let reason = one.state_reason.or(one.overdue).unwrap_or_default();
            let mut cells = vec![
                one.name,
                one.state,
                next_slot.unwrap_or_default(),
                one.last_state.unwrap_or_default(),
            ];
            cells.extend(has_results.then(|| characters(&one.results)));
            cells.extend([one.origin, foreign::line(&reason).into_owned()]);
            cells
        });
        let mut header = vec!["NAME", "STATE", "NEXT SLOT", "LAST RUN"];
        header.extend(has_results.then_some("RESULTS"));
        header.extend(["ORIGIN", "REASON"]);
        output::line(output::table(&header, lines).trim_end())?;
    }
    if let Some(reason) = hold {
        let reason = foreign::line(&reason).into_owned();
        output::note(format!(
            "all schedules are paused ({reason}): `ganger schedule resume --all` ends it"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a character for each state, the newest last.
fn characters(results: &[String]) -> String {
    let character = |state: &String| match state.as_str() {
        "completed" => '.',
        "failed" => 'F',
        "timed_out" => 'T',
        "cancelled" => 'C',
        "skipped" => 's',
        _ => 'o',
    };
    results.iter().rev().map(character).collect()
}

fn show(ledger: &mut dyn LedgerClient, name: &str, format: Format) -> CommandResult {
    let shown = ledger.schedule(name).map_err(refusal)?;
    if format == Format::Json {
        output::json(&shown)?;
        return Ok(ExitCode::SUCCESS);
    }
    let ScheduleDetailsJson {
        schedule,
        runs,
        definition,
        skips,
        occurrences,
        ..
    } = shown;
    // The next one that is dispatched: none while it does not go on.
    let next_slot = schedule.next_slot.filter(|_| schedule.state == "active");
    let mut lines = vec![
        ("name", schedule.name),
        ("state", schedule.state),
        ("reason", schedule.state_reason.unwrap_or_default()),
        ("overdue", schedule.overdue.unwrap_or_default()),
        ("next slot", next_slot.unwrap_or_default()),
        ("skipped", skips.join(", ")),
        ("origin", schedule.origin),
        ("version", schedule.version.to_string()),
        ("runs", runs.to_string()),
    ];
    if let Json::Object(definition) = &definition {
        for (key, value) in definition {
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            lines.push((key, value));
        }
    }
    for (label, text) in lines.iter().filter(|(_, text)| !text.is_empty()) {
        output::line(output::labelled(label, text))?;
    }
    if !occurrences.is_empty() {
        output::line(format!("\n{}", table_of(&occurrences).trim_end()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn upcoming(args: &UpcomingArgs) -> CommandResult {
    let range = upcoming_range(args, Timestamp::now())?;
    let mut slots = ledger(&args.address)?.upcoming(&range).map_err(refusal)?;
    let has_more = slots.len() > args.count as usize;
    slots.truncate(args.count as usize);
    let rows = slots.iter().map(|UpcomingJson { schedule, slot }| {
        [&slot.slot, schedule, &slot.local, &slot.note]
            .map(Clone::clone)
            .to_vec()
    });
    match args.output.format {
        Format::Json => output::json(&slots)?,
        Format::Text if slots.is_empty() => output::line("no slots")?,
        Format::Text => {
            let table = output::table(&["SLOT", "SCHEDULE", "LOCAL", "NOTE"], rows);
            output::line(table.trim_end())?;
        }
    }
    if has_more {
        output::note(format!("there are more than {}: raise -n", args.count));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the range that is asked for, with a slot more to tell whether there are more.
fn upcoming_range(args: &UpcomingArgs, now: Timestamp) -> miette::Result<UpcomingRange> {
    let zones = Zones::load();
    let zone = args.zone.as_deref().map(|name| {
        let found = zones.get(name);
        found.map_err(|problem| wrong(problem.under("--zone")))
    });
    let zone = zone.transpose()?;
    let by = zone.clone().unwrap_or_default();
    let (from, to) = given_range((args.from.as_deref(), args.to.as_deref()), &by, &zones)?;
    match to {
        Some(to) if from.is_none() && to < now => Err(wrong(format!(
            "--to must not be in the past, {to}, unless --from is before it"
        ))),
        _ => Ok(UpcomingRange {
            from,
            to,
            zone,
            each: None,
            limit: args.count.saturating_add(1).min(UPCOMING_MAX),
        }),
    }
}

fn took(one: &OccurrenceJson) -> String {
    one.duration_ms.map(output::millis).unwrap_or_default()
}

fn log_of(one: &OccurrenceJson) -> String {
    match (one.log_lines, one.log_dropped) {
        (0, 0) => String::new(),
        (1, 0) => "1 line".to_owned(),
        (lines, 0) => format!("{lines} lines"),
        (lines, dropped) => format!("{lines} lines, {dropped} dropped"),
    }
}

/// Returns the command that lists a dead letter.
fn find(letter: &DeadLetterNameJson) -> String {
    let [source, id] = [&letter.source, &letter.message_id].map(|text| shell::word(text));
    format!("ganger dead list --source {source} --message-id {id}")
}

fn worker(one: &RunWorkerJson) -> String {
    let RunWorkerJson {
        pool,
        daemon,
        worker,
        pid,
    } = one;
    format!("{worker} of pool {pool} (pid {pid}), daemon {daemon}")
}

fn table_of(occurrences: &[OccurrenceJson]) -> String {
    let rows = occurrences.iter().map(|one| {
        let missed = match one.missed {
            0 => String::new(),
            missed => format!("+{missed} slots"),
        };
        let noted = one.cancel_request.as_ref().or(one.resolved.as_ref());
        // The error of an earlier attempt is no note on a success.
        let error = one.error.as_ref().filter(|_| one.state != "completed");
        let why = noted.or(error).or(one.reason.as_ref());
        let why = why.map(|why| output::shortened(why));
        let why = [why.unwrap_or_default(), missed].join(" ");
        vec![
            one.id.clone(),
            one.schedule.clone().unwrap_or_default(),
            one.slot.clone().unwrap_or_default(),
            one.state.clone(),
            one.attempt.to_string(),
            took(one),
            why.trim().to_owned(),
        ]
    });
    let header = ["ID", "SCHEDULE", "SLOT", "STATE", "ATTEMPT", "TOOK", "NOTE"];
    output::table(&header, rows)
}

fn in_full(shown: &OccurrenceDetailsJson) -> String {
    let one = &shown.occurrence;
    let given = |text: &Option<String>| text.clone().unwrap_or_default();
    let not_its_own = |id: &Option<String>| id.clone().filter(|id| *id != one.id);
    let message_id = not_its_own(&one.message_id);
    let correlation_id = not_its_own(&one.correlation_id);
    let number = |number: Option<i64>| number.map(|number| number.to_string());
    let schedule = one.schedule.as_ref();
    let schedule = schedule.map(|name| format!("{name} (version {})", one.version));
    let lines = [
        ("id", one.id.clone()),
        ("schedule", schedule.unwrap_or_default()),
        ("slot", given(&one.slot)),
        ("last slot", given(&one.last_slot)),
        ("message id", message_id.unwrap_or_default()),
        ("correlation", correlation_id.unwrap_or_default()),
        ("source", given(&one.source)),
        ("queue", one.queue.clone()),
        ("state", one.state.clone()),
        ("reason", given(&one.reason)),
        ("attempt", one.attempt.to_string()),
        ("queued", one.queued_at.clone()),
        ("started", given(&one.started_at)),
        ("ended", given(&one.ended_at)),
        ("took", took(one)),
        ("result", given(&one.result)),
        ("error", given(&one.error)),
        ("fingerprint", given(&one.fingerprint)),
        ("exit code", number(one.exit_code).unwrap_or_default()),
        ("signal", number(one.signal).unwrap_or_default()),
        (
            "dead letter",
            one.dead_letter.as_ref().map(find).unwrap_or_default(),
        ),
        ("cancelling", given(&one.cancel_request)),
        ("resolved", given(&one.resolved)),
        ("progress", given(&one.progress)),
        ("heard", given(&one.heard_at)),
        ("log", log_of(one)),
        (
            "worker",
            one.worker.as_ref().map(worker).unwrap_or_default(),
        ),
        ("trace", given(&one.trace_id)),
    ];
    let mut text = String::new();
    for (label, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        text += &format!("{}\n", output::labelled(label, value));
    }
    if shown.events.is_empty() {
        return text;
    }
    text += "\n";
    let rows = shown.events.iter().map(|event| {
        let note = event.note.as_deref().unwrap_or_default();
        vec![
            event.at.clone(),
            event.from.clone().unwrap_or_default(),
            event.to.clone(),
            event.attempt.to_string(),
            foreign::line(note).into_owned(),
        ]
    });
    text += output::table(&["AT", "FROM", "TO", "ATTEMPT", "NOTE"], rows).trim_end();
    text + "\n"
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;

    fn range(args: &[&str]) -> Result<UpcomingRange, String> {
        let command = UpcomingArgs::augment_args(clap::Command::new("upcoming"));
        let found = command.get_matches_from([&["upcoming"], args].concat());
        let args = UpcomingArgs::from_arg_matches(&found).unwrap();
        let now = "2026-12-01T12:00:00Z".parse().unwrap();
        upcoming_range(&args, now).map_err(|error| error.to_string())
    }

    #[test]
    fn coming_slots_are_of_days_and_one_more_is_looked_for() {
        let zone = ["--zone", "Europe/Berlin", "--from", "2026-12-02"];
        let read = range(&zone).unwrap();
        assert_eq!(read.from.unwrap().to_string(), "2026-12-01T23:00:00Z");
        assert_eq!(read.limit, 21);
        assert_eq!(range(&["-n", "10000"]).unwrap().limit, UPCOMING_MAX);
        for wrong in [
            &["--to", "2026-12-01"][..],
            &["--from", "2026-12-03", "--to", "2026-12-02"],
        ] {
            let told = range(wrong).unwrap_err();
            assert!(told.starts_with("--to must not be"), "{told}");
        }
    }

    #[test]
    fn a_schedule_that_has_ended_is_not_said_to_be_resumed() {
        assert_eq!(resumed_as("s", "active"), "resumed s");
        let told = resumed_as("s", "ended");
        assert!(told.starts_with("s has ended and has no further slot"));
    }

    #[test]
    fn a_long_error_is_cut_in_a_list() {
        let one = serde_json::json!({
            "id": "i", "schedule": "s", "version": 1, "slot": null, "last_slot": null, "queue": "q",
            "state": "failed", "state_code": 3, "reason": null, "attempt": 1, "queued_at": "",
            "started_at": null, "ended_at": null, "duration_ms": 0, "error": "x".repeat(2000),
            "message_id": "i", "missed": 0,
        });
        let one: OccurrenceJson = serde_json::from_value(one).unwrap();
        assert_eq!(took(&one), "0ms");
        let table = table_of(&[one]);
        assert!(table.lines().all(|line| line.len() < 200), "{table}");
    }
}
