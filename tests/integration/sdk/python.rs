//! The library for Python, with threads and with asyncio.

use std::path::PathBuf;
use std::process::Command;

use super::{Worker, library, run};
use crate::harness::{Workspace, trials};
use crate::python::python;

trials![
    passes_its_own_tests,
    is_typed,
    packs_a_wheel,
    speaks_version_1,
    speaks_version_2,
    with_asyncio_speaks_version_1,
    with_asyncio_speaks_version_2,
    conforms_in_version_1,
    conforms_in_version_2,
    with_asyncio_conforms_in_version_1,
    with_asyncio_conforms_in_version_2,
    outlives_kills,
    with_asyncio_outlives_kills,
];

fn python_worker(kind: &str) -> Worker {
    let script = library("python/tests/chaos.py");
    Worker {
        program: python(),
        args: vec![script.to_str().unwrap().into(), kind.into()],
    }
}

/// Python in the library's folder, where it leaves nothing behind.
fn in_python(args: &[&str]) -> Command {
    let mut command = Command::new(python());
    command
        .args(args)
        .current_dir(library("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn passes_its_own_tests() {
    let told = run(&mut in_python(&[
        "-W",
        "error::ResourceWarning",
        "-m",
        "unittest",
    ]));
    assert!(told.contains("\nOK\n"), "{told}");
}

fn is_typed() {
    let site = Workspace::new();
    let cache = site.path("mypy");
    let cache = cache.to_str().unwrap();
    run(&mut in_python(&["-m", "mypy", "--cache-dir", cache]));
}

fn packs_a_wheel() {
    let site = Workspace::new();
    let dir = site.path("wheel");
    let wheel = ["-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps"];
    let mut pack = in_python(&wheel);
    pack.args(["--no-build-isolation", "--wheel-dir"])
        .arg(&dir)
        .arg(".");
    run(&mut pack);
    let made: Vec<PathBuf> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(made.len(), 1, "{made:?}");
    // It works as it stands, and tells type checkers so.
    let uses = "import sys, zipfile, ganger_worker.testing as t, ganger_worker as g\n\
        assert sys.argv[1] in g.__file__, g.__file__\n\
        assert 'ganger_worker/py.typed' in zipfile.ZipFile(sys.argv[1]).namelist()\n\
        print(t.work(lambda task: g.reply(task.text * 2), ['ab'])[0].message)";
    let mut command = in_python(&["-c", uses]);
    command.arg(&made[0]).env("PYTHONPATH", &made[0]);
    assert_eq!(run(&mut command), "abab\n");
}

fn speaks_version_1() {
    python_worker("plain").speaks(1);
}

fn speaks_version_2() {
    python_worker("plain").speaks(2);
}

fn with_asyncio_speaks_version_1() {
    python_worker("async").speaks(1);
}

fn with_asyncio_speaks_version_2() {
    python_worker("async").speaks(2);
}

fn conforms_in_version_1() {
    python_worker("plain").conforms_in(1);
}

fn conforms_in_version_2() {
    python_worker("plain").conforms_in(2);
}

fn with_asyncio_conforms_in_version_1() {
    python_worker("async").conforms_in(1);
}

fn with_asyncio_conforms_in_version_2() {
    python_worker("async").conforms_in(2);
}

fn outlives_kills() {
    python_worker("plain").outlives_kills();
}

fn with_asyncio_outlives_kills() {
    python_worker("async").outlives_kills();
}
