//! Pages of jobs: changes of many dead letters in the background, with their progress.

use axum::Extension;
use axum::extract::Path;
use maud::{Markup, html};

use super::api::Api;
use super::commands::{command, commands};
use super::page::{Page, Section};
use super::paths::{JOB, JOBS, dead_path, form, path};
use super::shown::{count, state, text, time_of};
use crate::answer::Problem;
use crate::jobs::{Job, JobChange};

/// Shows the jobs, the newest first.
pub(super) async fn list(Extension(api): Extension<Api>) -> Result<Page, Problem> {
    let jobs: Vec<Job> = api.get("/v1/jobs").await?;
    let all = html! {
        @if jobs.is_empty() {
            p.none { "No job: a retry or a drop of all dead letters that match is one." }
        } @else {
            (table(&jobs))
        }
    };
    Ok(Page::new(Section::DeadLetters, "Jobs")
        .with_list("jobs", all)
        .with("commands", commands(&[command(&["dead", "jobs"])])))
}

fn table(jobs: &[Job]) -> Markup {
    html! {
        div.wide tabindex="0" {
            table.cards {
                thead { tr {
                    th scope="col" { "Job" } th scope="col" { "State" } th.number scope="col" { "Changed" }
                    th.number scope="col" { "Left" } th scope="col" { "Started" } th scope="col" { "By" }
                } }
                tbody {
                    @for job in jobs {
                        tr {
                            th scope="row" { a href=(path(JOB, &[&job.id])) { (title(job)) } }
                            td { (state(job.state.as_str())) }
                            td.number data-label="Changed" { (count(job.changed)) }
                            td.number data-label="Left" { (job.left.map_or_else(|| "–".to_owned(), count)) }
                            td data-label="Started" { (time_of(&job.started_at)) }
                            td data-label="By" { (text(&job.by)) }
                        }
                    }
                }
            }
        }
    }
}

fn title(job: &Job) -> Markup {
    html! {
        @match job.change { JobChange::Retry => "Retry", JobChange::Drop => "Drop" } " in " (text(&job.source))
    }
}

/// Shows a job: its progress, and what it changes.
pub(super) async fn page(
    Extension(api): Extension<Api>,
    Path(id): Path<String>,
) -> Result<Page, Problem> {
    let job: Job = api.get(&path("/v1/jobs/{id}", &[&id])).await?;
    let name = match job.change {
        JobChange::Retry => format!("Retry in {}", job.source),
        JobChange::Drop => format!("Drop in {}", job.source),
    };
    let page = Page::new(Section::DeadLetters, name)
        .with("progress", progress(&job))
        .with("do", deed(&job))
        .with("job", facts(&job));
    Ok(page.with("commands", commands(&as_commands(&job))))
}

fn as_commands(job: &Job) -> Vec<String> {
    let mut lines = vec![command(&["dead", "jobs"])];
    if !job.state.is_over() {
        lines.push(command(&["dead", "cancel", &job.id]));
    }
    lines
}

fn progress(job: &Job) -> Markup {
    let settled = job.changed + job.held + job.failed;
    let verb = match job.change {
        JobChange::Retry => "sent back",
        JobChange::Drop => "deleted",
    };
    html! {
        p.lead { (state(job.state.as_str())) ": " (count(job.changed)) " " (verb)
            @if let Some(left) = job.left { ", " (count(left)) " left" }
            @if job.held > 0 { ", " (count(job.held)) " stay: another message has their unique key" }
            @if job.failed > 0 { ", " (count(job.failed)) " could not be changed" }
            "."
        }
        @if let Some(expected) = job.expected {
            @let all = expected.max(settled).max(1);
            progress max=(all) value=(if job.left == Some(0) { all } else { settled }) aria-label="Progress" {}
        }
        @if let Some(error) = &job.last_error { p.error { "Last error: " (text(error)) } }
        @if !job.state.is_over() && !job.outlasts_restart {
            p.error { "The file of jobs can't be written: a restart of the daemon ends this job." }
        }
    }
}

fn deed(job: &Job) -> Markup {
    let cancel = form("post", &path("/v1/jobs/{id}/cancel", &[&job.id]));
    html! {
        div.actions {
            @if !job.state.is_over() {
                form method="post" action=(cancel) { button { "Cancel" } }
            }
            a.button href=(dead_path(&job.source)) { "Dead letters of " (text(&job.source)) }
            a.button href=(JOBS) { "All jobs" }
        }
    }
}

fn facts(job: &Job) -> Markup {
    let criteria = [
        ("Pool", &job.pool),
        ("Reason", &job.reason),
        ("Error contains", &job.error),
        ("Message id", &job.message_id),
    ];
    html! {
        dl.facts {
            dt { "Source" } dd { (text(&job.source)) }
            @for (label, value) in criteria {
                @if let Some(value) = value { dt { (label) } dd { (text(value)) } }
            }
            @if let Some(since) = &job.since { dt { "Failed since" } dd { (time_of(since)) } }
            dt { "Failed before" } dd { (time_of(&job.before)) }
            dt { "Rate" } dd {
                @match job.rate {
                    Some(rate) => { "at most " (count(rate.into())) " per second" },
                    None => "as many as the source takes",
                }
            }
            dt { "Started" } dd { (time_of(&job.started_at)) " by " (text(&job.by)) }
            @if let Some(ended) = &job.ended_at {
                dt { "Ended" } dd {
                    (time_of(ended))
                    @if let Some(by) = &job.cancelled_by { ", cancelled by " (text(by)) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_that_has_ended_is_not_cancelled() {
        for (state, number) in [("running", 2), ("completed", 1), ("cancelled", 1)] {
            let job = json!({
                "id": "j1", "change": "drop", "source": "main", "before": "2026-11-30T00:00:00Z", "state": state,
                "by": "ops", "started_at": "2026-11-30T00:00:00Z", "changed": 0, "held": 0, "failed": 0,
                "outlasts_restart": true,
            });
            let lines = as_commands(&serde_json::from_value(job).unwrap());
            assert_eq!(lines.len(), number, "{lines:?}");
        }
    }
}
