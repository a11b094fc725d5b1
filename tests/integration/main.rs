//! The integration tests: the real daemon, real workers, a real database. One binary, which is the
//! tests' worker as well. Only what to run is decided here.
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod admin;
mod alerts;
mod answers;
mod autopsy;
mod backlog;
mod commands;
mod conformance;
mod containers;
mod crashes;
mod daemon_death;
mod deploys;
mod docs;
mod exec;
mod harness;
mod hostile;
mod idempotency;
mod imports;
mod init;
mod jobs;
mod kafka;
mod kills;
mod kubernetes;
mod ledger;
mod letters;
mod life;
mod live_rules;
mod logging;
mod memory;
mod migrating;
mod modes_worker;
mod monitoring;
mod mysql;
mod on_servers;
mod outage;
mod outbox;
mod output;
mod packages;
mod pending;
mod postgres;
mod producers;
mod python;
mod rabbit;
mod reload;
mod runs;
mod samples;
mod scaling;
mod schedules;
mod sdk;
mod sending;
#[path = "../servers/mod.rs"]
#[allow(dead_code, reason = "a benchmark asks other things of them")]
mod servers;
mod service;
mod sharing;
mod shutdown;
mod sizing;
mod standstill;
mod statements;
mod storage;
mod supervision;
mod system;
mod timeouts;
mod topics;
mod traces;
mod trust;
mod unique;
mod units;
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
    if let Some((first, rest)) = args.split_first()
        && first == conformance::faulty::NAME
    {
        conformance::faulty::run(rest);
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(TEST_THREADS);
    let conclusion = libtest_mimic::run(&arguments, trials());
    harness::rabbit::end_nodes();
    harness::kafka::stop_shared();
    harness::postgres::end_shared();
    harness::mariadb::end_shared();
    conclusion.exit_code()
}

fn trials() -> Vec<Trial> {
    let rooms = [
        admin::trials(),
        alerts::trials(),
        answers::trials(),
        autopsy::trials(),
        backlog::trials(),
        commands::trials(),
        conformance::trials(),
        conformance::attempt::trials(),
        containers::trials(),
        crashes::trials(),
        daemon_death::trials(),
        deploys::trials(),
        docs::trials(),
        exec::trials(),
        harness::record::trials(),
        hostile::trials(),
        idempotency::trials(),
        imports::trials(),
        init::trials(),
        jobs::trials(),
        kafka::trials(),
        kills::trials(),
        kubernetes::trials(),
        letters::trials(),
        ledger::all_trials_on(harness::Base::Sqlite),
        life::trials(),
        live_rules::trials(),
        logging::trials(),
        memory::trials(),
        migrating::trials(),
        migrating::milvaion::trials(),
        monitoring::trials(),
        mysql::trials(),
        outage::trials(),
        outbox::trials(),
        pending::trials(),
        output::trials(),
        packages::trials(),
        postgres::trials(),
        producers::trials(),
        python::trials(),
        rabbit::trials(),
        reload::trials(),
        runs::trials(),
        samples::trials(),
        scaling::trials(),
        schedules::trials(),
        sdk::trials(),
        sending::trials(),
        service::trials(),
        sharing::trials(),
        shutdown::trials(),
        sizing::trials(),
        standstill::trials(),
        storage::trials(),
        supervision::trials(),
        system::trials(),
        timeouts::trials(),
        upgrade::trials(),
        topics::trials(),
        traces::trials(),
        trust::trials(),
        unique::trials(),
        units::trials(),
        version2::trials(),
        warnings::trials(),
    ];
    rooms.into_iter().flatten().collect()
}
