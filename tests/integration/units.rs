//! The units for systemd in `config/systemd`, as far as `systemd-analyze` can tell.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::harness::PROGRAM;

crate::harness::trials![
    the_unit_is_what_systemd_understands,
    the_unit_for_several_is_the_unit_but_for_their_names,
    the_unit_is_as_hard_as_it_says,
];

/// A unit of the checkout.
fn unit_text(name: &str) -> String {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/systemd");
    fs::read_to_string(from.join(name)).unwrap()
}

/// The unit, and the drop-in for older systemd if it is wanted, with a program that is there; under the
/// name of an instance if it is for several.
fn unit(file: &str, name: &str, with_drop_in: bool) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let unit = unit_text(file);
    let program = "ExecStart=/usr/local/bin/ganger ";
    assert_eq!(unit.matches(program).count(), 1);
    let there = unit.replace(program, &format!("ExecStart={PROGRAM} "));
    let path = directory.path().join(name);
    fs::write(&path, there).unwrap();
    if with_drop_in {
        let drop_ins = directory.path().join(format!("{name}.d"));
        fs::create_dir(&drop_ins).unwrap();
        let drop_in = unit_text("ganger.service.d/before-systemd-253.conf");
        fs::write(drop_ins.join("before-systemd-253.conf"), drop_in).unwrap();
    }
    (directory, path)
}

fn systemd_analyze(args: &[&str], unit: &Path) -> Output {
    let mut command = Command::new("systemd-analyze");
    command.args(args).arg(unit).env("SYSTEMD_COLORS", "0");
    command.output().unwrap()
}

fn systemd_version() -> u32 {
    let told = systemd_analyze(&["--version"], Path::new("")).stdout;
    let told = String::from_utf8(told).unwrap();
    let version = told.split_whitespace().nth(1).unwrap();
    version.parse().unwrap()
}

fn the_unit_is_what_systemd_understands() {
    let is_old = systemd_version() < 253;
    for (file, name) in [
        ("ganger.service", "ganger.service"),
        ("ganger@.service", "ganger@mail.service"),
    ] {
        let (_directory, path) = unit(file, name, is_old);
        let verified = systemd_analyze(&["verify"], &path);
        assert!(verified.status.success(), "{verified:?}");
        let told = String::from_utf8(verified.stderr).unwrap();
        // What the drop-in is for.
        let known = "Failed to parse service type, ignoring: notify-reload";
        let ours = |line: &&str| !(is_old && line.ends_with(known));
        let wrong: Vec<&str> = told.lines().filter(ours).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

/// What is mended in one of the two is mended in both.
fn the_unit_for_several_is_the_unit_but_for_their_names() {
    let settings = |text: &str| text[text.find("[Unit]").unwrap()..].to_owned();
    let mut expected = settings(&unit_text("ganger.service"));
    for (one, several) in [
        ("worker processes\n", "worker processes, by %i.toml\n"),
        ("/etc/ganger/ganger.toml\n", "/etc/ganger/%i.toml\n"),
        ("StateDirectory=ganger\n", "StateDirectory=ganger/%i\n"),
        ("RuntimeDirectory=ganger\n", "RuntimeDirectory=ganger@%i\n"),
        ("=/var/lib/ganger\n", "=/var/lib/ganger/%i\n"),
    ] {
        assert_eq!(expected.matches(one).count(), 1, "{one:?}");
        expected = expected.replace(one, several);
    }
    assert_eq!(settings(&unit_text("ganger@.service")), expected);
}

fn the_unit_is_as_hard_as_it_says() {
    let (_directory, path) = unit("ganger.service", "ganger.service", false);
    // It fails above the threshold, which is in tenths.
    let rated = systemd_analyze(&["security", "--offline=true", "--threshold=25"], &path);
    let told = String::from_utf8(rated.stdout).unwrap();
    assert!(rated.status.success(), "{told}");
}
