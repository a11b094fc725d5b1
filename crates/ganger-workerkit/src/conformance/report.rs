//! Report on a worker: plain data, for people and for programs.

use std::time::Duration;

use serde::{Serialize, Serializer};

use super::duties::{Duty, Version};
use super::finding::{Finding, Verdict};
use super::transcript::Piece;

/// A worker and its duties.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// True if no duty is failed.
    pub passed: bool,
    /// Number of duties by verdict.
    pub counts: Counts,
    /// Versions of the protocol that were tested, and the daemon's own pool.
    pub parts: Vec<Part>,
}

/// Number of duties by verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "each is told at its verdict")]
pub struct Counts {
    pub passed: usize,
    pub failed: usize,
    pub warned: usize,
    pub not_applicable: usize,
    pub not_run: usize,
}

/// One way in which a daemon runs the worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Part {
    /// `version 2`, `version 1` or `pool`.
    pub name: &'static str,
    /// Why the part is incomplete, if something was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
    /// Duties, in their order.
    pub duties: Vec<DutyResult>,
}

/// A duty that was tested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DutyResult {
    /// Its name.
    #[serde(rename = "name", serialize_with = "as_name")]
    pub duty: Duty,
    /// Its title.
    pub title: &'static str,
    /// Verdict on the worker.
    pub verdict: Verdict,
    /// The observation.
    pub said: String,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
    /// Duration of the test.
    #[serde(rename = "seconds", serialize_with = "as_seconds")]
    pub took: Duration,
    /// Last pieces sent and received, if there is something to fix.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exchange: Vec<Piece>,
    /// Last lines that the worker wrote to stderr, if there is something to fix.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stderr: Vec<String>,
}

fn as_name<S: Serializer>(duty: &Duty, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(duty.name())
}

fn as_seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    let millis = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    serializer.serialize_f64(f64::from(millis) / 1000.0)
}

impl Report {
    /// Assembles the report from its parts.
    pub(super) fn of(command: Vec<String>, parts: Vec<Part>) -> Self {
        let mut counts = Counts::default();
        for tried in parts.iter().flat_map(|part| &part.duties) {
            *counts.of(tried.verdict) += 1;
        }
        Self {
            command,
            passed: counts.failed == 0,
            counts,
            parts,
        }
    }
}

impl Counts {
    fn of(&mut self, verdict: Verdict) -> &mut usize {
        match verdict {
            Verdict::Passed => &mut self.passed,
            Verdict::Failed => &mut self.failed,
            Verdict::Warned => &mut self.warned,
            Verdict::NotApplicable => &mut self.not_applicable,
            Verdict::NotRun => &mut self.not_run,
        }
    }
}

impl Part {
    pub(super) fn name_of(version: Version) -> &'static str {
        match version {
            Version::One => "version 1",
            Version::Two => "version 2",
        }
    }

    /// Returns whether the worker meets that duty.
    pub(super) fn meets(&self, duty: Duty) -> bool {
        let met = |verdict| matches!(verdict, Verdict::Passed | Verdict::Warned);
        let mut duties = self.duties.iter();
        duties.any(|tried| tried.duty == duty && met(tried.verdict))
    }
}

impl DutyResult {
    /// Returns a finding that took no time.
    pub(super) fn at_once(duty: Duty, finding: Finding) -> Self {
        Self::new(duty, finding, Duration::ZERO, Vec::new(), Vec::new())
    }

    /// Returns a finding; the exchange is kept only if there is something to fix.
    pub(super) fn new(
        duty: Duty,
        finding: Finding,
        took: Duration,
        exchange: Vec<Piece>,
        stderr: Vec<String>,
    ) -> Self {
        let to_mend = matches!(finding.verdict, Verdict::Failed | Verdict::Warned);
        Self {
            duty,
            title: duty.title(),
            verdict: finding.verdict,
            said: finding.said,
            mend: finding.mend,
            took,
            exchange: if to_mend { exchange } else { Vec::new() },
            stderr: if to_mend { stderr } else { Vec::new() },
        }
    }
}
