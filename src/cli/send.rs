//! `ganger send`: puts messages into a queue, and waits for the answer if asked to.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use indicatif::{ProgressBar, ProgressStyle};
use miette::{IntoDiagnostic, WrapErr, bail, miette};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::common::{CommandResult, ConfigFile, Format, Output};
use super::output;
use crate::client::{Client, Reply};
use crate::config::model::{Config, SourceConfig};
use crate::delivery::Outgoing;
use crate::names;

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
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = parse_duration, requires = "reply")]
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

fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration: Option<jiff::SignedDuration> = text.parse().ok();
    duration
        .and_then(|duration| Duration::try_from(duration).ok())
        .ok_or_else(|| "a duration such as 500ms, 30s or 5m".into())
}

pub(super) fn run(args: SendArgs) -> CommandResult {
    let config = args.config.load()?;
    let (name, source) = choose_source(&config, &args)?;
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

fn choose_source<'a>(
    config: &'a Config,
    args: &SendArgs,
) -> miette::Result<(&'a str, &'a SourceConfig)> {
    let known = || {
        config
            .sources
            .keys()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    if let Some(name) = &args.source {
        let found = config.sources.get_key_value(name);
        let found = found.map(|(name, source)| (name.as_str(), source));
        return found.ok_or_else(|| miette!("there is no source `{name}`; there is {}", known()));
    }
    let mut reading: Vec<&str> = config
        .pools
        .iter()
        .filter(|pool| *pool.queue == *args.queue)
        .map(|pool| pool.source.as_str())
        .collect();
    reading.sort_unstable();
    reading.dedup();
    let name = match (&reading[..], config.sources.len()) {
        ([name], _) => name,
        ([], 1) => config.sources.keys().next().map_or("", String::as_str),
        ([], _) => bail!(
            "no pool reads queue `{}`: name the source with --source; there is {}",
            args.queue,
            known()
        ),
        (_, _) => bail!(
            "queue `{}` is read from several sources: name one with --source: {}",
            args.queue,
            reading.join(", ")
        ),
    };
    let found = config.sources.get_key_value(name);
    found
        .map(|(name, source)| (name.as_str(), source))
        .ok_or_else(|| miette!("there is no source `{name}`"))
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
                match parse_line(&line) {
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
            let unique = random_name()?;
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

fn random_name() -> miette::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| miette!("no random numbers: {error}"))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

fn progress(size: Option<u64>, format: Format) -> ProgressBar {
    if format == Format::Json || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = size.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {eta}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// A line of `--file`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Line {
    body: Option<String>,
    body_base64: Option<String>,
    headers: BTreeMap<String, serde_json::Value>,
    correlation_id: String,
    reply_to: Option<String>,
    message_id: Option<String>,
    content_type: Option<String>,
    key: Option<String>,
    priority: i32,
    delay: Option<String>,
}

fn parse_line(line: &[u8]) -> Result<Outgoing, String> {
    let line: Line = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let body = match (line.body, line.body_base64) {
        (Some(text), None) => Bytes::from(text),
        (None, Some(base64)) => Bytes::from(
            BASE64
                .decode(base64)
                .map_err(|error| format!("body_base64: {error}"))?,
        ),
        (None, None) => return Err("body or body_base64 is missing".into()),
        (Some(_), Some(_)) => return Err("either body or body_base64, not both".into()),
    };
    let delay = line.delay.as_deref().map(parse_duration).transpose();
    let headers = line
        .headers
        .into_iter()
        .map(header_text)
        .collect::<Result<_, _>>()?;
    Ok(Outgoing {
        queue: String::new(),
        body,
        headers,
        correlation_id: line.correlation_id,
        reply_to: line.reply_to,
        message_id: line.message_id,
        content_type: line.content_type,
        key: line.key,
        priority: line.priority,
        delay: delay
            .map_err(|why| format!("delay: {why}"))?
            .unwrap_or_default(),
    })
}

fn header_text((name, value): (String, serde_json::Value)) -> Result<(String, String), String> {
    use serde_json::Value;
    not_our_own(&name)?;
    match value {
        Value::String(text) => Ok((name, text)),
        Value::Number(number) => Ok((name, number.to_string())),
        Value::Bool(value) => Ok((name, value.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(format!(
            "header `{name}` must be a text, a number or true or false"
        )),
    }
}

fn not_our_own(name: &str) -> Result<(), String> {
    let own = names::OWN_HEADER_PREFIX;
    if name.to_ascii_lowercase().starts_with(own) {
        return Err(format!(
            "header `{name}`: names that begin with `{own}` are ganger's own"
        ));
    }
    Ok(())
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

fn reply_json(reply: &Reply) -> serde_json::Value {
    let headers: BTreeMap<&str, &str> = reply
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let (field, body) = output::body(&reply.body);
    serde_json::json!({ field: body, "headers": headers, "correlation_id": reply.correlation_id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_may_say_all_that_a_message_has() {
        let line =
            br#"{"body":"b","headers":{"n":1,"t":"x","y":true},"correlation_id":"c","reply_to":"r",
            "message_id":"m","content_type":"t","key":"k","priority":3,"delay":"5s"}"#;
        let message = parse_line(line).unwrap();
        assert_eq!(message.body, "b");
        let headers =
            [("n", "1"), ("t", "x"), ("y", "true")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(message.headers, headers);
        assert_eq!(
            (message.priority, message.delay),
            (3, Duration::from_secs(5))
        );
        assert_eq!(message.key.as_deref(), Some("k"));
    }

    #[test]
    fn a_bad_line_says_what_is_wrong() {
        let table = [
            ("{", "EOF"),
            ("{}", "body or body_base64 is missing"),
            (r#"{"body":"a","body_base64":"YQ=="}"#, "not both"),
            (r#"{"body_base64":"%"}"#, "body_base64"),
            (r#"{"body":"a","colour":"red"}"#, "unknown field `colour`"),
            (
                r#"{"body":"a","delay":"soon"}"#,
                "delay: a duration such as",
            ),
            (r#"{"body":"a","headers":{"h":[]}}"#, "header `h` must be"),
            (
                r#"{"body":"a","headers":{"X-Ganger-Attempts":"1"}}"#,
                "ganger's own",
            ),
        ];
        for (line, expected) in table {
            let error = parse_line(line.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
