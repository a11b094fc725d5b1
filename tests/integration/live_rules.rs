//! The alert rules and the panels of the dashboard, tried on what live daemons publish on every kind of
//! source: what is scraped twice goes on as it has gone between the two, for so long as the rules want to
//! see it, in `promtool`'s tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use tokio::time::Instant;

use crate::admin::api;
use crate::harness::kafka::Kafka;
use crate::harness::mariadb::MariaDatabase;
use crate::harness::postgres::PgDatabase;
use crate::harness::rabbit::Vhost;
use crate::harness::{Daemon, Pool, Workspace, trials};
use crate::monitoring;

trials![
    pools_that_work_fire_nothing,
    pools_that_hang_are_stuck_and_behind,
    messages_given_up_at_their_last_attempt_are_told_and_every_panel_shows_something,
    workers_that_end_at_once_are_told,
    sources_that_are_away_are_told,
];

/// Names of pools, and of the sources that they read from.
const POOLS: [&str; 5] = [
    "in-file",
    "on-postgres",
    "on-mariadb",
    "on-rabbit",
    "on-kafka",
];

/// A daemon with a pool on every kind of source.
struct Everywhere {
    site: Workspace,
    daemon: Daemon,
    queue: String,
    _brokers: (PgDatabase, MariaDatabase, Vhost),
}

impl Everywhere {
    fn new(pool: impl Fn() -> Pool) -> Self {
        let queue = format!("rules-{:016x}", fastrand::u64(..));
        let (postgres, mariadb) = (PgDatabase::shared(), MariaDatabase::shared());
        let (rabbit, kafka) = (Vhost::shared(), Kafka::shared());
        let site = Workspace::with_sections(&format!(
            "[sources.in-file]\nkind = \"table\"\nurl = \"sqlite:queue.db\"\n\
             [sources.on-postgres]\nkind = \"table\"\nurl = \"{}\"\n\
             [sources.on-mariadb]\nkind = \"table\"\nurl = \"{}\"\n\
             [sources.on-rabbit]\nkind = \"rabbitmq\"\nurl = \"{}\"\n\
             [sources.on-kafka]\nkind = \"kafka\"\nbrokers = \"{}\"\ngroup = \"{queue}\"\n\
             [admin]\nlisten = \"127.0.0.1:0\"\n",
            postgres.url(),
            mariadb.url(),
            rabbit.url(),
            kafka.address(),
        ));
        let of = |name: &&str| {
            let pool = pool().text("name", name).text("source", name);
            pool.text("queue", &queue)
        };
        let pools: Vec<Pool> = POOLS.iter().map(of).collect();
        site.configure_commands(&pools);
        for source in &POOLS[..3] {
            let send = ["send", "misspelt", "lost", "--source", source];
            site.ganger(&send).good();
        }
        let daemon = site.start(&pools);
        daemon.has_workers(POOLS.len());
        Self {
            site,
            daemon,
            queue,
            _brokers: (postgres, mariadb, rabbit),
        }
    }

    /// Sends these to each pool.
    fn send(&self, bodies: &[&str]) {
        let config = self.daemon.config().to_str().unwrap();
        for source in POOLS {
            let send = ["send", &self.queue, "--source", source, "--config", config];
            self.site.ganger(&[&send[..], bodies].concat()).good();
        }
    }
}

/// What a daemon publishes at a moment, by series.
#[derive(Clone)]
struct Scrape {
    at: Instant,
    values: BTreeMap<String, f64>,
}

impl Scrape {
    fn of(daemon: &Daemon) -> Self {
        let text = api(daemon).get("/metrics").body;
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let value = |line: &str| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        };
        Self {
            at: Instant::now(),
            values: lines.map(value).collect(),
        }
    }

    /// The values of that series of each pool.
    fn each(&self, name: &str) -> Vec<f64> {
        let of = |pool: &&str| {
            let start = format!("{name}{{pool=\"{pool}\"");
            let all = self.values.iter();
            let of_pool = all.filter(|(series, _)| series.starts_with(&start));
            of_pool.map(|(_, value)| *value).sum()
        };
        POOLS.iter().map(of).collect()
    }
}

/// Waits until every pool's series is so.
fn until(daemon: &Daemon, name: &str, is_so: impl Fn(f64) -> bool) -> Scrape {
    daemon.eventually_some(name, || {
        let scrape = Scrape::of(daemon);
        let all = scrape.each(name).into_iter().all(&is_so);
        all.then_some(scrape)
    })
}

