//! The defaults, and that what is printed loads again.

use super::super::model::Config;
use super::super::print;
use super::{LEAST, pool_with, read};

const FULL: &str = r#"
source = "main"
worker_unit_count = 4
args = ["a b", "5$", "${X}", 'quote " and \ it', "two\nlines"]
env = { LOG = "info", "odd.name" = "it's", PRICE = "$${X}" }
env_inherit = ["SHELL"]
cwd = "/srv/app"
user = "worker"
prefetch_task_count = 8
pipeline = 2
frame_bytes_max = "1MiB"
timeout = "30s"
timeout_grace = "1500ms"
stall_timeout = "10m"
start_timeout = "1h"
stop_timeout = "1ms"
crashes_max = 1
retry = { attempts = 1, initial = "2s", factor = 1, max = "3s", jitter = 0.0 }
recycle = { tasks = 10000, age = "6h", memory = "512MiB", jitter = 0.1 }
restart = { initial = "1s", max = "1m 1s" }
limits = { memory = "10MB", open_files = 1024, cpu_nice = -5 }
statuses = { 404 = "reject", 202 = "done", 409 = "retry", 210 = "reply", 300 = "requeue" }
"#;
const OWN: [(&str, &str); 3] = [("PATH", "/bin"), ("SHELL", "/bin/sh"), ("X", "x$$y")];

fn again(config: &Config) -> Config {
    read(&print(config), &OWN).unwrap()
}

#[test]
fn what_is_printed_loads_again() {
    for lines in ["", FULL] {
        let config = pool_with(lines, &OWN).unwrap();
        assert_eq!(again(&config), config, "{}", print(&config));
    }
}

#[test]
fn the_defaults_are_those_of_the_reference() {
    let config = read(LEAST, &[("PATH", "/bin")]).unwrap();
    insta::assert_snapshot!(print(&config));
}

#[test]
fn secrets_are_not_printed() {
    let lines = r#"
args = ["--password=hunter2"]
env = { API_TOKEN = "hunter2", DATABASE = "postgres://u:hunter2@h/d", LOG = "info" }
"#;
    let config = pool_with(lines, &[]).unwrap();
    let printed = print(&config);
    assert!(!printed.contains("hunter2"), "{printed}");
    assert!(
        printed.contains(r#"API_TOKEN = "${API_TOKEN}""#),
        "{printed}"
    );
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
}
