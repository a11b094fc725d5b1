//! The cost of a worker in each language: the libraries of `worker-sdk/` with a handler that does nothing,
//! and `ganger exec` with a program that does nothing, each as the only worker of a pool that is fed from
//! memory. It needs the languages' tools; missing ones are reported and skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

use miette::{IntoDiagnostic, bail};
use serde::Serialize;

use crate::common::figures::{Series, median};
use crate::common::show::{megabytes, milliseconds, note, number, tenths};
use crate::common::target;
use crate::memory_source;
use crate::plan::Plan;
use crate::queue::Load;
use crate::setup::{Program, Setup, Window};

/// Results of one worker with one way of working.
#[derive(Debug, Serialize)]
pub(crate) struct Language {
    name: &'static str,
    way: Way,
    per_second: f64,
    worker_cpu_micros: f64,
    start_ms: f64,
    worker_kib: u64,
}

/// A way of delivering messages to a worker.
#[derive(Debug, Clone, Copy, Serialize)]
struct Way {
    version: u32,
    /// Frames in the pipe of a version 1 worker, or concurrent tasks of a version 2 worker.
    at_once: usize,
}

const WAYS: [Way; 5] = [
    Way::new(1, 1),
    Way::new(1, 32),
    Way::new(2, 1),
    Way::new(2, 8),
    Way::new(2, 32),
];

impl Way {
    const fn new(version: u32, at_once: usize) -> Self {
        Self { version, at_once }
    }

    fn describe(self) -> String {
        match self {
            Self {
                version: 1,
                at_once,
            } => format!("version 1, window {at_once}"),
            Self { at_once, .. } => format!("version 2, concurrency {at_once}"),
        }
    }
}

/// A worker to be measured.
struct Candidate {
    name: &'static str,
    program: Program,
    messages: usize,
}

impl Candidate {
    /// Returns the program as a daemon starts it that supports this version.
    fn started(&self, version: u32, concurrency: usize) -> Program {
        let unset: &[&str] = match version {
            1 => &["-u", "GANGER_PROTOCOL"],
            _ => &[],
        };
        let Program { path, args } = &self.program;
        let words = unset.iter().map(ToString::to_string);
        let words = words.chain([path.display().to_string()]);
        let args = args
            .iter()
            .map(|arg| arg.replace(CONCURRENCY, &concurrency.to_string()));
        Program {
            path: "/usr/bin/env".into(),
            args: words.chain(args).collect(),
        }
    }
}

/// Measures each language once in every round, all ways one after the other.
pub(crate) fn measure(plan: &Plan) -> miette::Result<Vec<Language>> {
    let candidates = candidates(plan)?;
    let tries = candidates
        .iter()
        .flat_map(|candidate| WAYS.iter().map(move |way| (candidate, *way)));
    let mut tries: Vec<Try<'_>> = tries.map(Try::of).collect();
    for round in 1..=plan.rounds {
        note(format_args!("languages, round {round} of {}", plan.rounds));
        for each in &mut tries {
            each.round()?;
        }
    }
    Ok(tries.iter().map(Try::result).collect())
}

/// A worker with one way of working, round by round.
struct Try<'a> {
    candidate: &'a Candidate,
    way: Way,
    runs: Series,
    starts: Vec<f64>,
    kib: u64,
}

impl<'a> Try<'a> {
    fn of((candidate, way): (&'a Candidate, Way)) -> Self {
        Self {
            candidate,
            way,
            runs: Series::default(),
            starts: Vec::new(),
            kib: 0,
        }
    }

    fn round(&mut self) -> miette::Result<()> {
        let Way { version, at_once } = self.way;
        let (concurrency, window) = match version {
            1 => (1, at_once),
            _ => (at_once, 1),
        };
        let mut setup = Setup::one_pool(1, Window::Fixed(window));
        setup.program = Some(self.candidate.started(version, concurrency));
        let load = Load {
            messages: self.candidate.messages,
            body_bytes: 100,
        };
        let watched = memory_source::watch(&setup, load)?;
        self.runs.push(watched.run);
        self.starts.push(watched.start_seconds * 1e3);
        self.kib = self.kib.max(watched.worker_kib);
        Ok(())
    }

    fn result(&self) -> Language {
        Language {
            name: self.candidate.name,
            way: self.way,
            per_second: self.runs.per_second(),
            worker_cpu_micros: self.runs.cpu_micros(),
            start_ms: median(self.starts.iter().copied()),
            worker_kib: self.kib,
        }
    }
}

impl Language {
    pub(crate) const HEADER: &[&str] = &[
        "worker",
        "way",
        "messages/s",
        "its CPU µs",
        "start",
        "resident",
    ];

