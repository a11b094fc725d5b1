//! `ganger alerts`: the active alerts, and silences of them.

use std::process::ExitCode;

use clap::Subcommand;
use ganger_admin::client::segment;
use ganger_pool::overview::Status;
use hyper::Method;
use serde_json::{Value, json};

use super::remote::{Address, block_on, undone};
use crate::cli::common::{CommandResult, Format, Output};
use crate::cli::output;

#[derive(Debug, Subcommand)]
pub(crate) enum AlertsCommand {
    /// List the active alerts and the silences
    List {
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
    /// Silence an alert, or all of a kind: webhooks are not told of it until the silence ends
    Silence {
        /// Kind of the alert, such as `waiting`
        kind: String,
        /// Its subject, such as the name of a pool; all alerts of the kind if omitted
        of: Option<String>,
        /// Duration, such as 2h or 7d; at most 30d
        #[arg(
            long = "for",
            value_name = "DURATION",
            required_unless_present = "until"
        )]
        lasting: Option<String>,
        /// Time at which it ends, such as 2027-01-31T08:00:00Z
        #[arg(long, value_name = "TIME", conflicts_with = "lasting")]
        until: Option<String>,
        /// Reason, which is shown with the alert
        #[arg(long, value_name = "TEXT")]
        reason: String,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
    /// End a silence: if the problem lasts, webhooks are told of it
    Unsilence {
        /// The id of the silence, as `list` shows it
        id: String,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
}

pub(super) fn run(command: &AlertsCommand) -> CommandResult {
    let (done, format) = match command {
        AlertsCommand::List { address, output } => return list(address, output.format),
        AlertsCommand::Silence {
            kind,
            of,
            lasting,
            until,
            reason,
            address,
            output,
        } => {
            let wanted =
                json!({ "kind": kind, "of": of, "for": lasting, "until": until, "reason": reason });
            let remote = address.remote()?;
            let asked = remote.post("/v1/alerts/silences", Some(&wanted));
            (block_on(asked)?.map_err(undone)?, output.format)
        }
        AlertsCommand::Unsilence {
            id,
            address,
            output,
        } => {
            let path = format!("/v1/alerts/silences/{}", segment(id));
            let remote = address.remote()?;
            let answer = block_on(remote.ask(Method::DELETE, &path, None))?.map_err(undone)?;
            (
                serde_json::from_slice(&answer).unwrap_or_default(),
                output.format,
            )
        }
    };
    match format {
        Format::Json => output::json(&done)?,
        Format::Text => output::line(done["done"].as_str().unwrap_or("done"))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(address: &Address, format: Format) -> CommandResult {
    let remote = address.remote()?;
    let status: Status = block_on(remote.get("/v1/status"))?.map_err(undone)?;
    let silences: Vec<Value> = block_on(remote.get("/v1/alerts/silences"))?.map_err(undone)?;
    let active = status
        .alerts
        .map(|alerts| alerts.active)
        .unwrap_or_default();
    if format == Format::Json {
        output::json(&json!({ "active": active, "silences": silences }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if active.is_empty() && silences.is_empty() {
        output::line("no alert is active, and none is silenced")?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = active.iter().map(|alert| {
        let silenced = alert
            .silenced
            .as_ref()
            .map(|silenced| silenced.until.clone());
        let silenced = silenced.unwrap_or_else(|| "-".to_owned());
        vec![
            alert.kind.clone(),
            alert.of.clone(),
            silenced,
            alert.summary.clone(),
        ]
    });
    let header = ["ALERT", "OF", "SILENCED UNTIL", "SUMMARY"];
    output::line(output::table(&header, rows))?;
    if !silences.is_empty() {
        let text = |of: &Value| of.as_str().unwrap_or("-").to_owned();
        let columns = ["id", "kind", "of", "until", "by", "reason"];
        let rows = silences
            .iter()
            .map(|one| columns.map(|name| text(&one[name])).to_vec());
        let header = ["SILENCE", "ALERT", "OF", "UNTIL", "BY", "REASON"];
        output::line("")?;
        output::line(output::table(&header, rows))?;
    }
    Ok(ExitCode::SUCCESS)
}
