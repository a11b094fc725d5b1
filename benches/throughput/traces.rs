//! What traces cost the daemon: off, with a hundredth of the attempts recorded, and with all. What is
//! recorded goes to a collector in this process that throws it away; its time is not the daemon's.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread;

use miette::IntoDiagnostic;
use serde::Serialize;

use crate::common::figures::{Series, median};
use crate::common::quoted;
use crate::common::show::{note, number, percent, tenths};
use crate::daemon::Daemon;
use crate::plan::Plan;
use crate::queue::{Load, QueueFile};
use crate::setup::{Setup, Window};

/// How much is recorded: in words, and as the sampler is told. The first is what the others are
/// compared with.
const SHARES: [(&str, Option<&str>); 3] =
    [("off", None), ("1 %", Some("0.01")), ("all", Some("1"))];

/// A share of the attempts that is recorded, and what a message costs with it.
#[derive(Debug, Serialize)]
pub(crate) struct Traced {
    recorded: &'static str,
    #[serde(skip)]
    ratio: Option<&'static str>,
    daemon: Series,
    /// The processor time of a message as a share of that without traces, in the same round.
    pub(crate) cost: f64,
}

/// Measures each share once in each round.
pub(crate) fn measure(plan: &Plan) -> miette::Result<Vec<Traced>> {
    let collector = collect()?;
    let traced = |&(recorded, ratio): &(&'static str, Option<&'static str>)| Traced {
        recorded,
        ratio,
        daemon: Series::default(),
        cost: 0.0,
    };
    let mut all: Vec<Traced> = SHARES.iter().map(traced).collect();
    for round in 1..=plan.rounds {
        note(format_args!("traces, round {round} of {}", plan.rounds));
        for one in &mut all {
            one.round(plan.scaling_load, collector)?;
        }
    }
    let first = all[0].daemon.clone();
    for one in &mut all {
        let pairs = one.daemon.0.iter().zip(&first.0);
        one.cost = median(pairs.map(|(now, then)| now.cpu_micros() / then.cpu_micros()));
    }
    Ok(all)
}

impl Traced {
    fn round(&mut self, load: Load, collector: SocketAddr) -> miette::Result<()> {
        let setup = Setup::one_pool(2, Window::Auto);
        let queue = QueueFile::create()?;
        let program = self.program(&queue, collector)?;
        let mut daemon = Daemon::start_by(Some(&program), &queue, &setup)?;
        daemon.warm_up(&queue, load.body_bytes)?;
        self.daemon.push(daemon.run(&queue, load)?);
        daemon.stop()
    }

    /// The daemon with the variables that say so.
    fn program(&self, queue: &QueueFile, collector: SocketAddr) -> miette::Result<PathBuf> {
        let variables = match self.ratio {
            None => "OTEL_SDK_DISABLED=true".to_owned(),
            Some(ratio) => format!(
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://{collector}/v1/traces \
                 OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG={ratio}"
            ),
        };
        let script = queue.directory().join("traced");
        let ganger = quoted(env!("CARGO_BIN_EXE_ganger").as_ref());
        let text = format!("#!/bin/sh\n{variables} exec {ganger} \"$@\"\n");
        fs::write(&script, text).into_diagnostic()?;
        let mode = fs::Permissions::from_mode(0o700);
        fs::set_permissions(&script, mode).into_diagnostic()?;
        Ok(script)
    }

    pub(crate) const HEADER: &[&str] = &["recorded", "daemon/s", "CPU µs", "cost"];

    pub(crate) fn row(&self) -> Vec<String> {
        vec![
            self.recorded.to_owned(),
            number(self.daemon.per_second()),
            tenths(self.daemon.cpu_micros()),
            percent(self.cost),
        ]
    }
}

/// A collector that takes everything by HTTP and keeps nothing, for as long as the process lives.
fn collect() -> miette::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").into_diagnostic()?;
    let address = listener.local_addr().into_diagnostic()?;
    let serve = move || {
        for stream in listener.incoming().flatten() {
            // Whoever hangs up has got all its answers.
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
