//! Parts that every benchmark here needs: figures, the kernel's clocks and counters, the daemon's process,
//! the worker that does nothing, tables for people. Nothing here knows a queue or a broker.

pub(crate) mod figures;
pub(crate) mod goal;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod noop_worker;
pub(crate) mod piped;
pub(crate) mod process;
pub(crate) mod show;
pub(crate) mod tally;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use miette::IntoDiagnostic;
use tokio::runtime::Runtime;

/// Arguments that cargo and its users pass to any test or benchmark, and that mean nothing here.
const FOR_LIBTEST: &[&str] = &["--test", "--nocapture", "--no-capture", "--show-output"];

/// Returns the command line without the arguments that are meant for others.
pub(crate) fn arguments() -> impl Iterator<Item = OsString> {
    std::env::args_os().filter(|given| FOR_LIBTEST.iter().all(|theirs| given != theirs))
}

/// Returns cargo's target directory.
pub(crate) fn target() -> &'static Path {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    temporary.parent().unwrap_or(temporary)
}

/// Returns the default path for a benchmark's figures.
pub(crate) fn default_json(benchmark: &str) -> PathBuf {
    target().join(format!("bench/{benchmark}.json"))
}

/// Makes a runtime that runs on the thread that blocks on it.
pub(crate) fn one_thread() -> miette::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().into_diagnostic()
}

/// Returns a path quoted for TOML and for the expansion of variables.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy().replace('$', "$$");
    toml::Value::from(text).to_string()
}
