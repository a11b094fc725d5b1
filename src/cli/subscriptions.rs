//! `ganger subscriptions`: which queues get the messages of which topics, and ending that.

use std::process::ExitCode;

use clap::Subcommand;
use miette::IntoDiagnostic;
use serde_json::{Value, json};

use super::common::{CommandResult, ConfigFile, Format, Output};
use super::output;
use super::usage::{names, wrong};
use crate::client::{Client, Subscribed};
use crate::config::model::{Config, SourceConfig};
use crate::dead_letter::rfc_3339;

#[derive(Debug, Subcommand)]
pub(super) enum SubscriptionsCommand {
    /// List them, those of other configurations included
    List {
        /// Only this connection
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
        #[command(flatten)]
        config: ConfigFile,
        #[command(flatten)]
        output: Output,
    },
    /// End one; what is in the queue stays
    Drop {
        /// The topic
        topic: String,
        /// The queue
        queue: String,
        /// The connection; may be left out when only one has it
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
        #[command(flatten)]
        config: ConfigFile,
        #[command(flatten)]
        output: Output,
    },
}

pub(super) fn run(command: &SubscriptionsCommand) -> CommandResult {
    match command {
        SubscriptionsCommand::List {
            source,
            config,
            output,
        } => list(&config.load()?, source.as_deref(), output.format),
        SubscriptionsCommand::Drop {
            topic,
            queue,
            source,
            config,
            output,
        } => end(
            &config.load()?,
            source.as_deref(),
            (topic, queue),
            output.format,
        ),
    }
}

/// The tables, or the one of that name.
fn tables(config: &Config, only: Option<&str>) -> miette::Result<Vec<Client>> {
    let mut clients = Vec::new();
    for (name, source) in &config.sources {
        let wanted = only.is_none_or(|only| only == name);
        if wanted && matches!(source, SourceConfig::Table(_)) {
            clients.push(Client::open(name, source, &config.pools).into_diagnostic()?);
        }
    }
    let is_table = |source: &SourceConfig| matches!(source, SourceConfig::Table(_));
    let known = config.sources.iter().filter(|(_, source)| is_table(source));
    let known = names(known.map(|(name, _)| name.as_str()));
    match (clients.is_empty(), only) {
        (false, _) => Ok(clients),
        (true, Some(only)) => Err(wrong(format!(
            "there is no table `{only}` among the sources; there is {known}"
        ))),
        (true, None) => Err(wrong("there is no table among the sources")),
    }
}

/// Whether the configuration has it.
fn is_configured(config: &Config, source: &str, topic: &str, queue: &str) -> bool {
    let all = config.subscriptions.iter();
    let mut all = all.filter(|subscription| subscription.source == source);
    all.any(|subscription| subscription.topic == topic && subscription.queue == queue)
}

fn list(config: &Config, only: Option<&str>, format: Format) -> CommandResult {
    let mut all: Vec<(String, Subscribed)> = Vec::new();
    for mut client in tables(config, only)? {
        let of_source = client.subscriptions().into_diagnostic()?;
        let name = client.name().to_owned();
        all.extend(of_source.into_iter().map(|one| (name.clone(), one)));
    }
    let configured =
        |source: &str, one: &Subscribed| is_configured(config, source, &one.topic, &one.queue);
    if format == Format::Json {
        let one = |(source, one): &(String, Subscribed)| {
            json!({
                "source": source, "topic": one.topic, "queue": one.queue,
                "since": rfc_3339(one.since_ms), "configured": configured(source, one),
            })
        };
        output::json(&all.iter().map(one).collect::<Vec<Value>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    if all.is_empty() {
        output::line("no subscriptions")?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |(source, one): &(String, Subscribed)| {
        let here = match configured(source, one) {
            true => "yes",
            false => "no",
        };
        let texts = [&one.topic, &one.queue, source];
        let mut row: Vec<String> = texts.map(ToString::to_string).into();
        row.push(rfc_3339(one.since_ms));
        row.push(here.to_owned());
        row
    };
    let header = ["TOPIC", "QUEUE", "SOURCE", "SINCE", "CONFIGURED"];
    output::line(output::table(&header, all.iter().map(row)).trim_end())?;
    Ok(ExitCode::SUCCESS)
}

fn end(
    config: &Config,
    only: Option<&str>,
    (topic, queue): (&str, &str),
    format: Format,
) -> CommandResult {
    let (mut with_it, mut known) = (Vec::new(), Vec::new());
    for mut client in tables(config, only)? {
        let all = client.subscriptions().into_diagnostic()?;
        if all
            .iter()
            .any(|one| one.topic == topic && one.queue == queue)
        {
            with_it.push(client);
        }
        known.extend(
            all.iter()
                .map(|one| format!("{} to {}", one.queue, one.topic)),
        );
    }
    let mut client = match with_it.len() {
        0 => {
            let known = names(known.iter().map(String::as_str));
            let why =
                format!("queue `{queue}` is not subscribed to topic `{topic}`; there is {known}");
            return Err(wrong(why));
        }
        1 => with_it.remove(0),
        _ => {
            let why = "several sources have that subscription: name one with --source";
            return Err(wrong(why));
        }
    };
    client.unsubscribe(topic, queue).into_diagnostic()?;
    if is_configured(config, client.name(), topic, queue) {
        output::note(
            "the configuration has it still: a daemon adds it again when it starts or reloads",
        );
    }
    match format {
        Format::Json => output::json(&json!({ "dropped": 1 }))?,
        Format::Text => output::line("dropped 1")?,
    }
    Ok(ExitCode::SUCCESS)
}
