//! RabbitMQ: the real daemon at real servers of the tests' own. Only what to run is decided here.

mod answers;
mod connection;
mod consuming;
mod desk;
mod disasters;
mod ground;
mod looking;
mod misfortunes;
mod network;
mod properties;
mod publishing;
mod queues;
mod rpc;
mod stops;
mod suspects;

use libtest_mimic::Trial;

/// The tests of all modules here, those that take longest first.
pub(crate) fn trials() -> Vec<Trial> {
    let rooms = [
        disasters::trials(),
        publishing::trials(),
        network::trials(),
        answers::trials(),
        connection::trials(),
        consuming::trials(),
        desk::trials(),
        ground::trials(),
        looking::trials(),
        misfortunes::trials(),
        properties::trials(),
        queues::trials(),
        rpc::trials(),
        stops::trials(),
        suspects::trials(),
    ];
    rooms.into_iter().flatten().collect()
}
