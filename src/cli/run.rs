//! `ganger run`: runs the daemon and handles its signals.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use miette::IntoDiagnostic;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use tokio::sync::mpsc;

use super::common::{CommandResult, ConfigFile, environment, load};
use super::signals::Signals;
use super::{interfaces, output, warnings};
use crate::collector;
use crate::daemon::Daemon;
use crate::daemon::service::Service;
use ganger_config::model::Config;
use ganger_config::{Problem, Problems};
use ganger_core::heartbeat::Heartbeat;
use ganger_core::started_in;
use ganger_pool::overview::Overview;
use ganger_pool::pauses::Pauses;
use ganger_pool::request::Request;
use ganger_pool::worker::{open_files, orphans, sweep};
use ganger_telemetry as telemetry;

/// Interval at which `--watch` checks the configuration.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// Delay before orphans are reaped again if a worker was just being started.
const REAP_AGAIN: Duration = Duration::from_millis(50);
/// Maximum number of requests that wait for the daemon.
const REQUESTS_WAITING_MAX: usize = 16;

#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// Reload the configuration whenever it changes
    #[arg(long)]
    watch: bool,
}

pub(super) fn run(args: &RunArgs) -> CommandResult {
    // Taken before it is read, so that no change falls in between.
    let seen = stamp(&to_reload(&args.config.path));
    let config = args.config.load()?;
    let log = telemetry::start_log(&config.daemon, collector::layer()).into_diagnostic()?;
    let _sending = collector::start(&config.telemetry, &environment());
    Ok(match serve(args, config, seen) {
        Ok(()) => ExitCode::SUCCESS,
        // Printed as other commands do it, it would wait for a reader that sleeps.
        Err(report) => {
            log.print(&output::complaint(&report));
            ExitCode::FAILURE
        }
    })
}

fn serve(args: &RunArgs, config: Config, stamp: Stamp) -> miette::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.into_diagnostic()?;
    open_files::raise_limit();
    warnings::log(&args.config.path, &config);
    sweep_up(&config)?;
    let stall_timeout = config.daemon.stall_timeout;
    let (admin, telemetry) = (config.admin.clone(), config.telemetry.clone());
    let pauses = Pauses::read(args.config.state("paused"));
    let daemon = Daemon::new(config).with_pauses(pauses);
    collector::send_metrics(daemon.overview(), telemetry.seed_names);
    let service = Service::start(stall_timeout, daemon.overview()).into_diagnostic()?;
    let daemon = daemon.reporting_to(service.clone());
    let (requests_tx, requests) = mpsc::channel(REQUESTS_WAITING_MAX);
    let reloader = Reloader {
        path: to_reload(&args.config.path),
        service: service.clone(),
        overview: daemon.overview(),
    };
    forward_signals(reloader.clone(), requests_tx.clone())?;
    watch_children()?;
    let (read, for_reload) = (reloader.path.clone(), reloader.clone());
    let _surface = interfaces::open(
        (&args.config, &admin, &telemetry),
        daemon.overview(),
        requests_tx.clone(),
        move || load(&read),
        move || for_reload.load(),
    )?;
    let ended = runtime.block_on(async {
        if args.watch {
            tokio::spawn(watch(reloader, Watched::new(stamp), requests_tx));
        }
        daemon.run(requests).await.into_diagnostic()
    });
    service.finish();
    ended
}

/// Returns the path from which the configuration is reloaded: through the link by which the daemon's
/// directory was entered, if there is one, which may lead to another release then.
fn to_reload(config: &Path) -> PathBuf {
    match started_in::link() {
        Some(link) => link.join(config),
        None => config.to_owned(),
    }
}

/// Removes files left by killed daemons, while this one starts.
fn sweep_up(config: &Config) -> miette::Result<()> {
    let users = config.pools.iter().map(|pool| pool.command.user.clone());
    let users: BTreeSet<String> = users.flatten().collect();
    let sweep = move || sweep::sweep(users.iter().map(String::as_str));
    let thread = std::thread::Builder::new().name("sweep".into());
    thread.spawn(sweep).into_diagnostic()?;
    Ok(())
}

/// Turns signals into requests, on a thread of its own for as long as the process lives.
fn forward_signals(reloader: Reloader, requests: mpsc::Sender<Request>) -> miette::Result<()> {
    let signals = Signals::of(&[SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2]).into_diagnostic()?;
    let obey = move |signal, _: &Heartbeat| {
        let request = match signal {
            SIGHUP => reloader.reload(),
            SIGUSR1 => Some(Request::LogStatus),
            SIGUSR2 => Some(Request::Roll),
            _ => Some(Request::Stop),
        };
        match request.map(|request| requests.blocking_send(request)) {
            Some(Err(_)) => ControlFlow::Break(()),
            Some(Ok(())) | None => ControlFlow::Continue(()),
        }
    };
    signals.handled_by("signals", obey).into_diagnostic()
}

