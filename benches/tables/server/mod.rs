//! The private server, and databases on it as any program sees them: plain SQL on a connection of its own,
//! beside the daemon's. Everything that differs between the kinds of servers is in a file of its own; this
//! file has the common part.

mod mariadb;
mod postgres;

use std::fs;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use ganger::kinds;
use ganger_config as config;
use miette::{IntoDiagnostic, bail, ensure, miette};
use nix::unistd::{Pid, SysconfVar, sysconf};
use tokio::time::Instant;

use crate::common::machine;
use crate::raw::Table;
use crate::setup::{Setup, Window};

/// Timeout after which a run that is not done counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(120);

/// Interval between polls of a queue for its end once that is near, or where its time is unknown.
pub(crate) const LOOK_OFTEN: Duration = Duration::from_millis(1);
pub(crate) const LOOK_SELDOM: Duration = Duration::from_millis(10);

/// Content of a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) messages: usize,
    pub(crate) body_bytes: usize,
}

impl Load {
    /// Returns the body of each message: text, as version 1 workers need it.
    pub(crate) fn body(self) -> String {
        "x".repeat(self.body_bytes)
    }
}

/// The servers that there are tables on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Postgres,
    Mariadb,
}

/// SQL of a kind of server. Queries return one row of numbers.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) name: &'static str,
    /// Returns a set of that many rows.
    series: fn(usize) -> String,
    uuid: &'static str,
    /// The next rows of the first queue, in their order.
    pub(crate) next: &'static str,
    /// The last id that a message was given.
    pub(crate) last_id: &'static str,
    /// The table with only the columns that a raw loop needs.
    pub(crate) plain: &'static str,
    /// Statements that flush pending writes and update the statistics of the query planner.
    rest: &'static [&'static str],
    /// Query for the remaining clean-up, if it has to be waited for.
    unrest: Option<&'static str>,
    /// Number of transactions that have written something so far.
    writes: &'static str,
    /// Number of connections to this database, except the one that runs the query.
    pub(crate) connections: &'static str,
    /// Number of connections that wait for a lock, and of those with work under way.
    pub(crate) waits: &'static str,
    pub(crate) deadlocks: &'static str,
    /// Size of the table with its indexes, in KiB; amount of data that is not cleaned up yet; and number of
    /// clean-ups, unless the clean-up is continuous.
    pub(crate) size: &'static str,
    /// Goal for the latency from an idle queue to a handler.
    pub(crate) handler_within_ms: f64,
}

/// A server of that kind.
trait Host {
    fn words(&self) -> &'static Words;
    fn version(&self) -> String;
    /// Returns its first process.
    fn pid(&self) -> Pid;
    fn create_database(&self, name: &str);
    fn drop_database(&self, name: &str);
    /// Creates tables, with the server's own client.
    fn make(&self, database: &str, schema: &str);
    fn url(&self, database: &str) -> String;
    fn connect(&self, url: &str) -> miette::Result<Sql>;
}

/// A connection.
pub(crate) type Sql = Box<dyn Connection>;

/// A connection that runs on the thread that calls it.
pub(crate) trait Connection: Send {
    /// Runs statements.
    fn run(&self, statements: &str) -> miette::Result<()>;

    /// Returns the numbers in the only row of a query.
    fn row(&self, query: &str) -> miette::Result<Vec<Option<i64>>>;

    /// Returns the only number of a query.
    fn number(&self, query: &str) -> miette::Result<i64> {
        let row = self.row(query)?;
        let number = row.first().copied().flatten();
        number.ok_or_else(|| miette!("{query}: no number"))
    }

    /// Returns the part of a raw loop that claims and completes the rows of the first queue in that table.
    fn hand(self: Box<Self>, table: Table) -> miette::Result<Box<dyn Hand>>;
}

/// The database part of a raw loop, on a connection of its own.
pub(crate) trait Hand {
    /// Removes the rows that are done, and claims the next ones, up to `batch`. Returns the claimed rows.
    fn turn(&self, done: &[i64], batch: usize) -> miette::Result<Vec<i64>>;

    /// Waits until there may be something to claim.
    fn wait_for_news(&self);
}

/// The server. On drop it is removed with its files. These are in the directory for temporary files, which
/// should be on a disk.
pub(crate) struct Server {
    host: Box<dyn Host>,
}

impl Server {
    /// Starts a server.
    pub(crate) fn start(kind: Kind) -> Self {
        let host: Box<dyn Host> = match kind {
            Kind::Postgres => Box::new(postgres::start()),
            Kind::Mariadb => Box::new(mariadb::start()),
        };
        Self { host }
    }

