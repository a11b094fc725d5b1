//! The manifests in `config/kubernetes`: what the published schemas say of them, and what follows from
//! the daemon's own configuration. `tests/kubernetes/validate.py` looks; here it is also seen that it
//! finds what is wrong.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::harness::{Launch, Pool, Workspace};
use crate::python::python;

crate::harness::trials![
    the_manifests_are_valid,
    a_wrong_manifest_is_found,
    their_configuration_is_valid,
    the_alert_rules_are_those_of_the_monitoring,
    a_config_map_that_changes_is_reloaded,
];

const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/kubernetes");

/// Whether nothing is wrong with the manifests in there, and what is.
fn validated(directory: &Path) -> (bool, String) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kubernetes/validate.py");
    let out = Command::new(python())
        .arg(script)
        .arg(directory)
        .output()
        .unwrap();
    let told = String::from_utf8([out.stdout, out.stderr].concat()).unwrap();
    (out.status.success(), told)
}

fn the_manifests_are_valid() {
    let (valid, told) = validated(Path::new(MANIFESTS));
    assert!(valid, "{told}");
}

/// One thing made wrong: in that file, that text by this one, and what is told of it.
const WRONG: [(&str, &str, &str, &str); 17] = [
    (
        "deployment.yaml",
        "terminationGracePeriodSeconds: 75",
        "terminationGracePeriodSeconds: 60",
        "stopping may take 60 s",
    ),
    (
        "deployment.yaml",
        "runAsNonRoot: true",
        "runAsNonRot: true",
        "runAsNonRot",
    ),
    ("deployment.yaml", "medium: Memory", "medium: 7", "emptyDir"),
    (
        "deployment.yaml",
        "mountPath: /tmp",
        "mountPath: /temp",
        "the workers' pipes have no place",
    ),
    (
        "configmap.yaml",
        "drain_timeout = \"30s\"",
        "drain_timeout = \"2m\"",
        "stopping may take 150 s",
    ),
    (
        "poddisruptionbudget.yaml",
        "app.kubernetes.io/name: ganger\n",
        "app.kubernetes.io/name: other\n",
        "it selects nothing",
    ),
    (
        "keda-rabbitmq.yaml",
        "pollingInterval",
        "pollInterval",
        "pollInterval",
    ),
    (
        "keda-kafka.yaml",
        "lagThreshold",
        "lagTreshold",
        "has no lagTreshold",
    ),
    (
        "keda-postgresql.yaml",
        "targetQueryValue: \"200\"",
        "targetQueryValue: 200",
        "200 is not of type 'string'",
    ),
    (
        "deployment.yaml",
        "containerPort: 9465",
        "containerPort: 9464",
        "nothing listens on port telemetry, 9464",
    ),
    (
        "deployment.yaml",
        "path: /readyz\n              port: telemetry",
        "path: /readyz\n              port: metrics",
        "the readinessProbe asks a port that is not there",
    ),
    (
        "servicemonitor.yaml",
        "scrapeTimeout",
        "scrapeTimeOut",
        "scrapeTimeOut",
    ),
    (
        "prometheusrule.yaml",
        "        for: 10m",
        "        for: 10 minutes",
        "10 minutes",
    ),
    (
        "networkpolicy.yaml",
        "podSelector:\n    matchLabels:\n      app.kubernetes.io/name: ganger",
        "podSelector:\n    matchLabels:\n      app.kubernetes.io/name: other",
        "it selects nothing",
    ),
    (
        "networkpolicy.yaml",
        "port: telemetry",
        "port: metrics",
        "no container has a port metrics",
    ),
    (
        "deployment.yaml",
        "\"--watch\", ",
        "",
        "does not watch its configuration",
    ),
    (
        "deployment.yaml",
        "mountPath: /etc/ganger\n",
        "mountPath: /etc/ganger\n              subPath: ganger.toml\n",
        "a subPath is not renewed",
    ),
];

fn a_wrong_manifest_is_found() {
    for (file, right, wrong, told) in WRONG {
        let site = Workspace::new();
        for entry in fs::read_dir(MANIFESTS).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(
                &path,
                site.path(path.file_name().unwrap().to_str().unwrap()),
            )
            .unwrap();
        }
        let text = fs::read_to_string(site.path(file)).unwrap();
        assert!(text.contains(right), "{file} without {right:?}");
        site.put(file, &text.replace(right, wrong), false);
        let (valid, found) = validated(&site.path(""));
        assert!(!valid && found.contains(told), "{file}, {wrong:?}: {found}");
    }
}

fn the_alert_rules_are_those_of_the_monitoring() {
    let make = Path::new(MANIFESTS).join("make-prometheusrule");
    let made = Command::new(make).output().unwrap();
    let made = String::from_utf8(made.stdout).unwrap();
    let held = fs::read_to_string(Path::new(MANIFESTS).join("prometheusrule.yaml")).unwrap();
    let command = "config/kubernetes/make-prometheusrule >config/kubernetes/prometheusrule.yaml";
    assert_eq!(held, made, "the rules have changed: run {command}");
}

/// As the kubelet does it: the file is a link into a directory that is itself a link, which is replaced.
fn a_config_map_that_changes_is_reloaded() {
    let site = Workspace::new();
    let launch = Launch {
        args: &["--watch"],
        ..Launch::default()
    };
    let pool = Pool::new(&[]);
    let daemon = site.launch(std::slice::from_ref(&pool), launch);
    daemon.has_workers(1);
    let config = daemon.config();
    let name = config.file_name().unwrap();
    let publish = |version: &str, text: &str| {
        fs::create_dir(site.path(version)).unwrap();
        fs::write(site.path(version).join(name), text).unwrap();
        symlink(version, site.path("..data_tmp")).unwrap();
        fs::rename(site.path("..data_tmp"), site.path("..data")).unwrap();
    };
    let old = fs::read_to_string(config).unwrap();
    publish("..1", &old);
    symlink(Path::new("..data").join(name), site.path("link")).unwrap();
    fs::rename(site.path("link"), config).unwrap();
    publish("..2", &old.replace("[[pools]]", "[[pools]]\nworkers = 2"));
    daemon.has_workers(2);
    daemon.stop();
}

fn their_configuration_is_valid() {
    let map = fs::read_to_string(Path::new(MANIFESTS).join("configmap.yaml")).unwrap();
    let (_, config) = map.split_once("ganger.toml: |\n").unwrap();
    let lines = config
        .lines()
        .map(|line| line.strip_prefix("    ").unwrap_or(line));
    let config = lines.collect::<Vec<_>>().join("\n");
    let site = Workspace::new();
    // What is there only in the pod.
    let config = config.replace("/run/secrets/ganger/password", "password");
    let config = config.replace("/srv/worker", ".");
    site.put("password", "secret", false);
    site.put("ganger.toml", &config, false);
    site.ganger(&["check"]).good();
}
