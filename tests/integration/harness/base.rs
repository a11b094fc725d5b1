//! Which database the tables of a test are in. Most tests are of what ganger promises on any: they are
//! written once, and run on each.

use std::cell::Cell;

use libtest_mimic::Trial;

/// A database that tables can be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    Sqlite,
    Postgres,
    Mariadb,
}

thread_local! {
    static BASE: Cell<Base> = const { Cell::new(Base::Sqlite) };
}

impl Base {
    /// That of the test that this thread runs.
    pub(crate) fn of_this_test() -> Self {
        BASE.get()
    }

    /// A test that runs on it.
    pub(crate) fn trial(self, module: &str, name: &str, test: fn()) -> Trial {
        let name = match self {
            Self::Sqlite => format!("{module}::{name}"),
            Self::Postgres => format!("postgres::{module}::{name}"),
            Self::Mariadb => format!("mysql::{module}::{name}"),
        };
        Trial::test(name, move || {
            let _chosen = Chosen::of_this_thread(self);
            test();
            Ok(())
        })
    }
}

/// The next test of a thread, which may choose nothing, is not to find what the last one had.
struct Chosen;

impl Chosen {
    fn of_this_thread(base: Base) -> Self {
        BASE.set(base);
        Self
    }
}

impl Drop for Chosen {
    fn drop(&mut self) {
        BASE.set(Base::Sqlite);
    }
}
