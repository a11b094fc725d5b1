//! `ganger dead`: reads dead letters, sends them back, drops them.

mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bytes::Bytes;
use clap::Subcommand;
use miette::{IntoDiagnostic, WrapErr, bail};
use serde_json::{Map, Value, json};

use super::{CommandResult, ConfigFile, Format, Output, output};
use crate::source::client::{Client, DeadFilter, DeadLetter, Halted};
use sources::{Found, Sources, only_source};

/// A table for people shows this much of a text.
const TEXT_CHARS_MAX: usize = 60;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List dead letters, grouped by reason
    List {
        #[command(flatten)]
        scope: Scope,
        /// At most so many
        #[arg(long, default_value_t = 1000, value_name = "N")]
        limit: usize,
        #[command(flatten)]
        output: Output,
    },
    /// Show one with all that is known of it
    Show {
        #[command(flatten)]
        scope: Scope,
        /// Its id, as `list` shows it
        id: String,
        #[command(flatten)]
        output: Output,
    },
    /// Send dead letters back to the queue that they came from, with a clean count
    Retry {
        #[command(flatten)]
        chosen: Chosen,
        /// Send this body instead: a file, or stdin with `-`. For one letter only
        #[arg(long, value_name = "FILE", conflicts_with = "all")]
        body: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// Delete dead letters
    Drop {
        #[command(flatten)]
        chosen: Chosen,
        #[command(flatten)]
        output: Output,
    },
}

/// Where to look.
#[derive(Debug, clap::Args)]
pub(super) struct Scope {
    /// Only those of this pool
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Only those of this source
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    #[command(flatten)]
    config: ConfigFile,
}

/// Which letters.
#[derive(Debug, clap::Args)]
pub(super) struct Chosen {
    #[command(flatten)]
    scope: Scope,
    /// Their ids, as `list` shows them
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,
    /// All of them
    #[arg(long)]
    all: bool,
}

pub(super) fn run(command: Command) -> CommandResult {
    match command {
        Command::List {
            scope,
            limit,
            output,
        } => list(&scope, limit, output.format),
        Command::Show { scope, id, output } => show(&scope, &id, output.format),
        Command::Retry {
            chosen,
            body,
            output,
        } => {
            let body = body.as_deref().map(read_body).transpose()?;
            retry(&chosen, body.as_ref(), output.format)
        }
        Command::Drop { chosen, output } => {
            change(&chosen, "dropped", output.format, Client::dead_drop)
        }
    }
}

impl Scope {
    fn open(&self) -> miette::Result<Sources> {
        Sources::open(&self.config.load()?, self.source.as_deref())
    }

    fn filter(&self) -> DeadFilter {
        DeadFilter {
            pool: self.pool.clone(),
            ..DeadFilter::default()
        }
    }
}

fn list(scope: &Scope, limit: usize, format: Format) -> CommandResult {
    let mut sources = scope.open()?;
    let mut letters = sources.letters(&scope.filter(), limit.saturating_add(1));
    let more = letters.len() > limit;
    letters.truncate(limit);
    let several = sources.are_several();
    if letters.is_empty() {
        // Not even an empty list, if it is empty for what went wrong.
        sources.end()?;
    }
    match format {
        Format::Json => output::json(&letters.iter().map(as_json).collect::<Vec<Value>>())?,
        Format::Text if letters.is_empty() && !more => output::line("no dead letters")?,
        Format::Text => list_text(&letters, several)?,
    }
    if more {
        output::note(format!(
            "there are more than {limit}: --limit shows more of them"
        ));
    }
    sources.end()?;
    Ok(ExitCode::SUCCESS)
}

fn list_text(letters: &[Found], several: bool) -> miette::Result<()> {
    let mut groups: BTreeMap<String, Vec<&DeadLetter>> = BTreeMap::new();
    for (source, letter) in letters {
        let (queue, reason) = (&letter.queue, &letter.reason);
        let group = if several {
            format!("{queue} of {source}: {reason}")
        } else {
            format!("{queue}: {reason}")
        };
        groups.entry(group).or_default().push(letter);
    }
    for (group, letters) in groups {
        output::line(format!("{} ({})", output::foreign(&group), letters.len()))?;
        output::table(
            &[
                "ID",
                "ATTEMPTS",
                "CRASHES",
                "LAST FAILED",
                "CORRELATION ID",
                "ERROR",
            ],
            letters.into_iter().map(row),
        )?;
        output::line("")?;
    }
    Ok(())
}

fn row(letter: &DeadLetter) -> Vec<String> {
    vec![
        letter.id.clone(),
        letter.attempts.to_string(),
        letter.crashes.to_string(),
        letter.last_failed_at.clone(),
        shortened(&letter.correlation_id),
        shortened(&letter.error),
    ]
}

