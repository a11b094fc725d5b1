//! `ganger schema`: the statements that create a table queue's tables, for those who create them by hand.

use crate::kinds;
use std::process::ExitCode;

use super::common::{CommandResult, ConfigFile};
use super::output;
use super::usage::wrong;
use ganger_queue::client;

/// Arguments of `ganger schema`.
#[derive(Debug, clap::Args)]
pub(super) struct SchemaArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// The source
    #[arg(long, value_name = "NAME")]
    source: String,
}

/// Prints the statements.
pub(super) fn run(args: &SchemaArgs) -> CommandResult {
    let config = args.config.load()?;
    let found = client::source_of(&config, "", Some(&args.source)).map_err(wrong);
    let (name, source) = found?;
    let Some(statements) = kinds::schema(source) else {
        return Err(wrong(format!(
            "source `{name}` has no tables: it is not a table queue"
        )));
    };
    output::bytes(statements.as_bytes()).map(|()| ExitCode::SUCCESS)
}
