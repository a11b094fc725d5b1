//! Examination of a hung worker before it is killed: its progress and its findings. `worker::autopsy` carries
//! it out.

use std::future::pending;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::worker::{Identity, autopsy};
use autopsy::Findings;
use ganger_config::model::{Autopsy as Rules, WorkerCommand};

/// Time to wait for the findings beyond the autopsy's limit: the start of a program can hang.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time to wait for the findings once the worker has exited.
pub(super) const AFTER_DEATH: Duration = Duration::from_millis(500);

/// Autopsy of one worker.
#[derive(Debug, Default)]
pub(super) struct Autopsy {
    under_way: Option<(oneshot::Receiver<Findings>, Instant)>,
    program: String,
    /// Lines for the dead letter.
    lines: Vec<String>,
}

impl Autopsy {
    /// Starts the autopsy if the rules ask for one. Returns whether there are findings to wait for.
    pub(super) fn begin(
        &mut self,
        rules: Option<&Rules>,
        command: &WorkerCommand,
        identity: &Identity,
        pid: u32,
    ) -> bool {
        let Some(rules) = rules else { return false };
        self.program = rules.command.first().cloned().unwrap_or_default();
        match autopsy::begin(rules, command, identity, pid) {
            Ok(told) => {
                let until = Instant::now() + rules.within + PATIENCE;
                self.under_way = Some((told, until));
                true
            }
            Err(error) => {
                let (pool, worker, program) = (&*identity.pool, identity.slot, &self.program);
                tracing::warn!(pool, worker, pid, program, %error, "spawning the autopsy's thread failed");
                false
            }
        }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Waits for the findings. Cancel-safe.
    pub(super) async fn ended(&mut self) -> Findings {
        let Some((told, until)) = &mut self.under_way else {
            return pending().await;
        };
        let told = tokio::time::timeout_at(*until, told).await;
        self.under_way = None;
        let silent = || Findings {
            lines: Vec::new(),
            problem: Some("it did not report anything".to_owned()),
        };
        told.ok().and_then(Result::ok).unwrap_or_else(silent)
    }

    /// Keeps the findings and logs them.
    pub(super) fn found(&mut self, findings: Findings, identity: &Identity, pid: u32) {
        let Findings { lines, problem } = findings;
        let (pool, worker, program) = (&*identity.pool, identity.slot, &self.program);
        let output = lines.join("\n");
        tracing::warn!(
            pool,
            worker,
            pid,
            program,
            problem,
            output,
            "autopsy of a hanging worker"
        );
        if lines.is_empty() {
            return;
        }
        let note = problem.map_or_else(String::new, |problem| format!(" ({problem})"));
        self.lines = vec![format!("--- on_timeout: {program}{note}")];
        self.lines.extend(lines);
    }

    /// Returns the lines for the dead letter.
    pub(super) fn lines(&self) -> &[String] {
        &self.lines
    }
}
