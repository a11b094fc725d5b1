//! The description of the API: what others' programs make of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{api, scene};
use crate::harness::{Pool, trials};
use crate::python::python;

trials![
    the_description_is_valid,
    a_client_made_of_the_description_does_all_that_it_should,
];

const DESCRIPTION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/proto-spec/openapi.json");

/// A program beside the interpreter that `tests/run` has prepared.
fn tool(name: &str) -> PathBuf {
    python().with_file_name(name)
}

/// Runs it to its end, which is a good one.
fn ran(command: &mut Command) -> String {
    let out = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8([out.stdout, out.stderr].concat()).unwrap();
    assert!(out.status.success(), "{command:?}: {said}");
    said
}

fn the_description_is_valid() {
    ran(Command::new(tool("openapi-spec-validator")).arg(DESCRIPTION));
}

fn a_client_made_of_the_description_does_all_that_it_should() {
    let ledger = "[ledger]\nsource = \"main\"";
    let scene = scene(Pool::new(&["--v2=1"]).attempts(1).after(ledger));
    let api = api(&scene.daemon);
    let generated = scene.site.path("ganger_client");
    let bin = python().parent().map(Path::to_owned).unwrap();
    let path = std::env::var("PATH").unwrap();
    let said = ran(Command::new(tool("openapi-python-client"))
        .args([
            "generate",
            "--meta",
            "none",
            "--path",
            DESCRIPTION,
            "--output-path",
        ])
        .arg(&generated)
        .env("PATH", format!("{}:{path}", bin.display())));
    // What it can't make anything of it leaves out with a warning.
    assert!(
        !said.contains("WARNING") && !said.contains("Unable"),
        "{said}"
    );
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/openapi/client.py");
    let done = ran(Command::new(python())
        .arg(script)
        .arg(format!("http://localhost:{}", api.port()))
        .arg(api.token().unwrap())
        .env("PYTHONPATH", scene.site.path("")));
    assert_eq!(done, "done\n");
    scene.finish();
}
