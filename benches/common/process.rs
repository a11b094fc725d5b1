//! The product: the real `ganger run` as a process of its own, with a configuration that a user would write.
//! This file does not know its source.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use miette::{IntoDiagnostic, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::time::Instant;

use super::machine;

/// Interval between polls outside of measured intervals.
pub(crate) const WAIT_STEP: Duration = Duration::from_millis(2);

/// Maximum time until all workers have connected: enough for a hundred workers on two busy cores.
const UP_WITHIN: Duration = Duration::from_secs(60);

/// Maximum time until the daemon has exited: longer than its own deadlines for workers that stop when asked.
const GONE_WITHIN: Duration = Duration::from_secs(20);

/// The daemon as a child process. On drop it is killed with its workers.
#[derive(Debug)]
pub(crate) struct Daemon {
    process: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts the daemon in that directory, without waiting for anything: this build, unless another program
    /// is given.
    pub(crate) fn spawn(
        program: Option<&Path>,
        directory: &Path,
        config: &str,
    ) -> miette::Result<Self> {
        let program = program.unwrap_or(Path::new(env!("CARGO_BIN_EXE_ganger")));
        let file = directory.join("ganger.toml");
        fs::write(&file, config).into_diagnostic()?;
        let log = directory.join("ganger.log");
        let process = Command::new(program)
            .args(["run".as_ref(), "--config".as_ref(), file.as_os_str()])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).into_diagnostic()?)
            .spawn();
        Ok(Self {
            process: process.into_diagnostic()?,
            log,
        })
    }

    /// Starts the daemon and waits until the given number of workers have connected.
    pub(crate) fn start(
        program: Option<&Path>,
        directory: &Path,
        config: &str,
        workers: usize,
    ) -> miette::Result<Self> {
        let mut daemon = Self::spawn(program, directory, config)?;
        let begun = Instant::now();
        while daemon.log()?.matches("worker up").count() < workers {
            let late = begun.elapsed() > UP_WITHIN;
            if late || daemon.process.try_wait().into_diagnostic()?.is_some() {
                bail!("the daemon did not come up; its log:\n{}", daemon.log()?);
            }
            std::thread::park_timeout(WAIT_STEP);
        }
        Ok(daemon)
    }

    /// Stops the process by SIGSTOP.
    pub(crate) fn pause(&self) -> miette::Result<()> {
        self.signal(Signal::SIGSTOP)?;
        let status = waitpid(self.pid()?, Some(WaitPidFlag::WUNTRACED)).into_diagnostic()?;
        let stopped = matches!(status, WaitStatus::Stopped(..));
        ensure!(stopped, "the daemon ended; its log:\n{}", self.log()?);
        Ok(())
    }

    /// Continues the process.
    pub(crate) fn resume(&self) -> miette::Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Returns the daemon's own processor time so far, without its workers.
    pub(crate) fn cpu_seconds(&self) -> miette::Result<f64> {
        machine::cpu_seconds(&self.process.id().to_string())
    }

    /// Returns the daemon's own resident memory, in KiB.
    pub(crate) fn resident_kib(&self) -> miette::Result<u64> {
        machine::resident_kib(self.process.id())
    }

    /// Stops the daemon as a user would, and checks that it exits successfully.
    pub(crate) fn stop(mut self) -> miette::Result<()> {
        self.signal(Signal::SIGTERM)?;
        let begun = Instant::now();
        while begun.elapsed() < GONE_WITHIN {
            if let Some(status) = self.process.try_wait().into_diagnostic()? {
                ensure!(status.success(), "the daemon failed: {}", self.log()?);
                return Ok(());
            }
            std::thread::park_timeout(WAIT_STEP);
        }
        bail!("the daemon does not end; its log:\n{}", self.log()?);
    }

    fn signal(&self, signal: Signal) -> miette::Result<()> {
        kill(self.pid()?, signal).into_diagnostic()
    }

    fn pid(&self) -> miette::Result<Pid> {
        let pid = i32::try_from(self.process.id()).into_diagnostic()?;
        Ok(Pid::from_raw(pid))
    }

    /// Returns its log so far.
    pub(crate) fn log(&self) -> miette::Result<String> {
        fs::read_to_string(&self.log).into_diagnostic()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // If this fails, the process has exited already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
