//! One run of a command: its arguments, its input, what it printed and how it ended.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command};

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
        let streams = tempfile::tempdir_in(dir).unwrap();
        let path = |name: &str| streams.path().join(name);
        std::fs::write(path("in"), input).unwrap();
        let child = Command::new(super::PROGRAM)
            .args(args)
            .current_dir(dir)
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| name == "PATH" || name == "HOME"))
            .stdin(File::open(path("in")).unwrap())
            .stdout(File::create(path("out")).unwrap())
            .stderr(File::create(path("err")).unwrap())
            .spawn()
            .unwrap();
        let code = Running(child).end();
        let read = |name| String::from_utf8(std::fs::read(path(name)).unwrap()).unwrap();
        Self {
            code,
            out: read("out"),
            err: read("err"),
        }
    }

    /// It ended well; what it printed.
    pub(crate) fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self.out
    }

    /// It ended well; what it printed, as JSON.
    pub(crate) fn json(self) -> Value {
        let out = self.good();
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("no JSON, {error}: {out}"))
    }

    /// It ended with that code; what it complained of, on one line.
    pub(crate) fn bad(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:#?}");
        // Long lines are wrapped, with a bar before each part.
        let words = self.err.split_whitespace().filter(|word| *word != "│");
        words.collect::<Vec<_>>().join(" ")
    }
}

/// A command that is killed if it does not end in time.
struct Running(Child);

impl Running {
    fn end(mut self) -> Option<i32> {
        let ended = super::look(|| self.0.try_wait().unwrap());
        ended.expect("the command did not end in time").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already is no news.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
