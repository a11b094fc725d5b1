//! Private servers: each is started on free ports of this machine with files of its own, and ends
//! with the program that started it, however that ends. For the tests and the benchmarks; nothing
//! here knows ganger.

pub(crate) mod home;
pub(crate) mod kafka;
pub(crate) mod mariadb;
mod mysql;
pub(crate) mod pgbouncer;
pub(crate) mod postgres;
pub(crate) mod process;
pub(crate) mod rabbit;

use std::time::Duration;

use tokio::time::Instant;

/// How long anything may take that should come about: far more than it needs on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// How often a condition is looked at that nothing announces.
const LOOK_EVERY: Duration = Duration::from_millis(3);

/// Looks until there is something to return, or until the deadline has passed.
pub(crate) fn look<T>(condition: impl FnMut() -> Option<T>) -> Option<T> {
    look_for(DEADLINE, condition)
}

/// The same with a deadline of its own, for what takes long on purpose.
pub(crate) fn look_for<T>(time: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + time;
    loop {
        if let Some(found) = condition() {
            return Some(found);
        }
        if Instant::now() > deadline {
            return None;
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}
