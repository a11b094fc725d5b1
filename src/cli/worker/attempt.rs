//! `ganger worker try`: one message through one worker, without a queue.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use miette::{IntoDiagnostic, WrapErr, bail};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::attempt_result;
use super::subject::{WorkerStart, on_a_pool_thread};
use crate::cli::common::{CommandResult, Format, Output};
use crate::cli::dead;
use crate::cli::output;
use crate::cli::send::parse_header;
use ganger_pool::lane::soft_timeout;
use ganger_queue::client::json::duration;
use ganger_queue::dead_letter::DeadLetter;
use ganger_queue::delivery::{Message, Property};
use ganger_workerkit::conformance::{self, Single};

/// Default time limit of a message without --wait.
const LIMIT: Duration = Duration::from_secs(30);
/// Default time for a worker to connect: short, since a user waits.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which a debugger is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

const EXIT_CODES: &str = "\
Exit codes:
  0  the message is done, with or without a reply
  1  any other answer, or none
  2  the command line or the configuration is wrong";

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct WorkerTryArgs {
    /// Body of the message: a text, `@FILE` for a file's bytes, or `-` for those of stdin
    #[arg(
        long,
        short = 'm',
        value_name = "BODY",
        required_unless_present = "dead"
    )]
    message: Option<String>,
    /// Use a dead letter as the message, by its id from `ganger dead list`; it stays where it is
    #[arg(long, value_name = "ID", conflicts_with_all = ["message", "headers", "correlation_id", "reply_to"])]
    dead: Option<String>,
    /// Source of the dead letter; may be omitted if only one source has dead letters
    #[arg(long, value_name = "NAME", requires = "dead")]
    source: Option<String>,
    /// Add a header to the message
    #[arg(long = "header", short = 'H', value_name = "NAME=VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    /// Correlation id of the message
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Queue for a reply: shown with the answer, nothing is published
    #[arg(long, value_name = "QUEUE")]
    reply_to: Option<String>,
    /// Attempt number that the worker is given
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    attempt: u32,
    /// Timeout of the message: passed to the worker, which is then asked to give up, and killed after
    /// `timeout_grace` [default: the pool's, or 30s if it has none; none with --wait]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    /// Print the worker's process id, and wait for Enter or for a debugger before the message is sent
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    start: WorkerStart,
}

pub(super) fn run(args: &WorkerTryArgs) -> CommandResult {
    let letter = args
        .dead
        .as_deref()
        .map(|id| letter(args, id))
        .transpose()?;
    let pool = letter.as_ref().map(|letter| letter.pool.as_str());
    let policy = match args.start.policy(pool, START_TIMEOUT) {
        Ok(policy) => policy,
        Err(report) => {
            output::complain(&report);
            return Ok(ExitCode::from(2));
        }
    };
    let message = match letter {
        Some(letter) => of_letter(letter),
        None => message(args, policy.one_queue())?,
    };
    let limit = match (args.timeout, args.wait) {
        (Some(limit), _) => Some(limit),
        (None, true) => None,
        (None, false) => soft_timeout(policy.timeout, &message.headers).or(Some(LIMIT)),
    };
    let single = Single {
        policy,
        message,
        attempt: args.attempt,
        limit,
    };
    let ready = async |pid: u32| {
        if args.wait {
            wait(pid, args.message.as_deref() == Some("-")).await;
        }
    };
    let told = on_a_pool_thread(conformance::attempt(&single, ready))?;
    let (text, json, good) = match &told {
        Ok(told) => (
            attempt_result::as_text(&single, told),
            attempt_result::as_json(&single, told),
            attempt_result::is_good(told),
        ),
        Err((why, stderr)) => (
            attempt_result::unstarted_text(why, stderr),
            attempt_result::unstarted_json(why, stderr),
            false,
        ),
    };
    match args.output.format {
        Format::Json => output::json(&json)?,
        Format::Text => output::bytes(text.as_bytes())?,
    }
    Ok(match good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn message(args: &WorkerTryArgs, queue: &str) -> miette::Result<Message> {
    let text = args.message.as_deref().unwrap_or_default();
    let body = match text.strip_prefix('@') {
        Some(file) => {
            let read = std::fs::read(Path::new(file)).into_diagnostic();
            Bytes::from(read.wrap_err_with(|| file.to_owned())?)
        }
        None if text == "-" => {
            let mut body = Vec::new();
            io::stdin()
                .lock()
                .read_to_end(&mut body)
                .into_diagnostic()?;
            body.into()
        }
        None => Bytes::copy_from_slice(text.as_bytes()),
    };
    Ok(Message {
        queue: queue.into(),
        body,
        headers: args.headers.clone(),
        correlation_id: args.correlation_id.clone().unwrap_or_default(),
        reply_to: args.reply_to.clone(),
        properties: Vec::new(),
        occurrence: None,
    })
}

/// Finds the dead letter, as `ganger dead show` does.
fn letter(args: &WorkerTryArgs, id: &str) -> miette::Result<DeadLetter> {
    let found = dead::find(&args.start.config, args.source.as_deref(), id)?;
    let Some((_, letter)) = found else {
        bail!("there is no dead letter {id}");
    };
    Ok(letter)
}

/// Returns the message as the daemon would redeliver it.
fn of_letter(letter: DeadLetter) -> Message {
    let texts = [
        ("message_id", letter.message_id),
        ("content_type", letter.content_type),
        ("key", letter.key),
    ];
    let properties = texts.into_iter().filter_map(|(name, text)| {
        let text = text?;
        Some((name, Property::Text(text)))
    });
    Message {
        queue: letter.queue.into(),
        body: letter.body,
        headers: letter.headers,
        correlation_id: letter.correlation_id,
        reply_to: letter.reply_to,
        properties: properties.collect(),
        occurrence: None,
    }
}

/// Waits for Enter, or until a debugger is attached to the worker. The key comes from the terminal if stdin
/// was the message.
async fn wait(pid: u32, stdin_is_read: bool) {
    output::note(format!(
        "worker {pid} is ready: press Enter, or attach a debugger, to send the message"
    ));
    let (tell, told) = oneshot::channel();
    let read = move || {
        let mut line = String::new();
        let read = match stdin_is_read {
            false => io::stdin().lock().read_line(&mut line),
            true => File::open("/dev/tty").and_then(|tty| BufReader::new(tty).read_line(&mut line)),
        };
        // At an end of file nobody can press anything.
        if matches!(read, Ok(1..)) {
            // Whoever waited may have gone on.
            drop(tell.send(line));
        }
    };
    // It ends with the process.
    let reader = std::thread::Builder::new().name("enter".into()).spawn(read);
    if let Err(error) = reader {
        output::note(format!("reading stdin failed: {error}"));
    }
    let traced = async {
        while !is_traced(pid) {
            sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        Ok(_) = told => {}
        () = traced => {}
    }
}

/// Returns whether a debugger is attached to the process. One that has ended is not waited for.
fn is_traced(pid: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else {
        return true;
    };
    let has_ended = status
        .lines()
        .any(|line| line.starts_with("State:") && line.contains('Z'));
    let tracer = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    has_ended || tracer.is_some_and(|tracer| tracer.trim() != "0")
}
