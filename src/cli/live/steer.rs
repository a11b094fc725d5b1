//! Commands that inspect and steer a running daemon, each by one request to its admin API.

pub(super) mod paint;
mod print;
mod wait;

use std::process::ExitCode;
use std::time::Duration;

use miette::{IntoDiagnostic, miette};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::remote::{Address, block_on, pool_path, undone};
use crate::cli::common::{CommandResult, Format, Output};
use crate::cli::output;
use crate::cli::usage::wrong;
use ganger_admin::client::ClientError;
use ganger_config::model::WORKERS_MAX;
use ganger_pool::overview::Status;
use ganger_pool::worker::output::LastLines;
use ganger_queue::client::json::duration;
use ganger_telemetry::LogLevels;
use wait::{Goal, Waiting};

/// Address of the daemon, and format of its answer.
#[derive(Debug, clap::Args)]
pub(crate) struct DaemonArgs {
    #[command(flatten)]
    address: Address,
    #[command(flatten)]
    output: Output,
}

impl DaemonArgs {
    /// Sends a request, prints the result, and with `--wait` waits for the outcome.
    fn ask(
        &self,
        waiting: &Waiting,
        path: &str,
        body: Option<&Value>,
        goal: impl FnOnce(&Value) -> Goal,
    ) -> CommandResult {
        let remote = self.address.remote()?;
        let printed = (self.output.format, print::done);
        block_on(waiting.ask(&remote, (path, body), goal, printed))?
    }

