//! Other programs that run tasks on PostgreSQL, with a handler that does nothing in the same number of
//! processes, on the same server: graphile-worker compared with ganger and Node workers, Procrastinate
//! compared with ganger and Python workers. They are installed into the target directory, in pinned versions.
//!
//! All are measured alike: they have processed a first load, are stopped while their queue is filled, and the
//! interval ends when the queue is empty.

#[path = "../common/peers.rs"]
mod programs;

use std::path::{Path, PathBuf};
use std::process::Command;

use miette::{WrapErr, ensure};
use nix::sys::signal::Signal;
use serde::Serialize;
use tokio::time::Instant;

use crate::common::figures::median;
use crate::common::show::{note, number};
use crate::common::target;
use crate::daemon::Daemon;
use crate::plan::Plan;
use crate::server::{Database, LOOK_SELDOM, Load, Server};
use crate::setup::{Program, Setup, Window};
use programs::{Running, node};

const PROCESSES: usize = 2;

/// Number of messages that a peer processes before it is measured.
const FIRST_LOAD: usize = 400;

/// Factor by which the daemon's load exceeds that of the slowest peer, so that all are busy for seconds.
const TIMES: usize = 20;

const BODY_BYTES: usize = 100;

/// Minimum ratio of ganger's throughput to a peer's.
const GOAL: f64 = 3.0;

/// A system that runs tasks.
#[derive(Debug, Serialize)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    messages_per_second: f64,
    rounds: Vec<f64>,
    /// Ganger's throughput with workers in this system's language, as a multiple of this system's; none for
    /// ganger itself.
    pub(crate) ganger_to_it: Option<f64>,
    /// Goal for that multiple.
    pub(crate) goal: Option<f64>,
}

/// Language of the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Node,
    Python,
}

/// The way to start a peer and to fill its queue.
struct Kit {
    name: &'static str,
    language: Language,
    /// Command that is run once, before any process.
    prepare: Option<fn(&Path) -> Command>,
    start: fn(&Path) -> Command,
    /// Factor by which its load exceeds that of the slowest peer.
    times: usize,
    fill: &'static str,
    left: &'static str,
}

const GRAPHILE_FILL: &str = "
SELECT count(*) FROM graphile_worker.add_jobs((SELECT array_agg(json_populate_record(
  NULL::graphile_worker.job_spec, json_build_object('identifier', 'nothing', 'payload',
    json_build_object('body', repeat('x', 100))))) FROM generate_series(1, {messages})))";
const GRAPHILE_LEFT: &str =
    "SELECT count(*) FROM (SELECT FROM graphile_worker._private_jobs LIMIT 1) AS jobs";

const KITS: &[Kit] = &[
    Kit {
        name: "graphile-worker",
        language: Language::Node,
        prepare: None,
        start: |installed| graphile(installed, "each"),
        times: 4,
        fill: GRAPHILE_FILL,
        left: GRAPHILE_LEFT,
    },
    Kit {
        name: "graphile-worker, batches",
        language: Language::Node,
        prepare: None,
        start: |installed| graphile(installed, "batches"),
        times: TIMES,
        fill: GRAPHILE_FILL,
        left: GRAPHILE_LEFT,
    },
    Kit {
        name: "Procrastinate",
        language: Language::Python,
        prepare: Some(|installed| procrastinate(installed, &["schema", "--apply"])),
        start: |installed| {
            let worker = ["worker", "--concurrency=10", "--delete-jobs=successful"];
            procrastinate(installed, &worker)
        },
        times: 1,
        fill: "INSERT INTO procrastinate_jobs (queue_name, task_name, args)
               SELECT 'default', 'nothing', jsonb_build_object('body', repeat('x', 100))
               FROM generate_series(1, {messages})",
        left: "SELECT count(*) FROM (SELECT FROM procrastinate_jobs LIMIT 1) AS jobs",
    },
];

fn graphile(installed: &Path, how: &str) -> Command {
    let mut command = Command::new(node(installed));
    command.arg(scripts().join("graphile.mjs")).arg(how);
    command
}

fn procrastinate(installed: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(installed.join("venv/bin/procrastinate"));
    command.arg("--app=procrastinate_app.app").args(arguments);
    command
}

/// Measures all systems in every round, ganger first.
pub(crate) fn measure(server: &Server, plan: &Plan) -> miette::Result<Vec<Peer>> {
    let installed = programs::install("peers-tables", WANTED)?;
    let mut ours = [
        (Language::Node, Peer::new("ganger, Node workers", None)),
        (Language::Python, Peer::new("ganger, Python workers", None)),
    ];
    let kits = KITS.iter();
    let mut peers: Vec<Peer> = kits.map(|kit| Peer::new(kit.name, Some(GOAL))).collect();
    for round in 1..=plan.rounds {
        note(format_args!("peers, round {round} of {}", plan.rounds));
        for (language, peer) in &mut ours {
            let program = language.worker(&installed)?;
            let speed = ganger_per_second(server, program, plan)?;
            peer.rounds.push(speed);
        }
        for (peer, kit) in peers.iter_mut().zip(KITS) {
            let speed = kit.per_second(&installed, server, plan.peer_messages * kit.times);
            peer.rounds.push(speed.wrap_err(kit.name)?);
        }
    }
    for (peer, kit) in peers.iter_mut().zip(KITS) {
        let ganger = ours.iter().find(|(language, _)| *language == kit.language);
        let ganger = ganger.iter().flat_map(|(_, ganger)| &ganger.rounds);
        let pairs = ganger.zip(&peer.rounds);
        peer.ganger_to_it = Some(median(pairs.map(|(ganger, it)| ganger / it)));
    }
    let mut all: Vec<Peer> = ours
        .into_iter()
        .map(|(_, peer)| peer)
        .chain(peers)
        .collect();
    for peer in &mut all {
        peer.messages_per_second = median(peer.rounds.iter().copied());
    }
    Ok(all)
}

