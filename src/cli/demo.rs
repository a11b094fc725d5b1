//! `ganger demo`: ganger at work without a broker. A table queue in a temporary SQLite file, or on a server
//! of the user's, a pool of real worker processes, workers killed on purpose, and at the end a count of the
//! records that the workers themselves have written.

mod burst;
mod dashboard;
mod records;
mod show;
mod stage;
mod summary;
mod worker;

use std::fs::{File, Permissions};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use miette::{IntoDiagnostic, miette};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::Instant;

use super::common::{CommandResult, Output};
use dashboard::Dashboard;
use ganger_pool::status::PoolStatus;
use ganger_queue::client::{Page, unique_name};
use ganger_telemetry as telemetry;
use records::Records;
use show::{Figures, Killed, Show};
use stage::{PRIMES_BELOW, Plan, STUCK_AFTER, Schedules, Stage, TableLocation};
use summary::Summary;

/// Interval at which the records are read.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, clap::Subcommand)]
pub(super) enum DemoCommand {
    /// Run a demo: workers are killed, no message is lost
    Demo(DemoArgs),
    /// Run a worker of `ganger demo`; started by the demo only
    #[command(hide = true)]
    DemoWorker,
}

#[derive(Debug, clap::Args)]
pub(super) struct DemoArgs {
    /// Number of messages to send [default: 5000, with --ui 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    messages: Option<u32>,
    /// Serve the dashboard meanwhile, and print its URL. On a terminal the demo begins and ends with Enter
    #[arg(long)]
    ui: bool,
    /// Number of schedules that are due each second and send these messages, instead of all at once
    #[arg(long, value_name = "N", conflicts_with = "source", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    schedules: Option<u32>,
    /// Number of worker processes
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    /// Interval at which a worker is killed: a duration, or `never`
    #[arg(long, default_value = "200ms", value_name = "DURATION", value_parser = parse_kill_every)]
    kill_every: KillEvery,
    /// Number of no-op messages sent at the end, to measure the speed of ganger itself [default: 100000, or
    /// none with your own worker]
    #[arg(long, value_name = "N")]
    burst: Option<u32>,
    /// The table source to run on, instead of SQLite in a temporary file: a URL as in a configuration,
    /// variables such as ${PGPASSWORD} included. Its tables there begin with ganger_demo_; they stay, empty
    #[arg(long, value_name = "URL")]
    source: Option<String>,
    #[command(flatten)]
    output: Output,
    /// Your own worker instead of the built-in one. Its messages are numbers; results are then counted from
    /// the queue, since your worker keeps no record
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

impl DemoArgs {
    fn messages(&self) -> u32 {
        let unless_given = if self.ui { 100_000 } else { 5000 };
        self.messages.unwrap_or(unless_given)
    }
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
        _ => Err("a duration above zero, or never".into()),
    }
}

pub(super) fn run(command: DemoCommand) -> CommandResult {
    match command {
        DemoCommand::Demo(args) => demo(args),
        DemoCommand::DemoWorker => worker::run(),
    }
}

fn demo(args: DemoArgs) -> CommandResult {
    let directory = tempfile::Builder::new()
        .prefix("ganger-demo-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir()
        .into_diagnostic()?;
    let record = directory.path().join("record");
    File::create(&record).into_diagnostic()?;
    let ground = match &args.source {
        Some(url) => TableLocation { url: url.clone() },
        None => TableLocation::in_file(directory.path()),
    };
    let queue = format!("demo-{}", unique_name().into_diagnostic()?);
    let plan = Plan {
        ground: &ground,
        queue: &queue,
        workers: args.workers,
        command: &args.command,
        record: &record,
        concurrency: 1,
        schedules: args.schedules.map(|count| Schedules {
            count: count.min(args.messages()),
            messages: args.messages(),
        }),
    };
    let mut config = plan.config()?;
    config.admin.listen = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let _log = telemetry::start_log(&config.daemon, None).into_diagnostic()?;
    let stage = Stage::start(config)?;
    let dashboard = args.ui.then(|| Dashboard::open(&stage, directory.path()));
    let dashboard = dashboard.transpose()?;
    let feeder = match plan.schedules {
        Some(_) => Feeder::of_schedules(&stage, args.messages()),
        None => Feeder::of_messages(&stage, args.messages()),
    }?;
    let demo = Demo {
        show: Show::new(
            args.output.format,
            args.messages().into(),
            args.workers as usize,
        ),
        stage,
        records: Records::open(&record)?,
        killed: 0,
        started: Instant::now(),
        args: &args,
        dashboard,
    };
    let mut summary = demo.run(feeder)?;
    let unless_said = if args.command.is_empty() {
        burst::MESSAGES
    } else {
        0
    };
    if let messages @ 1.. = args.burst.unwrap_or(unless_said) {
        summary.burst = Some(burst::run(
            args.workers,
            &args.command,
            messages,
            (&ground, &format!("{queue}-burst")),
        )?);
    }
    summary.print(args.output.format)?;
    Ok(if summary.lost == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Thread that fills the queue during the demo, or sees schedules fill it.
struct Feeder {
    sent: Arc<AtomicU64>,
    thread: JoinHandle<miette::Result<()>>,
}

impl Feeder {
    fn of_messages(stage: &Stage, messages: u32) -> miette::Result<Self> {
        let mut client = stage.another_client()?;
        let queue = stage.queue().to_owned();
        let primes_below = |number: u32| (PRIMES_BELOW + number % 1000).to_string();
        Self::start(move |count| {
            let sent = |sent| count.store(sent, Ordering::Release);
            stage::send(&mut client, &queue, messages, primes_below, sent)
        })
    }

    fn of_schedules(stage: &Stage, messages: u32) -> miette::Result<Self> {
        let dispatched = stage.dispatched();
        Self::start(move |count| {
            while count.load(Ordering::Acquire) < messages.into() {
                let Some(sent) = dispatched() else { break };
                count.store(sent, Ordering::Release);
                std::thread::park_timeout(LOOK_EVERY);
            }
            Ok(())
        })
    }

    fn start(
        fill: impl FnOnce(&AtomicU64) -> miette::Result<()> + Send + 'static,
    ) -> miette::Result<Self> {
        let sent = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&sent);
        let thread = std::thread::Builder::new().name("feeder".into());
        let thread = thread.spawn(move || fill(&count)).into_diagnostic()?;
        Ok(Self { sent, thread })
    }

    /// Returns the number of messages sent to the queue so far.
    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }
}

struct Demo<'a> {
    args: &'a DemoArgs,
    dashboard: Option<Dashboard>,
    stage: Stage,
    records: Records,
    show: Show,
    killed: u64,
    started: Instant,
}

