//! The library for PHP.

use std::path::PathBuf;
use std::process::Command;

use super::{Worker, conforms, library, run};
use crate::harness::{Workspace, trials};

trials![
    passes_its_own_tests,
    composer_finds_nothing_to_complain_of,
    is_installed_by_composer,
    passes_conformance,
    speaks_version_1,
    speaks_version_2,
    outlives_kills,
];

fn php(args: &[&str]) -> Command {
    let mut command = Command::new("php");
    command.args(args).current_dir(library("php"));
    command
}

fn php_worker() -> Worker {
    let php = run(&mut php(&["-r", "echo PHP_BINARY;"]));
    let script = library("php/tests/chaos.php");
    Worker {
        program: PathBuf::from(php),
        args: vec![script.to_str().unwrap().into()],
    }
}

/// Composer, which asks no registry and leaves nothing behind.
pub(crate) fn composer(site: &Workspace, args: &[&str]) -> Command {
    let mut command = Command::new("composer");
    command
        .args(args)
        .arg("--no-interaction")
        .env("COMPOSER_ALLOW_SUPERUSER", "1")
        .env("COMPOSER_DISABLE_NETWORK", "1")
        .env("COMPOSER_HOME", site.path("composer"));
    command
}

fn passes_its_own_tests() {
    let told = run(&mut php(&["tests/run.php"]));
    assert!(told.contains(" passed, 0 failed"), "{told}");
}

fn composer_finds_nothing_to_complain_of() {
    let site = Workspace::new();
    let mut validate = composer(&site, &["validate", "--strict"]);
    let told = run(validate.current_dir(library("php")));
    assert!(told.contains("composer.json is valid"), "{told}");
}

/// Into a project of its own, where it works as it stands.
fn is_installed_by_composer() {
    let site = Workspace::new();
    let project = format!(
        r#"{{
            "repositories": [
                {{"type": "path", "url": "{}", "options": {{"symlink": false}}}},
                {{"packagist.org": false}}
            ],
            "require": {{"ganger/worker": "*@dev"}}
        }}"#,
        library("php").display()
    );
    site.put("composer.json", &project, false);
    run(composer(&site, &["install", "--no-progress"]).current_dir(site.path("")));
    let uses = "require 'vendor/autoload.php';
        $double = fn (Ganger\\Task $task) => Ganger\\Outcome::reply($task->message . $task->message);
        echo Ganger\\Testing\\Harness::work($double, ['ab'])[0]->message;";
    let mut command = Command::new("php");
    command.args(["-r", uses]).current_dir(site.path(""));
    assert_eq!(run(&mut command), "abab");
}

fn passes_conformance() {
    let script = library("php/tests/modes.php");
    let script = script.to_str().unwrap();
    conforms(&php_worker().program, &[script, "4"]);
}

fn speaks_version_1() {
    php_worker().speaks(1);
}

fn speaks_version_2() {
    php_worker().speaks(2);
}

fn outlives_kills() {
    php_worker().outlives_kills();
}