/// Whether it goes on as it has gone; another stays as it was last.
fn goes_on(series: &str) -> bool {
    let name = series.split('{').next().unwrap_or(series);
    let ends = ["_total", "_bucket", "_count", "_sum", "_age_seconds"];
    ends.iter().any(|end| name.ends_with(end))
}

/// What is published for two hours, a value each minute.
fn in_time(first: &Scrape, last: &Scrape) -> String {
    let minutes = (last.at - first.at).as_secs_f64() / 60.0;
    let mut lines =
        "      - series: 'up{job=\"ganger\",instance=\"a\"}'\n        values: 1x120\n".to_owned();
    for (series, value) in &last.values {
        let before = first.values.get(series).copied().unwrap_or(0.0);
        let rises = goes_on(series) && *value > before;
        let slope = if rises {
            (value - before) / minutes
        } else {
            0.0
        };
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let comma = if labels == "}" { "" } else { "," };
        let named = format!("{name}{{job=\"ganger\",instance=\"a\"{comma}{labels}");
        let named = named.replace('\'', "''");
        write!(
            lines,
            "      - series: '{named}'\n        values: {value}+{slope}x120\n"
        )
        .unwrap();
    }
    lines
}

/// Has promtool see which alerts fire after two hours, by rule and pool, and that the queries find something.
fn fires(first: &Scrape, last: &Scrape, expected: &BTreeSet<(&str, &str)>, queries: &[String]) {
    let site = Workspace::new();
    let rules = monitoring::config("alerts.yml");
    let mut test = format!(
        "rule_files: ['{}']\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n{}\
         \x20   promql_expr_test:\n      - expr: group by (alertname, pool) (ALERTS{{alertstate=\"firing\"}})\n\
         \x20       eval_time: 2h\n        exp_samples:\n",
        rules.display(),
        in_time(first, last)
    );
    if expected.is_empty() {
        test = test.trim_end().to_owned() + " []\n";
    }
    for (alert, pool) in expected {
        let pool = match *pool {
            "" => String::new(),
            pool => format!(", pool=\"{pool}\""),
        };
        writeln!(
            test,
            "          - labels: '{{alertname=\"{alert}\"{pool}}}'\n            value: 1"
        )
        .unwrap();
    }
    for query in queries {
        let query = serde_json::Value::from(format!("count({query}) > bool 0"));
        writeln!(
            test,
            "      - expr: {query}\n        eval_time: 2h\n        exp_samples:\n          - value: 1\n            labels: '{{}}'"
        )
        .unwrap();
    }
    site.put("test.yml", &test, false);
    monitoring::promtool(&["test", "rules"], &site.path("test.yml"));
}

fn of_each<'a>(alerts: &[&'a str]) -> BTreeSet<(&'a str, &'static str)> {
    let of_one = |alert: &&'a str| POOLS.map(|pool| (*alert, pool));
    alerts.iter().flat_map(of_one).collect()
}

fn pools_that_work_fire_nothing() {
    let everywhere = Everywhere::new(|| Pool::new(&[]));
    let daemon = &everywhere.daemon;
    let first = Scrape::of(daemon);
    everywhere.send(&["one", "two", "three"]);
    until(daemon, "ganger_tasks_succeeded_total", |done| done > 2.5);
    let last = until(daemon, "ganger_tasks_processing", |out| out < 0.5);
    // The misspelt queue waits, and for long, two hours later.
    let unread = BTreeSet::from([("GangerQueueUnread", "")]);
    fires(&first, &last, &unread, &[]);
    let sent_now = |name: &String| !name.starts_with("ganger_unread_queue");
    let mut without = last.clone();
    without.values.retain(|name, _| sent_now(name));
    fires(&first, &without, &BTreeSet::new(), &[]);
    daemon.stop();
}

fn pools_that_hang_are_stuck_and_behind() {
    let everywhere = Everywhere::new(|| {
        let pool = Pool::new(&["--mode=wait:go"]);
        pool.set("prefetch", "1")
    });
    let daemon = &everywhere.daemon;
    everywhere.send(&["one", "two", "three"]);
    let first = until(daemon, "ganger_queue_depth", |depth| depth > 1.5);
    let age = "ganger_queue_oldest_age_seconds";
    let before = first.each(age);
    let is_older = |scrape: &Scrape| {
        let ages = scrape.each(age).into_iter().zip(&before);
        ages.into_iter().all(|(now, before)| now > before + 1.0)
    };
    let last = daemon.eventually_some("all to be older", || {
        Some(Scrape::of(daemon)).filter(is_older)
    });
    let mut expected = of_each(&["GangerStuck", "GangerBacklogOld"]);
    expected.insert(("GangerQueueUnread", ""));
    fires(&first, &last, &expected, &[]);
    everywhere.site.touch("go");
    // It moves again.
    let first = last;
    until(daemon, "ganger_tasks_succeeded_total", |done| done > 2.5);
    let last = until(daemon, "ganger_queue_depth", |depth| depth < 0.5);
    let unread = BTreeSet::from([("GangerQueueUnread", "")]);
    fires(&first, &last, &unread, &[]);
    daemon.stop();
}

