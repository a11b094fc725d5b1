//! Tests of the source through its link, on real database files. Single decisions and single modules are
//! tested beside their code; these tests are about their interplay.

mod accounting;
mod claiming;
mod depth;
mod failures;
mod gathering;
mod occurrences;
mod owners;
mod plans;
mod published;
mod waking;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::types::FromSql;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::timeout;

use super::{Link, Task, run, runtime};
use crate::sqlite::{self, WallClock};
use crate::store::Stores;
use crate::table::finished::Scope;
use ganger_config::model::{Database, PoolConfig, TableSource};
use ganger_config::sample::policy;
use ganger_core::budget::Budget;
use ganger_queue::client::Client;
use ganger_queue::delivery::{Delivery, Intake, Outcome, PoolEnd, SourceState, link};
use ganger_queue::exclusive::Exclusive;
use ganger_queue::source::{Running, run_on_thread};
use ganger_queue::unread::UnreadQueues;

/// Far longer than any step of these tests takes.
const SOON: Duration = Duration::from_secs(20);
/// Far longer than a test: nothing in a test is found by the poll or the heartbeat.
const NEVER: Duration = Duration::from_secs(3600);

/// State shared by the sources of one daemon.
struct Shared {
    budget: Budget,
    exclusive: Exclusive,
    unread: UnreadQueues,
    stores: Stores,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            budget: Budget::new(None),
            exclusive: Exclusive::default(),
            unread: UnreadQueues::default(),
            stores: Stores::default(),
        }
    }
}

const NOW_MS: i64 = 1_800_000_000_000;

/// A database file and its wall clock.
struct Rig {
    dir: TempDir,
    now_ms: Arc<AtomicI64>,
}

impl Rig {
    fn new() -> Self {
        let rig = Self {
            dir: tempfile::tempdir().unwrap(),
            now_ms: Arc::new(AtomicI64::new(NOW_MS)),
        };
        crate::sqlite::open_for_tests(&rig.path());
        rig
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("queue.db")
    }

    fn config(&self) -> TableSource {
        TableSource {
            database: Database::Sqlite(self.path()),
            mode: 0o600,
            poll_interval: NEVER,
            lease: NEVER,
        }
    }

    fn client(&self) -> Client {
        Client::new(
            "local",
            crate::databases::database(&self.config())
                .unwrap()
                .client()
                .unwrap(),
        )
    }

    /// Opens a source of queue `q` without running it.
    fn open(
        &self,
        daemon: &Shared,
        config: &TableSource,
    ) -> (Task, PoolEnd, watch::Sender<Arc<PoolConfig>>) {
        let (end, pool) = link();
        let rules = Arc::new(policy());
        let (tell, policy) = watch::channel(Arc::clone(&rules));
        let link = Link {
            end,
            policy,
            exclusive: daemon.exclusive.clone(),
            share: daemon.budget.share("p"),
        };
        let clock = WallClock::of(&self.now_ms);
        let path = self.path();
        let store = sqlite::Store::open(
            (&path, config.mode),
            &rules.name,
            Scope::of(&rules),
            config.lease,
            &daemon.stores.owners,
            clock,
        );
        let store = Box::new(store.unwrap());
        let reader = daemon.unread.reader("main", &rules.queue);
        (Task::new(store, config, link, reader), pool, tell)
    }

    /// Runs a source of queue `q` with that credit.
    fn source(&self, daemon: &Shared, credit: usize) -> Source {
        let (task, pool, limits) = self.open(daemon, &self.config());
        Source::run(task, pool, limits, credit)
    }

    fn sql(&self) -> Connection {
        let conn = Connection::open(self.path()).unwrap();
        conn.busy_timeout(SOON).unwrap();
        conn
    }

    fn execute(&self, sql: &str) {
        self.sql().execute_batch(sql).unwrap();
    }

    fn insert(&self, body: &str) {
        let insert = "INSERT INTO consumer_messages (queue, body) VALUES ('q', ?1)";
        self.sql().execute(insert, [body]).unwrap();
    }

    fn get<T: FromSql>(&self, sql: &str) -> T {
        self.sql().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// Waits until the SQL query `holds` returns true.
    async fn until(&self, holds: &str) {
        let holds = async {
            while !self.get::<bool>(holds) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(SOON, holds).await.expect("it becomes so soon");
    }

    /// Returns the row's counters as text.
    fn counters(&self) -> String {
        self.get(
            "SELECT printf('attempts %d crashes %d lapses %d requeues %d suspect %d after %d owner %s', \
             attempts, crashes, lapses, requeues, suspect, available_after, coalesce(owner, 'none')) \
             FROM consumer_messages",
        )
    }

    fn set_clock(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }
}

/// A running source, seen from its pool.
struct Source {
    pool: PoolEnd,
    running: Running,
    policy: watch::Sender<Arc<PoolConfig>>,
}

impl Source {
    fn run(
        task: Task,
        pool: PoolEnd,
        policy: watch::Sender<Arc<PoolConfig>>,
        credit: usize,
    ) -> Self {
        let running = run_on_thread("source", "p", move || run(&runtime(), task)).unwrap();
        let source = Self {
            pool,
            running,
            policy,
        };
        source.credit(credit);
        source
    }

    fn credit(&self, credit: usize) {
        self.pool.intake.send(Intake::Credit(credit)).unwrap();
    }

    async fn next(&mut self) -> Delivery {
        let next = timeout(SOON, self.pool.deliveries.recv()).await;
        next.expect("a delivery comes soon")
            .expect("the source lives")
    }

    /// Settles the next delivery as done, and returns its body.
    async fn finish_next(&mut self) -> String {
        let delivery = self.next().await;
        let body = body(&delivery);
        delivery.settle(Outcome::Done);
        body
    }

    async fn until(&mut self, what: impl FnMut(&SourceState) -> bool) -> SourceState {
        let state = timeout(SOON, self.pool.state.wait_for(what)).await;
        state.expect("it comes so soon").unwrap().clone()
    }

    /// Closes the intake and waits for the end, after which all settlements have taken effect.
    async fn end(mut self) -> SourceState {
        self.pool.intake.send_replace(Intake::Closed);
        let deliveries = &mut self.pool.deliveries;
        let give_back = async { while deliveries.recv().await.is_some() {} };
        let (ended, ()) = timeout(SOON, async {
            tokio::join!(self.running.ended(), give_back)
        })
        .await
        .expect("it ends soon");
        ended.unwrap();
        self.pool.state.borrow().clone()
    }
}

fn body(delivery: &Delivery) -> String {
    String::from_utf8(delivery.message.body.to_vec()).unwrap()
}
