//! The Dockerfile, docker-compose.yml and its settings, as far as they can be read: no Docker runs here.

use std::path::Path;
use std::process::Command;

use crate::harness::Workspace;
use crate::python::python;

crate::harness::trials![
    compose_is_what_it_says,
    the_image_is_built_from_what_was_there_yesterday,
    the_sample_configurations_are_valid,
];

const TOP: &str = env!("CARGO_MANIFEST_DIR");

const COMPOSE: &str = r"
import os, re, sys, yaml
text = open('docker-compose.yml').read()
config, wrong = yaml.safe_load(text), []
services = config['services']

# The image that is built has its own health check; the collector's has no program for one.
unasked = {'ganger-sample', 'otel/opentelemetry-collector-contrib'}
for name, service in services.items():
    image, _, tag = service['image'].partition(':')
    if image != 'ganger-sample' and not re.match(r'v?\d+\.\d+', tag):
        wrong.append(f'{name}: no version of its image')
    if ('healthcheck' in service) == (image in unasked):
        wrong.append(f'{name}: no health check, or one that nobody can do')
    for other, how in service.get('depends_on', {}).items():
        if other not in services:
            wrong.append(f'{name}: no service {other}')
        elif how['condition'] != 'service_healthy' or 'healthcheck' not in services[other]:
            wrong.append(f'{name}: {other} is not waited for')
    for mount in service.get('volumes', []):
        source = mount.split(':')[0]
        there = os.path.exists(source) if source.startswith('./') else source in config['volumes']
        if not there:
            wrong.append(f'{name}: nothing to mount at {source}')

built = [name for name, service in services.items() if 'build' in service]
if built != ['ganger'] or 'profiles' in services['ganger']:
    wrong.append(f'built by {built}: it must be one, which is always there')

example = dict(line.split('=', 1) for line in open('.env.example').read().splitlines() if '=' in line and line[0] != '#')
used = dict(re.findall(r'\$\{(\w+):-([^}]*)\}', text))
if example != used:
    wrong.append(f'.env.example: {sorted(set(example.items()) ^ set(used.items()))}')
# What MessageWorkerPool's env/.env sets and has a meaning here.
for name in ('RABBITMQ_HOSTNAME', 'RABBITMQ_PORT', 'QUEUENAME', 'OTEL_EXPORTER_OTLP_ENDPOINT', 'OTEL_SERVICE_NAME', 'OTEL_RESOURCE_ATTRIBUTES'):
    if name not in example:
        wrong.append(f'.env.example: no {name}')
sys.exit('\n'.join(wrong) or 0)
";

fn compose_is_what_it_says() {
    let mut script = Command::new(python());
    let out = script.args(["-c", COMPOSE]).current_dir(TOP).output();
    let out = out.unwrap();
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{told}");
}

fn the_image_is_built_from_what_was_there_yesterday() {
    let text = std::fs::read_to_string(Path::new(TOP).join("Dockerfile")).unwrap();
    let bases = text.lines().filter_map(|line| line.strip_prefix("FROM "));
    let others: Vec<&str> = bases.filter(|base| base.contains(':')).collect();
    assert_eq!(others.len(), 2, "{others:?}");
    for base in others {
        let (_, tag) = base.split_once(':').unwrap();
        // A version to its last part, or a day.
        let is_fixed = tag.split('-').any(|part| {
            let numbers = part.split('.').filter(|part| part.parse::<u32>().is_ok());
            part.len() == 8 && part.parse::<u32>().is_ok() || numbers.count() == 3
        });
        assert!(is_fixed, "{base}");
    }
    let build = text
        .split("\n\n")
        .find(|step| step.contains("cargo build"))
        .unwrap();
    for cache in ["/usr/local/cargo/registry", "/src/target"] {
        let mount = format!("--mount=type=cache,target={cache}");
        assert!(build.contains(&mount), "{build}");
    }
}

fn the_sample_configurations_are_valid() {
    for file in ["ganger.toml", "rabbitmq.toml", "kafka.toml"] {
        let site = Workspace::new();
        let text =
            std::fs::read_to_string(Path::new(TOP).join("samples/docker").join(file)).unwrap();
        // What is there only in the image, and what compose sets.
        let text = text
            .replace("/srv/worker", ".")
            .replace("${RABBITMQ_PASSWORD}", "p");
        site.put("ganger.toml", &text, false);
        site.ganger(&["check"]).good();
    }
}
