//! PostgreSQL for the tests: the server that they share, a database there for each of them, and
//! servers of their own for those that kill or freeze one.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::postgres_table::PgTable;
use super::table::{Handle, Table};
use crate::servers::postgres::Cluster;

/// Started by the first test that asks for it; lives as long as the run.
static SHARED: Mutex<Option<Arc<Cluster>>> = Mutex::new(None);

/// The server for all tests that leave it in peace.
fn shared() -> Arc<Cluster> {
    let mut place = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(place.get_or_insert_with(|| Arc::new(Cluster::start(&[]))))
}

/// Stops it, if it was started. The last thing in a run.
pub(crate) fn end_shared() {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner).take();
}

/// An empty database of a test's own, and the server that it is on.
pub(crate) struct PgDatabase {
    cluster: Arc<Cluster>,
    name: String,
}

impl PgDatabase {
    /// On the server that the tests share.
    pub(crate) fn shared() -> Self {
        Self::at(shared())
    }

    /// On a server of the test's own, which it may kill, freeze and start again.
    pub(crate) fn alone() -> Self {
        Self::at(Arc::new(Cluster::start(&[])))
    }

    /// The same with further settings, which may name files that are kept there.
    pub(crate) fn alone_with(settings: impl FnOnce(&Cluster) -> Vec<String>) -> Self {
        Self::at(Arc::new(Cluster::start_with(settings)))
    }

    fn at(cluster: Arc<Cluster>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed));
        cluster.create_database(&name);
        Self { cluster, name }
    }

    /// Its address, for one who may do everything.
    pub(crate) fn url(&self) -> String {
        self.cluster.url(&self.name)
    }

    /// The same by another way to the server.
    pub(crate) fn url_at(&self, port: u16) -> String {
        self.url()
            .replace(&format!(":{}/", self.port()), &format!(":{port}/"))
    }

    /// The same database on a server that follows this one.
    pub(crate) fn standby(&self) -> Self {
        Self {
            cluster: Arc::new(self.cluster.standby()),
            name: self.name.clone(),
        }
    }

    /// A connection of the test's own, which sees the tables as any other program would.
    pub(crate) fn table(&self) -> Table {
        Table(Handle::Postgres(PgTable::open(&self.url())))
    }

    /// Such a connection by another way to the server.
    pub(crate) fn table_at(&self, port: u16) -> Table {
        Table(Handle::Postgres(PgTable::open(&self.url_at(port))))
    }

    /// Has statements run; what they say, a line for a row, its columns parted by `|`.
    pub(crate) fn ask(&self, sql: &str) -> String {
        self.cluster.psql(&self.name, sql)
    }
}

impl Drop for PgDatabase {
    fn drop(&mut self) {
        // A server of the test's own may be down, and is gone with it in any case.
        let drop_it = format!("DROP DATABASE \"{}\" WITH (FORCE)", self.name);
        drop(self.cluster.try_psql("postgres", &drop_it));
    }
}

impl Deref for PgDatabase {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}
