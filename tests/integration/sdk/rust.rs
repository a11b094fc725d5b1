//! The library for Rust, with threads and with tokio. It is built in a target directory of its own.

use std::path::PathBuf;
use std::process::Command;

use super::{Worker, library, run};
use crate::harness::trials;

trials![
    passes_its_own_tests,
    packs_a_crate,
    finds_nothing_to_complain_of,
    documents_itself,
    speaks_version_1,
    speaks_version_2,
    with_tokio_speaks_version_1,
    with_tokio_speaks_version_2,
    conforms_in_version_1,
    conforms_in_version_2,
    with_tokio_conforms_in_version_1,
    with_tokio_conforms_in_version_2,
    outlives_kills,
    with_tokio_outlives_kills,
];

/// Beside what is built of the daemon.
pub(crate) fn built() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("sdk-rust")
}

pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command
        .args(args)
        .current_dir(library("rust"))
        .env("CARGO_TARGET_DIR", built());
    command
}

/// The test worker, built.
fn rust_worker(kind: &str) -> Worker {
    let build = ["build", "--locked", "--all-features", "--example", "chaos"];
    run(&mut cargo(&build));
    Worker {
        program: built().join("debug/examples/chaos"),
        args: vec![kind.into()],
    }
}

fn passes_its_own_tests() {
    let told = run(&mut cargo(&["test", "--locked", "--all-features"]));
    let passed = told
        .lines()
        .filter(|line| line.starts_with("test result: ok. ") && !line.contains(" 0 passed"));
    // Those of the crate, two files, and the examples in the documentation.
    assert_eq!(passed.count(), 4, "{told}");
}

fn packs_a_crate() {
    // It is unpacked and built as its users have it.
    let pack = ["package", "--locked", "--all-features", "--allow-dirty"];
    run(&mut cargo(&pack));
    let packed = built().join("package/ganger-worker-0.1.0.crate");
    assert!(packed.exists(), "no {}", packed.display());
    let mut list = cargo(&["package", "--list", "--allow-dirty"]);
    let told = run(&mut list);
    for file in ["README.md", "examples/shout.rs", "src/lib.rs"] {
        assert!(told.lines().any(|line| line == file), "{told}");
    }
    assert!(!told.contains("tests/"), "{told}");
}

fn finds_nothing_to_complain_of() {
    run(&mut cargo(&["fmt", "--check"]));
    for features in [
        &["--all-targets", "--all-features"][..],
        &["--features=tokio"],
        &[],
    ] {
        let mut clippy = cargo(&["clippy", "--locked"]);
        run(clippy.args(features).args(["--", "-D", "warnings"]));
    }
}

fn documents_itself() {
    let mut doc = cargo(&["doc", "--locked", "--all-features", "--no-deps"]);
    run(doc.env("RUSTDOCFLAGS", "-D warnings"));
}

fn speaks_version_1() {
    rust_worker("threads").speaks(1);
}

fn speaks_version_2() {
    rust_worker("threads").speaks(2);
}

fn with_tokio_speaks_version_1() {
    rust_worker("tokio").speaks(1);
}

fn with_tokio_speaks_version_2() {
    rust_worker("tokio").speaks(2);
}

fn conforms_in_version_1() {
    rust_worker("threads").conforms_in(1);
}

fn conforms_in_version_2() {
    rust_worker("threads").conforms_in(2);
}

fn with_tokio_conforms_in_version_1() {
    rust_worker("tokio").conforms_in(1);
}

fn with_tokio_conforms_in_version_2() {
    rust_worker("tokio").conforms_in(2);
}

fn outlives_kills() {
    rust_worker("threads").outlives_kills();
}

fn with_tokio_outlives_kills() {
    rust_worker("tokio").outlives_kills();
}
