//! The worker under test: its selection, its start, and its thread, which is like a pool's and leaves no
//! process behind however it ends.

use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use miette::{IntoDiagnostic, bail, miette};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use crate::cli::common::{ConfigFile, environment};
use crate::cli::signals::Signals;
use crate::cli::usage::wrong;
use ganger_config as config;
use ganger_config::model::PoolConfig;
use ganger_core::heartbeat::Heartbeat;
use ganger_pool::worker::orphans;
use ganger_queue::client::json::duration;

/// Start of a worker.
#[derive(Debug, clap::Args)]
pub(super) struct WorkerStart {
    /// Set a variable of the worker's environment, which has your PATH, HOME, LANG and TZ and the protocol's
    /// variables
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Time for the worker to connect to its pipe [default: as the pool has it; a command 30s, and 10s with
    /// `try`]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    start_timeout: Option<Duration>,
    /// Time for the worker to exit [default: 5s, or as the pool has it]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    stop_timeout: Option<Duration>,
    /// Use the worker of this pool, started as configured, instead of a command
    #[arg(long, value_name = "NAME", conflicts_with = "command")]
    pool: Option<String>,
    #[command(flatten)]
    pub(super) config: ConfigFile,
    /// The worker: a program and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a variable must be NAME=VALUE".into()),
    }
}

impl WorkerStart {
    /// Returns the rules of a pool of such workers: without a command those of the pool that is named here,
    /// or of the message's. `start_timeout` applies to a command, unless the option is given.
    pub(super) fn policy(
        &self,
        of_message: Option<&str>,
        start_timeout: Duration,
    ) -> miette::Result<Arc<PoolConfig>> {
        let pool = self.pool.as_deref().or(of_message);
        let mut policy = match (self.command.is_empty(), pool) {
            (false, _) => PoolConfig {
                start_timeout,
                ..self.of_command()?
            },
            (true, Some(pool)) => self.of_pool(pool)?,
            (true, None) => {
                return Err(wrong("name the worker: its CMD after `--`, or its --pool"));
            }
        };
        policy.start_timeout = self.start_timeout.unwrap_or(policy.start_timeout);
        policy.stop_timeout = self.stop_timeout.unwrap_or(policy.stop_timeout);
        policy.command.env.extend(self.env.iter().cloned());
        Ok(Arc::new(policy))
    }

    fn of_pool(&self, name: &str) -> miette::Result<PoolConfig> {
        let config = self.config.load()?;
        let pool = config.pools.iter().find(|pool| pool.name == name);
        let Some(pool) = pool else {
            let known = config.pools.iter().map(|pool| pool.name.as_str());
            let known = known.collect::<Vec<_>>().join(", ");
            return Err(wrong(format!(
                "there is no pool `{name}`; the pools are: {known}: name one, or the worker's CMD \
                 after `--`"
            )));
        };
        Ok(PoolConfig::clone(pool))
    }

    /// Returns the configuration of a pool for the command.
    fn of_command(&self) -> miette::Result<PoolConfig> {
        let quoted = |text: &str| toml::Value::from(text.replace('$', "$$")).to_string();
        let (program, arguments) = self
            .command
            .split_first()
            .ok_or_else(|| miette!("there is no command"))?;
        let arguments: Vec<String> = arguments.iter().map(|word| quoted(word)).collect();
        let text = format!(
            r#"
            [sources.none]
            kind = "table"
            url = "sqlite:none.db"

            [[pools]]
            name = "worker"
            queue = "check"
            command = {program}
            args = [{arguments}]
            "#,
            program = quoted(program),
            arguments = arguments.join(", "),
        );
        let config = config::parse(&text, "worker.toml", &environment())?;
        let Some(policy) = config.pools.first() else {
            bail!("there is no pool");
        };
        Ok(PoolConfig::clone(policy))
    }
}

/// Runs the work on a thread like a pool's. A signal to stop cancels it, and ends the processes that it has
/// started.
pub(super) fn on_a_pool_thread<F: Future>(work: F) -> miette::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.into_diagnostic()?;
    let (told, mut asked) = mpsc::channel(1);
    let signals = Signals::of(&[SIGTERM, SIGINT, SIGHUP]).into_diagnostic()?;
    let obey = move |signal, _: &Heartbeat| match told.blocking_send(signal) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    signals.handled_by("signals", obey).into_diagnostic()?;
    // Also what has left its worker's process group.
    orphans::adopt().into_diagnostic()?;
    let done = LocalSet::new().block_on(&runtime, async {
        tokio::select! {
            biased;
            done = work => Ok(done),
            Some(signal) = asked.recv() => Err(miette!("stopped by signal {signal}")),
        }
    });
    orphans::end_all();
    done
}
