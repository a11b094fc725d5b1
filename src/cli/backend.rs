//! The sources that a command acts on: those of the configuration, which it opens itself, or with
//! `--host` those of a running daemon, through its admin API.

mod configured;
mod contract;
#[cfg(feature = "admin")]
mod elsewhere;

/// Location of the sources: without the admin API in a configuration only.
#[cfg(not(feature = "admin"))]
pub(super) use super::common::ConfigFile as Address;
#[cfg(feature = "admin")]
pub(super) use super::live::remote::Address;
pub(super) use configured::Configured;
pub(super) use contract::{Backend, subscriptions};

/// Returns the sources of a configuration, unless the address is that of a daemon.
pub(super) fn at(address: &Address) -> miette::Result<Box<dyn Backend>> {
    #[cfg(feature = "admin")]
    if let Some(daemon) = elsewhere::Elsewhere::at(address)? {
        return Ok(Box::new(daemon));
    }
    Ok(Box::new(Configured(Box::new(address.load()?))))
}