/// Reads the configuration again.
#[derive(Debug, Clone)]
struct Reloader {
    path: PathBuf,
    service: Service,
    overview: Overview,
}

impl Reloader {
    fn reload(&self) -> Option<Request> {
        let config = self.load().ok()?;
        Some(Request::Reload(Box::new(config), None))
    }

    /// Reads the configuration for a reload, of which the service manager is told. An invalid one changes nothing.
    fn load(&self) -> Result<Config, Problems> {
        self.service.reloading();
        let loaded = load(&self.path);
        let loaded = loaded.inspect_err(|problems| self.refuse(problems))?;
        let (path, config) = (self.path.clone(), loaded.clone());
        // A library that reads files of the configuration to check it holds up no signal.
        let thread = std::thread::Builder::new().name("warnings".into());
        if let Err(error) = thread.spawn(move || warnings::log(&path, &config)) {
            tracing::warn!(%error, "the configuration is not checked for risks: no thread");
        }
        Ok(loaded)
    }

    fn refuse(&self, problems: &Problems) {
        for problem in problems.messages() {
            tracing::error!(
                problem = problem.message,
                help = problem.help,
                file = problem.file,
                line = problem.line,
                "reload refused: the configuration is invalid"
            );
        }
        let problems = problems.messages().iter().map(Problem::one_line);
        self.overview.reload_refused(problems.collect());
        self.service.ready();
    }
}

/// Reaps our own children and adopted ones.
///
/// Our own handler for SIGCHLD, even one that does nothing, undoes the setting of some shells and cron: a
/// program started with the signal ignored never learns how its children ended.
fn watch_children() -> miette::Result<()> {
    if std::process::id() != 1 {
        signal_hook::flag::register(SIGCHLD, Arc::default()).into_diagnostic()?;
        return Ok(());
    }
    let ended = Signals::of(&[SIGCHLD]).into_diagnostic()?;
    // What an entrypoint that became the daemon has left: of those that have ended no signal comes.
    orphans::reap();
    let reap = |_, heart: &Heartbeat| {
        while !orphans::reap() {
            heart.beat();
            std::thread::park_timeout(REAP_AGAIN);
        }
        ControlFlow::Continue(())
    };
    ended.handled_by("orphans", reap).into_diagnostic()
}

async fn watch(reloader: Reloader, mut watched: Watched, requests: mpsc::Sender<Request>) {
    let mut ticks = tokio::time::interval(WATCH_EVERY);
    loop {
        ticks.tick().await;
        if watched.has_changed(stamp(&reloader.path))
            && let Some(request) = reloader.reload()
            && requests.send(request).await.is_err()
        {
            return;
        }
    }
}

/// Detects that the configuration has changed and is stable: a file that is just being written is not read.
#[derive(Debug)]
struct Watched {
    loaded: Stamp,
    last: Stamp,
}

impl Watched {
    fn new(loaded: Stamp) -> Self {
        let last = loaded.clone();
        Self { loaded, last }
    }

    fn has_changed(&mut self, now: Stamp) -> bool {
        let still = self.last == now;
        self.last = now;
        let changed = still && self.loaded != self.last;
        if changed {
            self.loaded.clone_from(&self.last);
        }
        changed
    }
}

/// Fingerprint of the configuration: every file's name, size and time.
type Stamp = Vec<(PathBuf, u64, Option<std::time::SystemTime>)>;

fn stamp(path: &Path) -> Stamp {
    let in_directory = std::fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut stamps: Vec<_> = in_directory
        .chain([path.to_owned()])
        .filter_map(|path| {
            let metadata = std::fs::metadata(&path).ok()?;
            Some((path, metadata.len(), metadata.modified().ok()))
        })
        .collect();
    stamps.sort();
    stamps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_written_is_not_read() {
        let stamp = |bytes| vec![(PathBuf::from("ganger.toml"), bytes, None)];
        let mut watched = Watched::new(stamp(100));
        let sizes = [100, 0, 40, 70, 70, 70, 100, 100, 100, 0, 100, 100];
        let changed: Vec<usize> = (0..sizes.len())
            .filter(|look| watched.has_changed(stamp(sizes[*look])))
            .collect();
        assert_eq!(
            changed,
            [4, 7],
            "written in pieces, then again; back to what it was"
        );
    }
}
