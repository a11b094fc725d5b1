//! What several commands have in common: where the configuration is, and how results are printed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;

#[cfg(feature = "admin")]
use crate::admin::Places;
use crate::config;
use crate::config::Problems;
use crate::config::model::Config;

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
