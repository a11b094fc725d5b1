//! A directory in which daemons are started: it holds the database, the workers' record, and the
//! files that workers wait for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use super::command::{self, Ran, Running};
use super::daemon::{Daemon, Launch};
use super::database::Database;
use super::mariadb::MariaDatabase;
use super::pool::Pool;
use super::postgres::PgDatabase;
use super::record::Record;
use super::table::Table;
use super::terminal::Seat;

/// The variable that tells a worker where to record.
pub(crate) const RECORD: &str = "RECORD";

/// A number for each daemon of this run.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// That number, and a mark for what the daemon starts.
fn next() -> (u32, String) {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    (number, format!("{}-{number}", std::process::id()))
}

/// The names of a configuration's pools, as variables that override their keys have them.
fn pools_of(config: &str) -> Vec<String> {
    // What begins another list is no part of a pool.
    let pools = config.split("[[pools]]").skip(1);
    let lines = pools.flat_map(|pool| pool.split("[[").next().unwrap_or_default().lines());
    let lines = lines.map(str::trim);
    let names = lines.filter_map(|line| line.strip_prefix("name = \"")?.split('"').next());
    names.map(|name| name.replace('-', "_")).collect()
}

/// The directory; it is removed when it is dropped.
pub(crate) struct Workspace {
    dir: tempfile::TempDir,
    /// What goes before the pools in each configuration.
    preamble: String,
    /// Where its table is, if not in a file of the directory.
    database: Option<Database>,
}

