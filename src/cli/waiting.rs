//! `ganger waiting`: lists the messages that wait in a queue, without taking them.

use std::process::ExitCode;

use clap::value_parser;
use miette::IntoDiagnostic;

use super::backend::{self, Address};
use super::common::{CommandResult, Format, Output};
use super::output::{self, shortened};
use ganger_core::foreign;
use ganger_core::units::show_size;
use ganger_queue::client::shown::bytes;
use ganger_queue::client::{WAITING_DEFAULT, WAITING_MAX, WaitingMessage};

const HEADER: [&str; 8] = [
    "ID",
    "SINCE",
    "DELAYED UNTIL",
    "PRIORITY",
    "ATTEMPTS",
    "NAME",
    "ERROR",
    "BODY",
];

#[derive(Debug, clap::Args)]
pub(super) struct WaitingArgs {
    /// The queue, or the topic of Kafka; messages of RabbitMQ can't be listed
    queue: String,
    /// The source; may be omitted if only one has such a queue
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Maximum number of messages, 1 to 500
    #[arg(long, value_name = "N", default_value_t = WAITING_DEFAULT,
        value_parser = value_parser!(u32).range(1..=i64::from(WAITING_MAX)))]
    limit: u32,
    #[command(flatten)]
    address: Address,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(args: &WaitingArgs) -> CommandResult {
    let backend = backend::at(&args.address)?;
    let source = backend.source_of(&args.queue, false, args.source.as_deref())?;
    let mut client = backend.client(&source.name).into_diagnostic()?;
    let listed = client.waiting_list(&args.queue, args.limit as usize);
    let list = listed.into_diagnostic()?;
    match args.output.format {
        Format::Json => output::json(&list.messages)?,
        Format::Text if list.messages.is_empty() => output::line("no message waits")?,
        Format::Text => {
            let rows = list.messages.iter().map(row);
            output::line(output::table(&HEADER, rows).trim_end())?;
        }
    }
    if list.more {
        output::note(format!(
            "more messages wait: these are the first {}",
            list.messages.len()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(message: &WaitingMessage) -> Vec<String> {
    let name = message
        .message_id
        .as_ref()
        .or(message.correlation_id.as_ref());
    let text = |text: Option<&String>| text.map_or_else(|| "-".to_owned(), |text| shortened(text));
    let body = match &message.body_base64 {
        None => shortened(message.body.as_deref().unwrap_or_default()),
        Some(base64) => {
            let shown = bytes(None, Some(base64.clone())).ok().flatten();
            let size = message.body_cut.or(shown.map(|shown| shown.len()));
            format!(
                "({}, not UTF-8)",
                show_size(size.unwrap_or_default() as u64)
            )
        }
    };
    vec![
        foreign::line(&message.id).into_owned(),
        text(message.created_at.as_ref()),
        text(message.available_at.as_ref()),
        message.priority.to_string(),
        message.attempts.to_string(),
        text(name),
        text(message.last_error.as_ref()),
        body,
    ]
}
