//! A private MariaDB server: started, stopped, killed, frozen, asked. Nothing here knows a daemon.

use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::home::Home;
use super::process::{Server, free_port};
use super::{look, look_for};

/// A directory with the programs of another release than that of this system.
const PROGRAMS: &str = "GANGER_TEST_MARIADB";
/// Where Debian has them; the server is not on everybody's path.
const DIRECTORIES: [&str; 2] = ["/usr/sbin", "/usr/bin"];

/// The account that it runs as, where the tests are root's.
const ACCOUNT: &str = "mysql";
/// Who may use the databases that are made here, and nothing else: no administrator.
const USER: &str = "ganger";
const PASSWORD: &str = "only-for-tests";

/// How long a start may take where other work keeps the processors busy; alone it takes a second.
const STARTS_WITHIN: Duration = Duration::from_mins(1);
/// How long its greeting may be awaited.
const GREETS_WITHIN: Duration = Duration::from_secs(1);
/// Where it says what it has to say.
const LOG: &str = "log";

/// What is the same for all. A killed server keeps what it has committed all the same: it is the
/// machine's end that would take it, and that is not tested. It keeps a log for others to follow, as in
/// earnest, lets who may do everything in a database make triggers there, and runs their events, as MySQL
/// does by itself.
const SETTINGS: &[&str] = &[
    "bind-address=127.0.0.1",
    "skip-name-resolve",
    "max-connections=400",
    "innodb-flush-log-at-trx-commit=2",
    "innodb-flush-method=nosync",
    "innodb-buffer-pool-size=64M",
    "log-bin=binlog",
    "log-bin-trust-function-creators=ON",
    "event-scheduler=ON",
];
/// Of its files, which are made as small as they may be.
const SIZES: &str = "innodb-log-file-size=32M";

/// The server and its directory. Dropped, both are gone.
pub(crate) struct Mariadb {
    server: Mutex<Option<Server>>,
    home: Home,
    port: u16,
    /// Settings of the test's choosing.
    settings: Vec<String>,
}

impl Mariadb {
    /// Starts one with those settings beside the usual (`name=value`), and waits until it takes
    /// connections.
    pub(crate) fn start(settings: &[&str]) -> Self {
        Self::start_with(|_| settings.iter().map(ToString::to_string).collect())
    }

    /// The same, with settings that may name files of its directory.
    pub(crate) fn start_with(settings: impl FnOnce(&Self) -> Vec<String>) -> Self {
        let started = Self::bare(settings);
        started.sql(
            "",
            &format!("CREATE USER {USER}@'%' IDENTIFIED BY '{PASSWORD}'"),
        );
        started
    }

    /// One that nobody but an administrator may use.
    fn bare(settings: impl FnOnce(&Self) -> Vec<String>) -> Self {
        let mut made = Self {
            server: Mutex::new(None),
            home: Home::of("mariadb", ACCOUNT),
            port: free_port(),
            settings: Vec::new(),
        };
        made.make();
        made.settings = settings(&made);
        made.start_again();
        made
    }

    /// Starts a second server that follows this one and may only be read. From then on nothing is
    /// committed here before it is there, too.
    pub(crate) fn replica(&self) -> Self {
        let settings = ["server-id=2", "read-only=ON"].map(str::to_owned);
        let replica = Self::bare(|_| settings.into());
        self.sql("", &format!("GRANT REPLICATION SLAVE ON *.* TO {USER}@'%'"));
        // All that was ever done there is in the log that it follows.
        let follow = format!(
            "SET GLOBAL rpl_semi_sync_slave_enabled = ON;
             CHANGE MASTER TO master_host = '127.0.0.1', master_port = {}, master_user = '{USER}',
             master_password = '{PASSWORD}', master_use_gtid = slave_pos, master_connect_retry = 1;
             START SLAVE",
            self.port
        );
        replica.sql("", &follow);
        self.sql(
            "",
            "SET GLOBAL rpl_semi_sync_master_timeout = 600000,
             GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC',
             GLOBAL rpl_semi_sync_master_enabled = ON",
        );
        let followers = "SELECT variable_value FROM information_schema.global_status
                         WHERE variable_name = 'Rpl_semi_sync_master_clients'";
        let followed = look(|| (self.sql("", followers) == "1").then_some(()));
        let said = replica.last_words();
        assert!(followed.is_some(), "it does not follow: {said}");
        replica
    }

    /// Lets one that follows go on by itself.
    pub(crate) fn promote(&self) {
        self.sql("", "STOP SLAVE; RESET SLAVE ALL");
        self.read_only(false);
    }

    /// Whether it may only be read, by all but administrators.
    pub(crate) fn read_only(&self, is_it: bool) {
        self.sql("", &format!("SET GLOBAL read_only = {is_it}"));
    }