fn ganger_per_second(server: &Server, program: Program, plan: &Plan) -> miette::Result<f64> {
    let setup = Setup {
        program: Some(program),
        ..Setup::one_pool(PROCESSES, Window::Auto)
    };
    let load = Load {
        messages: plan.peer_messages * TIMES,
        body_bytes: BODY_BYTES,
    };
    let database = server.database()?;
    let daemon = Daemon::start_silent(&database, &setup)?;
    let measured = daemon.run(&database, load)?;
    daemon.stop()?;
    Ok(measured.watched.per_second())
}

impl Language {
    fn worker(self, installed: &Path) -> miette::Result<Program> {
        match self {
            Self::Node => node_worker(installed),
            Self::Python => python_worker(),
        }
    }
}

/// Returns a worker with the library for Node, which runs many tasks at once.
fn node_worker(installed: &Path) -> miette::Result<Program> {
    let library = prepared("GANGER_TEST_NODE", "node").join("dist/esm/index.js");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/workers/noop.mjs");
    worker(node(installed), &[&script, &library, "32".as_ref()])
}

/// Returns a worker written like the sample in the README.
fn python_worker() -> miette::Result<Program> {
    let python = prepared("GANGER_TEST_PYTHON", "venv/bin/python3");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/brokers/noop_worker.py");
    worker(python, &[&script])
}

fn worker(path: impl Into<PathBuf>, args: &[&Path]) -> miette::Result<Program> {
    let path = path.into();
    for needed in args.iter().copied().chain([path.as_path()]) {
        let is_there = !needed.is_absolute() || needed.exists();
        ensure!(is_there, "no {}: tests/run prepares it", needed.display());
    }
    let args = args.iter().map(|arg| arg.to_string_lossy().into_owned());
    Ok(Program {
        path,
        args: args.collect(),
    })
}

fn prepared(variable: &str, usual: &str) -> PathBuf {
    let prepared = std::env::var_os(variable).map(PathBuf::from);
    prepared.unwrap_or_else(|| target().join(usual))
}

impl Kit {
    fn per_second(
        &self,
        installed: &Path,
        server: &Server,
        messages: usize,
    ) -> miette::Result<f64> {
        let database = server.empty_database()?;
        if let Some(prepare) = self.prepare {
            let mut prepare = surrounded(prepare(installed), installed, &database);
            programs::run(&mut prepare)?;
        }
        let start = || Running::start(&surrounded((self.start)(installed), installed, &database));
        let first = start()?;
        // The first process creates the tables that all need.
        let is_made = self.left.split(' ').find(|word| word.contains("_jobs"));
        wait_until_made(&first, &database, is_made.unwrap_or_default())?;
        let second = start()?;
        let all = [first, second];
        self.fill(&database, FIRST_LOAD)?;
        database.wait_until_none(self.left, LOOK_SELDOM)?;
        for running in &all {
            running.signal(Signal::SIGSTOP)?;
        }
        self.fill(&database, messages)?;
        database.come_to_rest()?;
        let begun = Instant::now();
        for running in &all {
            running.signal(Signal::SIGCONT)?;
        }
        database.wait_until_none(self.left, LOOK_SELDOM)?;
        #[expect(clippy::cast_precision_loss, reason = "there are far fewer messages")]
        let per_second = messages as f64 / begun.elapsed().as_secs_f64();
        Ok(per_second)
    }

    fn fill(&self, database: &Database<'_>, messages: usize) -> miette::Result<()> {
        database.run(&self.fill.replace("{messages}", &messages.to_string()))
    }
}

/// Sets everything that the scripts need.
fn surrounded(mut command: Command, installed: &Path, database: &Database<'_>) -> Command {
    command
        .env("DATABASE", database.url())
        .env("LIBRARIES", installed)
        .env("PYTHONPATH", scripts())
        // Both run with the settings of production.
        .env("NODE_ENV", "production");
    command
}

/// Waits until the process has created a table.
fn wait_until_made(process: &Running, database: &Database<'_>, table: &str) -> miette::Result<()> {
    let missing = format!("SELECT (to_regclass('{table}') IS NULL)::integer::bigint");
    let made = database.wait_until_none(&missing, LOOK_SELDOM);
    made.wrap_err_with(|| process.log().unwrap_or_default())
}

impl Peer {
    fn new(name: &'static str, goal: Option<f64>) -> Self {
        Self {
            name,
            messages_per_second: 0.0,
            rounds: Vec::new(),
            ganger_to_it: None,
            goal,
        }
    }

    pub(crate) const HEADER: &[&str] = &["two processes", "messages/s", "ganger to it"];

    pub(crate) fn row(&self) -> Vec<String> {
        let times = self.ganger_to_it.map(|times| format!("{times:.1} ×"));
        vec![
            self.name.to_owned(),
            number(self.messages_per_second),
            times.unwrap_or_default(),
        ]
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/tables/peers")
}

/// Files that pin the versions.
const WANTED: &[&str] = &[
    "tables/peers/package.json",
    "tables/peers/package-lock.json",
    "tables/peers/requirements.txt",
];
