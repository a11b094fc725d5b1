//! A private PostgreSQL server: started, stopped, killed, frozen, asked. Nothing here knows a daemon.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::home::Home;
use super::process::{Server, free_port};
use super::{look, look_for};

/// A directory with the programs of another release than the newest that this system has.
const PROGRAMS: &str = "GANGER_TEST_POSTGRES";
/// Where Debian has them, a directory for each release.
const RELEASES: &str = "/usr/lib/postgresql";

/// Its first user, who may do everything and needs no password.
const SUPERUSER: &str = "postgres";

/// How long a start may take where other work keeps the processors busy; alone it takes a second.
const STARTS_WITHIN: Duration = Duration::from_mins(1);
/// Where it says what it has to say.
const LOG: &str = "log";

/// What is the same for all. A killed server keeps what it has committed all the same: it is the
/// machine's end that would take it, and that is not tested.
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "max_connections=200",
    "fsync=off",
    "logging_collector=off",
];

/// The server and its directory. Dropped, both are gone.
pub(crate) struct Cluster {
    home: Home,
    programs: PathBuf,
    port: u16,
    /// Settings of the test's choosing.
    settings: Vec<String>,
    postmaster: Mutex<Option<Server>>,
}

impl Cluster {
    /// Starts one with those settings beside the usual (`name=value`), and waits until it takes
    /// connections.
    pub(crate) fn start(settings: &[&str]) -> Self {
        Self::start_with(|_| settings.iter().map(ToString::to_string).collect())
    }

    /// The same, with settings that may name files of its directory.
    pub(crate) fn start_with(settings: impl FnOnce(&Self) -> Vec<String>) -> Self {
        let mut cluster = Self {
            home: Home::of("postgres", SUPERUSER),
            programs: programs(),
            port: free_port(),
            settings: Vec::new(),
            postmaster: Mutex::new(None),
        };
        cluster.make();
        cluster.settings = settings(&cluster);
        cluster.start_again();
        cluster
    }

    /// Starts a second server that follows this one. From then on nothing is committed here before it is
    /// there, too.
    pub(crate) fn standby(&self) -> Self {
        let mut standby = Self {
            home: Home::of("postgres", SUPERUSER),
            programs: programs(),
            port: free_port(),
            settings: Vec::new(),
            postmaster: Mutex::new(None),
        };
        standby.settings = vec![format!(
            "primary_conninfo=host={} port={} user={SUPERUSER}",
            self.home.path().display(),
            self.port
        )];
        // Not by pg_basebackup, which not every collection of a release's programs has.
        self.stop();
        let mut copy = Command::new("cp");
        let copied = copy
            .arg("-a")
            .arg(self.home.file("data"))
            .arg(standby.home.path());
        assert!(copied.status().unwrap().success(), "the copy");
        self.start_again();
        standby.keep("data/standby.signal", "");
        standby.start_again();
        self.psql(
            SUPERUSER,
            "ALTER SYSTEM SET synchronous_standby_names = '*'",
        );
        self.psql(SUPERUSER, "SELECT pg_reload_conf()");
        let follows = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        let followed = look(|| (self.psql(SUPERUSER, follows) == "1").then_some(()));
        assert!(
            followed.is_some(),
            "it does not follow: {}",
            standby.last_words()
        );
        standby
    }

    /// Lets one that follows go on by itself.
    pub(crate) fn promote(&self) {
        assert_eq!(self.psql(SUPERUSER, "SELECT pg_promote()"), "t");
    }

    // -- its files --

