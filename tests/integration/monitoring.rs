//! What is in `config/monitoring`, asked of the programs that read it, as far as those can be had here:
//! `promtool` for rules, their tests and the scrape configuration, and for every query of the
//! dashboard; the rest is held against itself.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::Workspace;
use crate::python::python;

crate::harness::trials![
    the_rules_are_valid_and_do_what_they_should,
    every_query_of_the_dashboard_is_valid,
    the_dashboard_names_what_is_provisioned,
    only_published_series_are_asked_for,
    the_collector_uses_what_it_defines,
];

pub(crate) fn config(path: &str) -> PathBuf {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    top.join("config/monitoring").join(path)
}

pub(crate) fn promtool(args: &[&str], file: &Path) -> String {
    let out = Command::new("promtool").args(args).arg(file).output();
    let out = out.unwrap_or_else(|error| panic!("promtool, which tests/run installs: {error}"));
    let told = String::from_utf8([out.stdout, out.stderr].concat()).unwrap();
    assert!(out.status.success(), "promtool {args:?} {file:?}: {told}");
    told
}

fn the_rules_are_valid_and_do_what_they_should() {
    promtool(
        &["check", "rules", "--lint=all", "--lint-fatal"],
        &config("alerts.yml"),
    );
    promtool(&["check", "config"], &config("prometheus.yml"));
    promtool(&["test", "rules"], &config("alerts.test.yml"));
    // Each rule has a test that sees it fire.
    let rules = std::fs::read_to_string(config("alerts.yml")).unwrap();
    let tests = std::fs::read_to_string(config("alerts.test.yml")).unwrap();
    let alerts = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let untested: Vec<&str> = alerts
        .filter(|alert| !tests.contains(&format!("alertname: {alert}\n        exp_alerts:\n")))
        .collect();
    assert!(untested.is_empty(), "{untested:?}");
}

fn dashboard() -> Value {
    let text = std::fs::read_to_string(config("grafana/dashboards/ganger.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn panels(dashboard: &Value) -> &Vec<Value> {
    dashboard["panels"].as_array().unwrap()
}

/// The queries of the dashboard's `panels`, or of its `annotations`, with its variables filled in.
pub(crate) fn queries(of: &str) -> Vec<String> {
    let dashboard = dashboard();
    let targets: Vec<&Value> = match of {
        "panels" => {
            let panels = panels(&dashboard).iter();
            let targets = panels.filter_map(|panel| panel["targets"].as_array());
            targets.flatten().collect()
        }
        _ => {
            let annotations = dashboard["annotations"]["list"].as_array().unwrap();
            annotations.iter().collect()
        }
    };
    let query = |target: &Value| {
        let query = target["expr"].as_str().unwrap();
        let query = query.replace("$__rate_interval", "5m");
        let query = query.replace("$instance", ".*").replace("$pool", ".*");
        assert!(
            !query.contains('$'),
            "a variable that is not filled in: {query}"
        );
        query
    };
    targets.into_iter().map(query).collect()
}

/// As rules, which promtool reads.
fn every_query_of_the_dashboard_is_valid() {
    let all = ["panels", "annotations"].map(queries).concat();
    let mut rules = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    let mut count = 0;
    for query in all {
        let query = Value::from(query);
        writeln!(rules, "  - record: query:{count}\n    expr: {query}").unwrap();
        count += 1;
    }
    let site = Workspace::new();
    site.put("queries.yml", &rules, false);
    let told = promtool(&["check", "rules"], &site.path("queries.yml"));
    assert!(
        count > 10 && told.contains(&format!("{count} rules found")),
        "{told}"
    );
}

fn the_dashboard_names_what_is_provisioned() {
    let provisioned = std::fs::read_to_string(config("grafana/datasources/ganger.yaml")).unwrap();
    let uids = provisioned
        .lines()
        .filter_map(|line| line.trim().strip_prefix("uid: "));
    let uids: BTreeSet<&str> = uids.collect();
    let dashboard = dashboard();
    let mut ids = BTreeSet::new();
    for panel in panels(&dashboard) {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "twice: {panel}");
        if panel["type"] != "row" {
            let uid = panel["datasource"]["uid"].as_str().unwrap();
            assert!(uids.contains(uid), "{uid} is not provisioned: {uids:?}");
            assert_ne!(panel["title"], "", "{panel}");
        }
    }
}

/// Published where the source knows: the list is made on a table, which does not.
const OF_SOME_SOURCES: [&str; 1] = ["ganger_source_lag"];

fn only_published_series_are_asked_for() {
    let published = std::fs::read_to_string(config("series.txt")).unwrap();
    let published = published
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let published: BTreeSet<&str> = published.chain(OF_SOME_SOURCES).collect();
    for file in [
        "alerts.yml",
        "alerts.test.yml",
        "grafana/dashboards/ganger.json",
    ] {
        let text = std::fs::read_to_string(config(file)).unwrap();
        let named = text.split(|letter: char| letter != '_' && !letter.is_alphanumeric());
        let ours = |name: &&str| {
            ["ganger_", "process_"]
                .iter()
                .any(|start| name.starts_with(start))
        };
        let unknown: BTreeSet<&str> = named
            .filter(ours)
            .filter(|name| !published.contains(name))
            .collect();
        assert!(
            unknown.is_empty(),
            "{file}: {unknown:?} is not in series.txt"
        );
    }
}

const COLLECTOR: &str = r"
import sys, yaml
config = yaml.safe_load(open(sys.argv[1]))
service, wrong = config['service'], []
for name in service.get('extensions', []):
    if name not in config['extensions']:
        wrong.append(f'no extension {name}')
used = set()
for pipeline, parts in service['pipelines'].items():
    for kind, names in parts.items():
        for name in names:
            used.add((kind, name))
            if name not in config[kind]:
                wrong.append(f'{pipeline}: no {name} among {kind}')
for kind in ('receivers', 'processors', 'exporters'):
    wrong += [f'{kind}: nothing uses {name}' for name in config[kind] if (kind, name) not in used]
sys.exit('\n'.join(wrong) or 0)
";

/// No collector can be had here: whether its parts are spelt as it spells them is not seen.
fn the_collector_uses_what_it_defines() {
    let out = Command::new(python())
        .args(["-c", COLLECTOR])
        .arg(config("otel-collector.yaml"))
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}
