//! RabbitMQ: the real daemon at real servers of the tests' own. Only what to run is decided here.

mod ground;

use libtest_mimic::Trial;

/// The tests of all modules here.
pub(crate) fn trials() -> Vec<Trial> {
    let rooms = [ground::trials()];
    rooms.into_iter().flatten().collect()
}
