//! `ganger dead`: reads dead letters, sends them back, drops them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bytes::Bytes;
use clap::Subcommand;
use miette::{IntoDiagnostic, WrapErr, bail, miette};
use serde_json::{Map, Value, json};

use super::{CommandResult, ConfigFile, Format, Output, output};
use crate::source::client::{Client, DeadFilter, DeadLetter};

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
            let dropped = change(&chosen, |client, filter| {
                client.dead_drop(filter).into_diagnostic()
            })?;
            report("dropped", dropped, output.format)
        }
    }
}

impl Scope {
    /// A client for every source that is meant.
    fn clients(&self) -> miette::Result<Vec<Client>> {
        let config = self.config.load()?;
        let wanted = |name: &str| self.source.as_deref().is_none_or(|source| source == name);
        let sources: Vec<_> = config
            .sources
            .iter()
            .filter(|(name, _)| wanted(name))
            .collect();
        if sources.is_empty() {
            let known: Vec<_> = config
                .sources
                .keys()
                .map(|name| format!("`{name}`"))
                .collect();
            bail!(
                "there is no source `{}`; there is {}",
                self.source.as_deref().unwrap_or_default(),
                known.join(", ")
            );
        }
        sources
            .into_iter()
            .map(|(name, source)| Client::open(name, source, &config.pools).into_diagnostic())
            .collect()
    }

    fn filter(&self) -> DeadFilter {
        DeadFilter {
            pool: self.pool.clone(),
            ..DeadFilter::default()
        }
    }
}

fn list(scope: &Scope, limit: usize, format: Format) -> CommandResult {
    let mut letters = Vec::new();
    for mut client in scope.clients()? {
        letters.extend(client.dead_list(&scope.filter(), limit).into_diagnostic()?);
    }
    letters.truncate(limit);
    if format == Format::Json {
        let letters: Vec<Value> = letters.iter().map(as_json).collect();
        output::json(&letters)?;
        return Ok(ExitCode::SUCCESS);
    }
    if letters.is_empty() {
        output::line("no dead letters");
        return Ok(ExitCode::SUCCESS);
    }
    let mut by_reason: BTreeMap<(&str, &str), Vec<&DeadLetter>> = BTreeMap::new();
    for letter in &letters {
        by_reason
            .entry((&letter.queue, &letter.reason))
            .or_default()
            .push(letter);
    }
    for ((queue, reason), letters) in by_reason {
        output::line(format!("{queue}: {reason} ({})", letters.len()));
        output::table(
            &[
                "ID",
                "ATTEMPTS",
                "CRASHES",
                "LAST FAILED",
                "CORRELATION ID",
                "ERROR",
            ],
            letters.iter().map(|l| row(l)),
        );
        output::line("");
    }
    Ok(ExitCode::SUCCESS)
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
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

fn show(scope: &Scope, id: &str, format: Format) -> CommandResult {
    for mut client in scope.clients()? {
        let Some(letter) = client.dead_show(id).into_diagnostic()? else {
            continue;
        };
        match format {
            Format::Json => output::json(&as_json(&letter))?,
            Format::Text => show_text(&letter),
        }
        return Ok(ExitCode::SUCCESS);
    }
    Err(miette!("there is no dead letter {id}"))
}

fn show_text(letter: &DeadLetter) {
    let Value::Object(fields) = as_json(letter) else {
        return;
    };
    for (name, value) in &fields {
        match value {
            Value::Null => {}
            Value::String(text) if text.is_empty() => {}
            Value::Array(lines) if lines.is_empty() => {}
            Value::String(text) => output::line(format!("{name}: {text}")),
            Value::Array(lines) => {
                output::line(format!("{name}:"));
                for line in lines {
                    output::line(format!("  {}", line.as_str().unwrap_or_default()));
                }
            }
            other => output::line(format!("{name}: {other}")),
        }
    }
}

fn retry(chosen: &Chosen, body: Option<&Bytes>, format: Format) -> CommandResult {
    if body.is_some() && chosen.ids.len() != 1 {
        bail!(
            "--body is for one dead letter; {} were named",
            chosen.ids.len()
        );
    }
    let sent = change(chosen, |client, filter| {
        client.dead_retry(filter, body).into_diagnostic()
    })?;
    report("retried", sent, format)
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

fn change(
    chosen: &Chosen,
    mut change: impl FnMut(&mut Client, &DeadFilter) -> miette::Result<usize>,
) -> miette::Result<usize> {
    let ids = (!chosen.all).then(|| chosen.ids.clone());
    let filter = DeadFilter {
        ids,
        ..chosen.scope.filter()
    };
    let mut changed = 0;
    for mut client in chosen.scope.clients()? {
        changed += change(&mut client, &filter)?;
    }
    let wanted = chosen.ids.len();
    if changed < wanted {
        bail!("{changed} of {wanted} were changed: the others are not there (any more)");
    }
    Ok(changed)
}

/// What `--output json` prints is the number under the name of what was done.
fn report(what: &str, count: usize, format: Format) -> CommandResult {
    match format {
        Format::Json => output::json(&json!({ what: count }))?,
        Format::Text => output::line(format!("{what} {count}")),
    }
    Ok(ExitCode::SUCCESS)
}

/// A dead letter in the form that scripts rely on.
fn as_json(letter: &DeadLetter) -> Value {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    put("id", id_json(&letter.id));
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