    fn make(&self) {
        let mut install = self.home.command(program("mariadb-install-db"));
        install.args(["--no-defaults", "--skip-test-db"]);
        install.arg("--auth-root-authentication-method=normal");
        install.args(self.places()).arg(format!("--{SIZES}"));
        let made = install.output().unwrap();
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "mariadb-install-db: {said}");
    }

    /// Where its files are. What it finds in a place for temporary ones it removes at its start, so that
    /// is its own, too.
    fn places(&self) -> [String; 2] {
        let (data, home) = (self.home.file("data"), self.home.path());
        [
            format!("--datadir={}", data.display()),
            format!("--tmpdir={}", home.display()),
        ]
    }

    /// Puts a file in its directory that only it may read, as it wants its key to be.
    pub(crate) fn keep(&self, name: &str, content: &str) -> PathBuf {
        self.home.keep(name, content)
    }

    // -- its life --

    /// Starts it in the same place with what it has stored, and waits until it takes connections.
    pub(crate) fn start_again(&self) {
        let server = self.home.start(program("mariadbd"), LOG, |command| {
            command.arg("--no-defaults").args(self.places());
            command.arg(format!("--socket={}", self.socket().display()));
            command.arg(format!("--pid-file={}", self.home.file("pid").display()));
            command.arg(format!("--port={}", self.port));
            let settings = SETTINGS.iter().copied().chain([SIZES, "server-id=1"]);
            for setting in settings.chain(self.settings.iter().map(String::as_str)) {
                command.arg(format!("--{setting}"));
            }
        });
        let up = look_for(STARTS_WITHIN, || {
            assert!(server.ended().is_none(), "it ended: {}", self.last_words());
            self.greets().then_some(())
        });
        assert!(up.is_some(), "it does not come up: {}", self.last_words());
        *self.server() = Some(server);
    }

    /// It speaks first to whoever connects; a connection alone it may have taken before it is ready.
    fn greets(&self) -> bool {
        let Ok(mut client) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)) else {
            return false;
        };
        client.set_read_timeout(Some(GREETS_WITHIN)).unwrap();
        client.read_exact(&mut [0; 5]).is_ok()
    }

    /// Sets its clock, so many seconds from the machine's; from its next start on, if it had none of its
    /// own so far.
    pub(crate) fn set_clock(&self, offset: &str) {
        self.home.set_clock(offset);
    }

    /// The end of what it has said.
    pub(crate) fn last_words(&self) -> String {
        self.home.last_words(LOG)
    }

    fn server(&self) -> MutexGuard<'_, Option<Server>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops it as an operator would.
    pub(crate) fn stop(&self) {
        let server = self.server().take().unwrap();
        server.end(Signal::SIGTERM);
    }

    /// `kill -9`.
    pub(crate) fn kill(&self) {
        let server = self.server().take().unwrap();
        server.end(Signal::SIGKILL);
    }

    /// Lets it stand still, its connections open.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        self.server().as_ref().unwrap().signal(signal);
    }

    // -- what it is asked --

    /// Its process, while it runs.
    pub(crate) fn pid(&self) -> Pid {
        self.server().as_ref().unwrap().pid()
    }

    /// Where clients connect.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The same on this machine, without a network.
    pub(crate) fn socket(&self) -> PathBuf {
        self.home.file("socket")
    }

    /// The address of one of its databases, for one who may do everything there and nothing elsewhere.
    pub(crate) fn url(&self, database: &str) -> String {
        format!(
            "mysql://{USER}:{PASSWORD}@127.0.0.1:{}/{database}",
            self.port
        )
    }

    /// Makes an empty database.
    pub(crate) fn create_database(&self, name: &str) {
        self.sql(
            "",
            &format!("CREATE DATABASE {name}; GRANT ALL ON {name}.* TO {USER}@'%'"),
        );
    }

    /// Removes one.
    pub(crate) fn drop_database(&self, name: &str) {
        self.sql("", &format!("DROP DATABASE {name}"));
    }

    /// Has an administrator's client run statements in one of its databases; what they say, a line for a
    /// row, its columns parted by `|`.
    pub(crate) fn sql(&self, database: &str, sql: &str) -> String {
        let ran = self.try_sql(database, sql);
        ran.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The same, or what is wrong with them.
    pub(crate) fn try_sql(&self, database: &str, sql: &str) -> Result<String, String> {
        let mut client = self.home.command(program("mariadb"));
        client.args(["--no-defaults", "--batch", "--raw", "--skip-column-names"]);
        client.args(["--default-character-set=utf8mb4", "--user=root"]);
        client.arg(format!("--socket={}", self.socket().display()));
        client.arg(format!("--database={database}"));
        let mut client = client
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It may end before it has read everything, at what is wrong.
        let mut input = client.stdin.take().unwrap();
        drop(std::io::Write::write_all(&mut input, sql.as_bytes()));
        drop(input);
        let ran = client.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap().trim_end().to_owned();
        match ran.status.success() {
            true => Ok(text(ran.stdout).replace('\t', "|").replace("NULL", "")),
            false => Err(format!("{}\n{}", text(ran.stderr), self.last_words())),
        }
    }
}

/// One of its programs.
fn program(name: &str) -> PathBuf {
    let given = std::env::var_os(PROGRAMS).map(PathBuf::from);
    let usual = DIRECTORIES.iter().map(PathBuf::from);
    given
        .into_iter()
        .chain(usual)
        .map(|directory| directory.join(name))
        .find(|program| Path::exists(program))
        .unwrap_or_else(|| panic!("no {name}: run tests/run, which installs it"))
}
