//! `ganger run`: the daemon with its signals.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use miette::IntoDiagnostic;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use tokio::sync::mpsc;

use super::check::too_many_workers;
use super::common::{CommandResult, ConfigFile, environment};
use super::output;
use crate::config::model::Config;
use crate::daemon::{Daemon, Request};
use crate::worker::{open_files, orphans, sweep};
use crate::{config, telemetry};

/// How often `--watch` looks at the configuration.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// How soon orphans are looked at again when a worker was just being started.
const REAP_AGAIN: Duration = Duration::from_millis(50);
/// Requests that may wait for the daemon.
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
    let seen = stamp(&args.config.path);
    let config = args.config.load()?;
    let log = telemetry::start_log(&config.daemon).into_diagnostic()?;
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
    for warning in config::exposed(&args.config.path) {
        tracing::warn!(warning, "the configuration is not safe from others");
    }
    if let Some(problem) = too_many_workers(&config) {
        tracing::warn!(problem, "not all workers will start");
    }
    sweep_up(&config)?;
    let (requests_tx, requests) = mpsc::channel(REQUESTS_WAITING_MAX);
    obey_signals(args.config.path.clone(), requests_tx.clone())?;
    watch_children()?;
    runtime.block_on(async {
        if args.watch {
            let watched = Watched::new(stamp);
            tokio::spawn(watch(args.config.path.clone(), watched, requests_tx));
        }
        Daemon::new(config).run(requests).await.into_diagnostic()
    })
}

/// Removes what killed daemons have left, while this one starts.
fn sweep_up(config: &Config) -> miette::Result<()> {
    let users = config.pools.iter().map(|pool| pool.command.user.clone());
    let users: BTreeSet<String> = users.flatten().collect();
    let sweep = move || sweep::sweep(users.iter().map(String::as_str));
    let thread = std::thread::Builder::new().name("sweep".into());
    thread.spawn(sweep).into_diagnostic()?;
    Ok(())
}

/// Turns signals into requests, on a thread of its own for as long as the process lives.
fn obey_signals(path: PathBuf, requests: mpsc::Sender<Request>) -> miette::Result<()> {
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2]).into_diagnostic()?;
    let obey = move || {
        for signal in signals.forever() {
            let request = match signal {
                SIGHUP => reload(&path),
                SIGUSR1 => Some(Request::LogStatus),
                SIGUSR2 => Some(Request::Roll),
                _ => Some(Request::Stop),
            };
            if request.is_some_and(|request| requests.blocking_send(request).is_err()) {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(obey)
        .into_diagnostic()?;
    Ok(())
}

/// Reads the configuration again; one that is invalid changes nothing.
fn reload(path: &Path) -> Option<Request> {
    match config::load(path, &environment()) {
        Ok(config) => Some(Request::Reload(Box::new(config))),
        Err(problems) => {
            for problem in problems.messages() {
                tracing::error!(
                    problem = problem.message,
                    help = problem.help,
                    file = problem.file,
                    line = problem.line,
                    "reload refused: the configuration is invalid"
                );
            }
            None
        }
    }
}

/// Has children of ours and of others reaped.
///
/// A handler of our own for SIGCHLD, whatever it does, undoes what some shells and cron leave
/// behind: a program started with it ignored never learns how its children ended.
fn watch_children() -> miette::Result<()> {
    if std::process::id() != 1 {
        signal_hook::flag::register(SIGCHLD, Arc::default()).into_diagnostic()?;
        return Ok(());
    }
    let mut ended = Signals::new([SIGCHLD]).into_diagnostic()?;
    let reap = move || {
        for _ in ended.forever() {
            while !orphans::reap() {
                std::thread::park_timeout(REAP_AGAIN);
            }
        }
    };
    let thread = std::thread::Builder::new().name("orphans".into());
    thread.spawn(reap).into_diagnostic()?;
    Ok(())
}

async fn watch(path: PathBuf, mut watched: Watched, requests: mpsc::Sender<Request>) {
    let mut ticks = tokio::time::interval(WATCH_EVERY);
    loop {
        ticks.tick().await;
        if watched.has_changed(stamp(&path))
            && let Some(request) = reload(&path)
            && requests.send(request).await.is_err()
        {
            return;
        }
    }
}

/// Tells when the configuration has changed and is still: what is just being written is not read.
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

/// What changes when the configuration does: every file's name, size and time.
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