impl Demo<'_> {
    /// Runs until the queue is empty or nothing moves any more, then stops the daemon.
    fn run(mut self, feeder: Feeder) -> miette::Result<Summary> {
        let watched = self.watch(&feeder);
        let elapsed = self.started.elapsed();
        let status = self.stage.status();
        self.show.finish();
        if let Some(dashboard) = self.dashboard.take() {
            dashboard::pause("All is done. Press Enter to end the demo and its dashboard.");
            drop(dashboard);
        }
        let Self {
            args,
            mut stage,
            records,
            killed,
            ..
        } = self;
        let summary = watched.and_then(|()| {
            feeder
                .thread
                .join()
                .map_err(|_| miette!("the feeder panicked"))??;
            sum_up(args, &mut stage, records, status.as_ref(), elapsed)
        });
        stage.stop()?;
        let summary = summary?;
        Ok(Summary {
            workers_killed: killed,
            ..summary
        })
    }

    fn watch(&mut self, feeder: &Feeder) -> miette::Result<()> {
        let mut kill_at = self.args.kill_every.0.map(|every| Instant::now() + every);
        let mut show_at = Instant::now();
        let mut progress = (u64::MAX, Instant::now());
        loop {
            std::thread::park_timeout(LOOK_EVERY);
            let now = Instant::now();
            // In this order, so that what moves meanwhile is never counted as lost or as all.
            let all_sent = feeder.thread.is_finished();
            let sent = feeder.sent();
            let left = self.stage.left()?;
            self.records.read().into_diagnostic()?;
            if (all_sent && left == 0) || self.stage.has_failed() {
                return Ok(());
            }
            if left != progress.0 {
                progress = (left, now);
            }
            if now - progress.1 > STUCK_AFTER {
                self.show.say("no progress for a minute; giving up");
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
            if show_at <= now {
                show_at = now + self.show.every();
                self.show_progress(sent, left);
            }
        }
    }

    fn show_progress(&mut self, sent: u64, left: u64) {
        let Some(status) = self.stage.status() else {
            return;
        };
        let gone = sent.saturating_sub(left);
        let figures = Figures {
            messages: self.args.messages().into(),
            done: match self.args.command.is_empty() {
                true => self.records.done(),
                false => gone.saturating_sub(status.counts.dead),
            },
            lost: match self.args.command.is_empty() {
                true => gone.saturating_sub(self.records.done() + status.counts.dead),
                false => 0,
            },
            duplicates: self.records.duplicates(),
            killed: self.killed,
            elapsed: self.started.elapsed(),
        };
        self.show.progress(&figures, &status);
    }

    /// Kills a worker, preferably one that has a message in hand.
    fn kill_one(&mut self) {
        let Some(status) = self.stage.status() else {
            return;
        };
        let mut victims: Vec<_> = status
            .workers
            .iter()
            .filter_map(|worker| Some((worker, worker.pid?)))
            .collect();
        if victims.iter().any(|(worker, _)| worker.state == "busy") {
            victims.retain(|(worker, _)| worker.state == "busy");
        }
        let Some((victim, pid)) = fastrand::choice(victims) else {
            return;
        };
        let process = i32::try_from(pid).map(Pid::from_raw);
        if process.is_ok_and(|process| kill(process, Signal::SIGKILL).is_ok()) {
            self.killed += 1;
            self.show.killed(&Killed {
                slot: victim.slot,
                pid,
                in_flight: victim.in_flight,
                at: Instant::now(),
            });
        }
    }
}

fn sum_up(
    args: &DemoArgs,
    stage: &mut Stage,
    mut records: Records,
    status: Option<&PoolStatus>,
    elapsed: Duration,
) -> miette::Result<Summary> {
    records.read().into_diagnostic()?;
    let sent = u64::from(args.messages());
    let mut dead: u64 = 0;
    let count = |_| {
        dead += 1;
        ControlFlow::Continue(())
    };
    let all = Page::all(stage.dead());
    stage.client().dead_list(&all, count).into_diagnostic()?;
    let done = if args.command.is_empty() {
        records.done()
    } else {
        sent - dead - stage.left()?
    };
    stage.tidy_up()?;
    let seconds = elapsed.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let messages_per_second = done as f64 / seconds;
    Ok(Summary {
        sent,
        done,
        lost: sent.saturating_sub(done + dead),
        dead,
        schedules: args.schedules,
        retried: records.retried(),
        duplicates: records.duplicates(),
        workers_killed: 0,
        seconds,
        messages_per_second,
        p50_ms: status.map_or(0.0, |status| status.counts.p50_ms),
        p99_ms: status.map_or(0.0, |status| status.counts.p99_ms),
        burst: None,
    })
}