    fn make(&self) {
        let mut initdb = self.command("initdb");
        initdb.args(["--no-sync", "--encoding=UTF8"]);
        initdb.args(["--locale=C", "--auth=trust", "--username", SUPERUSER]);
        let made = initdb.arg("--pgdata").arg(self.home.file("data")).output();
        let made = made.unwrap();
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "initdb: {said}");
    }

    /// Puts a file in its directory that only it may read, as it wants its key to be.
    pub(crate) fn keep(&self, name: &str, content: &str) -> PathBuf {
        self.home.keep(name, content)
    }

    /// One of its programs, run as its user; another release's where it comes without, as some do
    /// without psql.
    fn command(&self, program: &str) -> Command {
        let own = self.programs.join(program);
        let program = match (own.exists(), newest()) {
            (false, Some(others)) => others.join(program),
            _ => own,
        };
        self.home.command(program)
    }

    // -- its life --

    /// Starts it in the same place with what it has stored, and waits until it takes connections.
    pub(crate) fn start_again(&self) {
        let server = self.beside(self.programs.join("postgres"), LOG, |command| {
            command.arg("-D").arg(self.home.file("data"));
            command.args(["-p", &self.port.to_string()]);
            let sockets = format!("unix_socket_directories={}", self.home.path().display());
            let settings = SETTINGS.iter().copied().chain([sockets.as_str()]);
            for setting in settings.chain(self.settings.iter().map(String::as_str)) {
                command.args(["-c", setting]);
            }
        });
        let up = look_for(STARTS_WITHIN, || {
            assert!(server.ended().is_none(), "it ended: {}", self.last_words());
            self.is_ready(server.pid()).then_some(())
        });
        assert!(up.is_some(), "it does not come up: {}", self.last_words());
        *self.postmaster() = Some(server);
    }

    /// Starts a program as its user, in its directory, that says what it has to say to a file there.
    pub(crate) fn beside(
        &self,
        program: impl AsRef<OsStr>,
        log: &str,
        setup: impl FnOnce(&mut Command),
    ) -> Server {
        self.home.start(program, log, setup)
    }

    /// It says so in the last line of a file that begins with its process.
    fn is_ready(&self, pid: Pid) -> bool {
        let said = fs::read_to_string(self.home.file("data/postmaster.pid")).unwrap_or_default();
        let first = said.lines().next().map(str::trim);
        let last = said.lines().last().map(str::trim);
        let is_up = matches!(last, Some("ready" | "standby"));
        first == Some(pid.to_string().as_str()) && is_up
    }

    /// Sets its clock, so many seconds from the machine's; from its next start on, if it had none of its
    /// own so far.
    pub(crate) fn set_clock(&self, offset: &str) {
        self.home.set_clock(offset);
    }

    /// All that it has said.
    pub(crate) fn log(&self) -> String {
        let log = fs::read(self.home.file(LOG)).unwrap();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// The end of what it has said.
    pub(crate) fn last_words(&self) -> String {
        self.home.last_words(LOG)
    }

    fn postmaster(&self) -> MutexGuard<'_, Option<Server>> {
        self.postmaster
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops it as an operator would, who does not wait for its clients.
    pub(crate) fn stop(&self) {
        let server = self.postmaster().take().unwrap();
        server.end(Signal::SIGINT);
    }

    /// `kill -9` on all of its processes.
    pub(crate) fn kill(&self) {
        let server = self.postmaster().take().unwrap();
        // None is added meanwhile.
        server.signal(Signal::SIGSTOP);
        let backends = backends(server.pid());
        server.end(Signal::SIGKILL);
        for pid in &backends {
            signal(*pid, Signal::SIGKILL);
        }
        let gone = look(|| backends.iter().all(|pid| has_ended(*pid)).then_some(()));
        assert!(gone.is_some(), "some of {backends:?} live on");
    }

    /// Lets it stand still with all of its processes, their connections open.
    pub(crate) fn freeze(&self) {
        let pid = self.pid();
        signal(pid, Signal::SIGSTOP);
        for pid in backends(pid) {
            signal(pid, Signal::SIGSTOP);
        }
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        let pid = self.pid();
        for pid in backends(pid) {
            signal(pid, Signal::SIGCONT);
        }
        signal(pid, Signal::SIGCONT);
    }

    // -- what it is asked --

    /// Its first process, while it runs.
    pub(crate) fn pid(&self) -> Pid {
        self.postmaster().as_ref().unwrap().pid()
    }

    /// Where clients connect.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Where its Unix socket is.
    pub(crate) fn socket_directory(&self) -> &Path {
        self.home.path()
    }

    /// The address of one of its databases, for one who may do everything.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://{SUPERUSER}@127.0.0.1:{}/{database}", self.port)
    }

    /// Makes an empty database.
    pub(crate) fn create_database(&self, name: &str) {
        self.psql(SUPERUSER, &format!("CREATE DATABASE \"{name}\""));
    }

    /// Removes one, whoever is connected to it.
    pub(crate) fn drop_database(&self, name: &str) {
        self.psql(SUPERUSER, &format!("DROP DATABASE \"{name}\" WITH (FORCE)"));
    }

    /// Has statements run in one of its databases; what they say, a line for a row, its columns
    /// parted by `|`.
    pub(crate) fn psql(&self, database: &str, sql: &str) -> String {
        let ran = self.try_psql(database, sql);
        ran.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The same, or what is wrong with them.
    pub(crate) fn try_psql(&self, database: &str, sql: &str) -> Result<String, String> {
        let mut psql = self.command("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
        psql.arg("-h").arg(self.home.path());
        psql.args(["-p", &self.port.to_string(), "-U", SUPERUSER]);
        let ran = psql.args(["-d", database, "-c", sql]).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap().trim_end().to_owned();
        match ran.status.success() {
            true => Ok(text(ran.stdout)),
            false => Err(text(ran.stderr)),
        }
    }
}

/// Where its programs are: they are not on the path.
fn programs() -> PathBuf {
    let given = std::env::var_os(PROGRAMS).map(PathBuf::from);
    given
        .or_else(newest)
        .unwrap_or_else(|| panic!("no {RELEASES}/*/bin/postgres: run tests/run, which installs it"))
}

fn newest() -> Option<PathBuf> {
    let releases = fs::read_dir(RELEASES).ok()?.flatten();
    let programs = releases.map(|release| release.path().join("bin"));
    let programs = programs.filter(|programs| programs.join("postgres").exists());
    programs.max_by_key(|programs| {
        let release = programs.parent().and_then(Path::file_name);
        let release = release.and_then(OsStr::to_str);
        release.and_then(|release| release.parse::<u32>().ok())
    })
}

/// The processes that the first one has begun, one for each connection among them.
fn backends(postmaster: Pid) -> Vec<Pid> {
    let children = format!("/proc/{postmaster}/task/{postmaster}/children");
    let children = fs::read_to_string(children).unwrap();
    let pids = children.split_whitespace().map(|pid| pid.parse().unwrap());
    pids.map(Pid::from_raw).collect()
}

fn signal(pid: Pid, signal: Signal) {
    let sent = kill(pid, signal);
    assert!(
        matches!(sent, Ok(()) | Err(Errno::ESRCH)),
        "{pid}: {sent:?}"
    );
}

/// It is gone, or waits for nothing but to be reaped by whoever that is up to.
fn has_ended(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    matches!(state, None | Some('Z' | 'X'))
}
