//! What several commands have in common: where the configuration is, and how results are printed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;

#[cfg(feature = "admin")]
use crate::admin::Places;
use crate::config;
use crate::config::Problems;
use crate::config::model::Config;
use crate::pauses::Pauses;

/// What a command returns.
pub(super) type CommandResult = miette::Result<ExitCode>;

/// Where the configuration is.
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
        config::load(&self.path, &environment())
    }

    /// Where the admin socket of a daemon with this configuration is.
    #[cfg(feature = "admin")]
    pub(super) fn places(&self, configured: Option<&Path>) -> Places {
        let variable = |name: &str| std::env::var(name).ok();
        let uid = nix::unistd::Uid::effective().as_raw();
        Places::new(configured, &self.path, variable, uid)
    }

    /// The pauses of a daemon with this configuration.
    pub(super) fn pauses(&self) -> Pauses {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let config = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        let name = config.with_extension("paused.json");
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
        Pauses::read(places.into_iter().flatten().collect())
    }

    /// The effective configuration.
    pub(super) fn print(&self) -> Result<String, Problems> {
        config::print(&self.path, &environment())
    }
}

/// The daemon's own environment. What is not text can't be named in the configuration anyway.
pub(super) fn environment() -> config::Environment {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// How results are printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// How results are printed.
#[derive(Debug, clap::Args)]
pub(super) struct Output {
    /// How results are printed
    #[arg(
        long = "output",
        short = 'o',
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub(super) format: Format,
}
