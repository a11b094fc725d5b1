//! Other programs that run Python tasks on RabbitMQ, with the same handler in the same number of processes:
//! Celery and dramatiq, started as their documentation describes, both with at-least-once delivery. They are
//! installed with pip into the target directory.
//!
//! A peer is measured like the daemon, except that it can't report when it has received the last message: its
//! interval ends when the queue is empty.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use miette::{IntoDiagnostic, WrapErr, ensure};
use nix::sys::signal::{Signal, killpg};
use serde::Serialize;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::common::figures::median;
use crate::common::show::{note, number};
use crate::common::target;
use crate::plan::Plan;
use crate::pool::Workers;
use crate::rabbit::{self, Kind, Letter, Place};
use crate::running::Queue;
use crate::servers::process::Server;
use crate::servers::rabbit::Node;

const PROCESSES: usize = 2;

/// Prefetch of all processes together.
const PREFETCH: u16 = 100;

/// Number of messages that a peer processes before it is measured.
const WARM_UP: usize = 200;

/// Factor by which the daemon's load exceeds a peer's, since a peer takes that much longer.
const FASTER: usize = 5;

/// Interval between polls of the queue for its end.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Timeout after which a load that is not done counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(120);

/// A system that runs Python handlers.
#[derive(Debug, Serialize)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    processes: usize,
    messages_per_second: f64,
    rounds: Vec<f64>,
    /// Ganger's throughput as a multiple of this system's; none for ganger itself.
    pub(crate) ganger_to_it: Option<f64>,
    /// Goal for that multiple.
    pub(crate) goal: Option<f64>,
}

/// The way to start another system.
struct Kit {
    name: &'static str,
    /// Name of the script in `peers/`.
    script: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    goal: f64,
}

const KITS: &[Kit] = &[
    Kit {
        name: "Celery prefork",
        script: "celery_app.py",
        program: "celery",
        arguments: &[
            "--app=celery_app",
            "worker",
            "--concurrency=2",
            "--loglevel=warning",
            "--without-gossip",
            "--without-mingle",
        ],
        goal: 10.0,
    },
    Kit {
        name: "dramatiq",
        script: "dramatiq_app.py",
        program: "dramatiq",
        arguments: &["dramatiq_app", "--processes=2"],
        goal: 4.0,
    },
];

/// Measures all systems in every round, ganger first.
pub(crate) fn measure(node: &Node, plan: &Plan) -> miette::Result<Vec<Peer>> {
    let programs = install()?;
    let mut ganger = Peer::new("ganger", None);
    let kits = KITS.iter();
    let mut peers: Vec<Peer> = kits
        .map(|kit| Peer::new(kit.name, Some(kit.goal)))
        .collect();
    for round in 1..=plan.rounds {
        note(format_args!(
            "RabbitMQ, peers, round {round} of {}",
            plan.rounds
        ));
        ganger.rounds.push(ganger_per_second(node, plan)?);
        for (peer, kit) in peers.iter_mut().zip(KITS) {
            let speed = kit.per_second(&programs, node, plan.peer_messages);
            peer.rounds.push(speed.wrap_err(kit.name)?);
        }
    }
    for peer in &mut peers {
        peer.compare(&ganger.rounds);
    }
    ganger.messages_per_second = median(ganger.rounds.iter().copied());
    peers.insert(0, ganger);
    Ok(peers)
}

fn ganger_per_second(node: &Node, plan: &Plan) -> miette::Result<f64> {
    let cell = rabbit::Cell {
        kind: Kind::Classic,
        workers: Workers::python(PROCESSES),
        prefetch: PREFETCH,
        messages: plan.peer_messages * FASTER,
    };
    Ok(rabbit::daemon(node, &cell)?.per_second())
}

impl Kit {
    fn per_second(&self, programs: &Path, node: &Node, messages: usize) -> miette::Result<f64> {
        let place = Place::new(node);
        let letter = self.letter(programs, &place)?;
        let running = Running::start(self, programs, &place)?;
        place.publish(&letter, WARM_UP)?;
        wait_until_done(&place)?;
        running.signal(Signal::SIGSTOP)?;
        place.publish(&letter, messages)?;
        let begun = Instant::now();
        running.signal(Signal::SIGCONT)?;
        wait_until_done(&place)?;
        #[expect(clippy::cast_precision_loss, reason = "there are far fewer messages")]
        let per_second = messages as f64 / begun.elapsed().as_secs_f64();
        running.server.end(Signal::SIGTERM);
        Ok(per_second)
    }

