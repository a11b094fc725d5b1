//! What is the same for tables on any server, tested on each. What holds for files as well is in modules of
//! its own.

mod clocks;
mod deaths;
mod finished;
mod ledger;
mod plans;
mod replies;
mod settings;
mod usage;

use libtest_mimic::Trial;

use crate::harness::Base;

/// The tests of all modules here, on that server.
pub(crate) fn trials_on(base: Base) -> Vec<Trial> {
    let rooms = [
        clocks::trials_on(base),
        deaths::trials_on(base),
        finished::trials_on(base),
        ledger::trials_on(base),
        plans::trials_on(base),
        replies::trials_on(base),
        settings::trials_on(base),
        usage::trials_on(base),
    ];
    rooms.into_iter().flatten().collect()
}
