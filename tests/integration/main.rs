//! The integration tests: the real daemon, real workers, a real database. One binary, which is the
//! tests' worker as well. Only what to run is decided here.
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod admin;
mod alerts;
mod answers;
mod autopsy;
mod commands;
mod crashes;
mod daemon_death;
mod docs;
mod harness;
mod hostile;
mod kafka;
mod kills;
mod kubernetes;
mod letters;
mod life;
mod logging;
mod memory;
mod modes_worker;
mod monitoring;
mod outage;
mod output;
mod packages;
mod python;
mod rabbit;
mod reload;
mod scaling;
mod sdk;
mod sending;
#[path = "../servers/mod.rs"]
#[allow(dead_code, reason = "a benchmark asks other things of them")]
mod servers;
mod service;
mod sharing;
mod shutdown;
mod sizing;
mod storage;
mod supervision;
mod system;
mod timeouts;
mod traces;
mod upgrade;
mod version2;
mod warnings;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// Tests at once, unless the command line says otherwise: they wait more than they compute.
const TEST_THREADS: usize = 4;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, rest)) = args.split_first()
        && first == modes_worker::NAME
    {
        modes_worker::run(rest);
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(TEST_THREADS);
    let conclusion = libtest_mimic::run(&arguments, trials());
    harness::rabbit::end_nodes();
    harness::kafka::stop_shared();
    conclusion.exit_code()
}

fn trials() -> Vec<Trial> {
    let rooms = [
        admin::trials(),
        alerts::trials(),
        answers::trials(),
        autopsy::trials(),
        commands::trials(),
        crashes::trials(),
        daemon_death::trials(),
        docs::trials(),
        harness::record::trials(),
        hostile::trials(),
        kafka::trials(),
        kills::trials(),
        kubernetes::trials(),
        letters::trials(),
        life::trials(),
        logging::trials(),
        memory::trials(),
        monitoring::trials(),
        outage::trials(),
        output::trials(),
        packages::trials(),
        python::trials(),
        rabbit::trials(),
        reload::trials(),
        scaling::trials(),
        sdk::trials(),
        sending::trials(),
        service::trials(),
        sharing::trials(),
        shutdown::trials(),
        sizing::trials(),
        storage::trials(),
        supervision::trials(),
        system::trials(),
        timeouts::trials(),
        upgrade::trials(),
        traces::trials(),
        version2::trials(),
        warnings::trials(),
    ];
    rooms.into_iter().flatten().collect()
}
