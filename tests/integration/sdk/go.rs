//! The library for Go.

use std::process::Command;

use super::{Worker, library, run};
use crate::harness::{Workspace, trials};

trials![
    passes_its_own_tests,
    finds_nothing_to_complain_of,
    speaks_version_1,
    speaks_version_2,
    conforms_in_version_1,
    conforms_in_version_2,
    outlives_kills,
];

pub(crate) fn go(args: &[&str]) -> Command {
    let mut command = Command::new("go");
    command.args(args).current_dir(library("go"));
    command
}

/// The test worker, built; the directory must outlive the daemon.
fn go_worker() -> (Workspace, Worker) {
    let site = Workspace::new();
    // Its name is in the stack of a panic, as the others' scripts' are.
    let program = site.path("chaos");
    run(go(&["build", "-o"]).arg(&program).arg("./internal/chaos"));
    let args = Vec::new();
    (site, Worker { program, args })
}

fn passes_its_own_tests() {
    let told = run(&mut go(&["test", "-count=1", "./..."]));
    let passed = told.lines().filter(|line| line.starts_with("ok "));
    assert_eq!(passed.count(), 3, "{told}");
}

fn finds_nothing_to_complain_of() {
    run(&mut go(&["vet", "./..."]));
    assert_eq!(
        run(Command::new("gofmt")
            .args(["-l", "."])
            .current_dir(library("go"))),
        ""
    );
}

fn speaks_version_1() {
    let (_site, worker) = go_worker();
    worker.speaks(1);
}

fn speaks_version_2() {
    let (_site, worker) = go_worker();
    worker.speaks(2);
}

fn conforms_in_version_1() {
    let (_site, worker) = go_worker();
    worker.conforms_in(1);
}

fn conforms_in_version_2() {
    let (_site, worker) = go_worker();
    worker.conforms_in(2);
}

fn outlives_kills() {
    let (_site, worker) = go_worker();
    worker.outlives_kills();
}
