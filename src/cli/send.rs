//! `ganger send`: puts messages into a queue, and waits for the answer if asked to.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use indicatif::{ProgressBar, ProgressStyle};
use miette::{IntoDiagnostic, WrapErr, bail};
use serde::Serialize;
use tokio::time::Instant;

use super::common::{CommandResult, ConfigFile, Format, Output};
use super::output;
use crate::client::json::{duration, not_our_own, outgoing, reply_json};
use crate::client::{Client, Reply, source_of, unique_name};
use crate::delivery::Outgoing;

/// Messages that are sent, and confirmed, together.
const BATCH: usize = 500;

#[derive(Debug, clap::Args)]
pub(super) struct SendArgs {
    /// The queue, as in a pool
    queue: String,
    /// The bodies, one message each
    #[arg(
        value_name = "BODY",
        conflicts_with = "file",
        required_unless_present = "file"
    )]
    bodies: Vec<String>,
    /// The connection; may be left out when only one has such a queue
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Messages from a file, or from stdin with `-`: a JSON object a line, with body or body_base64,
    /// and if wanted headers, correlation_id, reply_to, message_id, content_type, key (not RabbitMQ),
    /// priority (not Kafka), delay
    #[arg(long, short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    /// A header for every message that does not bring its own of that name
    #[arg(long = "header", short = 'H', value_name = "NAME=VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    /// Wait for the answer to each message, and print it
    #[arg(long)]
    reply: bool,
    /// How long to wait for it
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = duration, requires = "reply")]
    reply_timeout: Duration,
    #[command(flatten)]
    config: ConfigFile,
    #[command(flatten)]
    output: Output,
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            not_our_own(name)?;
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("a header is NAME=VALUE".into()),
    }
}

pub(super) fn run(args: SendArgs) -> CommandResult {
    let config = args.config.load()?;
    let source = source_of(&config, &args.queue, args.source.as_deref());
    let (name, source) = source.into_diagnostic()?;
    let client = Client::open(name, source, &config.pools).into_diagnostic()?;
    let mut sender = Sender {
        client,
        args: &args,
        waiting: Vec::new(),
        sent: 0,
        asked: Vec::new(),
    };
    let result = sender.send_all();
    let sent = sender.sent;
    // What was sent is told also when the rest was not.
    let complete = result.wrap_err_with(|| format!("sent {sent} before that"));
    if complete.is_err() && args.output.format == Format::Json {
        output::json(&Sent {
            sent,
            replies: None,
        })?;
    }
    complete?;
    let replies = if args.reply {
        Some(sender.await_replies()?)
    } else {
        None
    };
    print(&args, sent, replies)?;
    Ok(ExitCode::SUCCESS)
}

struct Sender<'a> {
    client: Client,
    args: &'a SendArgs,
    waiting: Vec<Outgoing>,
    sent: usize,
    /// The private queue and the correlation id of each answer that is waited for.
    asked: Vec<(String, String)>,
}

impl Sender<'_> {
    fn send_all(&mut self) -> miette::Result<()> {
        match &self.args.file {
            Some(path) => self.send_file(path),
            None => {
                let args = self.args;
                for body in &args.bodies {
                    self.add(Outgoing {
                        body: Bytes::from(body.clone()),
                        ..Outgoing::default()
                    })?;
                }
                self.flush()
            }
        }
    }

    fn send_file(&mut self, path: &Path) -> miette::Result<()> {
        let (lines, size): (Box<dyn BufRead>, Option<u64>) = if path == Path::new("-") {
            (Box::new(io::stdin().lock()), None)
        } else {
            let file = File::open(path)
                .into_diagnostic()
                .wrap_err_with(|| path.display().to_string())?;
            let size = file.metadata().into_diagnostic()?.len();
            (Box::new(BufReader::new(file)), Some(size))
        };
        let bar = progress(size, self.args.output.format);
        for (index, line) in lines.split(b'\n').enumerate() {
            let line = line
                .into_diagnostic()
                .wrap_err_with(|| path.display().to_string())?;
            bar.inc(line.len() as u64 + 1);
            let place = || format!("{}, line {}", path.display(), index + 1);
            if !line.iter().all(u8::is_ascii_whitespace) {
                match outgoing(&line) {
                    Ok(message) => self.add(message)?,
                    Err(why) => {
                        self.flush()?;
                        bail!("{}: {why}", place());
                    }
                }
            }
        }
        bar.finish_and_clear();
        self.flush()
    }

    fn add(&mut self, mut message: Outgoing) -> miette::Result<()> {
        message.queue.clone_from(&self.args.queue);
        for (name, value) in &self.args.headers {
            if !message.headers.iter().any(|(other, _)| other == name) {
                message.headers.push((name.clone(), value.clone()));
            }
        }
        if self.args.reply {
            let unique = unique_name().into_diagnostic()?;
            let private = self.client.reply_to(&unique).into_diagnostic()?;
            if message.correlation_id.is_empty() {
                message.correlation_id = unique;
            }
            message.reply_to = Some(private.clone());
            self.asked.push((private, message.correlation_id.clone()));
        }
        self.waiting.push(message);
        if self.waiting.len() >= BATCH {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> miette::Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        let sent = self.client.send(&waiting);
        self.sent += match &sent {
            Ok(()) => waiting.len(),
            Err(halted) => halted.done,
        };
        sent.into_diagnostic()
    }

    /// The answers, in the order of the messages.
    fn await_replies(&mut self) -> miette::Result<Vec<Reply>> {
        let deadline = Instant::now() + self.args.reply_timeout;
        let mut replies = Vec::with_capacity(self.asked.len());
        for (queue, correlation_id) in std::mem::take(&mut self.asked) {
            replies.push(self.await_reply(&queue, &correlation_id, deadline)?);
        }
        Ok(replies)
    }

    fn await_reply(
        &mut self,
        queue: &str,
        correlation_id: &str,
        deadline: Instant,
    ) -> miette::Result<Reply> {
        loop {
            if let Some(reply) = self
                .client
                .take_reply(queue, correlation_id)
                .into_diagnostic()?
            {
                return Ok(reply);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let waited = self.args.reply_timeout;
                bail!(
                    "no answer to `{correlation_id}` within {waited:?}; it would come to queue `{queue}`"
                );
            }
            self.client.wait_for_change(left);
        }
    }
}

fn progress(size: Option<u64>, format: Format) -> ProgressBar {
    if format == Format::Json || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = size.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {eta}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// What `--output json` prints.
#[derive(Debug, Serialize)]
struct Sent {
    sent: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    replies: Option<Vec<serde_json::Value>>,
}

fn print(args: &SendArgs, sent: usize, replies: Option<Vec<Reply>>) -> miette::Result<()> {
    if args.output.format == Format::Json {
        let replies = replies.map(|replies| replies.iter().map(reply_json).collect());
        return output::json(&Sent { sent, replies });
    }
    match replies {
        None => output::line(format!("sent {sent}")),
        Some(replies) => replies.iter().try_for_each(|reply| {
            output::bytes(&output::foreign_bytes(&reply.body))?;
            output::line("")
        }),
    }
}
