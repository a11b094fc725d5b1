//! Replaces `background.rs` in a build without the admin API, which has no jobs.

use miette::bail;

use super::chosen::Chosen;
use crate::cli::backend::Address;
use crate::cli::common::{CommandResult, Format};

/// Work in the background: this build has no options for it.
#[derive(Debug, clap::Args)]
pub(crate) struct NoBackground;

pub(super) use NoBackground as Background;

impl NoBackground {
    pub(super) fn is_wanted(&self) -> bool {
        false
    }

    pub(super) fn start(&self, _: &str, _: &Chosen, _: Format) -> CommandResult {
        no_jobs()
    }
}

pub(super) fn list(_: &Address, _: Format) -> CommandResult {
    no_jobs()
}

pub(super) fn cancel(_: &Address, _: &str, _: Format) -> CommandResult {
    no_jobs()
}

fn no_jobs() -> CommandResult {
    bail!("jobs need a ganger with the cargo feature `admin`")
}
