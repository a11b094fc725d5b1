//! The samples: each runs from its own files, as its README says, against real servers.

mod batch;
mod cron;
mod emails;
mod fetch;
mod ledger;
mod orders;
mod pipeline;
mod relay;
mod reports;
mod rpc;
mod shout;
mod thumbnails;
mod web;
mod webhooks;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Trial;

use crate::harness::rabbit::{Letter, Vhost};
use crate::harness::{Daemon, Table, Workspace};
use crate::python::python;

/// The tests of this module.
pub(crate) fn trials() -> Vec<Trial> {
    let samples = [
        batch::trials(),
        cron::trials(),
        emails::trials(),
        fetch::trials(),
        ledger::trials(),
        orders::trials(),
        pipeline::trials(),
        reports::trials(),
        rpc::trials(),
        shout::trials(),
        thumbnails::trials(),
        webhooks::trials(),
    ];
    samples.into_iter().flatten().collect()
}

/// What is in a sample's folder only because somebody has tried it.
const MADE: [&str; 4] = ["__pycache__", "dist", "node_modules", "venv"];

/// A copy of a sample's folder, with what its README has one install.
struct Sample {
    site: Workspace,
}

impl Sample {
    fn of(name: &str) -> Self {
        let site = Workspace::new();
        copy(&samples().join(name), &site.path(""));
        symlink(python().ancestors().nth(2).unwrap(), site.path("venv")).unwrap();
        Self { site }
    }

    /// Starts a daemon with its own configuration, which these variables complete.
    fn start(&self, variables: &[(&str, &str)]) -> Daemon {
        self.site.start_as_it_is("ganger.toml", variables)
    }

    /// Makes the database, or opens it.
    fn table(&self) -> Table {
        self.site.ganger(&["check", "--online"]).good();
        Table::open(&self.site.path("ganger.db"))
    }

    /// Python as the workers have it, in the folder.
    fn python(&self) -> Command {
        let mut command = Command::new(self.site.path("venv/bin/python3"));
        command.current_dir(self.site.path(""));
        command
    }
}

/// Where they are.
fn samples() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/samples"))
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (source, target): (PathBuf, PathBuf) = (entry.path(), to.join(entry.file_name()));
        if MADE.iter().any(|made| entry.file_name() == *made) {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&target).unwrap();
            copy(&source, &target);
        } else {
            fs::copy(source, target).unwrap();
        }
    }
}

/// Runs a program to its end; whether that was a good one, and what it has printed.
fn run(command: &mut Command) -> (bool, String) {
    let out = command.output().unwrap();
    let printed = [out.stdout, out.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    (out.status.success(), printed)
}

/// The same, which must be a good one.
fn run_well(command: &mut Command) -> String {
    let (well, printed) = run(command);
    assert!(well, "{command:?}: {printed}");
    printed
}

/// Waits until nothing is left in a queue of RabbitMQ and where its retries wait; its dead letters.
fn settled(daemon: &Daemon, vhost: &Vhost, queue: &str) -> Vec<Letter> {
    let dead = format!("{queue}.dead");
    daemon.eventually("the queues to be empty", || {
        let totals = vhost.totals();
        let own = totals.iter().filter(|(name, _)| **name != dead);
        own.filter(|(name, _)| name.starts_with(queue))
            .all(|(_, total)| *total == 0)
    });
    vhost.client().take_all(&dead)
}

/// The dead letters' errors, in order.
fn errors(dead: &[Letter]) -> Vec<String> {
    let mut errors: Vec<String> = dead.iter().map(|it| it.word("x-ganger-error")).collect();
    errors.sort_unstable();
    errors
}
