//! The defaults; and the printed configuration loads again.

use super::{LEAST, pool_with, printed, read};
use crate::description::{Key, Shape};
use crate::keys::describe;
use crate::model::{Options, QueueType};

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
on_timeout = ["py-spy", "dump", "--pid", "{pid}"]
on_timeout_within = "2s"
start_timeout = "1h"
stop_timeout = "1ms"
crashes_max = 1
lapses_max = 3
steps_max = 400
retry = { attempts = 1, initial = "2s", factor = 1, max = "3s", jitter = 0.0 }
breaker = { failures = 0.5, of = 10, probe = "100ms" }
recycle = { tasks = 10000, age = "6h", memory = "512MiB", jitter = 0.1 }
restart = { initial = "1s", max = "1m 1s", surge = 7, success = 2 }
limits = { memory = "10MB", open_files = 1024, cpu_nice = -5 }
publish_to = ["answers.*", "b"]
record = "failed"
statuses = { 404 = "reject", 202 = "done", 409 = "retry", 210 = "reply", 300 = "requeue" }
idempotency = { key = "header:order", window = "1h", store = "main" }
"#;
const RANGE: &str = r#"
worker_unit_count = { min = 2, max = 16, clear_within = "5m", cooldown = "1s", shrink_after = "1h", memory_free_min = "2GiB", cpu_max = 0.75 }
"#;
const SCHEDULES: &str = r#"
[ledger]
source = "main"
group = "g"
keep = { completed = "7d", failed = "180d", timed_out = "8d", skipped = "1d", per_schedule = 1000 }
record = "all"
log = { lines = 500, bytes = "64KiB" }
[calendars.office]
zone = "Europe/Berlin"
days = ["MON-FRI"]
hours = ["09:00-17:30"]
except = ["2026-12-24"]
outside = "next"
[[schedules]]
name = "all"
source = "main"
cron = ["0 8 * * 2", "0 9 ? * 3"]
dialect = "quartz"
zone = "Europe/Berlin"
dst = { gap = "skip", fold = "last" }
jitter = "5m"
start = "2026-12-01"
end = "2030-01-01T00:00:00Z"
limit = 7
only = "office"
overlap = "allow"
misfire = { policy = "all", grace = "1s", catch_up = "2d", max = 3 }
auto_disable = { failures = 2, window = "10m", retry_after = "1h" }
expect = { within = "10m", finish = "45m", every = "26h" }
queue = "q"
body = "{{ slot | date }} $${X}"
content_type = "text/plain"
headers = { tenant = "blue" }
key = "k"
priority = -1
tags = ["a", "b"]
description = "d"
[[schedules]]
name = "every"
every = "90s"
offset = "1s"
queue = "q"
[[schedules]]
name = "at"
at = "2027-01-31T08:00:00[Europe/Istanbul]"
only = { days = ["SUN"] }
queue = "q"
"#;
const ADMIN: &str = r#"
[admin]
listen = "0.0.0.0:9464"
socket = "a.sock"
token = "${TOKEN}"
ui = false
redact = ["$.card", "x-api-key"]
public_url = "https://ganger.example"
proxy_auth = { header = "X-User", from = ["10.0.0.0/8", "::1"], role = "operator", role_header = "X-Role" }
[[admin.tokens]]
name = "grafana"
role = "viewer"
sha256 = "0123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef"
expires = "2027-06-30T00:00:00Z"
[[admin.tokens]]
name = "ops"
role = "operator"
sha256 = "f123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
[admin.peers.second]
url = "http://10.0.0.8:9464"
token = "${TOKEN}"
[telemetry]
prometheus = false
listen = "[::1]:9465"
seed_names = true
otlp = "https://collector:4318"
"#;
const ALERTS: &str = r#"
[alerts]
webhook = "${WEBHOOK}"
name = "ops"
form = "pagerduty"
integration_key = "${INTEGRATION_KEY}"
signing_secret = "${SIGNING_SECRET}"
headers = { x-team = "${X_TEAM}" }
ca_file = "ca.pem"
dead_letters = 0
crashes = "off"
window = "5m"
paused = "2h"
hold = "0s"
repeat = "4h"
timeout = "2s"
[[alerts.webhooks]]
webhook = "${WEBHOOK}"
form = "slack"
"#;
const OWN: [(&str, &str); 8] = [
    ("INTEGRATION_KEY", "s3cret-k"),
    ("SIGNING_SECRET", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ("X_TEAM", "s3cret-t"),
    ("PATH", "/bin"),
    ("SHELL", "/bin/sh"),
    ("TOKEN", "s3cret"),
    ("WEBHOOK", "https://hooks.example/s3cret"),
    ("X", "x$$y"),
];

#[test]
fn what_is_printed_loads_again() {
    for lines in ["", "breaker = \"off\"", RANGE, FULL, SCHEDULES] {
        let text = format!("{ADMIN}{ALERTS}{LEAST}{lines}");
        let printed = printed(&text, &OWN);
        assert!(!printed.contains("s3cret"), "{printed}");
        let again = read(&printed, &OWN).unwrap();
        assert_eq!(again, read(&text, &OWN).unwrap(), "{printed}");
    }
}

const SUBSCRIPTION: &str = "[[subscriptions]]\ntopic = \"placed\"\nqueue = \"emails\"\n";

const BROKERS: &str = r#"
[sources.rabbit]
kind = "rabbitmq"
url = "amqps://who:%2540@one:1/a%2Fb"
hosts = ["two", "[::1]:3"]
ca_file = "/ca.pem"
cert_file = "/cert.pem"
key_file = "/key.pem"
server_name = "rabbit.example"
heartbeat = "5s"
connect_timeout = "1s"
connection_name = "mine"
declare = false
signing_secret = "${SIGNING_SECRET}"
unsigned_copies = true
queue_type = "classic"
queue_arguments = { x-max-length = 5, x-overflow = "reject-publish" }
consumer_timeout = "1h"

[sources.shop]
kind = "table"
url = "postgres://u%40:%2540@db.example:7/d%2Fe?sslmode=verify-ca"
schema = "jobs"
declare = false
ca_file = "/ca.pem"

[sources.till]
kind = "table"
url = "mariadb://u%40:%2540@db.example:7,two/d%2Fe?sslmode=verify-full"
table_prefix = "jobs_"
declare = false
ca_file = "/ca.pem"

[sources.log]
kind = "kafka"
brokers = "a:1,b:2"
group = "g"
partitions = 6
replication = 3
commit_interval = "1s"
buffered_bytes_max = "1MiB"
retry_retention = "1d"
client = { "security.protocol" = "SASL_SSL", "sasl.password" = "${SASL_PASSWORD}" }
consumer = { "max.poll.interval.ms" = 10000 }
producer = { "linger.ms" = 1 }

[[pools]]
name = "a"
source = "rabbit"
queue = "a"
command = "worker"
dead_letter = "broker"
unroutable_reply = "drop"
consumer_priority = -5
consumer_arguments = { x-cancel-on-ha-failover = true }
queue_type = "quorum"
queue_arguments = { x-max-length = 7 }

[[pools]]
name = "b"
source = "log"
queue = "b"
command = "worker"
dead_letter = "b.graveyard"
order = "partition"
retry.in_place_max = "1m"
"#;

const BROKERS_OWN: [(&str, &str); 3] = [
    ("PASSWORD", "%40"),
    ("SASL_PASSWORD", "hunter2"),
    ("SIGNING_SECRET", "hunter2"),
];

#[test]
fn what_is_printed_of_brokers_loads_again() {
    let own = BROKERS_OWN;
    let config = read(BROKERS, &own).unwrap();
    let printed = printed(BROKERS, &own);
    assert_eq!(read(&printed, &own).unwrap(), config, "{printed}");
    assert!(!printed.contains("hunter2"), "{printed}");
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
    let Options::RabbitMq(options) = &config.pools[0].options else {
        panic!("another kind of pool");
    };
    let arguments: Vec<&str> = options.queue.arguments.keys().map(String::as_str).collect();
    assert_eq!(
        arguments,
        ["x-max-length", "x-overflow"],
        "the source's too"
    );
    assert_eq!(options.queue.queue_type, QueueType::Quorum);
}

#[test]
fn what_is_printed_holds_no_secret() {
    let text = r#"
[telemetry]
otlp = "http://u:hunter2@collector:4318"
[sources.log]
kind = "kafka"
brokers = "u:hunter2@a:1,b:2"
group = "g"
client = { "sasl.pasword" = "hunter2" }
[[pools]]
name = "a"
queue = "a"
command = "worker"
args = ["--password", "hunter2", "-H", "Authorization: Bearer hunter2", "--token=hunter2"]
env = { PASSWROD = "hunter2" }
"#;
    let printed = printed(text, &[]);
    assert!(!printed.contains("hunter2"), "{printed}");
    assert!(printed.contains(r#"otlp = "${OTLP}""#), "{printed}");
    let args = r#"args = ["--password", "*******", "-H", "Authorization: **************", "--token=*******"]"#;
    assert!(printed.contains(args), "{printed}");
}

#[test]
fn the_defaults_are_those_of_the_reference() {
    insta::assert_snapshot!(printed(LEAST, &[("PATH", "/bin")]));
}

/// Keys that are not shown: their values are shown under another key.
const MERGED: [&str; 7] = [
    "integration_key_file",
    "url_file",
    "password_file",
    "signing_secret_file",
    "token_file",
    "webhook_file",
    "env_inherit",
];

#[test]
fn no_key_is_forgotten() {
    fn names(keys: &[Key], all: &mut Vec<&'static str>) {
        for key in keys {
            let is_value = matches!(
                key.shape,
                Shape::Value { .. } | Shape::Map { .. } | Shape::Either { .. }
            );
            all.extend(is_value.then_some(key.name));
            names(key.shape.keys().unwrap_or_default(), all);
        }
    }
    let own = BROKERS_OWN;
    let daemon = "[daemon]\nbuffered_bytes_max = \"64MiB\"\n";
    let pages = [
        printed(&format!("{daemon}{ADMIN}{ALERTS}{LEAST}{FULL}"), &OWN),
        printed(&format!("{LEAST}{RANGE}"), &OWN),
        printed(&format!("{LEAST}{SUBSCRIPTION}"), &OWN),
        printed(&format!("{LEAST}{SCHEDULES}"), &OWN),
        printed(BROKERS, &own),
        printed(super::bindings::BOUND, &[]),
    ]
    .concat();
    let mut all = Vec::new();
    names(&describe(), &mut all);
    for name in all.into_iter().filter(|name| !MERGED.contains(name)) {
        let there = [format!("\n{name} = "), format!(" {name} = ")];
        let is_there = there.iter().any(|pair| pages.contains(pair));
        assert!(is_there, "{name} is not in {pages}");
    }
}

#[test]
fn who_may_use_a_new_database_is_printed() {
    let text = LEAST.replace("[[pools]]", "mode = \"0660\"\n[[pools]]");
    let printed = printed(&text, &OWN);
    assert!(printed.contains("\nmode = \"0660\"\n"), "{printed}");
    assert_eq!(read(&printed, &OWN).unwrap(), read(&text, &OWN).unwrap());
}

#[test]
fn secrets_are_not_printed() {
    let lines = r#"
args = ["--password=hunter2"]
env = { API_TOKEN = "hunter2", DATABASE = "postgres://u:hunter2@h/d", LOG = "info" }
"#;
    let config = pool_with(lines, &[]).unwrap();
    let printed = printed(&format!("{LEAST}{lines}"), &[]);
    assert!(!printed.contains("hunter2"), "{printed}");
    assert!(
        printed.contains(r#"API_TOKEN = "${API_TOKEN}""#),
        "{printed}"
    );
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
}
