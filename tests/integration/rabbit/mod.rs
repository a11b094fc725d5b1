//! RabbitMQ: the real daemon at real servers of the tests' own. Only what to run is decided here.

mod answers;
mod bindings;
mod chaos;
mod client;
mod connection;
mod consuming;
mod deadly;
mod forged;
mod harness_selftest;
pub(crate) mod idempotency;
mod leaderless;
mod looking;
mod network;
mod operator_faults;
mod properties;
mod publishing;
mod queues;
mod rpc;
mod schedules;
mod short_lived;
mod stops;
mod suspects;

use libtest_mimic::Trial;

/// The tests of all modules here, those that take longest first.
pub(crate) fn trials() -> Vec<Trial> {
    let rooms = [
        bindings::trials(),
        chaos::trials(),
        publishing::trials(),
        leaderless::trials(),
        network::trials(),
        answers::trials(),
        connection::trials(),
        consuming::trials(),
        deadly::trials(),
        forged::trials(),
        client::trials(),
        harness_selftest::trials(),
        idempotency::trials(),
        looking::trials(),
        operator_faults::trials(),
        properties::trials(),
        queues::trials(),
        rpc::trials(),
        schedules::trials(),
        short_lived::trials(),
        stops::trials(),
        suspects::trials(),
    ];
    rooms.into_iter().flatten().collect()
}
