//! What every benchmark here needs: figures, the kernel's clocks and counts, the daemon's process,
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

/// What cargo and its users give to any test or benchmark, and what means nothing here.
const FOR_LIBTEST: &[&str] = &["--test", "--nocapture", "--no-capture", "--show-output"];

/// The command line without what is meant for others.
pub(crate) fn arguments() -> impl Iterator<Item = OsString> {
    std::env::args_os().filter(|given| FOR_LIBTEST.iter().all(|theirs| given != theirs))
}

/// Cargo's target directory.
pub(crate) fn target() -> &'static Path {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    temporary.parent().unwrap_or(temporary)
}

/// Where a benchmark writes its figures unless it is told otherwise.
pub(crate) fn default_json(benchmark: &str) -> PathBuf {
    target().join(format!("bench/{benchmark}.json"))
}

/// A runtime that is driven by whoever blocks on it.
pub(crate) fn one_thread() -> miette::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().into_diagnostic()
}

/// A path as TOML and the expansion of variables take it for itself.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy().replace('$', "$$");
    toml::Value::from(text).to_string()
}
