//! MariaDB for the tests: the server that they share, a database there for each of them, and servers of
//! their own for those that kill or freeze one.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::mariadb_table::MariaTable;
use super::table::{Handle, Table};
use crate::servers::mariadb::Mariadb;

/// Started by the first test that asks for it; lives as long as the run.
static SHARED: Mutex<Option<Arc<Mariadb>>> = Mutex::new(None);

/// The server for all tests that leave it in peace.
fn shared() -> Arc<Mariadb> {
    let mut place = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(place.get_or_insert_with(|| Arc::new(Mariadb::start(&[]))))
}

/// Stops it, if it was started. The last thing in a run.
pub(crate) fn end_shared() {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner).take();
}

/// An empty database of a test's own, and the server that it is on.
pub(crate) struct MariaDatabase {
    server: Arc<Mariadb>,
    name: String,
}

impl MariaDatabase {
    /// On the server that the tests share.
    pub(crate) fn shared() -> Self {
        Self::at(shared())
    }

    /// On a server of the test's own, which it may kill, freeze and start again.
    pub(crate) fn alone() -> Self {
        Self::at(Arc::new(Mariadb::start(&[])))
    }

    /// The same with further settings, which may name files that are kept there.
    pub(crate) fn alone_with(settings: impl FnOnce(&Mariadb) -> Vec<String>) -> Self {
        Self::at(Arc::new(Mariadb::start_with(settings)))
    }

    fn at(server: Arc<Mariadb>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed));
        server.create_database(&name);
        Self { server, name }
    }

    /// Its address, for one who may do everything there.
    pub(crate) fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// The same database on a server that follows this one.
    pub(crate) fn replica(&self) -> Self {
        Self {
            server: Arc::new(self.server.replica()),
            name: self.name.clone(),
        }
    }

    /// A connection of the test's own, which sees the tables as any other program would.
    pub(crate) fn table(&self) -> Table {
        Table(Handle::Mariadb(MariaTable::open(&self.url())))
    }

    /// Has an administrator's client run statements; what they say, a line for a row, its columns parted
    /// by `|`.
    pub(crate) fn ask(&self, sql: &str) -> String {
        self.server.sql(&self.name, sql)
    }
}

impl Drop for MariaDatabase {
    fn drop(&mut self) {
        // A server of the test's own may be down, and is gone with it in any case; one that is shared has
        // nobody here any more whom it would wait for.
        if Arc::strong_count(&self.server) > 1 {
            let drop_it = format!("SET lock_wait_timeout = 10; DROP DATABASE {}", self.name);
            drop(self.server.try_sql("", &drop_it));
        }
    }
}

impl Deref for MariaDatabase {
    type Target = Mariadb;

    fn deref(&self) -> &Mariadb {
        &self.server
    }
}
