//! Changes of dead letters in the background: jobs of the running daemon.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::chosen::Chosen;
use crate::cli::common::{CommandResult, Format};
use crate::cli::live::remote::{Address, block_on, undone};
use crate::cli::output;
use crate::cli::usage::{names, wrong};
use ganger_admin::client::segment;
use ganger_queue::client::SourceInfo;

/// Work in the background.
#[derive(Debug, clap::Args)]
pub(crate) struct Background {
    /// Have the running daemon do it, also after a restart; `dead jobs` shows the progress, `dead cancel` ends it
    #[arg(long, conflicts_with_all = ["ids", "dry_run"])]
    background: bool,
    /// With --background, the maximum number of dead letters per second
    #[arg(
        long,
        value_name = "N",
        requires = "background",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    rate: Option<u32>,
}

impl Background {
    pub(super) fn is_wanted(&self) -> bool {
        self.background
    }

    /// Starts a job for each source that may have selected dead letters.
    pub(super) fn start(&self, change: &str, chosen: &Chosen, format: Format) -> CommandResult {
        let (scope, filter) = (&chosen.scope, chosen.filter());
        let remote = scope.address.remote()?;
        let sources = block_on(remote.get("/v1/sources"))?;
        let mut sources: Vec<SourceInfo> = sources.map_err(undone)?;
        let known = names(sources.iter().map(|source| source.name.as_str()));
        sources.retain(|source| {
            let has = |pool: &String| source.pools.iter().any(|one| one.name == *pool);
            let is_named = scope.source.as_ref().map(|name| *name == source.name);
            is_named.unwrap_or_else(|| scope.pool.as_ref().is_none_or(has))
        });
        if sources.is_empty() {
            return Err(match (&scope.source, &scope.pool) {
                (Some(source), _) => {
                    wrong(format!("there is no source `{source}`; there is {known}"))
                }
                (None, Some(pool)) => wrong(format!(
                    "there is no pool `{pool}`: name the source with --source if the pool was removed"
                )),
                (None, None) => wrong("the daemon has no source"),
            });
        }
        let criteria = filter.criteria;
        let mut jobs = Vec::new();
        for source in sources {
            let wanted = json!({
                "change": change,
                "source": source.name,
                "pool": filter.pool,
                "error": criteria.error,
                "reason": criteria.reason,
                "message_id": criteria.message_id,
                "since": criteria.since.map(|since| since.to_string()),
                "before": criteria.before.map(|before| before.to_string()),
                "rate": self.rate,
            });
            jobs.push(block_on(remote.post("/v1/jobs", Some(&wanted)))?.map_err(undone)?);
        }
        match format {
            Format::Json => output::json(&jobs)?,
            Format::Text => {
                for job in jobs {
                    let (id, source) = (text(&job, "id"), text(&job, "source"));
                    output::line(format!("{source}: job {id} started"))?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

const HEADER: [&str; 10] = [
    "ID", "CHANGE", "SOURCE", "STATE", "CHANGED", "HELD", "FAILED", "LEFT", "STARTED", "BY",
];

/// Prints the jobs.
pub(super) fn list(address: &Address, format: Format) -> CommandResult {
    let jobs: Vec<Value> = block_on(address.remote()?.get("/v1/jobs"))?.map_err(undone)?;
    if format == Format::Json {
        output::json(&jobs)?;
        return Ok(ExitCode::SUCCESS);
    }
    if jobs.is_empty() {
        output::line("no jobs")?;
        return Ok(ExitCode::SUCCESS);
    }
    let columns = [
        "id",
        "change",
        "source",
        "state",
        "changed",
        "held",
        "failed",
        "left",
        "started_at",
        "by",
    ];
    let rows = jobs
        .iter()
        .map(|job| columns.map(|name| text(job, name)).to_vec());
    output::line(output::table(&HEADER, rows))?;
    for job in jobs.iter().filter(|job| !job["last_error"].is_null()) {
        let label = format!("{}: last error", text(job, "id"));
        output::line(output::labelled(&label, &text(job, "last_error")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Cancels a job.
pub(super) fn cancel(address: &Address, id: &str, format: Format) -> CommandResult {
    let path = format!("/v1/jobs/{}/cancel", segment(id));
    let cancelled = block_on(address.remote()?.post(&path, None))?.map_err(undone)?;
    match format {
        Format::Json => output::json(&cancelled)?,
        Format::Text => output::line(text(&cancelled, "done"))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a field as text.
fn text(of: &Value, name: &str) -> String {
    match &of[name] {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}
