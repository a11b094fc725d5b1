//! Warnings that `check` prints and the daemon logs at its start: for a configuration that is valid
//! but likely to fail with this program on this machine.

use crate::collector;
use std::path::Path;

use super::common::environment;
use ganger_config as config;
use ganger_config::model::Config;
use ganger_config::{Places, Problem};
use ganger_pool::worker::open_files;

/// Returns all warnings.
pub(super) fn warnings(path: &Path, config: &Config) -> Vec<Problem> {
    let places = Places::read(path, &environment());
    let mut warnings = config::warnings(config, &places);
    warnings.extend(refused_properties(config, &places));
    warnings.extend(too_many_workers(config, &places));
    warnings.extend(exposed_collector(config, &places));
    warnings
}

/// Writes the warnings to the log.
pub(super) fn log(path: &Path, config: &Config) {
    for warning in warnings(path, config) {
        tracing::warn!(
            warning = warning.message,
            key = warning.path,
            help = warning.help,
            file = warning.file,
            line = warning.line,
            "the configuration is valid, but risky"
        );
    }
}

fn exposed_collector(config: &Config, places: &Places) -> Option<Problem> {
    let host = collector::exposed_collector(&config.telemetry, &environment())?;
    let message = format!(
        "telemetry.otlp sends unencrypted, including its headers or its password, to a host that \
         is not this one: `{host}`"
    );
    let help = "write https:// in the URL, which may be that of OTEL_EXPORTER_OTLP_ENDPOINT";
    Some(places.about(&[&["telemetry", "otlp"]], message, help))
}

#[cfg(feature = "kafka")]
fn refused_properties(config: &Config, places: &Places) -> Vec<Problem> {
    use ganger_config::model::SourceConfig;
    use ganger_kafka::features;

    let refusals = config
        .sources
        .iter()
        .filter_map(|(name, source)| match source {
            SourceConfig::Kafka(source) => Some((name, features::refusal(source)?)),
            SourceConfig::Table(_) | SourceConfig::RabbitMq(_) => None,
        });
    let help = "change the properties, or build ganger with a librdkafka that takes them";
    refusals
        .map(|(name, why)| {
            let message = format!("sources.{name}: {why}");
            places.about(&[&["sources", name]], message, help)
        })
        .collect()
}

#[cfg(not(feature = "kafka"))]
fn refused_properties(_: &Config, _: &Places) -> Vec<Problem> {
    Vec::new()
}

/// Returns the number of workers that all pools ask for.
pub(super) fn workers(config: &Config) -> u64 {
    config
        .pools
        .iter()
        .map(|pool| pool.workers.max() as u64)
        .sum()
}

/// Returns a problem if the current limit of open files does not suffice for all workers. Its place
/// is the pool that asks for most.
fn too_many_workers(config: &Config, places: &Places) -> Option<Problem> {
    let workers = workers(config);
    let most = open_files::workers_that_fit(config.pools.len())?;
    let largest = config.pools.iter().max_by_key(|pool| pool.workers.max())?;
    (workers > most).then(|| {
        let message = format!(
            "the hard limit of open files allows {most} workers, the pools ask for more: \
             `{workers}`"
        );
        let help = "raise it with LimitNOFILE= or ulimit -Hn, or configure fewer workers";
        places.about(&[&["pools", &largest.name, "workers"]], message, help)
    })
}
