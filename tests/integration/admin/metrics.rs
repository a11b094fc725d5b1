//! What monitoring systems see.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;

use super::{api, scene, site};
use crate::harness::collector::{Collector, with_variables};
use crate::harness::kafka::Kafka;
use crate::harness::rabbit::Vhost;
use crate::harness::{Api, Daemon, Launch, Pool, Scene, Workspace, trials};

trials![
    the_series_are_those_that_are_published,
    promtool_finds_nothing_wrong,
    nothing_is_unaccounted_for_whatever_is_killed,
    no_label_grows_with_what_happens,
    the_seed_systems_names_are_there_if_they_are_wanted,
    prometheus_scrapes_pools_on_every_kind_of_source,
    what_waits_on_rabbitmq_for_a_later_time_is_counted,
    a_collector_is_sent_the_same_by_grpc_and_by_http,
    the_last_metrics_are_sent_at_the_stop,
];

const RESIDENT: &str = "ganger_worker_resident_bytes{";

fn text(api: &Api) -> String {
    let answer = api.get("/metrics");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(
        answer.head.contains("text/plain; version=0.0.4"),
        "{answer:?}"
    );
    answer.body
}

/// The value of the first series that begins so.
fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(series));
    let line = line.unwrap_or_else(|| panic!("no {series} in {text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// Names, types and the names of labels, a line each.
fn series(text: &str) -> BTreeSet<String> {
    let kind = |line: &str| line.strip_prefix("# TYPE ").map(str::to_owned);
    let mut lines: BTreeSet<String> = text.lines().filter_map(kind).collect();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').unwrap();
        let Some((name, labels)) = series.split_once('{') else {
            continue;
        };
        let labels = labels.trim_end_matches('}').split("\",");
        let names: Vec<&str> = labels
            .map(|label| label.split_once('=').unwrap().0)
            .collect();
        lines.insert(format!("{name} {{{}}}", names.join(",")));
    }
    lines
}

/// A daemon that sends its metrics to that collector, this often.
fn pushing(collector: &Collector, interval_ms: &str) -> Scene {
    let protocol = if collector.is_grpc() {
        "grpc"
    } else {
        "http/protobuf"
    };
    let variables = [
        (
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
            &*pushed_to(collector),
        ),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
        ("OTEL_METRIC_EXPORT_INTERVAL", interval_ms),
    ];
    let site = site("");
    let launch = Launch {
        through: with_variables(&variables),
        ..Launch::default()
    };
    let daemon = site.launch(&[Pool::new(&[])], launch);
    let table = site.table();
    Scene {
        daemon,
        table,
        site,
    }
}

fn pushed_to(collector: &Collector) -> String {
    let path = if collector.is_grpc() {
        ""
    } else {
        "/v1/metrics"
    };
    format!("{}{path}", collector.url())
}

/// What the collector was told last of a total, all series of it together.
fn total(collector: &Collector, name: &str) -> f64 {
    let metrics = collector.metrics();
    let last = metrics.iter().rev().find(|metric| metric.name == name);
    let points = last.and_then(|metric| match metric.data.as_ref()? {
        Data::Sum(sum) if sum.is_monotonic => Some(&sum.data_points),
        _ => None,
    });
    let values = points.into_iter().flatten().map(|point| match point.value {
        Some(Number::AsDouble(value)) => value,
        _ => f64::NAN,
    });
    values.sum()
}

fn a_collector_is_sent_the_same_by_grpc_and_by_http() {
    for collector in [Collector::grpc(), Collector::http()] {
        let scene = pushing(&collector, "50");
        scene.send(&["one", "two", "three"]);
        scene.settled();
        scene.daemon.eventually("three are counted", || {
            (total(&collector, "ganger_tasks_succeeded_total") - 3.0).abs() < 0.5
        });
        assert_eq!(collector.resource()["service.name"], "ganger");
        let api = api(&scene.daemon);
        let scraped = |name: &str| text(&api).contains(&format!("# TYPE {name} "));
        let pushed: BTreeSet<String> = collector
            .metrics()
            .into_iter()
            .map(|metric| metric.name)
            .collect();
        assert!(pushed.iter().all(|name| scraped(name)), "{pushed:?}");
        let times = collector.metrics();
        let times = times
            .iter()
            .rfind(|one| one.name == "ganger_task_duration_seconds");
        let Some(Data::Histogram(times)) = &times.unwrap().data else {
            panic!("{times:?}")
        };
        assert_eq!(times.data_points[0].count, 3);
        scene.finish();
    }
}

fn the_last_metrics_are_sent_at_the_stop() {
    let collector = Collector::grpc();
    let scene = pushing(&collector, "3600000");
    scene.send(&["one"]);
    scene.settled();
    assert_eq!(collector.metrics(), []);
    scene.finish();
    assert!((total(&collector, "ganger_tasks_succeeded_total") - 1.0).abs() < 0.5);
}

/// With `UPDATE_REFERENCE` set the file is written instead.
fn the_series_are_those_that_are_published() {
    let (site, daemon, topic, _vhost) = on_every_kind_of_source();
    let api = api(&daemon);
    let config = daemon.config().to_str().unwrap().to_owned();
    let send = ["send", &topic, "--source", "main", "--config", &config];
    let bodies = ["one", "mode:answer:500"];
    site.ganger(&[&send[..], &bodies].concat()).good();
    let last_to_come = [
        "ganger_dead_letters_total{pool=\"on-table\",reason=\"failed\"} 1",
        "ganger_kafka_requests_total{",
        "ganger_source_lag{",
        "ganger_source_depth{",
        "ganger_queue_depth{pool=\"on-kafka\"",
        "ganger_queue_oldest_age_seconds{pool=\"on-rabbit\"",
        "ganger_unread_queue_depth{",
        "ganger_source_delayed{pool=\"on-kafka\"",
        "ganger_source_delayed{pool=\"on-rabbit\"",
        "ganger_table_file_bytes{",
        "ganger_alerts_firing{",
        "ganger_schedules{",
        "ganger_schedule_skipped_total{reason=\"overlap\"}",
        "ganger_schedule_skipped_total{reason=\"misfire\"} 0",
        "ganger_occurrences_total{state=\"failed\"} 0",
        "ganger_schedule_outgoing{source=\"rabbit\"}",
    ];
    daemon.eventually("everything is known", || {
        let text = text(&api);
        last_to_come.iter().all(|series| text.contains(series))
    });
    let lines: Vec<String> = series(&text(&api)).into_iter().collect();
    let lines = lines.join("\n") + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/monitoring/series.txt");
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &lines).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        lines, published,
        "run this with UPDATE_REFERENCE=1 to write the file anew"
    );
    daemon.stop();
}

