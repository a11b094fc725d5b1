//! `samples/shout`: the first example of each library answers.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use super::{copy, run_well, samples};
use crate::harness::{NewMessage, Table, Workspace, trials};
use crate::python::python;
use crate::sdk::{go, java, library, node, php, rust};

trials![every_language_answers];

const LANGUAGES: [&str; 8] = [
    "dotnet", "go", "java", "node", "php", "python", "ruby", "rust",
];

/// The folders of a checkout that the sample needs, with what its `build` makes there.
fn built() -> Workspace {
    let site = Workspace::new();
    let shout = site.path("samples/shout");
    fs::create_dir_all(shout.join("dist")).unwrap();
    fs::create_dir_all(site.path("worker-sdk/rust")).unwrap();
    copy(&samples().join("shout"), &shout);
    symlink(python().ancestors().nth(2).unwrap(), shout.join("venv")).unwrap();
    let there = |language: &str| site.path("worker-sdk").join(language);
    symlink(java::java_built(), there("java")).unwrap();
    symlink(node::node_built(), there("node")).unwrap();
    for language in ["python", "ruby"] {
        symlink(library(language), there(language)).unwrap();
    }
    fs::create_dir(there("php")).unwrap();
    copy(&library("php"), &there("php"));
    run_well(php::composer(&site, &["dump-autoload"]).current_dir(there("php")));
    symlink(rust::built(), there("rust/target")).unwrap();
    let build = ["build", "--locked", "--all-features", "--example", "shout"];
    run_well(&mut rust::cargo(&build));
    let mut build = go::go(&["build", "-o"]);
    run_well(
        build
            .arg(shout.join("dist/shout-go"))
            .arg("./examples/shout"),
    );
    dotnet(&shout.join("dist"));
    site
}

/// With Mono, as `build` does it where there is no SDK.
fn dotnet(dist: &Path) {
    let program = dist.join("shout.exe");
    let mut compile = Command::new("mcs");
    compile.args(["-langversion:7.2", "-warnaserror", "-define:TRACE"]);
    compile.args(["-r:System.Core.dll", &format!("-out:{}", program.display())]);
    compile.arg(library("dotnet/examples/Shout.cs"));
    let sources = fs::read_dir(library("dotnet/src")).unwrap();
    let sources = sources.map(|entry| entry.unwrap().path());
    compile.args(sources.filter(|path| path.extension().is_some_and(|end| end == "cs")));
    run_well(&mut compile);
    let start = dist.join("shout-dotnet");
    let script = format!("#!/bin/sh\nexec mono '{}'\n", program.display());
    fs::write(&start, script).unwrap();
    fs::set_permissions(&start, Permissions::from_mode(0o755)).unwrap();
}

fn every_language_answers() {
    let site = built();
    let config = "samples/shout/ganger.toml";
    site.ganger(&["check", "--online", "--config", config])
        .good();
    let table = Table::open(&site.path("samples/shout/ganger.db"));
    let question = |language: &str| {
        let message = NewMessage::new("good morning").to(&format!("shout.{language}"));
        message.reply_to("answers").correlation_id(language)
    };
    table.insert(&LANGUAGES.map(question));
    let daemon = site.start_as_it_is(config, &[]);
    let count = u32::try_from(LANGUAGES.len()).unwrap();
    daemon.eventually("all answers", || table.count("answers") == count);
    let answers = table.messages("answers").into_iter();
    let answers: BTreeMap<String, String> = answers
        .map(|answer| (answer.correlation_id.unwrap(), answer.body))
        .collect();
    let expected = LANGUAGES.map(|language| (language.to_owned(), "GOOD MORNING!".to_owned()));
    assert_eq!(answers, expected.into());
    daemon.stop();
}
