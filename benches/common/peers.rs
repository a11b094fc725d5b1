//! Programs of others that are measured beside ganger: installed into the target directory, in pinned versions,
//! and started in process groups of their own.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use miette::{IntoDiagnostic, WrapErr, ensure};
use nix::sys::signal::{Signal, killpg};
use tempfile::TempDir;

use crate::common::show::note;
use crate::common::target;
use crate::servers::process::Server;

/// A peer's process, in a group of its own. On drop the whole group is killed.
pub(crate) struct Running {
    pub(crate) process: Server,
    directory: TempDir,
}

impl Running {
    /// Starts a command in an empty directory, with only the variables that it sets, and `PATH`.
    pub(crate) fn start(given: &Command) -> miette::Result<Self> {
        let directory = TempDir::with_prefix("ganger-bench-").into_diagnostic()?;
        let log = File::create(directory.path().join("log")).into_diagnostic()?;
        let errors = log.try_clone().into_diagnostic()?;
        let process = Server::start(&given.get_program().to_string_lossy(), |command| {
            command.args(given.get_args());
            let set = given.get_envs();
            command.envs(set.filter_map(|(name, value)| Some((name, value?))));
            command.current_dir(directory.path()).process_group(0);
            command.stdout(log).stderr(errors);
        });
        Ok(Self { process, directory })
    }

    /// Returns everything that it has printed.
    pub(crate) fn log(&self) -> miette::Result<String> {
        fs::read_to_string(self.directory.path().join("log")).into_diagnostic()
    }

    pub(crate) fn signal(&self, signal: Signal) -> miette::Result<()> {
        killpg(self.process.pid(), signal).into_diagnostic()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.signal(Signal::SIGKILL));
    }
}

/// Returns the Node of the release that is installed with the peers: graphile-worker needs a newer one than
/// many systems have.
pub(crate) fn node(installed: &Path) -> PathBuf {
    installed.join("node_modules/.bin/node")
}

/// Installs everything that these files of `benches/` want, unless that has been done. Returns the directory.
pub(crate) fn install(directory: &str, files: &[&str]) -> miette::Result<PathBuf> {
    let installed = target().join(directory);
    let benches = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches");
    let mut wanted = Vec::new();
    for file in files {
        let file = benches.join(file);
        let text = fs::read(&file).into_diagnostic();
        let text = text.wrap_err_with(|| file.display().to_string())?;
        wanted.push((installed.join(file.file_name().unwrap_or_default()), text));
    }
    let done = installed.join("done");
    let is_there = |(file, text): &(PathBuf, Vec<u8>)| fs::read(file).is_ok_and(|it| it == *text);
    if done.exists() && wanted.iter().all(is_there) {
        return Ok(installed);
    }
    note("installing peers");
    fs::create_dir_all(&installed).into_diagnostic()?;
    drop(fs::remove_file(&done));
    for (file, text) in &wanted {
        fs::write(file, text).into_diagnostic()?;
    }
    let is_wanted = |name: &str| wanted.iter().any(|(file, _)| file.ends_with(name));
    if is_wanted("package.json") {
        install_for_node(&installed)?;
    }
    if is_wanted("requirements.txt") {
        install_for_python(&installed)?;
    }
    if is_wanted("go.mod") {
        build_with_go(&installed)?;
    }
    fs::write(done, "").into_diagnostic()?;
    Ok(installed)
}

fn install_for_node(installed: &Path) -> miette::Result<()> {
    let mut npm = Command::new("npm");
    npm.args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]);
    run(npm.current_dir(installed))
}

fn install_for_python(installed: &Path) -> miette::Result<()> {
    let venv = installed.join("venv");
    let mut make = Command::new("python3");
    run(make.args(["-m", "venv", "--clear"]).arg(&venv))?;
    let mut pip = Command::new(venv.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "-r"]);
    run(pip.arg(installed.join("requirements.txt")))
}

/// Builds the program there, with the modules and the cache of the build beside it.
fn build_with_go(installed: &Path) -> miette::Result<()> {
    let mut go = Command::new("go");
    go.args(["build", "-buildvcs=false", "-modcacherw", "-o", "bin/", "."]);
    for (name, directory) in [
        ("GOPATH", "go"),
        ("GOMODCACHE", "go/mod"),
        ("GOCACHE", "go/cache"),
    ] {
        go.env(name, installed.join(directory));
    }
    run(go.current_dir(installed))
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> miette::Result<()> {
    let status = command.status().into_diagnostic();
    let status = status.wrap_err_with(|| command.get_program().display().to_string())?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
