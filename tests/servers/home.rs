//! The user that a server runs as, where the tests are root's: some refuse to be root's themselves.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::{Uid, User};

use super::process::Server;

/// What tells a program another time than it is, where Debian has it.
const FAKE_CLOCK: &str = "LD_PRELOAD=/usr/$LIB/faketime/libfaketimeMT.so.1";
/// The file with the time that a server is told.
const CLOCK: &str = "clock";

/// A directory of a server's, which it may use, and under which user that is.
pub(crate) struct Home {
    dir: tempfile::TempDir,
    user: Option<User>,
}

impl Home {
    /// Makes one for that server, whose package has made a user of that name.
    pub(crate) fn of(server: &str, user: &str) -> Self {
        let dir = tempfile::Builder::new()
            .prefix(&format!("ganger-{server}-"))
            .tempdir();
        let home = Self {
            dir: dir.unwrap(),
            user: Uid::effective().is_root().then(|| account(user)),
        };
        home.give_away(home.dir.path());
        home
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// One of its files.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Puts a file there that only the server may read, as one wants its key to be.
    pub(crate) fn keep(&self, name: &str, content: &str) -> PathBuf {
        let path = self.file(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        self.give_away(&path);
        path
    }

    /// Sets the clock of what is started there from now on, so many seconds from the machine's (`+3600`);
    /// of what has one, at once.
    pub(crate) fn set_clock(&self, offset: &str) {
        // In one step: it is read whenever somebody asks for the time.
        let new = self.file("clock.new");
        fs::write(&new, offset).unwrap();
        fs::rename(new, self.file(CLOCK)).unwrap();
    }

    fn give_away(&self, path: &Path) {
        if let Some(user) = &self.user {
            chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        }
    }

    /// What becomes that program of its user's. Changing the user makes the kernel forget the signal at
    /// the parent's end, so that is said again.
    fn becoming(&self, program: impl AsRef<OsStr>) -> Vec<OsString> {
        let mut line = Vec::new();
        if let Some(user) = &self.user {
            line.push("setpriv".into());
            line.push(format!("--reuid={}", user.uid).into());
            line.push(format!("--regid={}", user.gid).into());
            line.extend(["--init-groups", "--pdeathsig", "KILL"].map(Into::into));
        }
        line.push(program.as_ref().into());
        line
    }

    /// A program, to be run there as its user.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let line = self.becoming(program);
        let mut command = Command::new(&line[0]);
        let path = std::env::var_os("PATH").unwrap();
        command.args(&line[1..]).env_clear().env("PATH", path);
        command.current_dir(self.path()).stdin(Stdio::null());
        command
    }

    /// Starts a server there as its user, that adds what it has to say to a file there.
    pub(crate) fn start(
        &self,
        program: impl AsRef<OsStr>,
        log: &str,
        setup: impl FnOnce(&mut Command),
    ) -> Server {
        let mut options = File::options();
        let log = options.append(true).create(true).open(self.file(log));
        let log = log.unwrap();
        let mut line = self.becoming(program);
        let clock = self.file(CLOCK);
        if clock.exists() {
            // As its user, too: it keeps semaphores.
            let env = ["env", "FAKETIME_NO_CACHE=1", "DONT_FAKE_MONOTONIC=1"].map(OsString::from);
            let file = format!("FAKETIME_TIMESTAMP_FILE={}", clock.display());
            let last = line.len() - 1;
            line.splice(
                last..last,
                env.into_iter().chain([FAKE_CLOCK.into(), file.into()]),
            );
        }
        Server::start(line[0].to_str().unwrap(), |command| {
            command.args(&line[1..]);
            setup(command);
            command.current_dir(self.path());
            command.stdout(log.try_clone().unwrap()).stderr(log);
        })
    }

    /// The end of what one has said to such a file.
    pub(crate) fn last_words(&self, log: &str) -> String {
        let log = fs::read(self.file(log)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n")
    }
}

/// How many lines of its log are shown if it does not come up.
const LAST_WORDS: usize = 40;

fn account(name: &str) -> User {
    let user = User::from_name(name).unwrap();
    user.expect("its package makes its user: run tests/run, which installs it")
}