    /// Returns the server's SQL.
    pub(crate) fn words(&self) -> &'static Words {
        self.host.words()
    }

    /// Returns its name and release.
    pub(crate) fn describe(&self) -> String {
        format!("{} {}", self.words().name, self.host.version())
    }

    /// Creates an empty database.
    pub(crate) fn empty_database(&self) -> miette::Result<Database<'_>> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("bench_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.host.create_database(&name);
        let url = self.host.url(&name);
        Ok(Database {
            server: self,
            sql: self.host.connect(&url)?,
            name,
            url,
        })
    }

    /// Creates a database with ganger's tables.
    pub(crate) fn database(&self) -> miette::Result<Database<'_>> {
        let database = self.empty_database()?;
        let text = Setup::one_pool(1, Window::Auto).config(&database.url)?;
        let config = config::parse(&text, "bench.toml", &config::Environment::new())?;
        let source = config.sources.values().next();
        let source = source.ok_or_else(|| miette!("no source"))?;
        let tables = kinds::schema(source).ok_or_else(|| miette!("no tables"))?;
        self.host.make(&database.name, &tables);
        Ok(database)
    }

    /// Returns the processor time of all its processes so far, in seconds.
    pub(crate) fn cpu_seconds(&self) -> miette::Result<f64> {
        let first = self.host.pid();
        let live = children(first)?.into_iter().chain([first]);
        let live = live.map(|pid| {
            // A process that has exited meanwhile is included in its parent's children from the next call on.
            machine::cpu_seconds(&pid.to_string()).unwrap_or(0.0)
        });
        Ok(live.sum::<f64>() + waited_for_seconds(first)?)
    }
}

fn children(pid: Pid) -> miette::Result<Vec<Pid>> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.into_diagnostic()?;
    let pids = children.split_whitespace().map(str::parse);
    let pids: Result<Vec<i32>, _> = pids.collect();
    Ok(pids
        .into_diagnostic()?
        .into_iter()
        .map(Pid::from_raw)
        .collect())
}

/// Returns the processor time of a process's children that have exited.
fn waited_for_seconds(pid: Pid) -> miette::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).into_diagnostic()?;
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    // The fields after the name begin with the third; the times of children are the 16th and the 17th.
    let ticks = fields.split(' ').skip(13).take(2).map(str::parse::<f64>);
    let ticks: f64 = ticks.sum::<Result<f64, _>>().into_diagnostic()?;
    let per_second = sysconf(SysconfVar::CLK_TCK).into_diagnostic()?;
    #[expect(clippy::cast_precision_loss, reason = "it is 100")]
    let per_second = per_second.unwrap_or(100) as f64;
    Ok(ticks / per_second)
}

/// One of its databases. On drop it is removed.
pub(crate) struct Database<'a> {
    pub(crate) server: &'a Server,
    sql: Sql,
    name: String,
    url: String,
}

impl Deref for Database<'_> {
    type Target = dyn Connection;

    fn deref(&self) -> &Self::Target {
        &*self.sql
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        self.server.host.drop_database(&self.name);
    }
}

/// Queries whether any message is claimed, and whether any waits, by the indexes alone.
const CLAIMED: &str = "SELECT count(*) FROM (SELECT 1 FROM consumer_messages \
                       WHERE owner IS NOT NULL LIMIT 1) AS claimed";
const WAITING: &str = "SELECT count(*) FROM (SELECT 1 FROM consumer_messages WHERE owner IS NULL \
                       AND available_after = 0 LIMIT 1) AS waiting";

impl Database<'_> {
    /// Returns the address for clients.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Opens another connection.
    pub(crate) fn connect(&self) -> miette::Result<Sql> {
        self.server.host.connect(&self.url)
    }

    /// Inserts the load into the queues, the same share in each, and waits until the server is at rest.
    pub(crate) fn fill(&self, queues: &[String], load: Load) -> miette::Result<()> {
        let messages = load.messages / queues.len();
        ensure!(messages * queues.len() == load.messages, "an uneven load");
        for queue in queues {
            self.add(queue, Load { messages, ..load })?;
        }
        self.come_to_rest()
    }

    /// Inserts the load into a queue.
    pub(crate) fn add(&self, queue: &str, load: Load) -> miette::Result<()> {
        let uuid = self.server.words().uuid;
        self.run(&format!(
            "INSERT INTO consumer_messages (queue, body, message_id) \
             SELECT '{queue}', '{}', {uuid} FROM {}",
            load.body(),
            self.series(load.messages)
        ))
    }

    /// Returns a set of that many rows, to select from.
    pub(crate) fn series(&self, count: usize) -> String {
        (self.server.words().series)(count)
    }

    /// Flushes pending writes, and waits until the server is at rest.
    pub(crate) fn come_to_rest(&self) -> miette::Result<()> {
        let words = self.server.words();
        words.rest.iter().try_for_each(|step| self.run(step))?;
        match words.unrest {
            Some(unrest) => self.wait_until_none(unrest, LOOK_SELDOM),
            None => Ok(()),
        }
    }

    /// Returns the number of transactions that have written something so far.
    pub(crate) fn writes(&self) -> miette::Result<i64> {
        self.number(self.server.words().writes)
    }

    /// Waits until every message is done, with polls at the given interval.
    pub(crate) fn wait_until_done(&self, look_every: Duration) -> miette::Result<()> {
        // A waiting message becomes a claimed one, and never waits again.
        self.wait_until_none(WAITING, look_every)?;
        self.wait_until_none(CLAIMED, LOOK_OFTEN)?;
        let dead = self.number("SELECT count(*) FROM poisoned_messages")?;
        ensure!(dead == 0, "{dead} messages were given up");
        Ok(())
    }

    /// Waits until a query counts no rows, with polls at the given interval.
    pub(crate) fn wait_until_none(&self, count: &str, look_every: Duration) -> miette::Result<()> {
        let begun = Instant::now();
        while self.number(count)? > 0 {
            if begun.elapsed() > STUCK_AFTER {
                bail!("{count}: something is left after {STUCK_AFTER:?}");
            }
            std::thread::park_timeout(look_every);
        }
        Ok(())
    }
}