fn promtool_finds_nothing_wrong() {
    let site = site("[telemetry]\nseed_names = true");
    let scene = Scene::at(site, &[Pool::new(&[])]);
    scene.send(&["one", "mode:answer:500"]);
    scene.settled();
    let text = text(&api(&scene.daemon));
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool =
        promtool.expect("promtool is of the package prometheus, which tests/run installs");
    promtool
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let found = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&found.stdout) + String::from_utf8_lossy(&found.stderr);
    assert!(found.status.success() && said.is_empty(), "{said}");
    scene.finish();
}

fn nothing_is_unaccounted_for_whatever_is_killed() {
    let pool = Pool::new(&[])
        .set("workers", "4")
        .set("crashes_max", "1000")
        .attempts(1000);
    let scene = scene(pool);
    let api = api(&scene.daemon);
    let bodies: Vec<String> = (0..400).map(|n| format!("message {n}")).collect();
    scene.send(&bodies);
    let mut scrapes = 0;
    scene.daemon.eventually("all are done", || {
        if let Some(pid) = scene.daemon.workers_up().first() {
            // It may have ended meanwhile.
            let _gone = kill(Pid::from_raw(*pid), Signal::SIGKILL).is_err();
        }
        let text = text(&api);
        assert!(
            value(&text, "ganger_unaccounted{pool=\"work\"}").abs() < 0.5,
            "{text}"
        );
        scrapes += 1;
        scene.table.count("work") == 0
    });
    assert!(scrapes > 1);
    scene.daemon.eventually("counted", || {
        value(&text(&api), "ganger_tasks_processing{") < 0.5
    });
    let text = text(&api);
    assert!(
        value(&text, "ganger_tasks_succeeded_total{") >= 400.0,
        "{text}"
    );
    assert!(
        value(
            &text,
            "ganger_worker_restarts_total{pool=\"work\",cause=\"killed\"}"
        ) >= 1.0
    );
    scene.finish();
}

