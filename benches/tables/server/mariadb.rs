//! MariaDB: its settings, and its SQL.

use std::cell::RefCell;
use std::time::Duration;

use miette::{IntoDiagnostic, WrapErr, miette};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts, OptsBuilder, Row};
use nix::unistd::Pid;
use tokio::runtime::Runtime;

use super::{Connection, Hand, Host, Sql, Words};
use crate::common::one_thread;
use crate::raw::Table;
use crate::servers::mariadb::{Mariadb, USER};

/// As durable as a server with default settings: a commit that it reports is on the disk. The sizes of memory
/// and journal are usual for a server in production; it has no replicas.
const SETTINGS: &[&str] = &[
    "innodb-flush-log-at-trx-commit=1",
    "innodb-flush-method=O_DIRECT",
    "innodb-buffer-pool-size=512M",
    "innodb-log-file-size=1G",
    "skip-log-bin",
];

/// Starts a server whose benchmark user may read the size of tables.
pub(super) fn start() -> Mariadb {
    let server = Mariadb::start(SETTINGS);
    server.sql("", &format!("GRANT PROCESS ON *.* TO {USER}@'%'"));
    server
}

/// Settings of every connection. No list of numbers is converted to a table, however long it is.
const SESSION: &str = "SET SESSION in_predicate_conversion_threshold = 0;
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

/// Interval between a raw loop's polls for messages, since it gets no notifications. The daemon polls as
/// often after it has had a message.
const LOOK_EVERY: Duration = Duration::from_millis(5);

macro_rules! status {
    ($name:literal) => {
        concat!(
            "(SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status
              WHERE variable_name = '",
            $name,
            "')"
        )
    };
}

static WORDS: Words = Words {
    name: "MariaDB",
    series: |count| format!("seq_1_to_{count} AS series"),
    uuid: "uuid()",
    next: "consumer_messages FORCE INDEX (consumer_messages_ready) WHERE queue = 'bench-0'
             AND owner IS NULL AND available_after = 0 AND suspicion = 0 ORDER BY suspicion, turn, id",
    last_id: "
SELECT auto_increment - 1 FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name = 'consumer_messages'",
    plain: "
CREATE TABLE plain (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  queue VARCHAR(255) NOT NULL,
  body LONGTEXT NOT NULL,
  claimed BOOLEAN NOT NULL DEFAULT false,
  KEY plain_ready (queue, claimed)
) ENGINE = InnoDB",
    // Every statement names its index, and data that is not on the disk is in the journal.
    rest: &[],
    unrest: Some(concat!("SELECT ", status!("INNODB_HISTORY_LIST_LENGTH"))),
    writes: concat!("SELECT ", status!("COM_COMMIT")),
    connections: "
SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
    waits: concat!(
        "SELECT ",
        status!("INNODB_ROW_LOCK_CURRENT_WAITS"),
        ", ",
        status!("THREADS_RUNNING"),
        " - 1"
    ),
    deadlocks: concat!("SELECT ", status!("INNODB_DEADLOCKS")),
    // The second figure is the number of transactions of which old versions are still kept; the clean-up is
    // continuous.
    size: concat!(
        "
SELECT (SELECT file_size DIV 1024 FROM information_schema.innodb_sys_tablespaces
  WHERE name = CONCAT(DATABASE(), '/consumer_messages')), ",
        status!("INNODB_HISTORY_LIST_LENGTH"),
        ", NULL"
    ),
    handler_within_ms: 15.0,
};

impl Table {
    /// Returns the table, index and condition of the next rows.
    fn next(self) -> &'static str {
        match self {
            Self::Ganger => WORDS.next,
            Self::Plain => {
                "plain FORCE INDEX (plain_ready) WHERE queue = 'bench-0' AND claimed = false ORDER BY id"
            }
        }
    }

    fn mark(self) -> &'static str {
        match self {
            Self::Ganger => "owner = 0, claim = id",
            Self::Plain => "claimed = true",
        }
    }
}

