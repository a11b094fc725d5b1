//! `--wait`: polls the daemon's status until the request of a command is done, has failed, or takes too long.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use miette::{IntoDiagnostic, miette};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::super::remote::undone;
use crate::cli::common::{CommandResult, Format};
use crate::cli::output;
use ganger_admin::client::{ClientError, Remote};
use ganger_core::foreign;
use ganger_pool::overview::Status;
use ganger_pool::status::{PoolState, PoolStatus};
use ganger_queue::client::json::duration;

/// Timeout where the command line gives none.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Interval of the polls.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Exit code of a request that is not done in time.
const NOT_IN_TIME: u8 = 3;

/// Options of commands that can wait for their outcome.
#[derive(Debug, clap::Args)]
pub(super) struct Waiting {
    /// Wait for the outcome: exit code 0 if it succeeded, 1 if it failed, 3 if undecided after --timeout
    #[arg(long)]
    wait: bool,
    /// Maximum time to wait, such as 90s or 1h; 10 minutes if omitted
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "wait")]
    timeout: Option<Duration>,
}

/// State that is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Goal {
    /// The rolling restart of that number is done, and every worker of the pool is up.
    Rolled {
        /// The pool.
        pool: String,
        /// Its number.
        number: u64,
    },
    /// The pool has as many workers as were asked for; none for the configured number.
    Scaled {
        /// The pool.
        pool: String,
        /// Number of workers.
        workers: Option<usize>,
    },
    /// The pool has no worker any more.
    Drained {
        /// The pool.
        pool: String,
    },
    /// Every pool runs by a reload later than those before.
    Reloaded,
}

/// Progress towards a goal.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Reached {
    /// Pending, with the missing part.
    NotYet(String),
    /// Done.
    Done(String),
    /// Permanently failed.
    Failed(String),
}

/// State of the daemon before the request.
#[derive(Debug, Clone)]
pub(super) struct Before {
    started_at: std::time::SystemTime,
    reload: u64,
    refused: u64,
    /// Rolling restarts of each pool.
    rolls: BTreeMap<String, u64>,
}

impl Before {
    fn of(status: &Status) -> Self {
        let pools = status.pools.iter();
        Self {
            started_at: status.started_at,
            reload: status.reload.number,
            refused: status.reload.refused,
            rolls: pools.map(|pool| (pool.name.clone(), pool.rolls)).collect(),
        }
    }
}

impl Waiting {
    /// Sends a request, and with `--wait` waits for its outcome.
    pub(super) async fn ask(
        &self,
        remote: &Remote,
        (path, body): (&str, Option<&Value>),
        goal: impl FnOnce(&Value) -> Goal,
        (format, text): (Format, impl Fn(&Value) -> String),
    ) -> CommandResult {
        let before = match self.wait {
            true => Some(Before::of(&status(remote).await.into_diagnostic()?)),
            false => None,
        };
        let asked = remote.post(path, body).await;
        let mut answer = match (asked, &before) {
            // It goes on; what comes of it is seen all the same.
            (
                Err(ClientError::Refused {
                    status: 504,
                    detail,
                    ..
                }),
                Some(_),
            ) => json!({ "done": detail }),
            (asked, _) => asked.map_err(undone)?,
        };
        if format == Format::Text {
            output::line(text(&answer))?;
        }
        let reached = match before {
            Some(before) => Some(self.reach(remote, &goal(&answer), &before).await?),
            None => None,
        };
        if format == Format::Json {
            if let Some(reached) = &reached {
                let (outcome, why) = reached.named();
                answer["outcome"] = outcome.into();
                answer["why"] = why.into();
            }
            output::json(&answer)?;
        }
        match reached {
            None => Ok(ExitCode::SUCCESS),
            Some(Reached::Done(what)) => {
                if format == Format::Text {
                    output::line(foreign::line(&what))?;
                }
                Ok(ExitCode::SUCCESS)
            }
            Some(Reached::Failed(why)) => Err(miette!("{why}")),
            Some(Reached::NotYet(why)) => {
                let timeout = self.timeout();
                let why =
                    miette!("not done within {timeout:?}, the daemon continues with it: {why}");
                output::complain(&why);
                Ok(ExitCode::from(NOT_IN_TIME))
            }
        }
    }

    fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(TIMEOUT)
    }

    /// Polls until the goal is reached, has failed, or the timeout expires.
    async fn reach(
        &self,
        remote: &Remote,
        goal: &Goal,
        before: &Before,
    ) -> miette::Result<Reached> {
        let deadline = Instant::now().checked_add(self.timeout());
        loop {
            let status = status(remote).await.into_diagnostic()?;
            let reached = goal.look(&status, before);
            let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            match reached {
                Reached::NotYet(_) if !is_late => sleep(LOOK_EVERY).await,
                reached => return Ok(reached),
            }
        }
    }
}

