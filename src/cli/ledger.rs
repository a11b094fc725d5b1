//! `ganger schedule` and `ganger occurrence`, as far as they are about the ledger: what is in it, and what
//! operators do to it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::Timestamp;
use miette::{IntoDiagnostic, bail};
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::common::{CommandResult, ConfigFile, Format, Output};
use super::output;
use super::usage::wrong;
use ganger_core::foreign;
use ganger_schedule::occurrence::OccurrenceState;
use ganger_schedule::spec::Spec;
use ganger_table::ledger::{
    Ledger, LedgerError, Occurrence, OccurrenceEvent, OccurrenceFilter, ScheduleRow, Triggered,
};

/// Longest body of a trigger, in bytes.
const BODY_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Subcommand)]
pub(super) enum KeptCommand {
    /// List the schedules of the ledger
    List {
        #[command(flatten)]
        config: ConfigFile,
        #[command(flatten)]
        output: Output,
    },
    /// Show a schedule: its definition, its state, its last runs
    Show {
        /// The schedule
        name: String,
        #[command(flatten)]
        config: ConfigFile,
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
        config: ConfigFile,
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
        config: ConfigFile,
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
        config: ConfigFile,
        #[command(flatten)]
        output: Output,
    },
    /// Remove a schedule that is not in the configuration; its occurrences stay
    Remove {
        /// The schedule
        name: String,
        #[command(flatten)]
        config: ConfigFile,
    },
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
        /// Only those older than this one: the last one of the list before
        #[arg(long, value_name = "ID")]
        after: Option<String>,
        /// Maximum number of occurrences
        #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
        #[command(flatten)]
        config: ConfigFile,
        #[command(flatten)]
        output: Output,
    },
    /// Show an occurrence and the changes of its state
    Show {
        /// The id of the occurrence, as `list` shows it; also that of its message
        id: String,
        #[command(flatten)]
        config: ConfigFile,
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
        KeptCommand::List { config, output } => list(&mut open(config)?, output.format),
        KeptCommand::Show {
            name,
            config,
            output,
        } => show(&mut open(config)?, name, output.format),
        KeptCommand::Pause {
            which,
            reason,
            config,
        } => {
            let mut ledger = open(config)?;
            let reason = reason.as_deref();
            match &which.name {
                Some(name) => refused(ledger.pause(name, reason))?,
                None => {
                    let reason = reason.unwrap_or("paused by an operator");
                    ledger.set_hold(Some(reason)).into_diagnostic()?;
                }
            }
            done("paused", which)
        }
        KeptCommand::Resume {
            which,
            make_up,
            config,
        } => {
            let mut ledger = open(config)?;
            match &which.name {
                Some(name) => refused(ledger.resume(name, *make_up))?,
                None => ledger.set_hold(None).into_diagnostic()?,
            }
            done("resumed", which)
        }
        KeptCommand::Trigger {
            name,
            body,
            reason,
            force,
            config,
            output,
        } => {
            let body = body.as_ref().map(read_body).transpose()?;
            let mut ledger = open(config)?;
            let (body, reason) = (body.as_deref(), reason.as_deref());
            match refused(ledger.trigger(name, body, reason, *force))? {
                Triggered::Overlaps => bail!(
                    "an occurrence of schedule `{name}` is open, and it allows one at a time: wait for its \
                     end, or use --force"
                ),
                Triggered::Sent(id) => match output.format {
                    Format::Json => output::json(&json!({ "occurrence": id }))?,
                    Format::Text => output::line(id)?,
                },
            }
            Ok(ExitCode::SUCCESS)
        }
        KeptCommand::Remove { name, config } => {
            let loaded = config.load()?;
            if loaded.schedules.iter().any(|one| one.name() == name) {
                bail!("schedule `{name}` is in the configuration: remove it there");
            }
            refused(open(config)?.remove(name))?;
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
            after,
            limit,
            config,
            output,
        } => {
            let filter = OccurrenceFilter {
                schedule: schedule.clone(),
                state: *state,
                before: after.clone(),
                limit: limit.saturating_add(1),
            };
            let mut ledger = open(config)?;
            let mut found = ledger.occurrences(&filter).into_diagnostic()?;
            if found.is_empty()
                && let Some(name) = schedule
            {
                // A mistyped name is no schedule without occurrences.
                refused(ledger.schedule(name))?;
            }
            let has_more = found.len() > *limit as usize;
            found.truncate(*limit as usize);
            let last = found.last().map(|last| last.id.clone());
            match output.format {
                Format::Json => {
                    let found: Vec<OccurrenceJson> = found.iter().map(OccurrenceJson::of).collect();
                    output::json(&found)?;
                }
                Format::Text if found.is_empty() => output::line("no occurrences")?,
                Format::Text => output::line(table_of(&found).trim_end())?,
            }
            if let Some(last) = last.filter(|_| has_more) {
                output::note(format!(
                    "there are more than {limit}: the next with --after {last}"
                ));
            }
            Ok(ExitCode::SUCCESS)
        }
        OccurrenceCommand::Show { id, config, output } => {
            let found = open(config)?.occurrence(id).into_diagnostic()?;
            let Some((occurrence, events)) = found else {
                bail!("there is no occurrence {}", foreign::line(id));
            };
            match output.format {
                Format::Json => {
                    let mut shown = json_of(&OccurrenceJson::of(&occurrence))?;
                    let events: Vec<Json> = events.iter().map(event).collect();
                    shown["events"] = Json::from(events);
                    output::json(&shown)?;
                }
                Format::Text => output::bytes(in_full(&occurrence, &events).as_bytes())?,
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Returns the spec of a schedule: of the ledger, or of the configuration if that is not entered yet.
pub(super) fn spec(config: &ConfigFile, name: &str) -> miette::Result<Spec> {
    let loaded = config.load()?;
    let configured = loaded.schedules.iter();
    let configured = configured.clone().find(|one| one.name() == name).cloned();
    let Some(ledger) = &loaded.ledger else {
        return Err(no_ledger());
    };
    let mut ledger = Ledger::open(ledger, true).into_diagnostic()?;
    match (ledger.schedule(name), configured) {
        (Ok(row), _) => Ok(refused(ledger.config_of(&row))?.spec.clone()),
        (Err(LedgerError::NoSchedule(_)), Some(configured)) => Ok(configured.spec),
        (Err(error), _) => Err(refusal(error)),
    }
}

fn open(config: &ConfigFile) -> miette::Result<Ledger> {
    let config = config.load()?;
    let ledger = config.ledger.as_ref().ok_or_else(no_ledger)?;
    Ledger::open(ledger, true).into_diagnostic()
}

fn no_ledger() -> miette::Report {
    wrong(
        "the configuration has neither schedules nor a ledger: write [[schedules]], or [ledger] with a source",
    )
}

fn refused<T>(result: Result<T, LedgerError>) -> miette::Result<T> {
    result.map_err(refusal)
}

/// Returns the report of an error: a name that does not exist is a wrong command line.
fn refusal(error: LedgerError) -> miette::Report {
    match error {
        LedgerError::NoSchedule(name) => wrong(format!(
            "there is no schedule `{}`: `ganger schedule list` shows all",
            foreign::line(&name)
        )),
        error @ (LedgerError::Broken(..) | LedgerError::Source(_)) => miette::Report::msg(error),
    }
}

fn done(what: &str, which: &Which) -> CommandResult {
    let name = which.name.as_deref().unwrap_or("all schedules");
    output::line(format!("{what} {name}"))?;
    Ok(ExitCode::SUCCESS)
}

fn read_body(path: &PathBuf) -> miette::Result<String> {
    let text = match path.as_os_str() == "-" {
        true => foreign::text(std::io::stdin(), BODY_BYTES_MAX),
        false => std::fs::File::open(path).and_then(|file| foreign::text(file, BODY_BYTES_MAX)),
    };
    text.map_err(|error| miette::miette!("{}: {error}", path.display()))
}

fn list(ledger: &mut Ledger, format: Format) -> CommandResult {
    let rows = ledger.schedules().into_diagnostic()?;
    let hold = ledger.hold().into_diagnostic()?;
    if format == Format::Json {
        let shown: Vec<Json> = rows.iter().map(|row| schedule(ledger, row)).collect();
        output::json(&shown)?;
        return Ok(ExitCode::SUCCESS);
    }
    if rows.is_empty() {
        output::line("no schedules")?;
    } else {
        let lines = rows.iter().map(|row| {
            let reason = row.state_reason.as_deref().unwrap_or_default();
            vec![
                row.name.clone(),
                row.state.as_str().to_owned(),
                time(row.next_slot),
                row.last_state.map_or("", |state| state.as_str()).to_owned(),
                row.origin.clone(),
                foreign::line(reason).into_owned(),
            ]
        });
        let header = ["NAME", "STATE", "NEXT SLOT", "LAST RUN", "ORIGIN", "REASON"];
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

fn show(ledger: &mut Ledger, name: &str, format: Format) -> CommandResult {
    let row = refused(ledger.schedule(name))?;
    let filter = OccurrenceFilter {
        schedule: Some(name.to_owned()),
        limit: 10,
        ..OccurrenceFilter::default()
    };
    let runs = ledger.occurrences(&filter).into_diagnostic()?;
    let mut shown = schedule(ledger, &row);
    // What SQL has inserted may be no JSON.
    let definition = serde_json::from_str(&row.definition);
    shown["definition"] = definition.unwrap_or_else(|_| Json::from(row.definition.as_str()));
    if format == Format::Json {
        let runs: Vec<OccurrenceJson> = runs.iter().map(OccurrenceJson::of).collect();
        shown["occurrences"] = json_of(&runs)?;
        output::json(&shown)?;
        return Ok(ExitCode::SUCCESS);
    }
    let number = |number: u64| number.to_string();
    let mut lines = vec![
        ("name", row.name.clone()),
        ("state", row.state.as_str().to_owned()),
        ("reason", row.state_reason.clone().unwrap_or_default()),
        ("next slot", time(row.next_slot)),
        ("origin", row.origin.clone()),
        ("version", row.version.to_string()),
        ("runs", number(row.cursor.map_or(0, |cursor| cursor.runs))),
    ];
    if let Json::Object(definition) = &shown["definition"] {
        for (key, value) in definition {
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            lines.push((key, value));
        }
    }
    for (label, text) in lines.iter().filter(|(_, text)| !text.is_empty()) {
        output::line(format!("{label:<12}  {}", foreign::line(text)))?;
    }
    if !runs.is_empty() {
        output::line(format!("\n{}", table_of(&runs).trim_end()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a schedule as JSON.
fn schedule(ledger: &mut Ledger, row: &ScheduleRow) -> Json {
    let tags = ledger.config_of(row).map(|config| config.tags.clone());
    json!({
        "name": row.name,
        "state": row.state.as_str(),
        "state_reason": row.state_reason,
        "next_slot": row.next_slot.map(|slot| slot.to_string()),
        "last_state": row.last_state.map(OccurrenceState::as_str),
        "tags": tags.unwrap_or_default(),
        "origin": row.origin,
        "version": row.version,
    })
}

/// An occurrence as it is shown to programs. Times are RFC 3339 in UTC.
#[derive(Debug, Serialize)]
struct OccurrenceJson {
    id: String,
    schedule: String,
    version: i64,
    slot: Option<String>,
    /// The last of the slots that were skipped together.
    last_slot: Option<String>,
    queue: String,
    state: &'static str,
    state_code: i64,
    reason: Option<String>,
    attempt: u32,
    queued_at: String,
    started_at: Option<String>,
    ended_at: Option<String>,
    /// From the start of the last attempt to its end, in milliseconds.
    duration_ms: Option<u64>,
    error: Option<String>,
    message_id: String,
    missed: u64,
}

impl OccurrenceJson {
    fn of(one: &Occurrence) -> Self {
        let text = |time: Option<Timestamp>| time.map(|time| time.to_string());
        Self {
            id: one.id.clone(),
            schedule: one.schedule.clone(),
            version: one.version,
            slot: text(one.slot),
            last_slot: text(one.last_slot),
            queue: one.queue.clone(),
            state: one.state.as_str(),
            state_code: one.state.code(),
            reason: one.reason.clone(),
            attempt: one.attempt,
            queued_at: one.queued_at.to_string(),
            started_at: text(one.started_at),
            ended_at: text(one.ended_at),
            duration_ms: took(one).and_then(|took| u64::try_from(took.as_millis()).ok()),
            error: one.error.clone(),
            message_id: one.id.clone(),
            missed: one.missed,
        }
    }
}

fn took(one: &Occurrence) -> Option<Duration> {
    let took = one.ended_at?.duration_since(one.started_at?);
    Duration::try_from(took).ok()
}

fn json_of(value: &impl Serialize) -> miette::Result<Json> {
    serde_json::to_value(value).into_diagnostic()
}

fn event(event: &OccurrenceEvent) -> Json {
    json!({
        "at": event.at.to_string(),
        "from": event.from.map(OccurrenceState::as_str),
        "to": event.to.as_str(),
        "attempt": event.attempt,
        "note": event.note,
    })
}

fn table_of(occurrences: &[Occurrence]) -> String {
    let rows = occurrences.iter().map(|one| {
        let missed = match one.missed {
            0 => String::new(),
            missed => format!("+{missed} slots"),
        };
        let why = one.error.as_ref().or(one.reason.as_ref());
        let why = why.map(|why| foreign::line(why).into_owned());
        let why = [why.unwrap_or_default(), missed].join(" ");
        vec![
            one.id.clone(),
            one.schedule.clone(),
            time(one.slot),
            one.state.as_str().to_owned(),
            one.attempt.to_string(),
            took(one)
                .map(|took| format!("{took:.1?}"))
                .unwrap_or_default(),
            why.trim().to_owned(),
        ]
    });
    let header = ["ID", "SCHEDULE", "SLOT", "STATE", "ATTEMPT", "TOOK", "NOTE"];
    output::table(&header, rows)
}

fn in_full(one: &Occurrence, events: &[OccurrenceEvent]) -> String {
    let lines = [
        ("id", one.id.clone()),
        (
            "schedule",
            format!("{} (version {})", one.schedule, one.version),
        ),
        ("slot", time(one.slot)),
        ("last slot", time(one.last_slot)),
        ("queue", one.queue.clone()),
        ("state", one.state.as_str().to_owned()),
        ("reason", one.reason.clone().unwrap_or_default()),
        ("attempt", one.attempt.to_string()),
        ("queued", one.queued_at.to_string()),
        ("started", time(one.started_at)),
        ("ended", time(one.ended_at)),
        (
            "took",
            took(one)
                .map(|took| format!("{took:.1?}"))
                .unwrap_or_default(),
        ),
        ("error", one.error.clone().unwrap_or_default()),
    ];
    let mut text = String::new();
    for (label, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        text += &format!("{label:<12}  {}\n", foreign::line(value));
    }
    text += "\n";
    let rows = events.iter().map(|event| {
        let note = event.note.as_deref().unwrap_or_default();
        vec![
            event.at.to_string(),
            event.from.map_or("", |state| state.as_str()).to_owned(),
            event.to.as_str().to_owned(),
            event.attempt.to_string(),
            foreign::line(note).into_owned(),
        ]
    });
    text += output::table(&["AT", "FROM", "TO", "ATTEMPT", "NOTE"], rows).trim_end();
    text + "\n"
}

fn time(time: Option<Timestamp>) -> String {
    time.map(|time| time.to_string()).unwrap_or_default()
}
