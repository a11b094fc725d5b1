//! `ganger send`: puts messages into a queue, and with `--reply` waits for the answers.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use indicatif::{ProgressBar, ProgressStyle};
use miette::{IntoDiagnostic, WrapErr, bail};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::backend::{self, Address};
use super::common::{CommandResult, Format, Output};
use super::output;
use super::usage::wrong;
use ganger_core::foreign;
use ganger_core::suggest::nearest;
use ganger_queue::client::json::{UniqueOptions, check_not_reserved, duration, post, scope, until};
use ganger_queue::client::shown::ReplyJson;
use ganger_queue::client::{Client, Reply, SourceInfo, unique_name};
use ganger_queue::delivery::{IfUnsubscribed, Outgoing, Post, Unique, UniqueScope};

/// Number of messages that are sent to a broker, and confirmed, together.
const BATCH: usize = 500;
/// Maximum number of ids that are shown to people. JSON has all.
const IDS_SHOWN_MAX: usize = 10;

#[derive(Debug, clap::Args)]
pub(super) struct SendArgs {
    /// The queue, as in a pool; with --topic a topic
    queue: String,
    /// The bodies, one message each
    #[arg(
        value_name = "BODY",
        conflicts_with = "file",
        required_unless_present = "file"
    )]
    bodies: Vec<String>,
    /// The source; may be omitted if only one has such a queue
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Read messages from a file, or from stdin with `-`: a JSON object a line, with body or body_base64, and
    /// optionally headers, correlation_id, reply_to, message_id, content_type, key (not RabbitMQ), priority
    /// (not Kafka), delay or at, and on a table unique_key with unique_scope, replace, debounce, debounce_max
    #[arg(long, short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Add a header to every message that does not have one of that name
    #[arg(long = "header", short = 'H', value_name = "NAME=VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    /// On a table: send a message to each queue that is subscribed to the topic
    #[arg(long, conflicts_with_all = ["reply", "unique"])]
    topic: bool,
    /// Drop messages to a topic without subscribed queues, which is an error otherwise
    #[arg(long, requires = "topic")]
    drop_unsubscribed: bool,
    /// Delay each message that does not have its own delay
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    delay: Option<Duration>,
    /// Hold each message until this time, such as 2027-01-31T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = until, conflicts_with = "delay")]
    at: Option<Duration>,
    #[command(flatten)]
    unique: UniqueArgs,
    /// Wait for the answer to each message, and print it
    #[arg(long)]
    reply: bool,
    /// Maximum time to wait for the answers
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = duration, requires = "reply")]
    reply_timeout: Duration,
    #[command(flatten)]
    address: Address,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
struct UniqueArgs {
    /// On a table: drop the message if another message in the queue has this key
    #[arg(long, value_name = "KEY", conflicts_with_all = ["file", "reply"])]
    unique: Option<String>,
    /// Hold the key while the message is waiting, waiting_or_running, or at most for a DURATION
    #[arg(long, value_name = "SCOPE", value_parser = scope, requires = "unique")]
    scope: Option<UniqueScope>,
    /// Replace the pending message's body
    #[arg(long, requires = "unique", conflicts_with_all = ["scope", "debounce"])]
    replace: bool,
    /// Replace the pending message's body, and delay it by this time from the last message sent
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "unique",
        conflicts_with_all = ["scope", "delay", "at"])]
    debounce: Option<Duration>,
    /// Maximum delay from the first message; ten times --debounce if omitted
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "debounce")]
    debounce_max: Option<Duration>,
}

impl UniqueArgs {
    fn unique(&self) -> miette::Result<Option<Unique>> {
        let options = UniqueOptions {
            key: self.unique.clone(),
            scope: self.scope,
            replace: self.replace,
            debounce: self.debounce,
            debounce_max: self.debounce_max,
        };
        options.unique().map_err(wrong)
    }
}

pub(super) fn parse_header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            check_not_reserved(name)?;
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("a header must be NAME=VALUE".into()),
    }
}

pub(super) fn run(args: SendArgs) -> CommandResult {
    let backend = backend::at(&args.address)?;
    let source = backend.source_of(&args.queue, args.topic, args.source.as_deref())?;
    if !args.topic && source.is_table() {
        warn_of_no_reader(&source, &args.queue);
    }
    let mut sender = Sender {
        client: backend.sender(&source.name, args.reply_timeout)?,
        takes_all_or_none: source.is_table() && backend.is_config(),
        args: &args,
        waiting: Vec::new(),
        given: 0,
        sent: 0,
        ids: Vec::new(),
        kept: Vec::new(),
        asked: Vec::new(),
    };
    let result = sender.send_all();
    let told = Sent {
        sent: sender.sent,
        ids: std::mem::take(&mut sender.ids),
        kept: sender.kept(),
        replies: None,
    };
    // What was sent is told also when the rest was not.
    let complete = result.wrap_err_with(|| match sender.takes_all_or_none {
        true => "nothing was sent".to_owned(),
        false => format!("sent {} before that", told.sent),
    });
    if complete.is_err() && args.output.format == Format::Json {
        output::json(&told)?;
    }
    complete?;
    let replies = if args.reply {
        Some(sender.await_replies()?)
    } else {
        None
    };
    print(&args, told, sender.kept.len(), replies)?;
    Ok(ExitCode::SUCCESS)
}

