//! The product: the real `ganger run` as a process of its own, under a configuration that a user
//! would write.
//!
//! A run is measured like this: the daemon is up, its workers are connected, and it has worked
//! off a first load, so that nothing that happens once is in the figures. It is stopped by
//! SIGSTOP while its queues are filled. The interval begins with SIGCONT and ends when the last
//! row is gone.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use miette::{IntoDiagnostic, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::time::Instant;

use crate::figures::Run;
use crate::machine;
use crate::queue::{Load, QueueFile};
use crate::setup::{Setup, Window};

/// How often the queue is looked at for its end: a thousandth of a second is a small share of an
/// interval, and a look takes a hundredth of that.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// For waiting where nothing is measured.
const WAIT_STEP: Duration = Duration::from_millis(2);

/// Even a hundred workers on two busy cores are up by then.
const UP_WITHIN: Duration = Duration::from_secs(60);

/// Longer than the daemon's own deadlines for workers that leave when they are asked to.
const GONE_WITHIN: Duration = Duration::from_secs(20);

/// How often a moment is tried at which the daemon holds no lock.
const PAUSES_MAX: usize = 50;

/// The daemon as a child. Dropped, it is killed, and its workers with it.
#[derive(Debug)]
pub(crate) struct Daemon {
    process: Child,
    setup: Setup,
    log: PathBuf,
}

impl Daemon {
    /// Starts it, without waiting for anything.
    pub(crate) fn spawn(queue: &QueueFile, setup: &Setup) -> miette::Result<Self> {
        let config = queue.directory().join("ganger.toml");
        let text = setup.config(&queue.database())?;
        fs::write(&config, text).into_diagnostic()?;
        let log = queue.directory().join("ganger.log");
        let process = Command::new(env!("CARGO_BIN_EXE_ganger"))
            .args(["run".as_ref(), "--config".as_ref(), config.as_os_str()])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).into_diagnostic()?)
            .spawn();
        Ok(Self {
            process: process.into_diagnostic()?,
            setup: setup.clone(),
            log,
        })
    }

    /// Starts it and waits until every worker has connected.
    pub(crate) fn start(queue: &QueueFile, setup: &Setup) -> miette::Result<Self> {
        let mut daemon = Self::spawn(queue, setup)?;
        let wanted = setup.workers_total();
        let begun = Instant::now();
        while daemon.log()?.matches("worker up").count() < wanted {
            let late = begun.elapsed() > UP_WITHIN;
            if late || daemon.process.try_wait().into_diagnostic()?.is_some() {
                bail!("the daemon did not come up; its log:\n{}", daemon.log()?);
            }
            std::thread::park_timeout(WAIT_STEP);
        }
        Ok(daemon)
    }

    /// Works off a first load, so that automatic windows have found their depth.
    pub(crate) fn warm_up(&mut self, queue: &QueueFile, body_bytes: usize) -> miette::Result<()> {
        let load = Load {
            messages: warm_up_messages(&self.setup),
            body_bytes,
        };
        queue.fill(&self.setup.queues(), load)?;
        queue.wait_until_done(WAIT_STEP)?;
        Ok(())
    }

    /// Measures how it works off a load.
    pub(crate) fn run(&mut self, queue: &QueueFile, load: Load) -> miette::Result<Run> {
        self.pause(queue)?;
        queue.fill(&self.setup.queues(), load)?;
        ensure!(queue.checkpoint()?, "someone uses the database");
        let cpu = self.cpu_seconds()?;
        let begun = Instant::now();
        self.signal(Signal::SIGCONT)?;
        let done = queue.wait_until_done(LOOK_EVERY)?;
        Ok(Run {
            messages: load.messages,
            seconds: (done - begun).as_secs_f64(),
            cpu_seconds: self.cpu_seconds()? - cpu,
        })
    }

    /// Stops it at a moment at which it holds no lock, for that would keep us out as well.
    fn pause(&mut self, queue: &QueueFile) -> miette::Result<()> {
        for _ in 0..PAUSES_MAX {
            self.signal(Signal::SIGSTOP)?;
            let status = waitpid(self.pid()?, Some(WaitPidFlag::WUNTRACED)).into_diagnostic()?;
            let stopped = matches!(status, WaitStatus::Stopped(..));
            ensure!(stopped, "the daemon ended; its log:\n{}", self.log()?);
            if queue.checkpoint()? {
                return Ok(());
            }
            self.signal(Signal::SIGCONT)?;
            std::thread::park_timeout(WAIT_STEP);
        }
        bail!("the daemon always holds a lock");
    }

    fn cpu_seconds(&self) -> miette::Result<f64> {
        machine::cpu_seconds(&self.process.id().to_string())
    }

    /// Its own resident memory, in KiB.
    pub(crate) fn resident_kib(&self) -> miette::Result<u64> {
        machine::resident_kib(self.process.id())
    }

    /// Ends it as a user would, and sees that it ends well.
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

    fn log(&self) -> miette::Result<String> {
        fs::read_to_string(&self.log).into_diagnostic()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has ended already, or nothing helps.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Enough for each worker to be known as a fast one.
pub(crate) fn warm_up_messages(setup: &Setup) -> usize {
    let each = match setup.window {
        Window::Auto => 200,
        Window::Fixed(_) => 20,
    };
    each * setup.workers_total()
}

/// Measures a load on a daemon and a queue of its own.
pub(crate) fn measure(setup: &Setup, load: Load) -> miette::Result<Run> {
    let queue = QueueFile::create()?;
    let mut daemon = Daemon::start(&queue, setup)?;
    daemon.warm_up(&queue, load.body_bytes)?;
    let run = daemon.run(&queue, load)?;
    daemon.stop()?;
    Ok(run)
}
