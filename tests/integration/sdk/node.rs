//! The library for Node, of which `tests/run` makes a built copy.

use std::path::PathBuf;
use std::process::Command;

use super::{Worker, run};
use crate::harness::{Workspace, trials};

trials![
    passes_its_own_tests,
    packs_what_both_kinds_of_modules_can_load,
    speaks_version_1,
    speaks_version_2,
    conforms_in_version_1,
    conforms_in_version_2,
    outlives_kills,
];

/// The copy of the library in which `tests/run` has installed and built what it takes.
pub(crate) fn node_built() -> PathBuf {
    let prepared = std::env::var_os("GANGER_TEST_NODE").map(PathBuf::from);
    let in_target = || PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("node");
    let built = prepared.unwrap_or_else(in_target);
    assert!(
        built.join("dist/esm/index.js").exists(),
        "no library for Node at {}: run tests/run, which builds it",
        built.display()
    );
    built
}

fn node(args: &[&str]) -> Command {
    let mut command = Command::new("node");
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/proto-spec/vectors");
    command
        .args(args)
        .current_dir(node_built())
        .env("GANGER_VECTORS", vectors);
    command
}

fn node_worker() -> Worker {
    let script = node_built().join("test/support/chaos.mjs");
    let node = run(&mut node(&["-p", "process.execPath"]));
    Worker {
        program: node.trim_end().into(),
        args: vec![script.to_str().unwrap().into()],
    }
}

fn passes_its_own_tests() {
    let files = ["answers", "ending", "process", "testing", "vectors"]
        .map(|name| format!("test/{name}.test.mjs"));
    let mut command = node(&["--test"]);
    let told = run(command.args(&files));
    assert!(
        told.contains("fail 0") && !told.contains("pass 0"),
        "{told}"
    );
}

fn packs_what_both_kinds_of_modules_can_load() {
    let site = Workspace::new();
    let dir = site.path("");
    let mut pack = Command::new("npm");
    pack.args(["pack", "--silent", "--ignore-scripts", "--pack-destination"]);
    run(pack.arg(&dir).current_dir(node_built()));
    run(Command::new("tar")
        .args(["--extract", "--file", "ganger-worker-0.1.0.tgz"])
        .current_dir(&dir));
    for file in ["dist/esm/index.d.ts", "dist/cjs/testing.d.ts", "README.md"] {
        assert!(dir.join("package").join(file).exists(), "no {file}");
    }
    // As it would be after an installation, with what it needs beside it.
    let modules = site.path("node_modules");
    std::fs::create_dir(&modules).unwrap();
    std::fs::rename(dir.join("package"), modules.join("ganger-worker")).unwrap();
    let needs = node_built().join("node_modules/@msgpack");
    std::os::unix::fs::symlink(needs, modules.join("@msgpack")).unwrap();
    let work = "work((task) => reply(task.text + task.text), ['ab']).then(([r]) => console.log(r.message))";
    let esm = format!(
        "import {{ reply }} from 'ganger-worker'; import {{ work }} from 'ganger-worker/testing'; {work}"
    );
    let cjs = format!(
        "const {{ reply }} = require('ganger-worker'); const {{ work }} = require('ganger-worker/testing'); {work}"
    );
    site.put("esm.mjs", &esm, false);
    site.put("cjs.cjs", &cjs, false);
    for script in ["esm.mjs", "cjs.cjs"] {
        let told = run(Command::new("node").arg(script).current_dir(&dir));
        assert_eq!(told, "abab\n", "{script}");
    }
}

fn speaks_version_1() {
    node_worker().speaks(1);
}

fn speaks_version_2() {
    node_worker().speaks(2);
}

fn conforms_in_version_1() {
    node_worker().conforms_in(1);
}

fn conforms_in_version_2() {
    node_worker().conforms_in(2);
}

fn outlives_kills() {
    node_worker().outlives_kills();
}
