//! PostgreSQL: the real daemon at real servers of the tests' own. What holds on any database is tested
//! by the tests of that, run here once more. Only what to run is decided here.

mod harness_selftest;
mod pooled;
mod remains;
mod sizes;
mod sleeping;
mod usage;

use libtest_mimic::Trial;

use crate::harness::Base;
use crate::{
    answers, backlog, crashes, daemon_death, idempotency, jobs, kills, ledger, letters, migrating,
    on_servers, outbox, pending, sending, shutdown, timeouts, topics, unique, version2,
};

/// The tests of all modules here.
pub(crate) fn trials() -> Vec<Trial> {
    let both = [
        answers::trials_on,
        backlog::trials_on,
        crashes::trials_on,
        daemon_death::trials_on,
        idempotency::trials_on,
        jobs::trials_on,
        kills::trials_on,
        ledger::all_trials_on,
        letters::trials_on,
        migrating::asyncmonolith::trials_on,
        on_servers::trials_on,
        outbox::trials_on,
        pending::trials_on,
        sending::trials_on,
        shutdown::trials_on,
        timeouts::trials_on,
        topics::trials_on,
        unique::trials_on,
        version2::trials_on,
    ];
    let both = both.into_iter().flat_map(|trials| trials(Base::Postgres));
    let own = [
        pooled::trials(),
        remains::trials(),
        sizes::trials(),
        sleeping::trials(),
        usage::trials(),
        harness_selftest::trials(),
    ]
    .into_iter()
    .flatten();
    own.chain(both).collect()
}
