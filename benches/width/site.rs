//! A daemon with many pools, and what it costs while they have nothing to do.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use miette::{IntoDiagnostic, ensure, miette};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::common::figures::median;
use crate::common::process::{Daemon, WAIT_STEP};
use crate::common::{noop_worker, quoted};
use crate::place::Place;
use crate::process;

/// Number of requests for the status.
const REQUESTS: usize = 20;
/// Time within which a pool must be there after a reload.
const RELOADED_WITHIN: Duration = Duration::from_secs(60);

/// Figures of a daemon.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) up_seconds: f64,
    pub(crate) resident_kib: u64,
    pub(crate) threads: usize,
    pub(crate) files: usize,
    pub(crate) connections: usize,
    pub(crate) idle_share: f64,
    pub(crate) status_ms: f64,
    pub(crate) reload_ms: f64,
}

/// A running daemon.
pub(crate) struct Site {
    daemon: Daemon,
    directory: TempDir,
    source: String,
    pools: usize,
    up: Duration,
}

impl Site {
    /// Starts the daemon and waits for its workers.
    pub(crate) fn start(
        place: &Place,
        pools: usize,
        program: Option<&Path>,
    ) -> miette::Result<Self> {
        // Not in the target directory: the path of a socket must be short.
        let directory = TempDir::with_prefix("ganger-bench-").into_diagnostic()?;
        let source = place.source();
        let config = config(directory.path(), &source, pools)?;
        let begun = Instant::now();
        let daemon = Daemon::start(program, directory.path(), &config, pools)?;
        Ok(Self {
            daemon,
            directory,
            source,
            pools,
            up: begun.elapsed(),
        })
    }

    /// Measures, once it has settled, and ends the daemon.
    pub(crate) fn measure(self, settle: Duration, time: Duration) -> miette::Result<Figures> {
        std::thread::park_timeout(settle);
        let (begun, before) = (Instant::now(), self.daemon.cpu_seconds()?);
        std::thread::park_timeout(time);
        let used = self.daemon.cpu_seconds()? - before;
        let idle_share = used / begun.elapsed().as_secs_f64();
        let mut times = Vec::with_capacity(REQUESTS);
        let mut pid = 0;
        for _ in 0..REQUESTS {
            let begun = Instant::now();
            let status = self.status()?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            pid = u32::try_from(status["pid"].as_u64().unwrap_or(0)).into_diagnostic()?;
        }
        let figures = Figures {
            up_seconds: self.up.as_secs_f64(),
            resident_kib: self.daemon.resident_kib()?,
            threads: process::entries(pid, "task")?,
            files: process::entries(pid, "fd")?,
            connections: process::connections(pid)?,
            idle_share,
            status_ms: median(times),
            reload_ms: self.reload(pid)?.as_secs_f64() * 1e3,
        };
        self.daemon.stop()?;
        Ok(figures)
    }

    fn status(&self) -> miette::Result<Value> {
        let socket = self.directory.path().join("bench.sock");
        let mut stream = UnixStream::connect(socket).into_diagnostic()?;
        let request = "GET /v1/status HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).into_diagnostic()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).into_diagnostic()?;
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body);
        let body = body.ok_or_else(|| miette!("an answer without an end of its head"))?;
        serde_json::from_str(body).into_diagnostic()
    }

    /// Adds a pool, and returns the time until its worker has connected.
    fn reload(&self, pid: u32) -> miette::Result<Duration> {
        let path = self.directory.path();
        let config = config(path, &self.source, self.pools + 1)?;
        fs::write(path.join("ganger.toml"), config).into_diagnostic()?;
        let pid = Pid::from_raw(i32::try_from(pid).into_diagnostic()?);
        let begun = Instant::now();
        kill(pid, Signal::SIGHUP).into_diagnostic()?;
        while self.daemon.log()?.matches("worker up").count() <= self.pools {
            let is_late = begun.elapsed() > RELOADED_WITHIN;
            ensure!(!is_late, "no further worker: {}", self.daemon.log()?);
            std::thread::park_timeout(WAIT_STEP);
        }
        Ok(begun.elapsed())
    }
}

/// Returns the configuration that a user would write.
fn config(directory: &Path, source: &str, pools: usize) -> miette::Result<String> {
    let program = std::env::current_exe().into_diagnostic()?;
    let (program, role) = (quoted(&program), noop_worker::ROLE);
    let socket = quoted(&directory.join("bench.sock"));
    let pool = |number: usize| {
        format!(
            "\n[[pools]]\nname = \"p{number}\"\nqueue = \"q{number}\"\nworkers = 1\ncommand = {program}\n\
             args = [\"{role}\"]\n"
        )
    };
    let head = format!("[sources.main]\n{source}\n[admin]\nsocket = {socket}\n");
    Ok(std::iter::once(head).chain((0..pools).map(pool)).collect())
}
