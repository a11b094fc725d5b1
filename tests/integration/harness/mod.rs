//! What a test stands on: a directory with a database in it, daemons that are started there, and
//! ways to wait for what they do. Nothing waits for a time to pass; everything waits for something
//! to be so, and fails with the daemon's log when it does not come about.

mod base;
pub(crate) mod collector;
mod command;
mod daemon;
mod database;
mod hook;
mod http;
pub(crate) mod kafka;
mod log;
pub(crate) mod mariadb;
mod mariadb_table;
mod pool;
pub(crate) mod postgres;
mod postgres_table;
mod processes;
mod proxy;
pub(crate) mod rabbit;
pub(crate) mod record;
mod table;
mod terminal;
pub(crate) mod tls;
mod workspace;

use libtest_mimic::Trial;

pub(crate) use base::Base;
pub(crate) use command::Ran;
pub(crate) use daemon::{AHEAD, BEHIND, Daemon, Launch, SECRET};
pub(crate) use database::Database;
pub(crate) use hook::{Heard, Hook, Word};
pub(crate) use http::{Answer, Api};
pub(crate) use log::{field, said};
pub(crate) use pool::Pool;
pub(crate) use processes::{MARK, kill_marked, marked};
pub(crate) use proxy::{Flow, Proxy};
pub(crate) use record::{Entry, Event, Progress, Record};
pub(crate) use table::{Dead, NewMessage, Table, Waiting};
pub(crate) use terminal::{EVIL, Seat, assert_tame, terminal};
pub(crate) use workspace::Workspace;

pub(crate) use crate::servers::{DEADLINE, look, look_for};

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_ganger");

/// What adds the tests that take minutes; `tests/run --long` sets it.
const LONG: &str = "GANGER_TEST_LONG";

/// Makes the list of a module's tests, with those that are about SQLite after `; sqlite:`, and those that
/// only `tests/run --long` runs after `; long:`.
/// A test that is left out of it is dead code, which is refused.
macro_rules! trials {
    ($($tests:tt)*) => {
        /// The tests of this module.
        pub(crate) fn trials() -> Vec<libtest_mimic::Trial> {
            trials_on($crate::harness::Base::Sqlite)
        }

        $crate::harness::trials_on![$($tests)*];
    };
}
pub(crate) use trials;

/// The same where they have their tables in whichever database they are told.
macro_rules! trials_on {
    (
        $($test:ident),* $(,)?
        $(; sqlite: $($sqlite:ident),+ $(,)?)?
        $(; long: $($long:ident),+ $(,)?)?
    ) => {
        /// The tests of this module with their tables in that database.
        pub(crate) fn trials_on(base: $crate::harness::Base) -> Vec<libtest_mimic::Trial> {
            let (_, module) = module_path!().split_once("::").unwrap();
            let trial = |name: &str, test: fn()| base.trial(module, name, test);
            let mut always = vec![$(trial(stringify!($test), $test)),*];
            if base == $crate::harness::Base::Sqlite {
                let own = vec![$($(trial(stringify!($sqlite), $sqlite)),+)?];
                always.extend::<Vec<libtest_mimic::Trial>>(own);
            }
            let long = vec![$($(trial(stringify!($long), $long)),+)?];
            $crate::harness::with_long(always, long)
        }
    };
}
pub(crate) use trials_on;

/// Both, if the long ones are wanted.
pub(crate) fn with_long(mut always: Vec<Trial>, long: Vec<Trial>) -> Vec<Trial> {
    if std::env::var_os(LONG).is_some() {
        always.extend(long);
    }
    always
}

/// One daemon in a directory of its own, with the table that it reads: what most tests need.
pub(crate) struct Scene {
    pub(crate) daemon: Daemon,
    pub(crate) table: Table,
    pub(crate) site: Workspace,
}

impl Scene {
    /// Starts a daemon with that one pool.
    pub(crate) fn of(pool: Pool) -> Self {
        Self::with(&[pool])
    }

    /// Starts a daemon with those pools.
    pub(crate) fn with(pools: &[Pool]) -> Self {
        Self::at(Workspace::new(), pools)
    }

    /// Starts it in a directory that is prepared.
    pub(crate) fn at(site: Workspace, pools: &[Pool]) -> Self {
        let daemon = site.start(pools);
        let table = site.table();
        Self {
            daemon,
            table,
            site,
        }
    }

    /// Puts messages into the pool's queue, all in one transaction.
    pub(crate) fn send<T: AsRef<str>>(&self, bodies: &[T]) {
        let message = |body: &T| NewMessage::new(body.as_ref());
        let messages: Vec<NewMessage> = bodies.iter().map(message).collect();
        self.table.insert(&messages);
    }

    /// What the workers have recorded so far.
    pub(crate) fn record(&self) -> Record {
        self.site.record()
    }

    /// Waits until the pool's queue is empty: everything is done or dead.
    pub(crate) fn settled(&self) {
        self.daemon.eventually("the queue to be empty", || {
            self.table.count(pool::QUEUE) == 0
        });
    }

    /// Waits until everything is settled and sees that nothing has died of it.
    pub(crate) fn all_done(&self) {
        self.settled();
        let dead = self.table.dead();
        assert!(dead.is_empty(), "dead letters: {dead:#?}");
    }

    /// Waits until everything is settled and returns the one message that is dead.
    pub(crate) fn one_dead(&self) -> table::Dead {
        self.settled();
        let mut dead = self.table.dead();
        assert_eq!(dead.len(), 1, "dead letters: {dead:#?}");
        dead.remove(0)
    }

    /// Waits until workers have recorded that they have begun these messages.
    pub(crate) fn begun<T: AsRef<str> + std::fmt::Debug>(&self, bodies: &[T]) {
        let what = format!("workers to begin {bodies:?}");
        self.daemon.eventually(&what, || {
            let record = self.record();
            bodies
                .iter()
                .all(|body| !record.of(Event::Began, body.as_ref()).is_empty())
        });
    }

    /// Stops the daemon as an operator would and sees that nothing is left behind.
    pub(crate) fn finish(self) {
        self.daemon.stop();
    }
}
