//! Observers of a measured daemon: a collector in this process that discards everything it is sent, and a
//! scraper of the metrics. Their processor time is not the daemon's.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use miette::{IntoDiagnostic, ensure, miette};

use crate::common::quoted;
use crate::queue::QueueFile;

/// Returns environment variables by which a daemon pushes its metrics to that collector, at this interval.
pub(crate) fn metrics_pushed(collector: SocketAddr, every: Duration) -> String {
    let interval = every.as_millis();
    format!(
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://{collector}/v1/metrics \
         OTEL_METRIC_EXPORT_INTERVAL={interval}"
    )
}

/// Returns environment variables by which a daemon records that share of the attempts.
pub(crate) fn traces_sent(collector: SocketAddr, share: &str) -> String {
    format!(
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://{collector}/v1/traces \
         OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG={share}"
    )
}

/// Returns a program that runs the daemon of this build with these variables.
pub(crate) fn program(queue: &QueueFile, variables: &str) -> miette::Result<PathBuf> {
    let script = queue.directory().join("observed");
    let ganger = quoted(env!("CARGO_BIN_EXE_ganger").as_ref());
    let text = format!("#!/bin/sh\n{variables} exec {ganger} \"$@\"\n");
    fs::write(&script, text).into_diagnostic()?;
    let mode = fs::Permissions::from_mode(0o700);
    fs::set_permissions(&script, mode).into_diagnostic()?;
    Ok(script)
}

/// Scrapes the daemon in a directory until it is stopped.
#[derive(Debug)]
pub(crate) struct Scraper {
    stop: mpsc::SyncSender<()>,
    thread: JoinHandle<miette::Result<u32>>,
}

impl Scraper {
    /// Starts scraping at once, at this interval.
    pub(crate) fn start(directory: &Path, every: Duration) -> miette::Result<Self> {
        let socket = sockets(directory)?;
        let (stop, stopped) = mpsc::sync_channel::<()>(1);
        let scrape = move || {
            let mut scrapes = 0;
            loop {
                scrape(&socket)?;
                scrapes += 1;
                if stopped.recv_timeout(every) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return Ok(scrapes);
                }
            }
        };
        let thread = thread::Builder::new().name("scraper".into()).spawn(scrape);
        Ok(Self {
            stop,
            thread: thread.into_diagnostic()?,
        })
    }

    /// Stops scraping, and checks that each scrape was answered.
    pub(crate) fn stop(self) -> miette::Result<()> {
        drop(self.stop);
        let scrapes = self.thread.join();
        let scrapes = scrapes.map_err(|_| miette!("the scraper has panicked"))??;
        ensure!(scrapes > 0, "nothing was scraped");
        Ok(())
    }
}

/// Returns the socket of the admin API, which is the only one there.
fn sockets(directory: &Path) -> miette::Result<PathBuf> {
    let files = fs::read_dir(directory).into_diagnostic()?;
    let is_socket = |path: &PathBuf| path.extension().is_some_and(|end| end == "sock");
    let mut found = files.flatten().map(|file| file.path()).filter(is_socket);
    let socket = found.next();
    socket.ok_or_else(|| miette!("the daemon has no socket in {}", directory.display()))
}

fn scrape(socket: &Path) -> miette::Result<()> {
    let mut stream = UnixStream::connect(socket).into_diagnostic()?;
    let request = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request).into_diagnostic()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).into_diagnostic()?;
    ensure!(answer.contains("ganger_tasks_taken_total"), "{answer}");
    Ok(())
}

/// Starts a collector that accepts everything by HTTP and keeps nothing, for as long as the process lives.
pub(crate) fn collect() -> miette::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").into_diagnostic()?;
    let address = listener.local_addr().into_diagnostic()?;
    let serve = move || {
        for stream in listener.incoming().flatten() {
            // A client that closes the connection has received all its answers.
            thread::spawn(move || drop(answer(stream)));
        }
    };
    thread::Builder::new()
        .name("collector".into())
        .spawn(serve)
        .into_diagnostic()?;
    Ok(address)
}

fn answer(stream: TcpStream) -> std::io::Result<()> {
    let mut out = stream.try_clone()?;
    let mut input = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if input.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let header = line.trim_end().to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or_default();
            }
            if header.is_empty() {
                break;
            }
        }
        std::io::copy(&mut input.by_ref().take(length), &mut std::io::sink())?;
        out.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
    }
}
