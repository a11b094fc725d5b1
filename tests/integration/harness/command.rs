//! One run of a command: its arguments, its input, what it printed and how it ended.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Runs the program under test in that directory, with these bytes as its stdin, and waits for
    /// its end.
    pub(super) fn of(dir: &Path, args: &[&str], input: &[u8]) -> Self {
        Self::by(super::PROGRAM, dir, args, input)
    }

    /// The same with another version of it.
    pub(super) fn by(program: &str, dir: &Path, args: &[&str], input: &[u8]) -> Self {
        let mut running = Running::start_program(program, dir, args, input);
        let code = super::look(|| running.child.try_wait().unwrap());
        let err = running.read("err");
        Self {
            code: code
                .unwrap_or_else(|| panic!("{args:?} goes on and on: {err}"))
                .code(),
            out: running.read("out"),
            err,
        }
    }

    /// Runs it until it complains of that, whether it ends or not; all that it complained of.
    pub(super) fn complaint(dir: &Path, args: &[&str], part: &str) -> String {
        let running = Running::start(dir, args, b"");
        let complaint = || Some(unwrapped(&running.read("err"))).filter(|err| err.contains(part));
        super::look(complaint)
            .unwrap_or_else(|| panic!("{args:?} without {part:?}: {}", running.read("err")))
    }

    /// It ended well; what it printed.
    pub(crate) fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self.out
    }

    /// It ended well, and has sent so many messages, with an id for each, as text or as JSON.
    pub(crate) fn sent(self, count: usize) {
        let out = self.good();
        if let Ok(told) = serde_json::from_str::<Value>(&out) {
            assert_eq!(told["sent"], count, "{out}");
            assert_eq!(told["ids"].as_array().unwrap().len(), count, "{out}");
            return;
        }
        let (told, ids) = out.split_once(", id").unwrap_or((out.trim_end(), ""));
        assert_eq!(told, format!("sent {count}"), "{out}");
        let ids = ids.trim_start_matches('s').split_whitespace();
        assert_eq!(ids.count(), if count <= 10 { count } else { 0 }, "{out}");
    }

    /// It ended well; what it printed, as JSON.
    pub(crate) fn json(self) -> Value {
        let out = self.good();
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("no JSON, {error}: {out}"))
    }

    /// It ended with that code; what it complained of, on one line.
    pub(crate) fn bad(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:#?}");
        unwrapped(&self.err)
    }
}

/// Runs the program to its end on a terminal; all that this shows.
pub(super) fn shown(dir: &Path, args: &[&str]) -> String {
    let (terminal, screen) = super::terminal();
    let mut child = Command::new(super::PROGRAM)
        .args(args)
        .current_dir(dir)
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(terminal.try_clone().unwrap())
        .stderr(terminal)
        .spawn()
        .unwrap();
    assert!(child.wait().unwrap().code().is_some());
    screen.text()
}

/// Runs the program to its end, which is a quiet one, whoever reads what it prints.
pub(super) fn into(dir: &Path, out: impl Into<Stdio>, args: &[&str]) {
    let ran = Command::new(super::PROGRAM)
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(out)
        .output()
        .unwrap();
    let complaints = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{args:?}: {complaints}");
    assert_eq!(complaints, "", "{args:?}");
}

/// Runs the program to its end with no more than that of memory of its own, and prints into a file.
pub(super) fn within(dir: &Path, kib: u32, args: &[&str], out: &Path) {
    let limited = format!("ulimit -d {kib} && exec \"$0\" \"$@\"");
    let ran = Command::new("sh")
        .args(["-c", &limited, super::PROGRAM])
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(File::create(out).unwrap())
        .output()
        .unwrap();
    let complaints = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{:?}: {complaints}", ran.status);
}

/// Long lines are wrapped, with a bar before each part.
fn unwrapped(text: &str) -> String {
    let words = text.split_whitespace().filter(|word| *word != "│");
    words.collect::<Vec<_>>().join(" ")
}

/// A command that is killed when this is dropped.
pub(crate) struct Running {
    child: Child,
    /// The files that are its stdin, stdout and stderr.
    streams: tempfile::TempDir,
}

impl Running {
    pub(super) fn start(dir: &Path, args: &[&str], input: &[u8]) -> Self {
        Self::start_program(super::PROGRAM, dir, args, input)
    }

    fn start_program(program: &str, dir: &Path, args: &[&str], input: &[u8]) -> Self {
        let streams = tempfile::tempdir_in(dir).unwrap();
        let path = |name: &str| streams.path().join(name);
        std::fs::write(path("in"), input).unwrap();
        let child = Command::new(program)
            .args(args)
            .current_dir(dir)
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| name == "PATH" || name == "HOME"))
            .stdin(File::open(path("in")).unwrap())
            .stdout(File::create(path("out")).unwrap())
            .stderr(File::create(path("err")).unwrap())
            .spawn()
            .unwrap();
        Self { child, streams }
    }

    /// What it has printed so far.
    pub(crate) fn printed(&self) -> String {
        self.read("out")
    }

    /// Whether it has ended, and well.
    pub(crate) fn has_ended_well(&mut self) -> bool {
        let code = self.child.try_wait().unwrap();
        let code = code.map(|code| code.success());
        assert_ne!(code, Some(false), "{}", self.read("err"));
        code.is_some()
    }

    fn read(&self, name: &str) -> String {
        let bytes = std::fs::read(self.streams.path().join(name)).unwrap();
        String::from_utf8(bytes).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already is no news.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