    /// Returns a message as the system's own client sends it.
    fn letter(&self, programs: &Path, place: &Place<'_>) -> miette::Result<Letter> {
        let mut command = Command::new(programs.join("python3"));
        let sent = command
            .arg(scripts().join(self.script))
            .env("BROKER", place.url())
            .output()
            .into_diagnostic()?;
        ensure!(sent.status.success(), "sending failed: {sent:?}");
        place.take()
    }
}

/// A running peer, in a process group of its own. On drop the whole group is killed.
struct Running {
    server: Server,
    _directory: TempDir,
}

impl Running {
    fn start(kit: &Kit, programs: &Path, place: &Place<'_>) -> miette::Result<Self> {
        let directory = TempDir::with_prefix("ganger-bench-").into_diagnostic()?;
        let log = File::create(directory.path().join("log")).into_diagnostic()?;
        let errors = log.try_clone().into_diagnostic()?;
        let program = programs.join(kit.program);
        let server = Server::start(&program.to_string_lossy(), |command| {
            command
                .args(kit.arguments)
                .env("BROKER", place.url())
                .env("PYTHONPATH", scripts())
                .env("dramatiq_queue_prefetch", "50")
                .current_dir(directory.path())
                .process_group(0)
                .stdout(log)
                .stderr(errors);
        });
        Ok(Self {
            server,
            _directory: directory,
        })
    }

    fn signal(&self, signal: Signal) -> miette::Result<()> {
        killpg(self.server.pid(), signal).into_diagnostic()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Kills the remaining processes; after a regular end there are none.
        drop(self.signal(Signal::SIGKILL));
    }
}

/// Waits until the queue is empty.
fn wait_until_done(place: &Place<'_>) -> miette::Result<()> {
    place.wait_until_handed_out(LOOK_EVERY, STUCK_AFTER)?;
    place.ensure_settled()
}

impl Peer {
    fn new(name: &'static str, goal: Option<f64>) -> Self {
        Self {
            name,
            processes: PROCESSES,
            messages_per_second: 0.0,
            rounds: Vec::new(),
            ganger_to_it: None,
            goal,
        }
    }

    fn compare(&mut self, ganger: &[f64]) {
        let pairs = ganger.iter().zip(&self.rounds);
        self.ganger_to_it = Some(median(pairs.map(|(ganger, it)| ganger / it)));
        self.messages_per_second = median(self.rounds.iter().copied());
    }

    pub(crate) const HEADER: &[&str] = &["name", "processes", "messages/s", "ganger to it"];

    pub(crate) fn row(&self) -> Vec<String> {
        let times = self.ganger_to_it.map(|times| format!("{times:.1} ×"));
        vec![
            self.name.to_owned(),
            self.processes.to_string(),
            number(self.messages_per_second),
            times.unwrap_or_default(),
        ]
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/brokers/peers")
}

/// Installs the peers, unless that has been done. Returns the directory of their programs.
fn install() -> miette::Result<PathBuf> {
    let (wanted, venv) = (scripts().join("requirements.txt"), target().join("peers"));
    let (installed, programs) = (venv.join("requirements.txt"), venv.join("bin"));
    let wanted_text = fs::read(&wanted).into_diagnostic()?;
    if fs::read(&installed).is_ok_and(|text| text == wanted_text) {
        return Ok(programs);
    }
    note("installing peers");
    let mut make = Command::new("python3");
    run(make.args(["-m", "venv", "--clear"]).arg(&venv))?;
    let mut pip = Command::new(programs.join("pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "-r"]);
    run(pip.arg(&wanted))?;
    fs::write(installed, wanted_text).into_diagnostic()?;
    Ok(programs)
}

fn run(command: &mut Command) -> miette::Result<()> {
    let status = command.status().into_diagnostic()?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