    /// Sends a request and prints the result.
    fn post(&self, path: &str, body: Option<&Value>) -> CommandResult {
        let remote = self.address.remote()?;
        let answer = block_on(remote.post(path, body))?.map_err(undone)?;
        match self.output.format {
            Format::Json => output::json(&answer)?,
            Format::Text => output::line(print::done(&answer))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints the result of a request.
fn print_done(answer: &Value, format: Format) -> CommandResult {
    match format {
        Format::Json => output::json(answer)?,
        Format::Text => output::line(print::done(answer))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A pool of a daemon.
#[derive(Debug, clap::Args)]
pub(crate) struct PoolArgs {
    /// The pool
    pool: String,
    #[command(flatten)]
    daemon: DaemonArgs,
}

impl PoolArgs {
    fn post(&self, verb: &str, body: Option<&Value>) -> CommandResult {
        self.daemon.post(&pool_path(&self.pool, verb), body)
    }
}

/// A pool, of one daemon or of all.
#[derive(Debug, clap::Args)]
pub(crate) struct ReachArgs {
    #[command(flatten)]
    pool: PoolArgs,
    /// Act on all daemons that share the pool's table, including those that start later
    #[arg(long)]
    all: bool,
}

impl ReachArgs {
    fn post(&self, verb: &str) -> CommandResult {
        match self.all {
            true => self.pool.post(&format!("{verb}?all=true"), None),
            false => self.pool.post(verb, None),
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
    /// Show only this pool
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Also show each worker
    #[arg(long)]
    workers: bool,
}

pub(super) fn status(args: &StatusArgs) -> CommandResult {
    let remote = args.daemon.address.remote()?;
    let mut status: Status = block_on(remote.get("/v1/status"))?.into_diagnostic()?;
    if let Some(name) = &args.pool {
        let known: Vec<String> = status.pools.iter().map(|pool| pool.name.clone()).collect();
        status.pools.retain(|pool| pool.name == *name);
        if status.pools.is_empty() {
            let known = known.join(", ");
            return Err(wrong(format!(
                "there is no pool `{name}`; the pools are: {known}"
            )));
        }
    }
    match args.daemon.output.format {
        Format::Json => output::json(&status)?,
        Format::Text => {
            let text = print::status(&status, args.workers);
            output::line(match paint::has_colours() {
                true => paint::status(&text, &status),
                false => text,
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, clap::Args)]
pub(crate) struct HealthArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
    /// Check readiness, not only liveness
    #[arg(long)]
    ready: bool,
    /// Maximum time to wait for the answer
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = duration)]
    timeout: Duration,
}

/// Exits with 0 if healthy and 1 if not, for the health checks of containers.
pub(super) fn health(args: &HealthArgs) -> CommandResult {
    let remote = args.daemon.address.remote()?;
    let path = if args.ready { "/readyz" } else { "/livez" };
    let answered = async { timeout(args.timeout, remote.get::<Value>(path)).await };
    let Ok(answer) = block_on(answered)? else {
        return Err(miette!("no answer within {:?}", args.timeout));
    };
    match answer {
        Ok(health) => {
            match args.daemon.output.format {
                Format::Json => output::json(&health)?,
                Format::Text => output::line("ok")?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(ClientError::Refused { detail, .. }) => {
            Err(miette!("the daemon is unhealthy: {detail}"))
        }
        Err(error) => Err(error).into_diagnostic(),
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ScaleArgs {
    /// The pool
    pool: String,
    /// Number of workers; `configured` or `auto` for the configured number
    #[arg(value_parser = workers)]
    workers: Workers,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// Number of workers that a pool is to have; none for the configured number.
#[derive(Debug, Clone, Copy)]
struct Workers(Option<usize>);

fn workers(text: &str) -> Result<Workers, String> {
    match text {
        "configured" | "auto" => Ok(Workers(None)),
        number => match number.parse() {
            Ok(number) if number <= WORKERS_MAX => Ok(Workers(Some(number))),
            Ok(_) => Err(format!("must be within 0..={WORKERS_MAX}")),
            Err(_) => Err("must be a whole number, `configured` or `auto`".into()),
        },
    }
}

pub(super) fn scale(args: &ScaleArgs) -> CommandResult {
    let body = json!({ "workers": args.workers.0 });
    let goal = |_: &Value| Goal::Scaled {
        pool: args.pool.clone(),
        workers: args.workers.0,
    };
    let path = pool_path(&args.pool, "scale");
    args.daemon.ask(&args.waiting, &path, Some(&body), goal)
}

pub(super) fn pause(args: &ReachArgs) -> CommandResult {
    args.post("pause")
}

pub(super) fn resume(args: &ReachArgs) -> CommandResult {
    args.post("resume")
}

/// A pool of a daemon, with the options for waiting for the outcome.
#[derive(Debug, clap::Args)]
pub(crate) struct WaitingPoolArgs {
    /// The pool
    pool: String,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub(super) fn restart(args: &WaitingPoolArgs) -> CommandResult {
    let goal = |answer: &Value| Goal::Rolled {
        pool: args.pool.clone(),
        number: answer["roll"].as_u64().unwrap_or(u64::MAX),
    };
    let path = pool_path(&args.pool, "restart");
    args.daemon.ask(&args.waiting, &path, None, goal)
}

pub(super) fn drain(args: &WaitingPoolArgs) -> CommandResult {
    let goal = |_: &Value| Goal::Drained {
        pool: args.pool.clone(),
    };
    let path = pool_path(&args.pool, "drain");
    args.daemon.ask(&args.waiting, &path, None, goal)
}

#[derive(Debug, clap::Args)]
pub(crate) struct KillArgs {
    /// The pool
    pool: String,
    /// The worker's slot, as `ganger status --workers` shows it
    slot: usize,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub(super) fn kill(args: &KillArgs) -> CommandResult {
    let verb = format!("workers/{}/kill", args.slot);
    args.daemon.post(&pool_path(&args.pool, &verb), None)
}

#[derive(Debug, clap::Args)]
pub(crate) struct CancelArgs {
    /// The pool
    pool: String,
    /// The message's correlation id, its message id, or the name that ganger gives it, such as orders:17
    id: String,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub(super) fn cancel(args: &CancelArgs) -> CommandResult {
    let body = json!({ "id": args.id });
    let remote = args.daemon.address.remote()?;
    let cancel = async {
        let path = pool_path(&args.pool, "cancel");
        let cancelled = remote.post(&path, Some(&body)).await;
        // That no message is called so is not the command line's fault, if the pool is there.
        match cancelled {
            Err(ClientError::Refused {
                status: 404,
                detail,
                ..
            }) => {
                let pool = remote.get::<Value>(&pool_path(&args.pool, "")).await;
                pool.map_err(undone)?;
                Err(miette!("{detail}"))
            }
            cancelled => cancelled.map_err(undone),
        }
    };
    let answer = block_on(cancel)??;
    print_done(&answer, args.daemon.output.format)
}

#[derive(Debug, clap::Args)]
pub(crate) struct OutputArgs {
    /// The pool
    pool: String,
    /// The worker's slot, as `ganger status --workers` shows it
    slot: usize,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub(super) fn last_lines(args: &OutputArgs) -> CommandResult {
    let verb = format!("workers/{}/output", args.slot);
    let remote = args.daemon.address.remote()?;
    let lines: LastLines = block_on(remote.get(&pool_path(&args.pool, &verb)))?.map_err(undone)?;
    match args.daemon.output.format {
        Format::Json => output::json(&lines)?,
        Format::Text => lines_to_stdout(&print::last_lines(&lines))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the text, unless it is empty.
fn lines_to_stdout(text: &str) -> miette::Result<()> {
    match text.is_empty() {
        true => Ok(()),
        false => output::line(text),
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct LogLevelArgs {
    /// A level, or a filter such as info,ganger_pool=debug; `configured` for the configured one. If omitted,
    /// the levels are shown
    level: Option<String>,
    /// Only for records of this pool's threads
    #[arg(long, value_name = "NAME", requires = "level")]
    pool: Option<String>,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub(super) fn log_level(args: &LogLevelArgs) -> CommandResult {
    let remote = args.daemon.address.remote()?;
    let levels = match args.level.as_deref() {
        None => block_on(remote.get("/v1/log-level"))?,
        Some(level) => {
            let level = (level != "configured").then_some(level);
            let body = json!({ "level": level, "pool": args.pool });
            block_on(remote.post("/v1/log-level", Some(&body)))?
        }
    };
    let levels = levels.map_err(undone)?;
    match args.daemon.output.format {
        Format::Json => output::json(&levels)?,
        Format::Text => {
            let levels: LogLevels = serde_json::from_value(levels).into_diagnostic()?;
            lines_to_stdout(&print::log_levels(&levels))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub(super) fn reload(args: &ReloadArgs) -> CommandResult {
    let goal = |_: &Value| Goal::Reloaded;
    args.daemon.ask(&args.waiting, "/v1/reload", None, goal)
}