fn shortened(text: &str) -> String {
    let text = text.replace(['\n', '\r', '\t'], " ");
    let text = match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    };
    output::foreign(&text).into_owned()
}

fn show(scope: &Scope, id: &str, format: Format) -> CommandResult {
    let filter = DeadFilter {
        ids: Some(vec![id.to_owned()]),
        ..scope.filter()
    };
    let mut sources = scope.open()?;
    let mut letters = sources.letters(&filter, usize::MAX);
    only_source(&letters, id)?;
    let Some(letter) = letters.pop() else {
        sources.end()?;
        bail!("there is no dead letter {id}");
    };
    match format {
        Format::Json => output::json(&as_json(&letter))?,
        Format::Text => show_text(&letter)?,
    }
    sources.end()?;
    Ok(ExitCode::SUCCESS)
}

fn show_text(letter: &Found) -> miette::Result<()> {
    let Value::Object(fields) = as_json(letter) else {
        return Ok(());
    };
    for (name, value) in &fields {
        match value {
            Value::Null => {}
            Value::String(text) if text.is_empty() => {}
            Value::Array(lines) if lines.is_empty() => {}
            Value::String(text) => {
                output::line(format!("{name}: {}", output::foreign(text)))?;
            }
            Value::Array(lines) => {
                output::line(format!("{name}:"))?;
                for line in lines {
                    let line = line.as_str().unwrap_or_default();
                    output::line(format!("  {}", output::foreign(line)))?;
                }
            }
            other => {
                let other = other.to_string();
                output::line(format!("{name}: {}", output::foreign(&other)))?;
            }
        }
    }
    Ok(())
}

fn retry(chosen: &Chosen, body: Option<&Bytes>, format: Format) -> CommandResult {
    if body.is_some() && chosen.ids.len() != 1 {
        bail!(
            "--body is for one dead letter; {} were named",
            chosen.ids.len()
        );
    }
    change(chosen, "retried", format, |client, filter| {
        client.dead_retry(filter, body)
    })
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

/// Does it, and tells under the name of what was done how many there were.
fn change(
    chosen: &Chosen,
    what: &str,
    format: Format,
    change: impl FnMut(&mut Client, &DeadFilter) -> Result<usize, Halted>,
) -> CommandResult {
    let ids: BTreeSet<&String> = chosen.ids.iter().collect();
    let wanted = ids.len();
    let filter = DeadFilter {
        ids: (!chosen.all).then(|| ids.into_iter().cloned().collect()),
        ..chosen.scope.filter()
    };
    let mut sources = chosen.scope.open()?;
    let changed = sources.change(&filter, change)?;
    let complete = sources.end();
    complete.wrap_err_with(|| format!("{what} {changed} before that"))?;
    if changed < wanted {
        bail!("{what} {changed} of {wanted}: the others are not there (any more)");
    }
    match format {
        Format::Json => output::json(&json!({ what: changed }))?,
        Format::Text => output::line(format!("{what} {changed}"))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A dead letter in the form that scripts rely on.
fn as_json((source, letter): &Found) -> Value {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    put("id", id_json(&letter.id));
    put("source", json!(source));
    put("pool", json!(letter.pool));
    put("queue", json!(letter.queue));
    put("reason", json!(letter.reason));
    put("error", json!(letter.error));
    put("attempts", json!(letter.attempts));
    put("crashes", json!(letter.crashes));
    put("exit_code", json!(letter.exit_code));
    put("signal", json!(letter.signal));
    put("oom", json!(letter.oom));
    put("stderr", json!(letter.stderr));
    put("first_failed_at", json!(letter.first_failed_at));
    put("last_failed_at", json!(letter.last_failed_at));
    put("correlation_id", json!(letter.correlation_id));
    put("reply_to", json!(letter.reply_to));
    put("message_id", json!(letter.message_id));
    put("content_type", json!(letter.content_type));
    put("key", json!(letter.key));
    put("priority", json!(letter.priority));
    put("headers", headers_json(&letter.headers));
    let (name, text) = output::body(&letter.body);
    put(name, json!(text));
    if let Some(reply) = &letter.reply {
        let (name, text) = output::body(&reply.body);
        put(
            "reply",
            json!({ "queue": reply.queue, name: text, "headers": headers_json(&reply.headers) }),
        );
    }
    Value::Object(fields)
}

/// A row's id is a number, as it always was; other sources have texts.
fn id_json(id: &str) -> Value {
    id.parse::<i64>()
        .map_or_else(|_| json!(id), |row| json!(row))
}

fn headers_json(headers: &[(String, String)]) -> Value {
    headers
        .iter()
        .map(|(name, value)| (name.clone(), Value::from(value.clone())))
        .collect::<Map<_, _>>()
        .into()
}
