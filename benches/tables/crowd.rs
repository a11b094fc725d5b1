//! Many sources on one server: their cost to it while they are idle, and their throughput and lock waits
//! under load. The sources are those of one daemon, each with a queue of its own, or of as many daemons on
//! one queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use miette::miette;
use serde::Serialize;

use crate::common::show::{megabytes, note, number, percent, tenths};
use crate::daemon::Daemon;
use crate::plan::Plan;
use crate::server::{Load, Server, Sql};
use crate::setup::{Setup, Window};

/// A number of sources: of one daemon with a queue each, or of as many daemons that share a queue.
#[derive(Debug, Serialize)]
pub(crate) struct Crowd {
    sources: usize,
    is_shared: bool,
    connections: i64,
    /// Processor time while idle, as shares of a core.
    idle_daemon: f64,
    pub(crate) idle_server: f64,
    resident_kib: u64,
    messages_per_second: f64,
    daemon_micros: f64,
    server_micros: f64,
    messages_per_write: f64,
    /// Share of the samples of a busy connection that found it waiting for a lock.
    waits_for_locks: f64,
    deadlocks: i64,
}

/// Interval between samples of the connections.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Measures one source, many with their own queues, and many on one queue.
pub(crate) fn measure(server: &Server, plan: &Plan) -> miette::Result<Vec<Crowd>> {
    let many = plan.crowd;
    let sizes = [(1, false), (many, false), (many, true)].into_iter();
    sizes
        .map(|(sources, is_shared)| one(server, plan, sources, is_shared))
        .collect()
}

fn one(server: &Server, plan: &Plan, sources: usize, is_shared: bool) -> miette::Result<Crowd> {
    note(format_args!("{sources} sources"));
    let database = server.database()?;
    let one = Setup::one_pool(1, Window::Auto);
    let daemon = if is_shared {
        Daemon::start_several(&database, &one, sources)?
    } else {
        let setup = Setup {
            pools: sources,
            ..one
        };
        Daemon::start(&database, &setup)?
    };
    let words = server.words();
    let connections = database.number(words.connections)?;
    let deadlocks = database.number(words.deadlocks)?;
    let (idle_daemon, idle_server) = idle(&daemon, server, plan.idle)?;
    let load = Load {
        messages: plan.crowd_messages,
        body_bytes: 100,
    };
    let sampler = Sampler::start(database.connect()?, words.waits);
    let measured = daemon.run(&database, load)?;
    let waits_for_locks = sampler.end()?;
    let crowd = Crowd {
        sources,
        is_shared,
        connections,
        idle_daemon,
        idle_server,
        resident_kib: daemon.resident_kib()?,
        messages_per_second: measured.watched.per_second(),
        daemon_micros: measured.watched.cpu_micros(),
        server_micros: measured.watched.broker_micros(),
        messages_per_write: measured.messages_per_write,
        waits_for_locks,
        deadlocks: database.number(words.deadlocks)? - deadlocks,
    };
    daemon.stop()?;
    Ok(crowd)
}

/// Returns the shares of a core that the daemon and the server use while idle.
fn idle(daemon: &Daemon, server: &Server, time: Duration) -> miette::Result<(f64, f64)> {
    let before = (daemon.cpu_seconds()?, server.cpu_seconds()?);
    thread::park_timeout(time);
    let share = |now: f64, then: f64| (now - then) / time.as_secs_f64();
    Ok((
        share(daemon.cpu_seconds()?, before.0),
        share(server.cpu_seconds()?, before.1),
    ))
}

/// Samples the number of connections that wait for a lock.
struct Sampler {
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<miette::Result<(i64, i64)>>,
}

impl Sampler {
    fn start(sql: Sql, waits: &'static str) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut seen = (0, 0);
            while !until.load(Ordering::Relaxed) {
                let row = sql.row(waits)?;
                let number = |column: usize| row.get(column).copied().flatten().unwrap_or(0);
                seen.0 += number(0);
                seen.1 += number(1);
                thread::park_timeout(LOOK_EVERY);
            }
            Ok(seen)
        });
        Self { is_over, thread }
    }

    #[expect(clippy::cast_precision_loss, reason = "there are far fewer")]
    fn end(self) -> miette::Result<f64> {
        self.is_over.store(true, Ordering::Relaxed);
        let joined = self.thread.join();
        let (waits, all) = joined.map_err(|_| miette!("a thread panicked"))??;
        Ok(waits as f64 / all.max(1) as f64)
    }
}

impl Crowd {
    pub(crate) const HEADER: &[&str] = &[
        "sources",
        "queues",
        "connections",
        "idle, daemon",
        "idle, server",
        "resident",
        "messages/s",
        "CPU µs",
        "server µs",
        "a write",
        "waits for locks",
        "deadlocks",
    ];

    pub(crate) fn row(&self) -> Vec<String> {
        let queues = if self.is_shared { 1 } else { self.sources };
        let hundredths = |share: f64| format!("{:.2} %", share * 100.0);
        vec![
            self.sources.to_string(),
            queues.to_string(),
            self.connections.to_string(),
            hundredths(self.idle_daemon),
            hundredths(self.idle_server),
            megabytes(self.resident_kib),
            number(self.messages_per_second),
            tenths(self.daemon_micros),
            tenths(self.server_micros),
            number(self.messages_per_write),
            percent(self.waits_for_locks),
            self.deadlocks.to_string(),
        ]
    }
}
