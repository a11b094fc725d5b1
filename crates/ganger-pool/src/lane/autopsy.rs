//! The look at a worker that hangs, before it is killed: whether it is under way, and what it has
//! shown. How it is done is `worker::autopsy`'s.

use std::future::pending;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::worker::{Identity, autopsy};
use autopsy::Findings;
use ganger_config::model::{Autopsy as Rules, WorkerCommand};

/// How much longer than it may take its findings are waited for: the start of a program can hang.
const PATIENCE: Duration = Duration::from_secs(1);
/// For how long they are waited for when its worker is gone.
pub(super) const AFTER_DEATH: Duration = Duration::from_millis(500);

/// One worker's.
#[derive(Debug, Default)]
pub(super) struct Autopsy {
    under_way: Option<(oneshot::Receiver<Findings>, Instant)>,
    program: String,
    /// What a dead letter says of it.
    lines: Vec<String>,
}

impl Autopsy {
    /// Begins, if the rules ask for it. Returns whether there is something to wait for.
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
                tracing::warn!(pool, worker, pid, program, %error, "no thread for an autopsy");
                false
            }
        }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Its end; loses nothing when it is dropped.
    pub(super) async fn ended(&mut self) -> Findings {
        let Some((told, until)) = &mut self.under_way else {
            return pending().await;
        };
        let told = tokio::time::timeout_at(*until, told).await;
        self.under_way = None;
        let silent = || Findings {
            lines: Vec::new(),
            problem: Some("it said nothing".to_owned()),
        };
        told.ok().and_then(Result::ok).unwrap_or_else(silent)
    }

    /// Takes in what came of it, and logs it.
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
            "autopsy of a worker that hangs"
        );
        if lines.is_empty() {
            return;
        }
        let note = problem.map_or_else(String::new, |problem| format!(" ({problem})"));
        self.lines = vec![format!("--- on_timeout: {program}{note}")];
        self.lines.extend(lines);
    }

    /// What a dead letter says of it.
    pub(super) fn lines(&self) -> &[String] {
        &self.lines
    }
}