impl Host for Mariadb {
    fn words(&self) -> &'static Words {
        &WORDS
    }

    fn version(&self) -> String {
        self.sql("", "SELECT VERSION()")
    }

    fn pid(&self) -> Pid {
        self.pid()
    }

    fn create_database(&self, name: &str) {
        self.create_database(name);
    }

    fn drop_database(&self, name: &str) {
        self.drop_database(name);
    }

    fn make(&self, database: &str, schema: &str) {
        self.sql(database, schema);
    }

    fn url(&self, database: &str) -> String {
        self.url(database)
    }

    fn connect(&self, url: &str) -> miette::Result<Sql> {
        Ok(Box::new(Line::connect(url)?))
    }
}

/// A connection.
struct Line {
    runtime: Runtime,
    conn: RefCell<Conn>,
}

impl Line {
    fn connect(url: &str) -> miette::Result<Self> {
        let runtime = one_thread()?;
        // By TCP, like the daemon.
        let opts = OptsBuilder::from_opts(Opts::from_url(url).into_diagnostic()?);
        let conn = runtime.block_on(async {
            let mut conn = Conn::new(opts.prefer_socket(false)).await?;
            conn.query_drop(SESSION).await?;
            Ok::<_, Error>(conn)
        });
        Ok(Self {
            conn: RefCell::new(conn.into_diagnostic()?),
            runtime,
        })
    }

    /// Runs something on the connection.
    fn with<T>(&self, work: impl AsyncFnOnce(&mut Conn) -> Result<T, Error>) -> miette::Result<T> {
        let mut conn = self.conn.borrow_mut();
        self.runtime.block_on(work(&mut conn)).into_diagnostic()
    }
}

impl Connection for Line {
    fn run(&self, statements: &str) -> miette::Result<()> {
        let run = self.with(async |conn| conn.query_drop(statements).await);
        run.wrap_err_with(|| statements.to_owned())
    }

    fn row(&self, query: &str) -> miette::Result<Vec<Option<i64>>> {
        let row = self.with(async |conn| conn.query_first(query).await);
        let row: Option<Row> = row.wrap_err_with(|| query.to_owned())?;
        let row = row.ok_or_else(|| miette!("{query}: no row"))?;
        let numbers = row.unwrap().into_iter().map(mysql_async::from_value_opt);
        numbers.collect::<Result<_, _>>().into_diagnostic()
    }

    fn hand(self: Box<Self>, table: Table) -> miette::Result<Box<dyn Hand>> {
        Ok(Box::new(Claimer { line: *self, table }))
    }
}

/// A connection of a raw loop.
struct Claimer {
    line: Line,
    table: Table,
}

impl Hand for Claimer {
    fn turn(&self, done: &[i64], batch: usize) -> miette::Result<Vec<i64>> {
        let (name, next, mark) = (self.table.name(), self.table.next(), self.table.mark());
        let mut lock = "START TRANSACTION; ".to_owned();
        if !done.is_empty() {
            let delete = format!("DELETE m FROM {name} AS m FORCE INDEX (PRIMARY) WHERE m.id IN ");
            lock += &format!("{delete}{}; ", list(done));
        }
        lock += &format!("SELECT id, body FROM {next} LIMIT {batch} FOR UPDATE SKIP LOCKED");
        self.line.with(async |conn| {
            // The locked rows are the last result.
            let mut locked = Vec::new();
            let mut results = conn.query_iter(lock).await?;
            while !results.is_empty() {
                locked = results.collect().await?;
            }
            drop(results);
            let claimed: Vec<i64> = locked.into_iter().map(read).collect();
            let end = match claimed.is_empty() {
                true => "COMMIT".to_owned(),
                false => format!(
                    "UPDATE {name} FORCE INDEX (PRIMARY) SET {mark} WHERE id IN {}; COMMIT",
                    list(&claimed)
                ),
            };
            conn.query_drop(end).await?;
            Ok(claimed)
        })
    }

    fn wait_for_news(&self) {
        std::thread::park_timeout(LOOK_EVERY);
    }
}

fn list(rows: &[i64]) -> String {
    let rows: Vec<String> = rows.iter().map(i64::to_string).collect();
    format!("({})", rows.join(","))
}

/// Reads a claimed row, with the data that a worker would be sent.
fn read((id, body): (i64, Vec<u8>)) -> i64 {
    std::hint::black_box(body);
    id
}
