//! The daemon on Kafka: real brokers, as `harness::kafka` starts them.

mod client;
mod cluster;
mod commits;
pub(crate) mod idempotency;
mod kills;
mod ledger;
mod legacy;
mod members;
mod operator_faults;
mod order;
mod outage;
mod records;
mod refusals;
mod retry;
mod schedules;
mod settings;
mod several;
mod sizes;
mod thrift;
mod topics;
mod truncation;
mod vain;

use libtest_mimic::Trial;

/// All tests on Kafka.
pub(crate) fn trials() -> Vec<Trial> {
    let rooms = [
        cluster::trials(),
        commits::trials(),
        client::trials(),
        idempotency::trials(),
        kills::trials(),
        ledger::trials(),
        legacy::trials(),
        members::trials(),
        operator_faults::trials(),
        order::trials(),
        outage::trials(),
        records::trials(),
        refusals::trials(),
        retry::trials(),
        schedules::trials(),
        settings::trials(),
        several::trials(),
        thrift::trials(),
        sizes::trials(),
        topics::trials(),
        truncation::trials(),
        vain::trials(),
    ];
    rooms.into_iter().flatten().collect()
}
