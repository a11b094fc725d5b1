//! The sources and the ledger that a command acts on: those of the configuration, which it opens itself, or with
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

use miette::IntoDiagnostic;
use nix::unistd::{Uid, User};

use super::usage::wrong;
use crate::kinds;
#[cfg(feature = "admin")]
use ganger_admin::client::Remote;
use ganger_config::model::{Config, ScheduleConfig};
use ganger_core::foreign;
use ganger_queue::ledger::{LedgerClient, LedgerError};

/// Place of a ledger: a configuration, which is read once, or a daemon.
#[derive(Debug)]
pub(super) enum Site {
    Config(Box<Config>),
    #[cfg(feature = "admin")]
    Daemon(Remote),
}

impl Site {
    pub(super) fn at(address: &Address) -> miette::Result<Self> {
        #[cfg(feature = "admin")]
        if address.host().is_some() {
            return Ok(Self::Daemon(address.remote()?));
        }
        Ok(Self::Config(Box::new(address.load()?)))
    }

    /// Returns the configuration; none of that of a daemon.
    pub(super) fn config(&self) -> Option<&Config> {
        match self {
            Self::Config(config) => Some(config),
            #[cfg(feature = "admin")]
            Self::Daemon(_) => None,
        }
    }

    /// Returns the schedule of that name in the configuration.
    pub(super) fn configured(&self, name: &str) -> Option<&ScheduleConfig> {
        let schedules = self.config().map(|config| config.schedules.iter());
        let mut schedules = schedules.into_iter().flatten();
        schedules.find(|schedule| schedule.name() == name)
    }

    /// Opens the ledger.
    pub(super) fn ledger(&self) -> miette::Result<Box<dyn LedgerClient>> {
        let config = match self {
            Self::Config(config) => config,
            #[cfg(feature = "admin")]
            Self::Daemon(remote) => {
                let ledger = ganger_admin::RemoteLedger::of(remote.clone());
                return Ok(Box::new(ledger.into_diagnostic()?));
            }
        };
        let ledger = config.ledger.as_ref().ok_or_else(no_ledger)?;
        let mut ledger = kinds::ledger(ledger, true).into_diagnostic()?;
        ledger.set_actor(&user());
        Ok(ledger)
    }
}

/// Returns the ledger of a configuration, unless the address is that of a daemon: then that of the daemon.
pub(super) fn ledger(address: &Address) -> miette::Result<Box<dyn LedgerClient>> {
    Site::at(address)?.ledger()
}

/// Returns the user of this command, for the record of changes.
fn user() -> String {
    let uid = Uid::current();
    let user = User::from_uid(uid).ok().flatten();
    user.map_or_else(|| format!("uid {uid}"), |user| user.name)
}

/// Returns the report of a configuration without a ledger.
fn no_ledger() -> miette::Report {
    wrong(
        "the configuration has neither schedules nor a ledger: write [[schedules]], or [ledger] with a source",
    )
}

/// Returns the sources of a configuration, unless the address is that of a daemon.
pub(super) fn at(address: &Address) -> miette::Result<Box<dyn Backend>> {
    #[cfg(feature = "admin")]
    if let Some(daemon) = elsewhere::Elsewhere::at(address)? {
        return Ok(Box::new(daemon));
    }
    Ok(Box::new(Configured(Box::new(address.load()?))))
}

/// Returns the report of an error: what does not exist, or does not suit, is a wrong command line.
pub(super) fn refusal(error: LedgerError) -> miette::Report {
    match error {
        LedgerError::NoSchedule(name) => wrong(format!(
            "there is no schedule `{}`: `ganger schedule list` shows all",
            foreign::line(&name)
        )),
        LedgerError::Invalid(why) => wrong(why),
        LedgerError::Unsuited(..) | LedgerError::NeverRuns(..) | LedgerError::Refused(_) => {
            wrong(error)
        }
        error => miette::Report::from_err(error),
    }
}
