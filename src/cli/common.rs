//! Code shared by several commands: location of the configuration, format of results.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use jiff::Timestamp;

use super::usage::wrong;
#[cfg(feature = "admin")]
use ganger_admin::Places;
use ganger_config as config;
use ganger_config::Problems;
use ganger_config::model::{Config, Database, Otlp, SourceConfig};
use ganger_core::foreign;
use ganger_pool::state_file::StateFile;
use ganger_schedule::definition::instant;
use ganger_schedule::zone::{Zone, Zones};

/// Result of a command.
pub(super) type CommandResult = miette::Result<ExitCode>;

/// Longest body that a command takes for a run, in bytes.
const BODY_BYTES_MAX: u64 = 1 << 20;

/// Location of the configuration.
#[derive(Debug, clap::Args)]
pub(super) struct ConfigFile {
    /// The configuration: a TOML file, or a directory of them
    #[arg(
        long = "config",
        short = 'c',
        value_name = "PATH",
        env = "GANGER_CONFIG",
        default_value = "ganger.toml"
    )]
    pub(super) path: PathBuf,
}

impl ConfigFile {
    pub(super) fn load(&self) -> Result<Config, Problems> {
        load(&self.path)
    }

    /// Returns the possible places of the admin socket of a daemon with this configuration.
    #[cfg(feature = "admin")]
    pub(super) fn places(&self, configured: Option<&Path>) -> Places {
        let variable = |name: &str| std::env::var(name).ok();
        let uid = nix::unistd::Uid::effective().as_raw();
        Places::new(configured, &self.path, variable, uid)
    }

    /// Returns a file of the state of a daemon with this configuration.
    pub(super) fn state(&self, name: &str) -> StateFile {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let config = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        let name = config.with_extension(format!("{name}.json"));
        let name = name.file_name().unwrap_or_default().to_owned();
        // Of several, systemd's own come first.
        let service = set("STATE_DIRECTORY").and_then(|all| std::env::split_paths(&all).next());
        let home = || set("HOME").map(|home| PathBuf::from(home).join(".local/state"));
        let user = set("XDG_STATE_HOME").map(PathBuf::from).or_else(home);
        let places = [
            service.map(|directory| directory.join(&name)),
            Some(config.with_file_name(&name)),
            user.map(|directory| directory.join("ganger").join(&name)),
        ];
        StateFile::at(places.into_iter().flatten().collect())
    }

    /// Returns the effective configuration.
    pub(super) fn print(&self) -> Result<String, Problems> {
        config::print(&self.path, &environment())
    }
}

/// Reads a configuration, and refuses features that this program was built without.
///
/// # Errors
/// All problems at once.
pub(super) fn load(path: &Path) -> Result<Config, Problems> {
    let config = config::load(path, &environment())?;
    match missing_feature(&config) {
        None => Ok(config),
        Some((what, feature)) => Err(Problems::of_file(
            &path.to_string_lossy(),
            format!("this ganger was built without {feature}, which {what} needs"),
            &format!("build it with the cargo feature `{feature}`, or leave that out"),
        )),
    }
}

/// Returns the first key in the configuration that needs a cargo feature which is off, and that
/// feature.
fn missing_feature(config: &Config) -> Option<(String, &'static str)> {
    let kinds = config.sources.iter().map(|(name, source)| {
        let (feature, is_built) = match source {
            SourceConfig::Kafka(_) => ("kafka", cfg!(feature = "kafka")),
            SourceConfig::RabbitMq(_) => ("rabbitmq", cfg!(feature = "rabbitmq")),
            SourceConfig::Table(table) => match table.database {
                Database::Sqlite(_) => ("sqlite", cfg!(feature = "sqlite")),
                Database::Postgres(_) => ("postgres", cfg!(feature = "postgres")),
                Database::Mysql(_) => ("mysql", cfg!(feature = "mysql")),
            },
        };
        (format!("source `{name}`"), feature, is_built)
    });
    let schedules = config.ledger.iter();
    let schedules = schedules.map(|_| {
        (
            "`[[schedules]]`".to_owned(),
            "sqlite",
            cfg!(feature = "sqlite"),
        )
    });
    let alerts = config.alerts.iter();
    let alerts = alerts.map(|_| ("`[alerts]`".to_owned(), "admin", cfg!(feature = "admin")));
    let otlp = [&config.telemetry.otlp].into_iter();
    let otlp = otlp.filter(|otlp| matches!(otlp, Otlp::Url(_)));
    let otlp = otlp.map(|_| {
        (
            "`telemetry.otlp`".to_owned(),
            "otlp",
            cfg!(feature = "otlp"),
        )
    });
    let mut all = kinds.chain(schedules).chain(alerts).chain(otlp);
    let missing = all.find(|(_, _, is_built)| !is_built)?;
    Some((missing.0, missing.1))
}

/// Returns the daemon's own environment. Variables that are not text can't be named in the
/// configuration anyway.
pub(super) fn environment() -> config::Environment {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Format of results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// Format of results.
#[derive(Debug, clap::Args)]
pub(super) struct Output {
    /// Format of the results
    #[arg(
        long = "output",
        short = 'o',
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub(super) format: Format,
}

/// Reads the body of a message from a file, or from stdin.
pub(super) fn read_body(path: &PathBuf) -> miette::Result<String> {
    let text = match path.as_os_str() == "-" {
        true => foreign::text(std::io::stdin(), BODY_BYTES_MAX),
        false => std::fs::File::open(path).and_then(|file| foreign::text(file, BODY_BYTES_MAX)),
    };
    text.map_err(|error| miette::miette!("{}: {error}", path.display()))
}

/// Reads the first and the last time of a range: a day, or a time by the zone unless it names another.
pub(super) fn given_range(
    (from, to): (Option<&str>, Option<&str>),
    zone: &Zone,
    zones: &Zones,
) -> miette::Result<(Option<Timestamp>, Option<Timestamp>)> {
    let read = |key: &str, text: &str| {
        let exact = text.parse::<Timestamp>();
        let time = exact.or_else(|_| instant(text, zone, zones, false));
        time.map_err(|problem| wrong(problem.under(key)))
    };
    let from = from.map(|text| read("--from", text)).transpose()?;
    let to = to.map(|text| read("--to", text)).transpose()?;
    match (from, to) {
        (Some(from), Some(to)) if to < from => Err(wrong(format!(
            "--to must not be before --from: {to} is before {from}"
        ))),
        range => Ok(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_of_days_or_of_times() {
        let zones = Zones::bundled();
        let zone = zones.get("Europe/Berlin").unwrap();
        let read = |from, to| given_range((from, to), &zone, &zones).map_err(|e| e.to_string());
        let shown = |from| read(Some(from), None).unwrap().0.unwrap().to_string();
        for (text, expected) in [
            ("2026-11-30", "2026-11-29T23:00:00Z"),
            ("2026-11-30T08:00", "2026-11-30T07:00:00Z"),
            ("2026-11-30T08:00:00.5Z", "2026-11-30T08:00:00.5Z"),
            ("2026-11-30T08:00[UTC]", "2026-11-30T08:00:00Z"),
        ] {
            assert_eq!(shown(text), expected);
        }
        assert_eq!(read(None, None), Ok((None, None)));
        let wrong = read(None, Some("noon")).unwrap_err();
        assert!(wrong.starts_with("--to: invalid time `noon`"), "{wrong}");
        let turned = read(Some("2026-11-30"), Some("2026-11-29")).unwrap_err();
        assert!(
            turned.starts_with("--to must not be before --from"),
            "{turned}"
        );
    }
}
