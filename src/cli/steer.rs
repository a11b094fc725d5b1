//! The commands that look at a running daemon and steer it. All of them ask its admin API, on this
//! machine through its socket, with `--host` over the network.

mod print;

use std::path::PathBuf;
use std::process::ExitCode;

use miette::{IntoDiagnostic, miette};
use serde_json::{Value, json};
use url::Url;

use super::common::{CommandResult, ConfigFile, Format, Output};
use super::output;
use crate::admin::client::{ClientError, Remote, Target};
use crate::config::model::Secret;
use crate::status::Status;

/// The variable that holds the token.
const TOKEN: &str = "GANGER_ADMIN_TOKEN";

/// Which daemon is meant.
#[derive(Debug, clap::Args)]
pub(super) struct Daemon {
    #[command(flatten)]
    config: ConfigFile,
    /// The daemon's address, such as http://10.0.0.7:9464, instead of its socket on this machine
    #[arg(long, value_name = "URL")]
    host: Option<Url>,
    /// A file that holds the token for --host; else GANGER_ADMIN_TOKEN holds it
    #[arg(long, value_name = "FILE", requires = "host")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

impl Daemon {
    fn remote(&self) -> miette::Result<Remote> {
        let target = match &self.host {
            None => Target::Here(self.places()?),
            Some(url) if url.scheme() != "http" || url.host().is_none() => {
                return Err(miette!(
                    "--host must be http://HOST:PORT: `{url}`; for TLS, put a proxy before the daemon"
                ));
            }
            Some(url) => Target::There {
                url: url.clone(),
                token: self.token()?,
            },
        };
        Ok(Remote::new(target))
    }

    /// The configuration may be unreadable for whoever asks, or wrong just now: its socket is where
    /// it would be without a say in it.
    fn places(&self) -> miette::Result<crate::admin::Places> {
        if !self.config.path.exists() {
            let path = self.config.path.display();
            return Err(miette!(
                "there is no configuration `{path}` to find the daemon by: give its path with \
                 --config, or the daemon's address with --host"
            ));
        }
        let socket = match self.config.load() {
            Ok(config) => config.admin.socket,
            Err(_) => None,
        };
        Ok(self.config.places(socket.as_deref()))
    }

    fn token(&self) -> miette::Result<Option<Secret>> {
        let text = match &self.token_file {
            Some(file) => Some(std::fs::read_to_string(file).map_err(|error| {
                miette!("the token file `{}` can't be read: {error}", file.display())
            })?),
            None => std::env::var(TOKEN).ok(),
        };
        Ok(text.map(|text| Secret::new(text.trim())))
    }

    /// Asks for something to be done, and prints what was.
    fn post(&self, path: &str, body: Option<&Value>) -> CommandResult {
        let remote = self.remote()?;
        let answer = block_on(remote.post(path, body))?.into_diagnostic()?;
        match self.output.format {
            Format::Json => output::json(&answer)?,
            Format::Text => {
                output::line(output::foreign(answer["done"].as_str().unwrap_or("done")))?
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> miette::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    Ok(runtime.into_diagnostic()?.block_on(work))
}

/// A pool of a daemon.
#[derive(Debug, clap::Args)]
pub(super) struct PoolArgs {
    /// The pool
    pool: String,
    #[command(flatten)]
    daemon: Daemon,
}

impl PoolArgs {
    fn post(&self, verb: &str, body: Option<&Value>) -> CommandResult {
        self.daemon.post(&path(&self.pool, verb), body)
    }
}

fn path(pool: &str, verb: &str) -> String {
    let pool = percent_encoding::utf8_percent_encode(pool, percent_encoding::NON_ALPHANUMERIC);
    format!("/v1/pools/{pool}/{verb}")
}

#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    daemon: Daemon,
    /// Show only this pool
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Show each worker too
    #[arg(long)]
    workers: bool,
}

pub(super) fn status(args: &StatusArgs) -> CommandResult {
    let remote = args.daemon.remote()?;
    let mut status: Status = block_on(remote.get("/v1/status"))?.into_diagnostic()?;
    if let Some(name) = &args.pool {
        let known: Vec<String> = status.pools.iter().map(|pool| pool.name.clone()).collect();
        status.pools.retain(|pool| pool.name == *name);
        if status.pools.is_empty() {
            return Err(miette!(
                "there is no pool `{name}`; the pools are: {}",
                known.join(", ")
            ));
        }
    }
    match args.daemon.output.format {
        Format::Json => output::json(&status)?,
        Format::Text => print::status(&status, args.workers)?,
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, clap::Args)]
pub(super) struct HealthArgs {
    #[command(flatten)]
    daemon: Daemon,
    /// Ask whether it works, not only whether it lives
    #[arg(long)]
    ready: bool,
}

/// Exits with 0 if all is well and 1 if not, for the health checks of containers.
pub(super) fn health(args: &HealthArgs) -> CommandResult {
    let remote = args.daemon.remote()?;
    let path = if args.ready { "/readyz" } else { "/livez" };
    match block_on(remote.get::<Value>(path))? {
        Ok(health) => {
            match args.daemon.output.format {
                Format::Json => output::json(&health)?,
                Format::Text => output::line("ok")?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(ClientError::Refused { detail, .. }) => {
            Err(miette!("the daemon is not well: {detail}"))
        }
        Err(error) => Err(error).into_diagnostic(),
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct ScaleArgs {
    /// The pool
    pool: String,
    /// How many workers; `configured`, or `auto`, for what the configuration says
    #[arg(value_parser = workers)]
    workers: Workers,
    #[command(flatten)]
    daemon: Daemon,
}

/// How many workers a pool is to have; none for what is configured.
#[derive(Debug, Clone, Copy)]
struct Workers(Option<usize>);

fn workers(text: &str) -> Result<Workers, String> {
    match text {
        "configured" | "auto" => Ok(Workers(None)),
        number => match number.parse() {
            Ok(number) => Ok(Workers(Some(number))),
            Err(_) => Err("must be a whole number, `configured` or `auto`".into()),
        },
    }
}

pub(super) fn scale(args: &ScaleArgs) -> CommandResult {
    let body = json!({ "workers": args.workers.0 });
    args.daemon.post(&path(&args.pool, "scale"), Some(&body))
}

pub(super) fn pause(args: &PoolArgs) -> CommandResult {
    args.post("pause", None)
}

pub(super) fn resume(args: &PoolArgs) -> CommandResult {
    args.post("resume", None)
}

pub(super) fn restart(args: &PoolArgs) -> CommandResult {
    args.post("restart", None)
}

pub(super) fn drain(args: &PoolArgs) -> CommandResult {
    args.post("drain", None)
}

#[derive(Debug, clap::Args)]
pub(super) struct KillArgs {
    /// The pool
    pool: String,
    /// The worker's slot, as `ganger status --workers` shows it
    slot: usize,
    #[command(flatten)]
    daemon: Daemon,
}

pub(super) fn kill(args: &KillArgs) -> CommandResult {
    let verb = format!("workers/{}/kill", args.slot);
    args.daemon.post(&path(&args.pool, &verb), None)
}

#[derive(Debug, clap::Args)]
pub(super) struct ReloadArgs {
    #[command(flatten)]
    daemon: Daemon,
}

pub(super) fn reload(args: &ReloadArgs) -> CommandResult {
    args.daemon.post("/v1/reload", None)
}
