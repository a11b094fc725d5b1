//! The private server, and databases on it as anyone's program sees them: plain SQL on a connection
//! of its own, beside the daemon's.

use std::fs;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ganger::{client, config};
use miette::{IntoDiagnostic, WrapErr, bail, ensure, miette};
use nix::unistd::{Pid, SysconfVar, sysconf};
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tokio_postgres::{Client, NoTls, Row};

use crate::common::machine;
use crate::common::one_thread;
use crate::servers::postgres::Cluster;
use crate::setup::{Setup, Window};

/// As durable as a server is that nobody has tuned: what it says is committed is on the disk. Memory
/// and journal are as anyone gives to a server that is used.
const SETTINGS: &[&str] = &[
    "fsync=on",
    "synchronous_commit=on",
    "shared_buffers=512MB",
    "max_wal_size=4GB",
    "max_connections=300",
];

/// What every connection here has that claims or waits: a table that is empty now is large in a
/// moment, and no plan is to be made for it as it was.
const BY_INDEX: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; \
                        SET enable_bitmapscan = off; SET enable_sort = off; SET jit = off";

/// By then any run is over, or something is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(120);

/// How often a queue is looked at for its end once that is near, and where nobody knows when it is.
pub(crate) const LOOK_OFTEN: Duration = Duration::from_millis(1);
pub(crate) const LOOK_SELDOM: Duration = Duration::from_millis(10);

/// What a queue is filled with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) messages: usize,
    pub(crate) body_bytes: usize,
}

impl Load {
    /// Each message's body: text, as version 1 workers need it.
    pub(crate) fn body(self) -> String {
        "x".repeat(self.body_bytes)
    }
}

/// The server. Dropped, it is gone with its files, which are where temporary files are: that should
/// be a disk.
pub(crate) struct Server {
    cluster: Cluster,
}

impl Server {
    /// Starts one.
    pub(crate) fn start() -> Self {
        Self {
            cluster: Cluster::start(SETTINGS),
        }
    }

    /// Its release.
    pub(crate) fn version(&self) -> String {
        self.cluster.psql("postgres", "SHOW server_version")
    }

    /// A new database with nothing in it.
    pub(crate) fn empty_database(&self) -> miette::Result<Database<'_>> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("bench_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.cluster.create_database(&name);
        let url = self.cluster.url(&name);
        Ok(Database {
            server: self,
            sql: Sql::connect(&url)?,
            name,
            url,
        })
    }

    /// A new database with ganger's tables.
    pub(crate) fn database(&self) -> miette::Result<Database<'_>> {
        let database = self.empty_database()?;
        let text = Setup::one_pool(1, Window::Auto).config(&database.url)?;
        let config = config::parse(&text, "bench.toml", &config::Environment::new())?;
        let source = config.sources.values().next();
        let source = source.ok_or_else(|| miette!("no source"))?;
        let tables = client::schema(source).ok_or_else(|| miette!("no tables"))?;
        database.run(&tables)?;
        Ok(database)
    }

    /// The processor time of all its processes so far, in seconds.
    pub(crate) fn cpu_seconds(&self) -> miette::Result<f64> {
        let postmaster = self.cluster.pid();
        let live = children(postmaster)?.into_iter().chain([postmaster]);
        let live = live.map(|pid| {
            // One that has ended since is among those that were waited for the next time.
            machine::cpu_seconds(&pid.to_string()).unwrap_or(0.0)
        });
        Ok(live.sum::<f64>() + waited_for_seconds(postmaster)?)
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

/// The processor time of a process's children that have ended.
fn waited_for_seconds(pid: Pid) -> miette::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).into_diagnostic()?;
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    // The fields after the name begin with the third; theirs are the 16th and the 17th.
    let ticks = fields.split(' ').skip(13).take(2).map(str::parse::<f64>);
    let ticks: f64 = ticks.sum::<Result<f64, _>>().into_diagnostic()?;
    let per_second = sysconf(SysconfVar::CLK_TCK).into_diagnostic()?;
    #[expect(clippy::cast_precision_loss, reason = "it is 100")]
    let per_second = per_second.unwrap_or(100) as f64;
    Ok(ticks / per_second)
}

