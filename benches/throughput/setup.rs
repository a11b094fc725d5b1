//! The pools and workers of a run, and their configuration.

use std::fmt::Write;
use std::path::PathBuf;

use miette::IntoDiagnostic;
use serde::{Serialize, Serializer};

use crate::common::{noop_worker, quoted};

/// Number of frames that may be in a worker's pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Window {
    /// Chosen by ganger, which is the default.
    Auto,
    /// A fixed number.
    Fixed(usize),
}

impl Window {
    /// Returns the number of frames that the bare loop has in a worker's pipe: for `auto` the maximum that
    /// ganger chooses.
    pub(crate) fn frames(self) -> usize {
        match self {
            Self::Auto => ganger_pool::window::AUTO_MAX,
            Self::Fixed(frames) => frames,
        }
    }

    /// Returns the text for tables.
    pub(crate) fn describe(self) -> String {
        match self {
            Self::Auto => "auto".to_owned(),
            Self::Fixed(frames) => frames.to_string(),
        }
    }

    fn toml(self) -> String {
        match self {
            Self::Auto => "\"auto\"".to_owned(),
            Self::Fixed(frames) => frames.to_string(),
        }
    }
}

impl Serialize for Window {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.describe())
    }
}

/// Program that is started as a worker.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) args: Vec<String>,
}

/// Pools of no-op workers, each with a queue of its own.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) pools: usize,
    /// Number in each pool.
    pub(crate) workers: usize,
    pub(crate) window: Window,
    /// Socket to which the workers report received messages.
    pub(crate) tally: Option<PathBuf>,
    /// Program in place of this binary's own worker.
    pub(crate) program: Option<Program>,
    /// Further keys of each pool.
    pub(crate) keys: String,
}

impl Setup {
    /// Makes a setup with one pool.
    pub(crate) fn one_pool(workers: usize, window: Window) -> Self {
        Self {
            pools: 1,
            workers,
            window,
            tally: None,
            program: None,
            keys: String::new(),
        }
    }

    /// Returns the number of workers in all pools together.
    pub(crate) fn workers_total(&self) -> usize {
        self.pools * self.workers
    }

    /// Returns the queues, one for each pool.
    pub(crate) fn queues(&self) -> Vec<String> {
        (0..self.pools).map(queue).collect()
    }

    /// Returns the configuration that a user would write for this, with every other key at its default.
    pub(crate) fn config(&self, url: &str) -> miette::Result<String> {
        let Program { path, args } = self.worker()?;
        let program = quoted(&path);
        let args: Vec<String> = args.iter().map(|arg| quoted(arg.as_ref())).collect();
        let url = quoted(url.as_ref());
        let mut text = format!("[sources.bench]\nkind = \"table\"\nurl = {url}\n");
        for queue in self.queues() {
            write!(
                text,
                "\n[[pools]]\nname = \"{queue}\"\nqueue = \"{queue}\"\nworkers = {workers}\n\
                 pipeline = {window}\ncommand = {program}\nargs = [{args}]\n{keys}",
                workers = self.workers,
                keys = self.keys,
                window = self.window.toml(),
                args = args.join(", "),
            )
            .into_diagnostic()?;
        }
        Ok(text)
    }

    fn worker(&self) -> miette::Result<Program> {
        if let Some(program) = &self.program {
            return Ok(program.clone());
        }
        let tally = self.tally.iter().map(|path| path.display().to_string());
        Ok(Program {
            path: std::env::current_exe().into_diagnostic()?,
            args: [noop_worker::ROLE.to_owned()]
                .into_iter()
                .chain(tally)
                .collect(),
        })
    }
}

/// Returns the queue of the pool with that number.
fn queue(number: usize) -> String {
    format!("bench-{number}")
}