fn messages_given_up_at_their_last_attempt_are_told_and_every_panel_shows_something() {
    let everywhere = Everywhere::new(|| Pool::new(&[]).attempts(20).text("breaker", "off"));
    let daemon = &everywhere.daemon;
    let first = Scrape::of(daemon);
    everywhere.send(&["mode:answer:500"]);
    until(daemon, "ganger_dead_letters_total", |dead| dead > 0.5);
    everywhere.send(&["one"]);
    until(daemon, "ganger_tasks_succeeded_total", |done| done > 0.5);
    let last = until(daemon, "ganger_queue_depth", |depth| depth < 0.5);
    let retried = last
        .values
        .iter()
        .filter(|(series, _)| series.contains("outcome=\"retried\""));
    assert!(
        retried.clone().count() == POOLS.len() && retried.clone().all(|(_, count)| *count > 18.5)
    );
    let mut expected = of_each(&[
        "GangerDeadLetters",
        "GangerDeadLettersMany",
        "GangerFailing",
    ]);
    expected.insert(("GangerQueueUnread", ""));
    fires(&first, &last, &expected, &monitoring::queries("panels"));
    daemon.stop();
}

fn workers_that_end_at_once_are_told() {
    let site = Workspace::with_sections(
        "[sources.in-file]\nkind = \"table\"\nurl = \"sqlite:queue.db\"\n[admin]\nlisten = \"127.0.0.1:0\"\n",
    );
    let pool = Pool::new(&["--start=exit:3"]).text("name", "in-file");
    let daemon = site.start(&[pool]);
    let first = Scrape::of(&daemon);
    daemon.eventually("many to end", || daemon.times_logged("worker lost") >= 20);
    let is_degraded = |scrape: &Scrape| {
        let degraded = scrape
            .values
            .get("ganger_pool_state{pool=\"in-file\",state=\"degraded\"}");
        degraded.is_some_and(|is| *is > 0.5)
    };
    let last = daemon.eventually_some("it to be degraded", || {
        Some(Scrape::of(&daemon)).filter(is_degraded)
    });
    let expected = [
        "GangerCrashLoop",
        "GangerDegraded",
        "GangerNoWorkers",
        "GangerWorkersNotStarting",
    ];
    let expected = expected.map(|alert| (alert, "in-file")).into();
    fires(&first, &last, &expected, &[]);
    daemon.stop();
}

/// Port 1 has no server.
fn sources_that_are_away_are_told() {
    let site = Workspace::with_sections(
        "[sources.on-postgres]\nkind = \"table\"\nurl = \"postgres://u:p@127.0.0.1:1/d\"\n\
         [sources.on-mariadb]\nkind = \"table\"\nurl = \"mysql://u:p@127.0.0.1:1/d\"\n\
         [sources.on-rabbit]\nkind = \"rabbitmq\"\nurl = \"amqp://u:p@127.0.0.1:1/%2f\"\n\
         [sources.on-kafka]\nkind = \"kafka\"\nbrokers = \"127.0.0.1:1\"\ngroup = \"g\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n",
    );
    let away = &POOLS[1..];
    let of = |name: &&str| Pool::new(&[]).text("name", name).text("source", name);
    let pools: Vec<Pool> = away.iter().map(of).collect();
    let daemon = site.start(&pools);
    daemon.has_workers(away.len());
    let first = Scrape::of(&daemon);
    let last = daemon.eventually_some("all to be known to be away", || {
        let scrape = Scrape::of(&daemon);
        let connected = scrape.each("ganger_source_connected");
        (connected.iter().sum::<f64>() < 0.5).then_some(scrape)
    });
    let expected = away.iter().map(|pool| ("GangerSourceDisconnected", *pool));
    fires(&first, &last, &expected.collect(), &[]);
    daemon.stop();
}
