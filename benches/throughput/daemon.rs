//! The product on its queue. At the start of a run the daemon is running, its workers are connected, and it
//! has processed a first load, so that one-time work is not in the figures. It is stopped by SIGSTOP while
//! its queues are filled. The interval begins with SIGCONT and ends when the last row is gone.

use std::path::Path;
use std::time::Duration;

use miette::{bail, ensure};
use tokio::time::Instant;

use crate::common::figures::Run;
use crate::common::process::{self, WAIT_STEP};
use crate::queue::{Load, QueueFile};
use crate::setup::{Setup, Window};

/// Interval between polls of the queue for its end: a thousandth of a second is a small share of a run, and a
/// poll takes a hundredth of that.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Maximum number of attempts to stop the daemon while it holds no lock.
const PAUSES_MAX: usize = 50;

/// The daemon on a queue.
#[derive(Debug)]
pub(crate) struct Daemon {
    process: process::Daemon,
    setup: Setup,
}

impl Daemon {
    /// Starts the daemon, without waiting for anything.
    pub(crate) fn spawn(queue: &QueueFile, setup: &Setup) -> miette::Result<Self> {
        let config = setup.config(&queue.url())?;
        Ok(Self {
            process: process::Daemon::spawn(None, queue.directory(), &config)?,
            setup: setup.clone(),
        })
    }

    /// Starts the daemon and waits until every worker has connected.
    pub(crate) fn start(queue: &QueueFile, setup: &Setup) -> miette::Result<Self> {
        Self::start_by(None, queue, setup)
    }

    /// Starts another program in place of this build, and waits in the same way.
    pub(crate) fn start_by(
        program: Option<&Path>,
        queue: &QueueFile,
        setup: &Setup,
    ) -> miette::Result<Self> {
        let config = setup.config(&queue.url())?;
        let workers = setup.workers_total();
        Ok(Self {
            process: process::Daemon::start(program, queue.directory(), &config, workers)?,
            setup: setup.clone(),
        })
    }

    /// Processes a first load, so that automatic windows have found their depth.
    pub(crate) fn warm_up(&mut self, queue: &QueueFile, body_bytes: usize) -> miette::Result<()> {
        let load = Load {
            messages: warm_up_messages(&self.setup),
            body_bytes,
        };
        queue.fill(&self.setup.queues(), load)?;
        queue.wait_until_done(WAIT_STEP)?;
        Ok(())
    }

    /// Measures the processing of a load.
    pub(crate) fn run(&mut self, queue: &QueueFile, load: Load) -> miette::Result<Run> {
        self.pause(queue)?;
        queue.fill(&self.setup.queues(), load)?;
        ensure!(queue.checkpoint()?, "someone uses the database");
        let cpu = self.process.cpu_seconds()?;
        let begun = Instant::now();
        self.process.resume()?;
        let done = queue.wait_until_done(LOOK_EVERY)?;
        Ok(Run {
            messages: load.messages,
            seconds: (done - begun).as_secs_f64(),
            cpu_seconds: self.process.cpu_seconds()? - cpu,
        })
    }

    /// Stops the daemon at a moment at which it holds no lock, since a lock would block this process, too.
    fn pause(&mut self, queue: &QueueFile) -> miette::Result<()> {
        for _ in 0..PAUSES_MAX {
            self.process.pause()?;
            if queue.is_free()? {
                return Ok(());
            }
            self.process.resume()?;
            std::thread::park_timeout(WAIT_STEP);
        }
        bail!("the daemon always holds a lock");
    }

    /// Returns the daemon's own processor time so far, in seconds.
    pub(crate) fn cpu_seconds(&self) -> miette::Result<f64> {
        self.process.cpu_seconds()
    }

    /// Returns the daemon's own resident memory, in KiB.
    pub(crate) fn resident_kib(&self) -> miette::Result<u64> {
        self.process.resident_kib()
    }

    /// Stops the daemon as a user would, and checks that it exits successfully.
    pub(crate) fn stop(self) -> miette::Result<()> {
        self.process.stop()
    }
}

/// Returns a number of messages that is enough for each worker to be recognised as fast.
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
