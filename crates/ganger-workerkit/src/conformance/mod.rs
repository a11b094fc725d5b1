//! A worker without a queue: tests its conformance to the protocol, duty by duty, with remedies. Its process
//! is started, read and written as by the daemon, with the daemon's own codec; at last it works in the
//! daemon's own pool. Alternatively sends a single message. Nothing here prints.

mod cases;
mod control;
mod duties;
mod finding;
mod frames;
mod messages;
mod observations;
mod pool;
mod report;
mod single;
mod subject;
mod supplies;
mod transcript;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;

use cases::CaseResult;
pub use duties::{Duty, Version};
use finding::Finding;
pub use finding::Verdict;
use ganger_config as config;
use ganger_config::model::PoolConfig;
use observations::Observations;
pub use report::{Counts, DutyResult, Part, Report};
pub use single::{AttemptResult, Single, attempt};
use subject::{Rig, Spoken};
pub use supplies::Supplies;
pub use transcript::{Direction, Piece};

/// Plan of the tests.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Start of the worker, and the rules of its pool.
    pub policy: Arc<PoolConfig>,
    /// Messages for the worker.
    pub supplies: Supplies,
    /// Version that it must speak; none for every version that it does speak.
    pub only: Option<Version>,
    /// Time for which it may be silent over a message.
    pub answer_within: Duration,
    /// Number of workers that run at once.
    pub jobs: usize,
}

/// Tests a worker. Must be called inside a `LocalSet`. If cancelled, it leaves no process behind.
pub async fn check(plan: &Plan) -> Report {
    let rig = Rc::new(Rig::new(Arc::clone(&plan.policy), plan.answer_within));
    let versions = match plan.only {
        Some(version) => vec![version],
        // As the daemon starts it comes first.
        None if plan.supplies.are_text() => vec![Version::Two, Version::One],
        None => vec![Version::Two],
    };
    let mut parts = Vec::new();
    for version in versions {
        parts.push(part(plan, version, &rig).await);
    }
    if parts.iter().any(|part| part.meets(Duty::Message)) {
        let tried = pool::run(&plan.policy, &plan.supplies, plan.answer_within).await;
        parts.push(Part {
            name: "pool",
            remark: None,
            duties: vec![tried],
        });
    }
    Report::of(config::shown(&plan.policy.command), parts)
}

/// Tests the duties of one version: first those without which nothing can be tested.
async fn part(plan: &Plan, version: Version, rig: &Rc<Rig>) -> Part {
    let (basic, further): (Vec<Duty>, Vec<Duty>) = Duty::ALL
        .iter()
        .filter(|duty| duty.is_of(version) && **duty != Duty::Pool)
        .partition(|duty| duty.is_basic());
    let mut part = Part {
        name: Part::name_of(version),
        remark: None,
        duties: Vec::new(),
    };
    let mut seen = Observations::default();
    let mut spoken = None;
    for duty in basic {
        if part
            .duties
            .iter()
            .any(|tried| tried.verdict == Verdict::Failed)
        {
            part.duties.push(not_tested(duty, &part));
            continue;
        }
        let shown = cases::run(duty, version, rig, &plan.supplies).await;
        spoken = shown.spoken.or(spoken);
        seen.add(shown.seen);
        part.duties.push(shown.tried);
    }
    let speaks = match spoken {
        Some(Spoken::One) => Some(Version::One),
        Some(Spoken::Two(_)) => Some(Version::Two),
        None => None,
    };
    if speaks.is_some_and(|speaks| speaks != version) {
        return of_another_version(plan, version, part);
    }
    let works = part.meets(Duty::Message) && part.meets(Duty::Start);
    let (observed, cases): (Vec<Duty>, Vec<Duty>) =
        further.into_iter().partition(|duty| duty.is_observed());
    if !works {
        for duty in cases {
            part.duties.push(not_tested(duty, &part));
        }
        return part;
    }
    let mut running = stream::iter(cases)
        .map(|duty| cases::run(duty, version, rig, &plan.supplies))
        .buffered(plan.jobs.max(1));
    while let Some(CaseResult {
        tried, seen: more, ..
    }) = running.next().await
    {
        part.duties.push(tried);
        seen.add(more);
    }
    let observed = observed.into_iter();
    let observed = observed.map(|duty| DutyResult::at_once(duty, seen.finding(duty)));
    part.duties.extend(observed);
    part
}

/// Reports that the worker speaks another version, which is a failure only if this one was requested.
fn of_another_version(plan: &Plan, version: Version, mut part: Part) -> Part {
    let said = match version {
        Version::One => "it sends HELLO even if GANGER_PROTOCOL is 1: it speaks version 2 only",
        Version::Two => "it sends no HELLO: it speaks version 1",
    };
    part.remark = Some(said.to_owned());
    if plan.only.is_some() {
        let mend = match version {
            Version::One => "send HELLO only if GANGER_PROTOCOL is 2 or more",
            Version::Two => Duty::Hello.mend(),
        };
        let finding = Finding::failed(said, mend);
        part.duties.push(DutyResult::at_once(Duty::Hello, finding));
    }
    part
}

fn not_tested(duty: Duty, part: &Part) -> DutyResult {
    let mut duties = part.duties.iter();
    let first = duties.find(|tried| tried.verdict == Verdict::Failed);
    let name = first.map_or("start", |tried| tried.duty.name());
    DutyResult::at_once(duty, Finding::not_run(format!("`{name}` comes first")))
}