impl Workspace {
    pub(crate) fn new() -> Self {
        Self::with_daemon(r#"drain_timeout = "10s""#)
    }

    /// With other settings under `[daemon]`.
    pub(crate) fn with_daemon(settings: &str) -> Self {
        Self::with(settings, "")
    }

    /// With settings of the source beside its file.
    pub(crate) fn with_source(settings: &str) -> Self {
        Self::with("", settings)
    }

    fn with(daemon: &str, source: &str) -> Self {
        Self::on(daemon, source, Database::of_this_test())
    }

    /// With a table in that database, or in a file.
    pub(crate) fn on(daemon: &str, source: &str, database: Option<impl Into<Database>>) -> Self {
        let database: Option<Database> = database.map(Into::into);
        let url = database.as_ref().map(Database::url);
        let url = url.unwrap_or_else(|| "sqlite:queue.db".to_owned());
        let table = format!("[sources.main]\nkind = \"table\"\nurl = \"{url}\"\n{source}");
        Self {
            database,
            ..Self::make(daemon, &table)
        }
    }

    /// With other sources than a table.
    pub(crate) fn with_sections(sources: &str) -> Self {
        Self::make(r#"drain_timeout = "10s""#, sources)
    }

    /// With these settings under `[daemon]` and these sections of sources.
    pub(crate) fn make(daemon: &str, sources: &str) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("ganger-test-")
            .tempdir()
            .unwrap();
        let format = match daemon.contains("log_format") {
            true => "",
            false => r#"log_format = "json""#,
        };
        let preamble = format!(
            r#"
            {sources}

            [daemon]
            log_level = "debug"
            {format}
            {daemon}
            "#,
        );
        Self {
            dir,
            preamble,
            database: None,
        }
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes a file that workers wait for.
    pub(crate) fn touch(&self, name: &str) {
        fs::write(self.path(name), "").unwrap();
    }

    /// Puts a file there in one step: whoever opens it finds the old one or the new one, whole.
    pub(crate) fn put(&self, name: &str, text: &str, executable: bool) {
        use std::os::unix::fs::PermissionsExt;
        let new = self.path(&format!("{name}.new"));
        fs::write(&new, text).unwrap();
        let mode = if executable { 0o755 } else { 0o644 };
        fs::set_permissions(&new, fs::Permissions::from_mode(mode)).unwrap();
        fs::rename(&new, self.path(name)).unwrap();
    }

    /// Starts a daemon with these pools; any number of them may run here.
    pub(crate) fn start(&self, pools: &[Pool]) -> Daemon {
        self.launch(pools, Launch::default())
    }

    /// Starts one that reaches its table by another way.
    pub(crate) fn start_elsewhere(&self, url: &str, pools: &[Pool]) -> Daemon {
        let (config, mark) = self.configure_next(pools);
        let text = fs::read_to_string(&config).unwrap();
        let elsewhere = text.replace(&self.database().url(), url);
        fs::write(&config, elsewhere).unwrap();
        Daemon::start(&config, &mark, Launch::default(), &[])
    }

    /// Starts one in another way than usual.
    pub(crate) fn launch(&self, pools: &[Pool], launch: Launch) -> Daemon {
        let (config, mark) = self.configure_next(pools);
        Daemon::start(&config, &mark, launch, &[])
    }

    /// Starts one with a configuration that is there, which these variables complete.
    pub(crate) fn start_as_it_is(&self, config: &str, variables: &[(&str, &str)]) -> Daemon {
        let (_, mark) = next();
        let config = self.path(config);
        let mut all: Vec<(String, String)> = vec![
            ("GANGER_DAEMON__LOG_FORMAT".into(), "json".into()),
            ("GANGER_DAEMON__LOG_LEVEL".into(), "debug".into()),
        ];
        for pool in pools_of(&fs::read_to_string(&config).unwrap()) {
            let name = format!("GANGER_POOLS__{pool}__ENV__{}", super::processes::MARK);
            all.push((name, mark.clone()));
        }
        all.extend(variables.iter().map(|(n, v)| ((*n).into(), (*v).into())));
        Daemon::start(&config, &mark, Launch::default(), &all)
    }

    /// Starts one whose stderr is something else than usual, which nobody reads.
    pub(crate) fn start_unheard(&self, pools: &[Pool], stderr: impl Into<Stdio>) -> Daemon {
        self.launch_unheard(pools, Launch::default(), stderr)
    }

    /// The same, started in another way than usual.
    pub(crate) fn launch_unheard(
        &self,
        pools: &[Pool],
        launch: Launch,
        stderr: impl Into<Stdio>,
    ) -> Daemon {
        let (config, mark) = self.configure_next(pools);
        Daemon::spawn(&config, &mark, launch, &[], stderr.into())
    }

    fn configure_next(&self, pools: &[Pool]) -> (PathBuf, String) {
        let (number, mark) = next();
        let config = self.path(&format!("ganger-{number}.toml"));
        self.configure(&config, &mark, pools);
        (config, mark)
    }

    /// Writes a configuration; for a reload, that of a running daemon.
    pub(super) fn configure(&self, config: &Path, mark: &str, pools: &[Pool]) {
        let record = self.path("record");
        let toml = |pool: &Pool| {
            let pool = pool.clone().env(RECORD, record.to_str().unwrap());
            pool.env(super::processes::MARK, mark).toml()
        };
        let pools: String = pools.iter().map(toml).collect();
        fs::write(config, format!("{}\n{pools}", self.preamble)).unwrap();
    }

    /// Writes new pools into a running daemon's configuration; a signal makes it look.
    pub(crate) fn reconfigure(&self, daemon: &Daemon, pools: &[Pool]) {
        self.configure(daemon.config(), daemon.mark(), pools);
    }

    /// Runs a command of the program in the directory.
    pub(crate) fn ganger(&self, args: &[&str]) -> Ran {
        self.ganger_reading(args, b"")
    }

    /// The same, with something to read from stdin.
    pub(crate) fn ganger_reading(&self, args: &[&str], input: &[u8]) -> Ran {
        Ran::of(self.dir.path(), args, input)
    }

    /// Runs a command of another version of the program in the directory, with that as its stdin.
    pub(crate) fn ganger_of(&self, program: &str, args: &[&str], input: &[u8]) -> Ran {
        Ran::by(program, self.dir.path(), args, input)
    }

    /// Runs a command to its end on a terminal; all that this shows.
    pub(crate) fn shown(&self, args: &[&str]) -> String {
        command::shown(self.dir.path(), args)
    }

    /// Starts a command on a terminal of so many columns and lines.
    pub(crate) fn seat(&self, size: (u16, u16), args: &[&str]) -> Seat {
        self.seat_with(size, args, &[])
    }

    /// The same, with further variables.
    pub(crate) fn seat_with(
        &self,
        size: (u16, u16),
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> Seat {
        Seat::take(self.dir.path(), size, args, variables)
    }

    /// Runs a command to its end with no more than that of memory of its own; returns where what it
    /// has printed is.
    pub(crate) fn ganger_within(&self, kib: u32, args: &[&str]) -> PathBuf {
        let out = self.path("printed");
        command::within(self.dir.path(), kib, args, &out);
        out
    }

    /// Runs a command to its end, which is a quiet one, whoever reads what it prints.
    pub(crate) fn ganger_into(&self, out: impl Into<Stdio>, args: &[&str]) {
        command::into(self.dir.path(), out, args);
    }

    /// Begins a command, which is killed when what is returned is dropped.
    pub(crate) fn begin(&self, args: &[&str]) -> Running {
        Running::start(self.dir.path(), args, b"")
    }

    /// Runs a command until it complains of that, whether it ends or not; all its complaints.
    pub(crate) fn complaint(&self, args: &[&str], part: &str) -> String {
        Ran::complaint(self.dir.path(), args, part)
    }

    /// Writes a configuration for commands, under the name that they look for.
    pub(crate) fn configure_commands(&self, pools: &[Pool]) {
        self.configure(&self.path("ganger.toml"), "none", pools);
    }

    /// The database, opened as any other program would.
    pub(crate) fn table(&self) -> Table {
        match &self.database {
            Some(database) => database.table(),
            None => Table::open(&self.path("queue.db")),
        }
    }

    /// The database of a test that is about servers.
    pub(crate) fn database(&self) -> &Database {
        self.database.as_ref().expect("a database on a server")
    }

    /// That of one that is about PostgreSQL.
    pub(crate) fn postgres(&self) -> &PgDatabase {
        match self.database() {
            Database::Postgres(database) => database,
            Database::Mariadb(_) => panic!("this test is about PostgreSQL"),
        }
    }

    /// That of one that is about MariaDB.
    pub(crate) fn mariadb(&self) -> &MariaDatabase {
        match self.database() {
            Database::Mariadb(database) => database,
            Database::Postgres(_) => panic!("this test is about MariaDB"),
        }
    }

    /// What the workers have recorded so far.
    pub(crate) fn record(&self) -> Record {
        Record::read(&self.path("record"))
    }
}
