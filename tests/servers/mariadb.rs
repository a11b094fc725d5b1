//! A private MariaDB server, or one of MySQL: started, stopped, killed, frozen, asked. Nothing here knows
//! a daemon, and which of both it is only `mysql.rs` knows.

use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::home::Home;
use super::mysql::Release;
use super::process::{Server, free_port};
use super::{look, look_for};

/// The account that it runs as, where the tests are root's.
const ACCOUNT: &str = "mysql";
/// Who may use the databases that are made here, and nothing else: no administrator.
pub(crate) const USER: &str = "ganger";
const PASSWORD: &str = "only-for-tests";

/// How long a start may take where other work keeps the processors busy; alone it takes a second.
const STARTS_WITHIN: Duration = Duration::from_mins(1);
/// How long its greeting may be awaited.
const GREETS_WITHIN: Duration = Duration::from_secs(1);
/// Where it says what it has to say.
const LOG: &str = "log";

/// The server and its directory. Dropped, both are gone.
pub(crate) struct Mariadb {
    server: Mutex<Option<Server>>,
    home: Home,
    release: &'static Release,
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
            release: Release::of_the_tests(),
            port: free_port(),
            settings: Vec::new(),
        };
        made.make();
        made.settings = settings(&made);
        made.start_again();
        made
    }

    /// Starts a second server that follows this one and may only be read. From then on nothing is
    /// committed here before it is there, too, where the server can do that: see [`Self::kill_followed`].
    pub(crate) fn replica(&self) -> Self {
        let settings = ["server-id=2", "read-only=ON"].map(str::to_owned);
        let replica = Self::bare(|_| settings.into());
        self.sql("", &format!("GRANT REPLICATION SLAVE ON *.* TO {USER}@'%'"));
        replica.sql("", &self.release.follow(self.port, USER, PASSWORD));
        if self.release.waits_for_followers() {
            self.wait_for_followers(&replica);
        }
        replica
    }

    /// Commits nothing any more before who follows has it, once one does.
    fn wait_for_followers(&self, replica: &Self) {
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
    }

    /// `kill -9` when who follows has all that was committed, and so in the middle of whatever is done.
    /// Where a commit does not wait for him the server lets nobody write before.
    pub(crate) fn kill_followed(&self, by: &Self) {
        if !self.release.waits_for_followers() {
            self.read_only(true);
            let at = self.sql("", "SHOW MASTER STATUS");
            let mut at = at.split('|');
            let (file, position) = (at.next().unwrap(), at.next().unwrap());
            let has_it = format!("SELECT MASTER_POS_WAIT('{file}', {position}, 60) >= 0");
            let said = by.sql("", &has_it);
            assert_eq!(said, "1", "it does not follow: {}", by.last_words());
        }
        self.kill();
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
        let mut install = self.release.install(&self.home);
        let made = install.args(self.places()).output().unwrap();
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "its files are not made: {said}");
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
        let server = self.home.start(self.release.server(), LOG, |command| {
            command.arg("--no-defaults").args(self.places());
            command.arg(format!("--socket={}", self.socket().display()));
            command.arg(format!("--pid-file={}", self.home.file("pid").display()));
            command.arg(format!("--port={}", self.port));
            command.args(self.release.options()).arg("--server-id=1");
            let settings = self.settings.iter();
            command.args(settings.map(|setting| format!("--{setting}")));
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

    /// It is MySQL, and not MariaDB.
    pub(crate) fn is_mysql(&self) -> bool {
        self.release.is_mysql()
    }

    /// Its process, while it runs.
    pub(crate) fn pid(&self) -> Pid {
        self.server().as_ref().unwrap().pid()
    }

    /// Its name and version.
    pub(crate) fn version(&self) -> String {
        self.sql("", "SELECT VERSION()")
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
        let mut client = self.home.command(self.release.client());
        client.args(["--no-defaults", "--batch", "--raw", "--skip-column-names"]);
        client.args([
            "--default-character-set=utf8mb4",
            "--user=root",
            "--skip-ssl",
        ]);
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