/// As many series after a thousand messages, failures and restarts as after one.
fn no_label_grows_with_what_happens() {
    let scene = scene(Pool::new(&[]).set("workers", "2").attempts(1));
    let api = api(&scene.daemon);
    scene.send(&["one"]);
    scene.settled();
    let first = scene.daemon.has_workers(2);
    let series = || text(&api).lines().count();
    // What a worker takes of the machine is there once it was looked at.
    let workers_looked_at = || {
        let text = text(&api);
        let resident = text.lines().filter(|line| line.starts_with(RESIDENT));
        resident.count() == 2
    };
    scene
        .daemon
        .eventually("the workers' memory is known", workers_looked_at);
    let before = series();
    let many = (0..300).flat_map(|n| [format!("message {n}"), format!("mode:answer:500 {n}")]);
    scene.send(&many.collect::<Vec<_>>());
    scene.settled();
    super::command(&scene, &["kill", "work", "0"]).good();
    scene.daemon.eventually("a worker is replaced", || {
        let up = scene.daemon.workers_up();
        up.len() == 2 && up != first
    });
    scene
        .daemon
        .eventually("the new worker's memory is known", workers_looked_at);
    assert_eq!(series(), before);
    scene.finish();
}

fn the_seed_systems_names_are_there_if_they_are_wanted() {
    let site = site("[telemetry]\nseed_names = true");
    let scene = Scene::at(site, &[Pool::new(&[])]);
    let api = api(&scene.daemon);
    scene.send(&["one"]);
    scene.settled();
    scene.daemon.eventually("counted", || {
        let text = text(&api);
        value(&text, "messageworkerpool_tasks_succeeded_total{") > 0.5
            && value(&text, "messageworkerpool_workers_idle{") > 0.5
    });
    scene.finish();
}

/// A real Prometheus, on a port and in a directory of its own.
struct Prometheus {
    child: Child,
    api: Api,
}

impl Prometheus {
    fn of(scene: &Workspace, target: &Api) -> Self {
        let target = target.port();
        let config = format!(
            "global: {{ scrape_interval: 1s }}\n\
             scrape_configs: [{{ job_name: ganger, static_configs: [{{ targets: ['127.0.0.1:{target}'] }}] }}]\n"
        );
        scene.put("prometheus.yml", &config, false);
        let port = free_port();
        let path = |name: &str| scene.path(name).to_str().unwrap().to_owned();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", path("prometheus.yml")))
            .arg(format!("--storage.tsdb.path={}", path("prometheus")))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self {
            child: child.expect("the package prometheus is there, which tests/run installs"),
            api: Api::Port(port),
        }
    }

