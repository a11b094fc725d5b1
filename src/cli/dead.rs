//! `ganger dead`: reads dead letters, sends them back, drops them.

#[cfg_attr(not(feature = "admin"), path = "dead/no_jobs.rs")]
mod background;
mod chosen;
mod print;
mod sources;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bytes::Bytes;
use clap::Subcommand;
use miette::{IntoDiagnostic, WrapErr, bail};
use serde_json::json;

use super::backend::{Address, Configured};
use super::common::{CommandResult, ConfigFile, Format, Output};
use super::output;
use super::usage::wrong;
use background::Background;
use chosen::{Chosen, DeadLetterFilter, Scope};
use ganger_queue::client::shown::DeadLetterJson;
use ganger_queue::client::{Client, DeadFilter, Halted, Listed, Page, RetryTarget};
use ganger_queue::dead_letter::{DeadLetter, Group, Groups};
use print::Print;
use sources::{Sources, only_source};

#[derive(Debug, Subcommand)]
pub(super) enum DeadCommand {
    /// List dead letters, grouped by reason
    List {
        #[command(flatten)]
        scope: Scope,
        #[command(flatten)]
        narrowing: DeadLetterFilter,
        #[command(flatten)]
        part: Part,
        #[command(flatten)]
        output: Output,
    },
    /// Show one dead letter in full
    Show {
        #[command(flatten)]
        scope: Scope,
        /// The id of the dead letter, as `list` shows it
        id: String,
        #[command(flatten)]
        output: Output,
    },
    /// Send dead letters back to the queue they came from, with a clean count
    Retry {
        #[command(flatten)]
        chosen: Chosen,
        /// Send them to this queue instead; brokers only. Needed where the dead letter names a queue that
        /// none of its pools reads
        #[arg(long, value_name = "QUEUE")]
        to: Option<String>,
        /// Send this body instead: a file, or stdin with `-`. For one dead letter only
        #[arg(long, value_name = "FILE", requires = "ids")]
        body: Option<PathBuf>,
        #[command(flatten)]
        background: Background,
        #[command(flatten)]
        output: Output,
    },
    /// Delete dead letters; on a terminal, ask first unless each is named by its id
    Drop {
        #[command(flatten)]
        chosen: Chosen,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        background: Background,
        #[command(flatten)]
        output: Output,
    },
    /// List the running daemon's jobs, which `--background` starts
    Jobs {
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
    /// Cancel a job; the dead letters that it has not changed yet stay
    Cancel {
        /// The id of the job, as `jobs` shows it
        job: String,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
}

/// Part of a list, and amount of detail per dead letter.
#[derive(Debug, clap::Args)]
pub(super) struct Part {
    /// Maximum number of dead letters of each source
    #[arg(long, default_value_t = 1000, value_name = "N")]
    limit: usize,
    /// Only dead letters after this id, the last one of the list before. On RabbitMQ, where each list reads
    /// the whole queue, dead letters that arrive meanwhile may be missed: use one list of all
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// Show each dead letter in full, with its body, as `show` does; JSON always does
    #[arg(long)]
    full: bool,
    /// Count dead letters by error, most frequent first, instead of showing each
    #[arg(long, conflicts_with_all = ["limit", "after", "full"])]
    by_error: bool,
}

pub(super) fn run(command: DeadCommand) -> CommandResult {
    match command {
        DeadCommand::List {
            scope,
            narrowing,
            part,
            output,
        } => {
            let filter = narrowing.filter(&scope);
            match part.by_error {
                true => count(&scope, filter, output.format),
                false => list(&scope, filter, part, output.format),
            }
        }
        DeadCommand::Show { scope, id, output } => show(&scope, &id, output.format),
        DeadCommand::Retry {
            chosen,
            to,
            body,
            background,
            output,
        } => {
            if background.is_wanted() {
                if to.is_some() {
                    return Err(wrong("--to is not supported with --background"));
                }
                return background.start("retry", &chosen, output.format);
            }
            let body = body.as_deref().map(read_body).transpose()?;
            retry(&chosen, &RetryTarget { body, to }, output.format)
        }
        DeadCommand::Drop {
            chosen,
            yes,
            background,
            output,
        } => {
            let mut sources = chosen.open()?;
            if !yes && !chosen.dry_run && !chosen.is_confirmed(&mut sources)? {
                bail!("nothing was dropped");
            }
            if background.is_wanted() {
                return background.start("drop", &chosen, output.format);
            }
            change(
                (&chosen, sources),
                "dropped",
                output.format,
                &Cell::new(0),
                Client::dead_drop,
            )
        }
        DeadCommand::Jobs { address, output } => background::list(&address, output.format),
        DeadCommand::Cancel {
            job,
            address,
            output,
        } => background::cancel(&address, &job, output.format),
    }
}

fn list(scope: &Scope, filter: DeadFilter, part: Part, format: Format) -> CommandResult {
    let mut sources = scope.open()?;
    let several = sources.are_several();
    if part.after.is_some() && several {
        return Err(wrong(
            "--after requires a single source: name it with --source",
        ));
    }
    let page = Page {
        filter,
        after: part.after,
        limit: part.limit,
    };
    let mut print = Print::new(format, part.full, several);
    let mut last: BTreeMap<String, String> = BTreeMap::new();
    let mut printed = Ok(ControlFlow::Continue(()));
    let ends = sources.read(&page, |source, letter| {
        last.insert(source.to_owned(), letter.id.clone());
        printed = print.letter(source, &letter);
        *printed.as_ref().unwrap_or(&ControlFlow::Break(()))
    });
    if printed?.is_break() {
        return Ok(ExitCode::SUCCESS);
    }
    if let (Some(after), [(_, Listed::Lost)]) = (&page.after, &*ends) {
        bail!(
            "there is no dead letter {after} (any more): omit --after, or name another dead letter"
        );
    }
    if print.is_empty() {
        // Not even an empty list, if it is empty for what went wrong.
        sources.end()?;
        sources.found_none()?;
    }
    let more = ends.into_iter().filter(|(_, end)| *end == Listed::More);
    let more: Vec<String> = more.map(|(source, _)| source).collect();
    print.end(more.is_empty())?;
    for source in more {
        let way = last
            .get(&source)
            .map(|id| next_page_hint(&source, id, several));
        output::note(format!(
            "there are more than {}{}",
            page.limit,
            way.unwrap_or_default()
        ));
    }
    sources.end()?;
    Ok(ExitCode::SUCCESS)
}

/// Counts all dead letters, of each source separately.
fn count(scope: &Scope, filter: DeadFilter, format: Format) -> CommandResult {
    let mut sources = scope.open()?;
    let mut counted: BTreeMap<String, Groups> = BTreeMap::new();
    sources.read(&Page::all(filter), |source, letter| {
        let groups = counted.entry(source.to_owned()).or_default();
        groups.add(letter);
        ControlFlow::Continue(())
    });
    if counted.is_empty() {
        // Nothing is no answer, if it is nothing for what went wrong.
        sources.end()?;
        sources.found_none()?;
    }
    let left_out: u64 = counted.values().map(Groups::left_out).sum();
    let groups: Vec<(String, Group)> = counted
        .into_iter()
        .flat_map(|(source, groups)| {
            let groups = groups.largest_first().into_iter();
            groups.map(move |group| (source.clone(), group))
        })
        .collect();
    print::groups(groups, format, sources.are_several())?;
    if left_out > 0 {
        output::note(format!(
            "{left_out} more dead letters have other, rarer errors"
        ));
    }
    sources.end()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a hint how to list the dead letters after this one.
fn next_page_hint(source: &str, id: &str, several: bool) -> String {
    let id = match id.contains(|c: char| !c.is_ascii_alphanumeric() && c != '-') {
        // Others may have made it.
        true => format!("'{}'", id.replace('\'', "'\\''")),
        false => id.to_owned(),
    };
    match several {
        true => format!(" in `{source}`: the next with --source {source} --after {id}"),
        false => format!(": the next with --after {id}"),
    }
}

/// Returns the dead letter with that id and its source's name. Changes nothing.
pub(super) fn find(
    config: &ConfigFile,
    source: Option<&str>,
    id: &str,
) -> miette::Result<Option<(String, DeadLetter)>> {
    let backend = Configured(Box::new(config.load()?));
    let mut sources = Sources::open(&backend, source, None)?;
    let found = only(&mut sources, id, DeadFilter::default())?;
    sources.end()?;
    Ok(found)
}

/// Returns the dead letter with that id; none if there is none.
fn only(
    sources: &mut Sources,
    id: &str,
    filter: DeadFilter,
) -> miette::Result<Option<(String, DeadLetter)>> {
    let mut found = sources.find(DeadFilter {
        ids: Some(BTreeSet::from([id.to_owned()])),
        ..filter
    });
    let places: Vec<_> = found
        .iter()
        .map(|(source, letter)| (source.clone(), letter.id.clone()))
        .collect();
    only_source(&places, id)?;
    Ok(found.pop())
}

fn show(scope: &Scope, id: &str, format: Format) -> CommandResult {
    let mut sources = scope.open()?;
    let Some((source, letter)) = only(&mut sources, id, scope.filter())? else {
        sources.end()?;
        sources.found_none()?;
        bail!("there is no dead letter {id}");
    };
    match format {
        Format::Json => output::json(&DeadLetterJson::new(&source, &letter))?,
        Format::Text => output::bytes(print::as_text(&source, &letter).as_bytes())?,
    }
    sources.end()?;
    Ok(ExitCode::SUCCESS)
}

fn retry(chosen: &Chosen, way: &RetryTarget, format: Format) -> CommandResult {
    if way.body.is_some() && chosen.ids.len() != 1 {
        let named = chosen.ids.len();
        return Err(wrong(format!(
            "--body is for one dead letter; {named} were named"
        )));
    }
    let held = Cell::new(0);
    let retry = |client: &mut Client, filter: &DeadFilter| {
        let done = client.dead_retry(filter, way)?;
        held.set(held.get() + done.held);
        Ok(done.retried)
    };
    change((chosen, chosen.open()?), "retried", format, &held, retry)
}

fn read_body(path: &Path) -> miette::Result<Bytes> {
    if path == Path::new("-") {
        let mut body = Vec::new();
        std::io::stdin()
            .lock()
            .read_to_end(&mut body)
            .into_diagnostic()?;
        return Ok(body.into());
    }
    fs::read(path)
        .map(Bytes::from)
        .into_diagnostic()
        .wrap_err_with(|| path.display().to_string())
}

/// Carries out the change and prints, under the name `what`, the number of dead letters changed and the
/// number that exist and could not be changed.
fn change(
    (chosen, mut sources): (&Chosen, Sources),
    what: &str,
    format: Format,
    held: &Cell<usize>,
    change: impl FnMut(&mut Client, &DeadFilter) -> Result<usize, Halted>,
) -> CommandResult {
    let filter = chosen.filter();
    if chosen.dry_run {
        return chosen.would_be(&mut sources, what, format);
    }
    let wanted = filter.ids.as_ref().map_or(0, BTreeSet::len);
    let changed = sources.change(&filter, change)?;
    let complete = sources.end();
    complete.wrap_err_with(|| format!("{what} {changed} before that"))?;
    if changed == 0 {
        sources.found_none()?;
    }
    let stay = match held.get() {
        0 => String::new(),
        held => format!("; {held} stay: another message has their unique key"),
    };
    match wanted.saturating_sub(changed) {
        0 => {}
        missing if missing <= held.get() => bail!("{what} {changed} of {wanted}{stay}"),
        _ => bail!("{what} {changed} of {wanted}: the others do not exist (any more){stay}"),
    }
    match (format, held.get()) {
        (Format::Json, 0) => output::json(&json!({ what: changed }))?,
        (Format::Json, held) => output::json(&json!({ what: changed, "held": held }))?,
        (Format::Text, _) => output::line(format!("{what} {changed}{stay}"))?,
    }
    Ok(ExitCode::SUCCESS)
}
