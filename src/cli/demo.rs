//! `ganger demo`: the whole thing at work without a broker. A table queue in a temporary SQLite
//! file, a pool of real worker processes, workers killed on purpose, and at the end a count of what
//! the workers themselves have written down.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use miette::{IntoDiagnostic, miette};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::common::{CommandResult, Format, Output, environment};
use super::demo_worker::RECORD;
use super::output;
use crate::client::{Client, DeadFilter, Page};
use crate::config::model::Config;
use crate::daemon::{Daemon, DaemonError, Request};
use crate::delivery::Outgoing;
use crate::pool::status::PoolStatus;
use crate::{config, telemetry};

const QUEUE: &str = "demo";
/// Messages that are sent in one transaction.
const SEND_BATCH: usize = 500;
/// How often the records are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Without any progress for so long the demo gives up.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// What a message asks for: the primes below numbers from here on, about a millisecond's work.
const PRIMES_BELOW: usize = 20_000;

#[derive(Debug, clap::Args)]
pub(super) struct DemoArgs {
    /// How many messages are sent
    #[arg(long, default_value_t = 5000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    messages: u32,
    /// How many worker processes there are
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    /// How often one of them is killed: a duration, or `never`
    #[arg(long, default_value = "200ms", value_name = "DURATION", value_parser = parse_kill_every)]
    kill_every: KillEvery,
    #[command(flatten)]
    output: Output,
    /// Your own worker instead of the built-in one. It gets numbers; what is done is then counted
    /// from the queue, since your worker keeps no record
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
struct KillEvery(Option<Duration>);

fn parse_kill_every(text: &str) -> Result<KillEvery, String> {
    if text == "never" {
        return Ok(KillEvery(None));
    }
    let duration: jiff::SignedDuration = text
        .parse()
        .map_err(|_| "a duration such as 200ms or 2s, or never".to_owned())?;
    match Duration::try_from(duration) {
        Ok(duration) if !duration.is_zero() => Ok(KillEvery(Some(duration))),
        _ => Err("more than nothing, or never".into()),
    }
}

/// What the demo found.
#[derive(Debug, Serialize)]
struct Summary {
    sent: u64,
    done: u64,
    lost: u64,
    dead: u64,
    retried: u64,
    duplicates: u64,
    workers_killed: u64,
    seconds: f64,
    messages_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
}

pub(super) fn run(args: DemoArgs) -> CommandResult {
    let directory = tempfile::Builder::new()
        .prefix("ganger-demo-")
        .tempdir()
        .into_diagnostic()?;
    let record = directory.path().join("record");
    File::create(&record).into_diagnostic()?;
    let config = configure(&args, directory.path(), &record)?;
    let _log = telemetry::start_log(&config.daemon).into_diagnostic()?;
    let (requests, daemon) = start_daemon(config.clone())?;
    let demo = Demo {
        show: Show::new(&args),
        client: open_client(&config)?,
        records: Records::open(&record)?,
        requests,
        killed: 0,
        started: Instant::now(),
        args,
    };
    let sender = start_sending(open_client(&config)?, demo.args.messages)?;
    let summary = demo.run(sender);
    let ended = daemon.join().map_err(|_| miette!("the daemon panicked"))?;
    ended.into_diagnostic()?;
    let (summary, format) = summary?;
    summary.print(format)?;
    Ok(if summary.lost == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The configuration that a user would write for this.
fn configure(args: &DemoArgs, directory: &Path, record: &Path) -> miette::Result<Config> {
    let (program, arguments) = match args.command.split_first() {
        Some((program, arguments)) => (program.clone(), arguments.to_vec()),
        None => {
            let own = std::env::current_exe().into_diagnostic()?;
            (
                own.to_string_lossy().into_owned(),
                vec!["demo-worker".to_owned()],
            )
        }
    };
    let quoted = |text: &str| toml::Value::from(text.replace('$', "$$")).to_string();
    let arguments: Vec<String> = arguments.iter().map(|argument| quoted(argument)).collect();
    let database = directory.join("demo.db");
    let text = format!(
        r#"
        [daemon]
        log_level = "off"
        drain_timeout = "10s"

        [sources.demo]
        kind = "table"
        url = {url}

        [[pools]]
        name = "demo"
        queue = "{QUEUE}"
        workers = {workers}
        command = {program}
        args = [{arguments}]
        env = {{ {RECORD} = {record} }}
        crashes_max = 1000
        retry = {{ attempts = 1000, initial = "50ms", max = "1s" }}
        restart = {{ initial = "50ms", max = "1s" }}
        "#,
        url = quoted(&format!("sqlite:{}", database.display())),
        workers = args.workers,
        program = quoted(&program),
        arguments = arguments.join(", "),
        record = quoted(&record.to_string_lossy()),
    );
    Ok(config::parse(&text, "demo.toml", &environment())?)
}

fn open_client(config: &Config) -> miette::Result<Client> {
    let (name, source) = config
        .sources
        .first_key_value()
        .ok_or_else(|| miette!("the demo has no source"))?;
    Client::open(name, source, &config.pools).into_diagnostic()
}

type DaemonThread = JoinHandle<Result<(), DaemonError>>;

fn start_daemon(config: Config) -> miette::Result<(mpsc::Sender<Request>, DaemonThread)> {
    let (requests_tx, requests) = mpsc::channel(16);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .into_diagnostic()?;
    let run = move || runtime.block_on(Daemon::new(config).run(requests));
    let thread = std::thread::Builder::new()
        .name("daemon".into())
        .spawn(run)
        .into_diagnostic()?;
    Ok((requests_tx, thread))
}

type DemoSender = JoinHandle<miette::Result<()>>;

fn start_sending(mut client: Client, messages: u32) -> miette::Result<DemoSender> {
    let send = move || {
        let numbers: Vec<u32> = (0..messages).collect();
        for batch in numbers.chunks(SEND_BATCH) {
            let batch: Vec<Outgoing> = batch.iter().map(|number| message(*number)).collect();
            client.send(&batch).into_diagnostic()?;
        }
        Ok(())
    };
    std::thread::Builder::new()
        .name("sender".into())
        .spawn(send)
        .into_diagnostic()
}

fn message(number: u32) -> Outgoing {
    Outgoing {
        queue: QUEUE.into(),
        body: Bytes::from((PRIMES_BELOW + number as usize % 1000).to_string()),
        correlation_id: number.to_string(),
        ..Outgoing::default()
    }
}

struct Demo {
    args: DemoArgs,
    requests: mpsc::Sender<Request>,
    client: Client,
    records: Records,
    show: Show,
    killed: u64,
    started: Instant,
}

impl Demo {
    /// Until the queue is empty, or nothing moves any more; then the daemon is stopped.
    fn run(mut self, sender: DemoSender) -> miette::Result<(Summary, Format)> {
        let watched = self.watch(&sender);
        let elapsed = self.started.elapsed();
        let status = self.status();
        // A daemon that has failed needs no stop; its thread tells why.
        drop(self.requests.blocking_send(Request::Stop));
        self.show.finish();
        watched?;
        sender
            .join()
            .map_err(|_| miette!("the sender panicked"))??;
        let format = self.args.output.format;
        Ok((self.sum_up(elapsed, status.as_ref())?, format))
    }

    fn watch(&mut self, sender: &DemoSender) -> miette::Result<()> {
        let mut kill_at = self.args.kill_every.0.map(|every| Instant::now() + every);
        let mut progress = (u64::MAX, Instant::now());
        loop {
            std::thread::park_timeout(LOOK_EVERY);
            let now = Instant::now();
            self.records.read().into_diagnostic()?;
            // Asked before the queue is looked at: what was sent in between would be missed.
            let all_sent = sender.is_finished();
            let left = self.client.depth(QUEUE).into_diagnostic()?.total();
            if all_sent && left == 0 {
                return Ok(());
            }
            if self.requests.is_closed() {
                // It failed; its thread tells why.
                return Ok(());
            }
            if left != progress.0 {
                progress = (left, now);
            }
            if now - progress.1 > STUCK_AFTER {
                self.show.say("nothing has moved for a minute; giving up");
                return Ok(());
            }
            if let (Some(at), Some(every)) = (kill_at, self.args.kill_every.0)
                && at <= now
            {
                kill_at = Some(now + every);
                // The last few would be killed over and over: they are left in peace.
                if left > u64::from(self.args.workers) {
                    self.kill_one();
                }
            }
            self.show
                .progress(self.records.seen.len(), left, self.killed);
        }
    }

    /// Kills a worker, one that has a message in hand if there is one.
    fn kill_one(&mut self) {
        let Some(status) = self.status() else {
            return;
        };
        let mut victims: Vec<_> = status
            .workers
            .iter()
            .filter(|worker| worker.pid.is_some())
            .collect();
        if victims.iter().any(|worker| worker.state == "busy") {
            victims.retain(|worker| worker.state == "busy");
        }
        let Some(victim) = fastrand::choice(victims) else {
            return;
        };
        let Some(pid) = victim.pid.and_then(|pid| i32::try_from(pid).ok()) else {
            return;
        };
        if kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok() {
            self.killed += 1;
            let slot = victim.slot;
            self.show.say(&format!(
                "killed worker {slot} (pid {pid}) with SIGKILL, messages in hand: {}",
                victim.in_flight
            ));
        }
    }

    fn status(&self) -> Option<PoolStatus> {
        let (reply, status) = oneshot::channel();
        self.requests.blocking_send(Request::Status(reply)).ok()?;
        status.blocking_recv().ok()?.into_iter().next()
    }

    fn sum_up(mut self, elapsed: Duration, status: Option<&PoolStatus>) -> miette::Result<Summary> {
        self.records.read().into_diagnostic()?;
        let sent = u64::from(self.args.messages);
        let mut dead: u64 = 0;
        let count = |_| {
            dead += 1;
            ControlFlow::Continue(())
        };
        let all = Page::all(DeadFilter::default());
        self.client.dead_list(&all, count).into_diagnostic()?;
        let left = self.client.depth(QUEUE).into_diagnostic()?.total();
        let built_in = self.args.command.is_empty();
        let done = if built_in {
            self.records.seen.len() as u64
        } else {
            sent - dead - left
        };
        let seconds = elapsed.as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let messages_per_second = done as f64 / seconds;
        Ok(Summary {
            sent,
            done,
            lost: sent.saturating_sub(done + dead),
            dead,
            retried: self.records.retried(),
            duplicates: self.records.lines - self.records.seen.len() as u64,
            workers_killed: self.killed,
            seconds,
            messages_per_second,
            p50_ms: status.map_or(0.0, |status| status.counts.p50_ms),
            p99_ms: status.map_or(0.0, |status| status.counts.p99_ms),
        })
    }
}

/// What the workers have written down, read as it grows.
struct Records {
    file: BufReader<File>,
    partial: String,
    lines: u64,
    /// Each message that was done, with its highest attempt.
    seen: HashMap<u32, u32>,
}

impl Records {
    fn open(path: &Path) -> miette::Result<Self> {
        let file = File::open(path).into_diagnostic()?;
        let file = BufReader::new(file);
        Ok(Self {
            file,
            partial: String::new(),
            lines: 0,
            seen: HashMap::new(),
        })
    }

    fn read(&mut self) -> io::Result<()> {
        while self.file.read_line(&mut self.partial)? > 0 {
            if !self.partial.ends_with('\n') {
                return Ok(());
            }
            let line = std::mem::take(&mut self.partial);
            let mut numbers = line.split_whitespace().map(str::parse::<u32>);
            if let (Some(Ok(message)), Some(Ok(attempt))) = (numbers.next(), numbers.next()) {
                let highest = self.seen.entry(message).or_default();
                *highest = attempt.max(*highest);
                self.lines += 1;
            }
        }
        Ok(())
    }

    fn retried(&self) -> u64 {
        self.seen.values().filter(|attempt| **attempt > 1).count() as u64
    }
}

/// What is shown while it runs: a bar and who was killed, on stderr, for people only.
struct Show {
    bar: ProgressBar,
    format: Format,
    messages: u64,
    built_in: bool,
}

impl Show {
    fn new(args: &DemoArgs) -> Self {
        let messages = u64::from(args.messages);
        let target = match args.output.format {
            Format::Text => ProgressDrawTarget::stderr(),
            Format::Json => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(messages), target);
        let style = "{bar:40} {pos}/{len} done, {per_sec}, {msg}";
        bar.set_style(
            ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        let show = Self {
            bar,
            format: args.output.format,
            messages,
            built_in: args.command.is_empty(),
        };
        let workers = args.workers;
        show.say(&format!(
            "{messages} messages, {workers} worker processes, a queue in a temporary SQLite file"
        ));
        show
    }

    fn progress(&self, recorded: usize, left: u64, killed: u64) {
        let done = if self.built_in {
            recorded as u64
        } else {
            self.messages.saturating_sub(left)
        };
        self.bar.set_position(done);
        self.bar.set_message(format!("{killed} workers killed"));
    }

    fn say(&self, text: &str) {
        if self.format == Format::Text {
            self.bar.suspend(|| output::note(text));
        }
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Summary {
    fn print(&self, format: Format) -> miette::Result<()> {
        if format == Format::Json {
            return output::json(self);
        }
        let rows = [
            ("sent", self.sent.to_string()),
            ("done", self.done.to_string()),
            ("lost", self.lost.to_string()),
            ("dead-lettered", self.dead.to_string()),
            ("retried", self.retried.to_string()),
            ("duplicates", self.duplicates.to_string()),
            ("workers killed", self.workers_killed.to_string()),
            ("seconds", format!("{:.2}", self.seconds)),
            ("messages/s", format!("{:.0}", self.messages_per_second)),
            ("p50 at a worker", format!("{:.2} ms", self.p50_ms)),
            ("p99 at a worker", format!("{:.2} ms", self.p99_ms)),
        ];
        output::line(output::table(
            &["", ""],
            rows.map(|(name, value)| vec![name.to_owned(), value]),
        ))
    }
}
