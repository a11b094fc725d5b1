//! The measured pool, and its part of the configuration.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use miette::{IntoDiagnostic, ensure};
use serde::Serialize;

use crate::common::{noop_worker, quoted, target};

/// Language of the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Language {
    Rust,
    Python,
}

impl Language {
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Rust => "Rust",
            Self::Python => "Python",
        }
    }
}

/// Workers that do nothing, and their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Workers {
    pub(crate) language: Language,
    pub(crate) count: usize,
}

impl Workers {
    pub(crate) const fn rust(count: usize) -> Self {
        let language = Language::Rust;
        Self { language, count }
    }

    pub(crate) const fn python(count: usize) -> Self {
        let language = Language::Python;
        Self { language, count }
    }

    pub(crate) fn describe(self) -> String {
        format!("{} {}", self.count, self.language.describe())
    }

    /// Returns a number of messages that is enough for each worker to be recognised as fast.
    pub(crate) fn warm_up(self) -> usize {
        200 * self.count
    }

    /// Returns the command that a user would write.
    fn command(self, tally: &Path) -> miette::Result<String> {
        let tally = quoted(tally);
        let (program, role) = match self.language {
            Language::Rust => {
                let own = std::env::current_exe().into_diagnostic()?;
                (own, noop_worker::ROLE.into())
            }
            Language::Python => (python()?, script()),
        };
        let (program, role) = (quoted(&program), quoted(&role));
        Ok(format!("command = {program}\nargs = [{role}, {tally}]\n"))
    }
}

/// The pool.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    pub(crate) workers: Workers,
    /// Messages prefetched for all workers together; ganger's own choice if none.
    pub(crate) prefetch: Option<u16>,
    /// Further keys.
    pub(crate) keys: String,
    /// Another build of the daemon; this one if none.
    pub(crate) program: Option<PathBuf>,
}

impl Pool {
    /// Makes a pool with every key at its default.
    pub(crate) fn of(workers: Workers) -> Self {
        Self {
            workers,
            prefetch: None,
            keys: String::new(),
            program: None,
        }
    }

    /// Returns the configuration that a user would write, except that the workers report the messages that
    /// they received.
    pub(crate) fn toml(&self, queue: &str, tally: &Path) -> miette::Result<String> {
        let Self { workers, keys, .. } = self;
        let count = workers.count;
        let command = workers.command(tally)?;
        let mut toml = format!(
            "[[pools]]\nname = \"bench\"\nqueue = \"{queue}\"\nworkers = {count}\n{command}{keys}"
        );
        if let Some(prefetch) = self.prefetch {
            let prefetch = usize::from(prefetch);
            let share = prefetch / count;
            ensure!(share * count == prefetch, "an uneven prefetch");
            let window = window(share);
            let share = format!("prefetch = {share}\npipeline = {window}\n");
            toml.write_str(&share).into_diagnostic()?;
        }
        Ok(toml)
    }
}

/// Returns the deepest window that does not raise the prefetch, given that some messages are on their way.
fn window(prefetch: usize) -> usize {
    (prefetch / 2).clamp(1, ganger_pool::window::AUTO_MAX)
}

/// Returns the interpreter that `tests/run` has prepared, which has the msgpack package.
fn python() -> miette::Result<PathBuf> {
    let prepared = std::env::var_os("GANGER_TEST_PYTHON").map(PathBuf::from);
    let python = prepared.unwrap_or_else(|| target().join("venv/bin/python3"));
    ensure!(
        python.exists(),
        "no Python with msgpack at {}: run tests/run, which prepares it",
        python.display()
    );
    Ok(python)
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/brokers/noop_worker.py")
}
