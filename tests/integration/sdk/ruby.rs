//! The library for Ruby.

use std::path::PathBuf;
use std::process::Command;

use super::{Worker, conforms, library, run};
use crate::harness::{Workspace, trials};

trials![
    passes_its_own_tests,
    is_typed,
    packs_a_gem,
    passes_conformance,
    speaks_version_1,
    speaks_version_2,
    outlives_kills,
];

fn ruby(args: &[&str]) -> Command {
    let mut command = Command::new("ruby");
    command.args(args).current_dir(library("ruby"));
    command
}

fn ruby_worker() -> Worker {
    let ruby = run(&mut ruby(&["-e", "print RbConfig.ruby"]));
    let script = library("ruby/test/chaos.rb");
    Worker {
        program: PathBuf::from(ruby),
        args: vec![script.to_str().unwrap().into()],
    }
}

fn passes_its_own_tests() {
    let all = "Dir['test/test_*.rb'].each { |file| require File.expand_path(file) }";
    // What `inspect` shows depends on it.
    let told = run(ruby(&["-w", "-e", all]).env("LC_ALL", "C.UTF-8"));
    assert!(told.contains(" 0 failures, 0 errors, 0 skips"), "{told}");
    assert!(!told.contains("warning:"), "{told}");
}

/// What `sig/` says is consistent; Ruby brings the checker.
fn is_typed() {
    // The types of logger need monitor's, which not every release of Ruby's tool looks for by itself.
    let check = "require 'rbs'; require 'rbs/cli'\n\
        RBS::CLI.new(stdout: $stdout, stderr: $stderr).run(%w[-r logger -r monitor -I sig validate --silent])";
    run(&mut ruby(&["-e", check]));
}

fn packs_a_gem() {
    let site = Workspace::new();
    let gem = site.path("ganger-worker.gem");
    let mut build = Command::new("gem");
    build.args(["build", "ganger-worker.gemspec", "--output"]);
    let told = run(build.arg(&gem).current_dir(library("ruby")));
    let complaints = told.lines().filter(|line| line.starts_with("WARNING:"));
    let complaints: Vec<&str> = complaints.collect();
    // The project has no address of its own yet.
    assert_eq!(complaints.len(), 2, "{told}");
    assert!(complaints[0].contains("no homepage"), "{told}");
    let mut install = Command::new("gem");
    install.args([
        "install",
        "--local",
        "--no-document",
        "--ignore-dependencies",
    ]);
    let home = site.path("gems");
    run(install.arg("--install-dir").arg(&home).arg(&gem));
    // It works as it stands.
    let uses = "require 'ganger/testing'\n\
        abort $\".grep(/ganger/).inspect unless $\".grep(/ganger/).all?(/^#{ENV['GEM_HOME']}/)\n\
        puts Ganger::Testing.work(['ab']) { |task| Ganger.reply(task.text * 2) }.first.message";
    let mut command = Command::new("ruby");
    command.args(["-e", uses]).env("GEM_HOME", &home);
    assert_eq!(run(&mut command), "abab\n");
}

fn passes_conformance() {
    let script = library("ruby/test/modes.rb");
    let script = script.to_str().unwrap();
    conforms(&ruby_worker().program, &[script, "4"]);
}

fn speaks_version_1() {
    ruby_worker().speaks(1);
}

fn speaks_version_2() {
    ruby_worker().speaks(2);
}

fn outlives_kills() {
    ruby_worker().outlives_kills();
}