async fn status(remote: &Remote) -> Result<Status, ClientError> {
    remote.get("/v1/status").await
}

impl Reached {
    fn named(&self) -> (&'static str, &str) {
        match self {
            Self::NotYet(why) => ("timed_out", why),
            Self::Done(what) => ("done", what),
            Self::Failed(why) => ("failed", why),
        }
    }
}

impl Goal {
    fn look(&self, status: &Status, before: &Before) -> Reached {
        if status.started_at != before.started_at {
            return Reached::Failed("the daemon was restarted meanwhile".to_owned());
        }
        let of_pool = |name: &str, look: &dyn Fn(&PoolStatus) -> Reached| {
            let found = status.pools.iter().find(|pool| pool.name == name);
            let gone = || Reached::Failed(format!("pool `{name}` no longer exists"));
            found.map_or_else(gone, |pool| named(pool, look(pool)))
        };
        match self {
            Self::Rolled { pool, number } => of_pool(pool, &|pool| rolled(pool, *number)),
            Self::Scaled { pool, workers } => {
                of_pool(pool, &|pool| match pool.scaled == *workers {
                    true => complete(pool),
                    false => {
                        Reached::NotYet("another number of workers was set meanwhile".to_owned())
                    }
                })
            }
            Self::Drained { pool } => of_pool(pool, &|pool| match pool.state {
                PoolState::Drained => Reached::Done("drained".to_owned()),
                _ => Reached::NotYet(format!("{} worker(s) are left", pool.workers.len())),
            }),
            Self::Reloaded => reloaded(status, before),
        }
    }
}

/// Adds the pool's name to the progress.
fn named(pool: &PoolStatus, reached: Reached) -> Reached {
    let with_name = |text| format!("pool `{}`: {text}", pool.name);
    match reached {
        Reached::NotYet(why) => Reached::NotYet(with_name(why)),
        Reached::Done(what) => Reached::Done(with_name(what)),
        Reached::Failed(why) => Reached::Failed(with_name(why)),
    }
}

fn reloaded(status: &Status, before: &Before) -> Reached {
    let reload = &status.reload;
    if reload.number <= before.reload {
        return match reload.refusal() {
            Some(why) if reload.refused > before.refused => {
                Reached::Failed(format!("the reload was refused: {why}"))
            }
            _ => Reached::NotYet("the reload is not yet carried out".to_owned()),
        };
    }
    let of_pool = |pool: &PoolStatus| {
        let before = before.rolls.get(&pool.name).copied();
        let reached = match pool.reload >= reload.number {
            false => Reached::NotYet("it is not yet changed".to_owned()),
            true if pool.rolls > before.unwrap_or_default() => rolled(pool, pool.rolls),
            true => complete(pool),
        };
        named(pool, reached)
    };
    let all: Vec<Reached> = status.pools.iter().map(of_pool).collect();
    let failed = all.iter().find(|one| matches!(one, Reached::Failed(_)));
    let missing = all.iter().find(|one| matches!(one, Reached::NotYet(_)));
    let done = || Reached::Done("every pool runs by the new configuration".to_owned());
    failed.or(missing).cloned().unwrap_or_else(done)
}

fn rolled(pool: &PoolStatus, number: u64) -> Reached {
    if pool.rolling || pool.rolls < number {
        return Reached::NotYet("its workers are being replaced".to_owned());
    }
    match (&pool.roll_stopped, complete(pool)) {
        (Some(cause), _) => Reached::Failed(format!(
            "its rolling restart has stopped, the old workers stay: {cause}"
        )),
        (None, Reached::Done(_)) => Reached::Done("rolling restart completed".to_owned()),
        (None, other) => other,
    }
}