    /// The value of an expression that has one; none yet, perhaps.
    fn value(&self, expression: &str) -> Option<f64> {
        let answer = self
            .api
            .try_get(&format!("/api/v1/query?query={expression}"))?;
        let result = &answer.json()["data"]["result"][0]["value"][1];
        result.as_str()?.parse().ok()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A daemon with a pool on each kind of source, the name of their queues, and the virtual host, which
/// goes with what this returns. The number of workers of the one on the table follows the load.
fn on_every_kind_of_source() -> (Workspace, Daemon, String, Vhost) {
    let (rabbit, kafka) = (Vhost::shared(), Kafka::shared());
    let topic = format!("scraped-{:016x}", fastrand::u64(..));
    let sources = format!(
        "[sources.main]\nkind = \"table\"\nurl = \"sqlite:queue.db\"\n\
         [sources.rabbit]\nkind = \"rabbitmq\"\nurl = \"{}\"\n\
         [sources.events]\nkind = \"kafka\"\nbrokers = \"{}\"\ngroup = \"{topic}\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n\
         [alerts]\nwebhook = \"http://127.0.0.1:9/\"\n\
         [[schedules]]\nname = \"tick\"\nevery = \"1s\"\nqueue = \"ticks\"\n\
         [[schedules]]\nname = \"tock\"\nevery = \"1s\"\nqueue = \"nowhere\"\nsource = \"rabbit\"\n",
        rabbit.url(),
        kafka.address(),
    );
    let site = Workspace::with_sections(&sources);
    let pool = |name: &str, source: &str| {
        let pool = Pool::new(&[]).text("name", name).text("source", source);
        pool.text("queue", &topic).attempts(1)
    };
    let pools = [
        pool("on-table", "main")
            .set("workers", "{ min = 1, max = 2 }")
            .set("idempotency", "{}"),
        pool("on-rabbit", "rabbit"),
        pool("on-kafka", "events"),
    ];
    site.configure_commands(&pools);
    site.ganger(&["send", "unread", "lost", "--source", "main"])
        .good();
    let daemon = site.start(&pools);
    daemon.has_workers(3);
    (site, daemon, topic, rabbit)
}

/// Two that come again in different tiers.
fn what_waits_on_rabbitmq_for_a_later_time_is_counted() {
    let vhost = Vhost::shared();
    let sources = format!(
        "[sources.rabbit]\nkind = \"rabbitmq\"\nurl = \"{}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n",
        vhost.url()
    );
    let site = Workspace::with_sections(&sources);
    let retry = r#"{ attempts = 2, initial = "1m", max = "1h", jitter = 0.0 }"#;
    let pool = Pool::new(&[]).text("source", "rabbit").set("retry", retry);
    let daemon = site.start(&[pool]);
    daemon.has_workers(1);
    let config = daemon.config().to_str().unwrap().to_owned();
    let send = ["send", "work", "--source", "rabbit", "--config", &config];
    let bodies = ["mode:answer:503:60000", "mode:answer:503:2000000"];
    site.ganger(&[&send[..], &bodies].concat()).good();
    daemon.eventually("both to be counted", || {
        text(&api(&daemon)).contains("ganger_source_delayed{pool=\"work\"} 2\n")
    });
    daemon.stop();
}

fn prometheus_scrapes_pools_on_every_kind_of_source() {
    let (site, daemon, topic, _vhost) = on_every_kind_of_source();
    let config = daemon.config().to_str().unwrap().to_owned();
    for source in ["main", "rabbit", "events"] {
        let bodies: Vec<String> = (0..20).map(|n| format!("{source} {n}")).collect();
        let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
        let send = ["send", &topic, "--source", source, "--config", &config];
        site.ganger(&[&send[..], &bodies].concat()).good();
    }
    let prometheus = Prometheus::of(&site, &api(&daemon));
    for pool in ["on-table", "on-rabbit", "on-kafka"] {
        let of = |name: &str| format!("{name}%7Bpool=%22{pool}%22%7D");
        daemon.eventually("all are counted", || {
            prometheus.value(&of("ganger_tasks_succeeded_total")) == Some(20.0)
        });
        assert_eq!(prometheus.value(&of("ganger_unaccounted")), Some(0.0));
        assert_eq!(prometheus.value(&of("ganger_source_connected")), Some(1.0));
        assert_eq!(
            prometheus.value(&of("ganger_task_duration_seconds_count")),
            Some(20.0)
        );
        assert_eq!(
            prometheus.value(&of("ganger_source_publishes_pending")),
            Some(0.0)
        );
    }
    for series in [
        "ganger_source_connections_total%7Bpool=%22on-rabbit%22%7D",
        "ganger_source_connections_total%7Bpool=%22on-kafka%22%7D",
        "ganger_kafka_brokers_up",
        "ganger_kafka_received_bytes_total",
        "ganger_table_file_bytes",
    ] {
        daemon.eventually(series, || {
            prometheus.value(series).is_some_and(|value| value >= 1.0)
        });
    }
    daemon.stop();
}