/// Warns that no pool reads the queue, if pools read other queues of its source: a table takes a message for
/// any queue.
fn warn_of_no_reader(source: &SourceInfo, queue: &str) {
    let pools = source.pools.iter();
    let read: Vec<&str> = pools.map(|pool| pool.queue.as_str()).collect();
    if read.is_empty() || read.contains(&queue) {
        return;
    }
    let meant = nearest(queue, read.into_iter());
    let meant = meant.map_or_else(String::new, |meant| format!("; is `{meant}` meant?"));
    output::note(format!(
        "warning: no pool of this configuration reads queue `{queue}` of source `{}`{meant}",
        source.name
    ));
}

struct Sender<'a> {
    client: Client,
    /// All messages are sent at once, regardless of their number.
    takes_all_or_none: bool,
    args: &'a SendArgs,
    waiting: Vec<Post>,
    given: usize,
    sent: usize,
    /// Ids of the messages sent, as far as known.
    ids: Vec<String>,
    /// Messages that already held the unique keys.
    kept: Vec<i64>,
    /// Private queue and correlation id of each expected answer.
    asked: Vec<(String, String)>,
}

impl Sender<'_> {
    fn send_all(&mut self) -> miette::Result<()> {
        match &self.args.file {
            Some(path) => self.send_file(path),
            None => {
                let args = self.args;
                for body in &args.bodies {
                    self.add(Post {
                        message: Outgoing {
                            body: Bytes::from(body.clone()),
                            delay: args.unique.debounce.unwrap_or_default(),
                            ..Outgoing::default()
                        },
                        unique: args.unique.unique()?,
                        topic: None,
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
            let line = match index {
                0 => foreign::without_mark(&line),
                _ => &line,
            };
            let place = || format!("{}, line {}", path.display(), index + 1);
            if !line.iter().all(u8::is_ascii_whitespace) {
                match post(line) {
                    Ok(post) => self.add(post).wrap_err_with(place)?,
                    Err(why) => {
                        if !self.takes_all_or_none {
                            self.flush()?;
                        }
                        bail!("{}: {why}", place());
                    }
                }
            }
        }
        bar.finish_and_clear();
        self.flush()
    }

    fn add(&mut self, mut post: Post) -> miette::Result<()> {
        post.topic = self
            .args
            .topic
            .then_some(match self.args.drop_unsubscribed {
                true => IfUnsubscribed::Drop,
                false => IfUnsubscribed::Fail,
            });
        let Post {
            message, unique, ..
        } = &mut post;
        if self.args.topic && unique.is_some() {
            bail!("a message for a topic can't have a unique key");
        }
        if self.args.reply && unique.is_some() {
            bail!("--reply can't be used with a unique key: the message may be dropped");
        }
        if message.delay.is_zero() {
            message.delay = self.args.delay.or(self.args.at).unwrap_or_default();
        }
        message.queue.clone_from(&self.args.queue);
        if message.message_id.is_none() {
            message.message_id = Some(unique_name().into_diagnostic()?);
        }
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
        self.waiting.push(post);
        self.given += 1;
        if self.waiting.len() >= BATCH && !self.takes_all_or_none {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> miette::Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        match self.client.post(&waiting) {
            Ok(kept) => {
                for (post, kept) in waiting.into_iter().zip(kept) {
                    match kept {
                        Some(kept) => self.kept.push(kept),
                        None => {
                            self.sent += 1;
                            self.ids.extend(post.message.message_id);
                        }
                    }
                }
                Ok(())
            }
            Err(halted) => {
                self.sent += halted.done;
                Err(halted).into_diagnostic()
            }
        }
    }

    /// Returns the one message that already existed, if one was to be sent; all such messages if there were
    /// many.
    fn kept(&self) -> Option<Value> {
        match (self.kept.as_slice(), self.given) {
            ([], _) => None,
            ([kept], 1) => Some(Value::from(*kept)),
            (kept, _) => Some(Value::from(kept)),
        }
    }

    /// Waits for the answers and returns them in the order of the messages.
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
                    "no answer to `{correlation_id}` within {waited:?}; it would arrive in queue \
                     `{queue}`"
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

/// Result as `--output json` prints it.
#[derive(Debug, Serialize)]
struct Sent {
    sent: usize,
    /// Message ids, generated where the message brings none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ids: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replies: Option<Vec<ReplyJson>>,
}

fn print(
    args: &SendArgs,
    told: Sent,
    kept: usize,
    replies: Option<Vec<Reply>>,
) -> miette::Result<()> {
    if args.output.format == Format::Json {
        let replies = replies.map(|replies| replies.iter().map(ReplyJson::from).collect());
        return output::json(&Sent { replies, ..told });
    }
    if let Some(replies) = replies {
        return replies.iter().try_for_each(|reply| {
            output::bytes(&output::foreign_bytes(&reply.body))?;
            output::line("")
        });
    }
    let ids: Vec<_> = told.ids.iter().map(|id| foreign::line(id)).collect();
    let ids = match ids.len() {
        0 => String::new(),
        1 => format!(", id {}", ids[0]),
        2..=IDS_SHOWN_MAX => format!(", ids {}", ids.join(", ")),
        _ => String::new(),
    };
    let sent = told.sent;
    output::line(match told.kept {
        None => format!("sent {sent}{ids}"),
        Some(one) if kept == 1 => format!("sent {sent}{ids}; message {one} already exists"),
        Some(_) => format!("sent {sent}{ids}; {kept} messages already exist"),
    })
}
