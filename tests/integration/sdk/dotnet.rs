//! The library for .NET, of which only what Mono can tell is told here: its `check` does the same and
//! more where there is the SDK.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Once;

use super::{Worker, library, run};
use crate::harness::trials;

trials![
    passes_its_own_tests,
    speaks_version_1,
    speaks_version_2,
    conforms_in_version_1,
    conforms_in_version_2,
    outlives_kills,
];

/// Beside what is built of the daemon.
fn built() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("sdk-dotnet")
}

/// Builds it once, and gives the program of its tests.
fn dotnet() -> PathBuf {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let mut check = Command::new(library("dotnet").join("check"));
        run(check.arg("build").env("GANGER_DOTNET_OUT", built()));
    });
    built().join("worker")
}

/// The library alone.
pub(crate) fn compiled() -> PathBuf {
    dotnet().with_file_name("Ganger.Worker.dll")
}

fn dotnet_worker() -> Worker {
    Worker {
        program: dotnet(),
        args: vec!["chaos".into()],
    }
}

fn passes_its_own_tests() {
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/proto-spec/vectors");
    let told = run(Command::new(dotnet()).env("GANGER_VECTORS", vectors));
    assert!(told.contains(" passed, 0 failed\n"), "{told}");
}

fn speaks_version_1() {
    dotnet_worker().speaks(1);
}

fn speaks_version_2() {
    dotnet_worker().speaks(2);
}

fn conforms_in_version_1() {
    dotnet_worker().conforms_in(1);
}

fn conforms_in_version_2() {
    dotnet_worker().conforms_in(2);
}

fn outlives_kills() {
    dotnet_worker().outlives_kills();
}
