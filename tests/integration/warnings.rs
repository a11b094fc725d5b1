//! What `check` warns of, refuses when it is to be strict, and the daemon logs at its start.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::{PROGRAM, Pool, Workspace, trials};

trials![
    each_warning_says_where_and_what_to_do,
    strict_refuses_what_is_warned_of,
    strict_looks_at_owners_and_directories,
    what_is_worse_than_a_warning_is_told_beside_them,
    workers_that_do_not_fit_are_warned_of,
    the_daemon_logs_them_at_its_start_and_at_a_reload,
];

const SOURCES: &str = r#"[sources.rabbit]
kind = "rabbitmq"
url = "amqp://user:hunter2@broker.example/"
connect_timeout = "1s"
[sources.kafka]
kind = "kafka"
brokers = "localhost:1"
group = "g"
client = { "security.protocol" = "sasl_ssl", "sasl.mechanism" = "GSSAPI" }
"#;

/// A configuration with something to be warned of in each source and in the pool, that nobody else
/// may read.
fn unwise() -> Workspace {
    let site = Workspace::with_sections(SOURCES);
    let pool = Pool::new(&[])
        .text("source", "rabbit")
        .text("timeout", "1h");
    site.configure_commands(&[pool]);
    readable_by(&site, 0o600);
    site
}

fn readable_by(site: &Workspace, mode: u32) {
    let rights = fs::Permissions::from_mode(mode);
    fs::set_permissions(site.path("ganger.toml"), rights).unwrap();
}

/// The line of the configuration that begins so.
fn line(site: &Workspace, start: &str) -> usize {
    let text = fs::read_to_string(site.path("ganger.toml")).unwrap();
    let found = text.lines().position(|line| line.starts_with(start));
    found.unwrap() + 1
}

fn each_warning_says_where_and_what_to_do() {
    let site = unwise();
    let told = site.ganger(&["check", "-o", "json"]).json();
    assert_eq!(told["valid"], true);
    let warnings = told["warnings"].as_array().unwrap();
    let expected = [
        ("sources.rabbit.url", "url = ", "unencrypted", "amqps://"),
        (
            "pools.work.timeout",
            "timeout = ",
            "`1h 5s` against `30m`",
            "consumer_timeout",
        ),
        (
            "sources.kafka",
            "[sources.kafka]",
            "SASL mechanism GSSAPI",
            "a librdkafka that takes them",
        ),
    ];
    assert_eq!(warnings.len(), expected.len(), "{told:#}");
    for (warning, (path, start, message, help)) in warnings.iter().zip(expected) {
        assert_eq!(warning["path"], path);
        assert_eq!(warning["file"], "ganger.toml");
        assert_eq!(warning["line"], line(&site, start), "{warning}");
        let says = |key: &str, part: &str| warning[key].as_str().unwrap().contains(part);
        assert!(says("message", message) && says("help", help), "{warning}");
    }
    assert!(!told.to_string().contains("hunter2"), "{told}");

    let told = site.ganger(&["check"]);
    let url = format!(
        "warning: ganger.toml:{}: sources.rabbit sends",
        line(&site, "url = ")
    );
    assert!(told.err.contains(&url), "{}", told.err);
    assert!(told.good().starts_with("the configuration is valid: "));
}

fn strict_refuses_what_is_warned_of() {
    let site = unwise();
    let told = site.ganger(&["check", "--strict"]);
    assert_eq!(told.out, "");
    assert!(told.bad(2).contains("amqps://"));
    let told = site.ganger(&["check", "--strict", "-o", "json"]);
    let report: Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!((told.code, &report["valid"]), (Some(2), &false.into()));

    let sound = Workspace::new();
    sound.configure_commands(&[Pool::new(&[]).env("API_TOKEN", "hunter2")]);
    readable_by(&sound, 0o600);
    sound.ganger(&["check", "--strict"]).good();
    readable_by(&sound, 0o644);
    let told = sound.ganger(&["check", "--strict"]).bad(2);
    assert!(
        told.contains("holds secrets and is readable by others"),
        "{told}"
    );
}

/// Whoever has the directory may put another file in the place of this one.
fn strict_looks_at_owners_and_directories() {
    let site = Workspace::new();
    site.configure_commands(&[Pool::new(&[])]);
    readable_by(&site, 0o600);
    site.ganger(&["check", "--strict"]).good();
    let directory = site.path("");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    let told = site.ganger(&["check", "--strict"]).bad(2);
    assert!(
        told.contains("is in a directory writable by others"),
        "{told}"
    );
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    if nix::unistd::Uid::effective().is_root() {
        std::os::unix::fs::chown(site.path("ganger.toml"), Some(4242), None).unwrap();
        let told = site.ganger(&["check", "--strict"]).bad(2);
        assert!(told.contains("belongs to another user"), "{told}");
    }
}

fn what_is_worse_than_a_warning_is_told_beside_them() {
    let site = Workspace::new();
    let pool = Pool::of_program("no-such-program", &[]).env("API_TOKEN", "hunter2");
    site.configure_commands(&[pool]);
    readable_by(&site, 0o644);
    let told = site.ganger(&["check"]).bad(1);
    assert!(
        told.contains("no-such-program") && told.contains("warning: "),
        "{told}"
    );
}

fn workers_that_do_not_fit_are_warned_of() {
    let site = Workspace::new();
    site.configure_commands(&[
        Pool::new(&[]).set("workers", "150"),
        Pool::new(&[])
            .text("name", "more")
            .text("queue", "more")
            .set("workers", "200"),
    ]);
    readable_by(&site, 0o600);
    let checked = |strict: &str| {
        let script = format!("ulimit -n 1024; exec {PROGRAM} check {strict}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(site.path(""));
        shell.output().unwrap()
    };
    let told = checked("");
    assert!(told.status.success(), "{told:?}");
    let told = String::from_utf8(told.stderr).unwrap();
    let number = line(&site, "workers = 200");
    let place = format!("warning: ganger.toml:{number}: the hard limit of open files allows ");
    assert!(
        told.contains(&place) && told.contains("LimitNOFILE="),
        "{told}"
    );
    assert_eq!(checked("--strict").status.code(), Some(2));
}

fn the_daemon_logs_them_at_its_start_and_at_a_reload() {
    const WARNING: &str = "the configuration is valid, but risky";
    // Nothing is there, which is waited for.
    let site = Workspace::with_sections(&SOURCES.replace("broker.example", "127.0.0.1:1"));
    let pool = Pool::new(&[])
        .text("source", "rabbit")
        .text("timeout", "1h");
    let daemon = site.start(std::slice::from_ref(&pool));
    let about = |path: &str| {
        let is_it = |record: &Value| record["key"] == path;
        daemon.logs(WARNING, is_it)
    };
    let told = about("pools.work.timeout");
    assert!(
        told["help"].as_str().unwrap().contains("consumer_timeout"),
        "{told}"
    );
    about("sources.kafka");
    site.reconfigure(&daemon, &[pool.env("API_TOKEN", "hunter2")]);
    fs::set_permissions(daemon.config(), fs::Permissions::from_mode(0o644)).unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.logged("configuration reloaded");
    let told = about("");
    assert!(
        told["warning"]
            .as_str()
            .unwrap()
            .contains("is readable by others"),
        "{told}"
    );
    daemon.stop();
}