/// Returns whether the pool has as many workers as it should, all of them up.
fn complete(pool: &PoolStatus) -> Reached {
    let up = pool.workers.iter();
    let up = up.filter(|worker| matches!(worker.state.as_str(), "idle" | "busy"));
    let (up, wanted, all) = (up.count(), pool.workers_wanted, pool.workers.len());
    match pool.state {
        PoolState::Degraded => {
            let cause = pool.last_worker_lost.as_deref().unwrap_or("unknown");
            Reached::Failed(format!("its workers keep failing: {cause}"))
        }
        _ if up == wanted && all == wanted => Reached::Done(format!("{up} worker(s) are up")),
        _ => Reached::NotYet(format!("{up} of {wanted} worker(s) are up")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::samples;
    use super::*;
    use ganger_pool::request::ReloadStatus;
    use ganger_pool::status::WorkerStatus;

    fn pool(up: usize, wanted: usize) -> PoolStatus {
        let worker = |slot| WorkerStatus {
            slot,
            state: "idle".to_owned(),
            ..WorkerStatus::default()
        };
        PoolStatus {
            name: "p".to_owned(),
            state: PoolState::Running,
            workers_wanted: wanted,
            workers: (0..up).map(worker).collect(),
            ..PoolStatus::default()
        }
    }

    fn status(pools: Vec<PoolStatus>) -> Status {
        samples::status(Duration::from_secs(9), pools)
    }

    fn word(reached: &Reached) -> &'static str {
        reached.named().0
    }

    fn look(goal: &Goal, pool: PoolStatus) -> &'static str {
        let before = Before::of(&status(vec![]));
        word(&goal.look(&status(vec![pool]), &before))
    }

    #[test]
    fn a_restart_is_done_when_every_worker_is_new_and_up() {
        let goal = Goal::Rolled {
            pool: "p".to_owned(),
            number: 2,
        };
        let rolls = |rolls, rolling, stopped: Option<&str>| PoolStatus {
            rolls,
            rolling,
            roll_stopped: stopped.map(str::to_owned),
            ..pool(2, 2)
        };
        // Shown as it was before: its thread is busy.
        assert_eq!(look(&goal, rolls(1, false, None)), "timed_out");
        assert_eq!(look(&goal, rolls(1, false, Some("old"))), "timed_out");
        assert_eq!(look(&goal, rolls(2, true, Some("old"))), "timed_out");
        assert_eq!(look(&goal, rolls(2, false, None)), "done");
        assert_eq!(look(&goal, rolls(3, false, None)), "done");
        assert_eq!(look(&goal, rolls(2, false, Some("dies"))), "failed");
        let starting = PoolStatus {
            rolls: 2,
            ..pool(1, 2)
        };
        assert_eq!(look(&goal, starting.clone()), "timed_out");
        let degraded = PoolStatus {
            state: PoolState::Degraded,
            ..starting
        };
        assert_eq!(look(&goal, degraded), "failed");
        let other = PoolStatus {
            name: "other".to_owned(),
            ..pool(1, 1)
        };
        assert_eq!(look(&goal, other), "failed");
    }

    #[test]
    fn a_scale_is_done_when_as_many_are_up_and_no_other_is_left() {
        let goal = Goal::Scaled {
            pool: "p".to_owned(),
            workers: Some(2),
        };
        let scaled = |up| PoolStatus {
            scaled: Some(2),
            ..pool(up, 2)
        };
        assert_eq!(look(&goal, pool(2, 2)), "timed_out");
        assert_eq!(look(&goal, scaled(1)), "timed_out");
        assert_eq!(look(&goal, scaled(3)), "timed_out");
        assert_eq!(look(&goal, scaled(2)), "done");
    }

    #[test]
    fn a_reload_is_done_when_every_pool_runs_by_it() {
        let reload = |number, refused| ReloadStatus {
            number,
            refused,
            successful: refused == 0,
            problems: vec!["no".to_owned(); usize::from(refused > 0)],
            ..ReloadStatus::default()
        };
        let by = |reload, rolls, rolling| PoolStatus {
            reload,
            rolls,
            rolling,
            ..pool(1, 1)
        };
        let mut first = status(vec![by(3, 7, false)]);
        first.reload = reload(3, 0);
        let before = Before::of(&first);
        let look = |reload, pools| {
            let mut status = status(pools);
            status.reload = reload;
            word(&Goal::Reloaded.look(&status, &before))
        };
        assert_eq!(look(reload(3, 0), vec![by(3, 7, false)]), "timed_out");
        assert_eq!(look(reload(3, 1), vec![by(3, 7, false)]), "failed");
        assert_eq!(look(reload(4, 0), vec![by(3, 7, false)]), "timed_out");
        assert_eq!(look(reload(4, 0), vec![by(4, 7, false)]), "done");
        assert_eq!(look(reload(4, 0), vec![by(4, 8, true)]), "timed_out");
        assert_eq!(look(reload(4, 0), vec![]), "done");
        // One that had stopped before is not of this reload.
        let stopped = |rolls| PoolStatus {
            roll_stopped: Some("dies".to_owned()),
            ..by(4, rolls, false)
        };
        assert_eq!(look(reload(4, 0), vec![stopped(7)]), "done");
        let both = vec![by(4, 8, true), stopped(8)];
        assert_eq!(look(reload(4, 0), both), "failed");
    }

    #[test]
    fn another_daemon_tells_nothing_of_what_was_asked_of_the_first() {
        let before = Before::of(&status(vec![]));
        let mut other = status(vec![pool(1, 1)]);
        other.started_at += Duration::from_secs(1);
        assert_eq!(word(&Goal::Reloaded.look(&other, &before)), "failed");
    }
}