    pub(crate) fn row(&self) -> Vec<String> {
        vec![
            self.name.to_owned(),
            self.way.describe(),
            number(self.per_second),
            tenths(self.worker_cpu_micros),
            milliseconds(self.start_ms),
            megabytes(self.worker_kib),
        ]
    }
}

// -- the workers --

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Returns the workers whose tools are installed, built where that is needed.
fn candidates(plan: &Plan) -> miette::Result<Vec<Candidate>> {
    std::fs::create_dir_all(built("")).into_diagnostic()?;
    let recipes: [(&str, Recipe); 10] = [
        ("Python, threads", || python("threads")),
        ("Python, asyncio", || python("asyncio")),
        ("Node", node),
        ("Go", go),
        ("Rust, tokio", rust),
        ("Java", java),
        (".NET by Mono", mono),
        ("Ruby", ruby),
        ("PHP", php),
        ("ganger exec, true", exec),
    ];
    let mut found = Vec::new();
    for (name, recipe) in recipes {
        let starts_anew = name.starts_with("ganger exec");
        match recipe() {
            Ok(program) => found.push(Candidate {
                name,
                program,
                messages: if starts_anew {
                    plan.language_messages / 50
                } else {
                    plan.language_messages
                },
            }),
            Err(why) => note(format_args!("without {name}: {why}")),
        }
    }
    Ok(found)
}

type Recipe = fn() -> miette::Result<Program>;

/// Returns a worker's program.
fn program(path: impl Into<PathBuf>, args: &[&str]) -> Program {
    Program {
        path: path.into(),
        args: args.iter().map(ToString::to_string).collect(),
    }
}

fn built(name: &str) -> PathBuf {
    target().join("bench/workers").join(name)
}

fn source(name: &str) -> String {
    format!("{ROOT}/benches/workers/{name}")
}

/// Returns the program of that name, as a shell finds it.
fn tool(name: &str) -> miette::Result<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&paths).map(|dir| dir.join(name));
    let found = places.find(|path| path.is_file());
    found.ok_or_else(|| miette::miette!("no {name} here"))
}

fn prepared(variable: &str, usual: &str) -> PathBuf {
    let prepared = std::env::var_os(variable).map(PathBuf::from);
    prepared.unwrap_or_else(|| target().join(usual))
}

fn existing(path: PathBuf) -> miette::Result<PathBuf> {
    if path.exists() {
        return Ok(path);
    }
    bail!("{} is not there: tests/run prepares it", path.display())
}

fn run(command: &mut Command) -> miette::Result<()> {
    let status = command.status().into_diagnostic()?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

/// Placeholder for the number of concurrent tasks of a worker.
const CONCURRENCY: &str = "{concurrency}";

fn python(kind: &str) -> miette::Result<Program> {
    let python = existing(prepared("GANGER_TEST_PYTHON", "venv/bin/python3"))?;
    Ok(program(python, &[&source("noop.py"), kind, CONCURRENCY]))
}

fn node() -> miette::Result<Program> {
    let library = existing(prepared("GANGER_TEST_NODE", "node").join("dist/esm/index.js"))?;
    let library = library.to_string_lossy();
    Ok(program(
        tool("node")?,
        &[&source("noop.mjs"), &library, CONCURRENCY],
    ))
}

fn go() -> miette::Result<Program> {
    let worker = built("noop-go");
    let mut build = Command::new(tool("go")?);
    build
        .args(["build", "-o"])
        .arg(&worker)
        .arg("./internal/noop");
    run(build.current_dir(format!("{ROOT}/worker-sdk/go")))?;
    Ok(program(worker, &[CONCURRENCY]))
}

fn rust() -> miette::Result<Program> {
    let manifest = existing(format!("{ROOT}/worker-sdk/rust/Cargo.toml").into())?;
    let mut build = Command::new(tool("cargo")?);
    build.args([
        "build",
        "--quiet",
        "--release",
        "--locked",
        "--features",
        "log,tokio",
        "--example",
        "noop",
    ]);
    build.arg("--manifest-path").arg(manifest);
    run(build.arg("--target-dir").arg(built("rust")))?;
    Ok(program(built("rust/release/examples/noop"), &[CONCURRENCY]))
}

fn java() -> miette::Result<Program> {
    let library = existing(prepared("GANGER_TEST_JAVA", "java").join("target"))?;
    let classes = [
        library.join("classes"),
        library.join("libs/*"),
        built("java"),
    ];
    let classes: Vec<_> = classes.iter().map(|path| path.to_string_lossy()).collect();
    let classes = classes.join(":");
    let mut compile = Command::new(tool("javac")?);
    compile.args(["-cp", &classes, "-d"]).arg(built("java"));
    run(compile.arg(source("Noop.java")))?;
    Ok(program(
        tool("java")?,
        &["-cp", &classes, "Noop", CONCURRENCY],
    ))
}

/// Debian has no SDK of .NET: this uses Mono's compiler and runtime, and reports that.
fn mono() -> miette::Result<Program> {
    let sources = existing(format!("{ROOT}/worker-sdk/dotnet/src").into())?;
    let (library, worker) = (built("Ganger.Worker.dll"), built("noop.exe"));
    let reference = format!("-r:{}", library.display());
    let compile = |source: &Path, to: &Path, args: &[&str]| {
        let mut compile = Command::new(tool("mcs")?);
        compile.args(["-langversion:7.2", "-optimize+", "-define:TRACE"]);
        compile.args(args).arg(format!("-out:{}", to.display()));
        run(compile.arg(source))
    };
    let of_library = ["-target:library", "-r:System.Core.dll"];
    compile(&sources.join("*.cs"), &library, &of_library)?;
    compile(source("Noop.cs").as_ref(), &worker, &[&reference])?;
    Ok(program(
        tool("mono")?,
        &[&worker.to_string_lossy(), CONCURRENCY],
    ))
}

fn ruby() -> miette::Result<Program> {
    let library = existing(format!("{ROOT}/worker-sdk/ruby/lib").into())?;
    let library = format!("-I{}", library.display());
    Ok(program(
        tool("ruby")?,
        &[&library, &source("noop.rb"), CONCURRENCY],
    ))
}

fn php() -> miette::Result<Program> {
    existing(format!("{ROOT}/worker-sdk/php").into())?;
    Ok(program(tool("php")?, &[&source("noop.php"), CONCURRENCY]))
}

/// Returns `ganger exec`, which starts a process for each message, with a program that reads and writes
/// nothing.
fn exec() -> miette::Result<Program> {
    let ganger = env!("CARGO_BIN_EXE_ganger");
    Ok(program(
        ganger,
        &["exec", "--concurrency", CONCURRENCY, "--", "true"],
    ))
}