/// A connection that is driven by whoever asks something on it.
pub(crate) struct Sql {
    runtime: Runtime,
    client: Client,
}

impl Sql {
    pub(crate) fn connect(url: &str) -> miette::Result<Self> {
        let runtime = one_thread()?;
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            // It ends with the client.
            tokio::spawn(connection);
            client.batch_execute(BY_INDEX).await?;
            Ok::<_, tokio_postgres::Error>(client)
        });
        Ok(Self {
            client: client.into_diagnostic()?,
            runtime,
        })
    }

    /// Does something with it.
    pub(crate) fn with<T>(
        &self,
        work: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>,
    ) -> miette::Result<T> {
        self.runtime.block_on(work(&self.client)).into_diagnostic()
    }

    /// Runs statements.
    pub(crate) fn run(&self, statements: &str) -> miette::Result<()> {
        let run = self.with(async |client| client.batch_execute(statements).await);
        run.wrap_err_with(|| statements.to_owned())
    }

    /// The one row of a query.
    pub(crate) fn row(&self, query: &str) -> miette::Result<Row> {
        let row = self.with(async |client| client.query_one(query, &[]).await);
        row.wrap_err_with(|| query.to_owned())
    }

    /// The one number of a query.
    pub(crate) fn number(&self, query: &str) -> miette::Result<i64> {
        self.row(query)?.try_get(0).into_diagnostic()
    }
}

/// One of its databases. Dropped, it is gone.
pub(crate) struct Database<'a> {
    pub(crate) server: &'a Server,
    sql: Sql,
    name: String,
    url: String,
}

impl Deref for Database<'_> {
    type Target = Sql;

    fn deref(&self) -> &Sql {
        &self.sql
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        self.server.cluster.drop_database(&self.name);
    }
}

/// Whether any message is claimed, and whether any waits: by the indexes alone.
const CLAIMED: &str = "SELECT count(*) FROM (SELECT FROM consumer_messages WHERE owner IS NOT NULL LIMIT 1) \
                    AS claimed";
const WAITING: &str = "SELECT count(*) FROM (SELECT FROM consumer_messages WHERE owner IS NULL \
                       AND available_after = 0 LIMIT 1) AS waiting";

impl Database<'_> {
    /// Where clients connect.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Another connection.
    pub(crate) fn connect(&self) -> miette::Result<Sql> {
        Sql::connect(&self.url)
    }

    /// Puts the load into the queues, the same share in each, and lets the server come to rest: the
    /// tables are analysed, and what is to be written to them has been.
    pub(crate) fn fill(&self, queues: &[String], load: Load) -> miette::Result<()> {
        let share = load.messages / queues.len();
        ensure!(share * queues.len() == load.messages, "an uneven load");
        let body = load.body();
        for queue in queues {
            self.run(&format!(
                "INSERT INTO consumer_messages (queue, body, message_id) \
                 SELECT '{queue}', '{body}', gen_random_uuid()::text FROM generate_series(1, {share})"
            ))?;
        }
        self.come_to_rest()
    }

    /// Has everything written that is to be.
    pub(crate) fn come_to_rest(&self) -> miette::Result<()> {
        self.run("VACUUM ANALYZE")?;
        self.run("CHECKPOINT")
    }

    /// How many transactions have written something so far.
    pub(crate) fn writes(&self) -> miette::Result<i64> {
        self.number("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
    }

    /// Waits until every message is done, looking so often.
    pub(crate) fn wait_until_done(&self, look_every: Duration) -> miette::Result<()> {
        // What waits goes to those that are claimed, never back.
        self.wait_until_none(WAITING, look_every)?;
        self.wait_until_none(CLAIMED, LOOK_OFTEN)?;
        let dead = self.number("SELECT count(*) FROM poisoned_messages")?;
        ensure!(dead == 0, "{dead} messages were given up");
        Ok(())
    }

    /// Waits until a query counts nothing, looking so often.
    pub(crate) fn wait_until_none(&self, count: &str, look_every: Duration) -> miette::Result<()> {
        let begun = Instant::now();
        while self.number(count)? > 0 {
            if begun.elapsed() > STUCK_AFTER {
                bail!("messages are left after {STUCK_AFTER:?}");
            }
            std::thread::park_timeout(look_every);
        }
        Ok(())
    }
}
