//! `ganger subscriptions`: lists and removes topic subscriptions.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use super::backend::{self, Address, Backend};
use super::common::{CommandResult, Format, Output};
use super::output;
use super::usage::{names, wrong};
use ganger_queue::client::shown::SubscriptionJson;

#[derive(Debug, Subcommand)]
pub(super) enum SubscriptionsCommand {
    /// List subscriptions, including those of other configurations
    List {
        /// Only subscriptions of this source
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
    /// Remove a subscription; messages in the queue stay
    Drop {
        /// The topic
        topic: String,
        /// The queue
        queue: String,
        /// The source; may be omitted if only one has the subscription
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
}

pub(super) fn run(command: &SubscriptionsCommand) -> CommandResult {
    match command {
        SubscriptionsCommand::List {
            source,
            address,
            output,
        } => list(&*backend::at(address)?, source.as_deref(), output.format),
        SubscriptionsCommand::Drop {
            topic,
            queue,
            source,
            address,
            output,
        } => end(
            &*backend::at(address)?,
            source.as_deref(),
            (topic, queue),
            output.format,
        ),
    }
}

fn list(backend: &dyn Backend, only: Option<&str>, format: Format) -> CommandResult {
    let all = backend::subscriptions(backend, only)?;
    if format == Format::Json {
        output::json(&all)?;
        return Ok(ExitCode::SUCCESS);
    }
    if all.is_empty() {
        output::line("no subscriptions")?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |one: SubscriptionJson| {
        let configured = if one.configured { "yes" } else { "no" };
        vec![
            one.topic,
            one.queue,
            one.source,
            one.since,
            configured.to_owned(),
        ]
    };
    let header = ["TOPIC", "QUEUE", "SOURCE", "SINCE", "CONFIGURED"];
    output::line(output::table(&header, all.into_iter().map(row)).trim_end())?;
    Ok(ExitCode::SUCCESS)
}

fn end(
    backend: &dyn Backend,
    only: Option<&str>,
    (topic, queue): (&str, &str),
    format: Format,
) -> CommandResult {
    let all = backend::subscriptions(backend, only)?;
    let is_it = |one: &&SubscriptionJson| one.topic == topic && one.queue == queue;
    let found: Vec<_> = all.iter().filter(is_it).collect();
    let subscription = match *found {
        [] => {
            let known: Vec<String> = all
                .iter()
                .map(|one| format!("{} to {}", one.queue, one.topic))
                .collect();
            let known = names(known.iter().map(String::as_str));
            let why =
                format!("queue `{queue}` is not subscribed to topic `{topic}`; there is {known}");
            return Err(wrong(why));
        }
        [one] => one,
        _ => {
            let why = "several sources have that subscription: name one with --source";
            return Err(wrong(why));
        }
    };
    backend.unsubscribe(subscription)?;
    if subscription.configured {
        output::note(
            "the configuration still contains it: a daemon adds it again when it starts or reloads",
        );
    }
    match format {
        Format::Json => output::json(&json!({ "dropped": 1 }))?,
        Format::Text => output::line("dropped 1")?,
    }
    Ok(ExitCode::SUCCESS)
}
