//! Start of a lane: its inputs, and the wait until its worker has connected or can't connect any more.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::gauge::{Gauge, Shared};
use super::question::Question;
use crate::worker::Identity;
use crate::worker::connection::Connection;
use crate::worker::output::LastLines;
use crate::worker::process::{Process, Signal, Starting};
use ganger_config::model::{PoolConfig, WorkerCommand};
use ganger_core::event_loop::turning;
use ganger_core::shutdown::Phase;
use ganger_queue::delivery::Delivery;
use ganger_telemetry::metrics::WorkerEnd;

/// Time for which a dead worker's children may hold its stderr open.
pub(super) const LAST_WORDS_WITHIN: Duration = Duration::from_millis(500);

/// Report of a lane's end.
#[derive(Debug)]
pub struct Ended {
    /// True if its worker had connected.
    pub connected: bool,
    /// True if it was asked to exit or was recycled.
    pub orderly: bool,
    /// Kind of its end, for the metrics.
    pub how: WorkerEnd,
    /// Cause of its end, in words.
    pub cause: String,
    /// Last lines that the worker printed.
    pub printed: LastLines,
    /// True if it had shown that it works.
    pub worked: bool,
    /// True if it died over a message that has killed workers before, which is no sign of a bad worker.
    pub explained: bool,
    /// Hash of the name of the message that it failed.
    pub over: Option<u64>,
}

impl Ended {
    pub(super) fn unstarted(cause: String, printed: LastLines) -> Self {
        Self {
            connected: false,
            orderly: false,
            how: WorkerEnd::NotStarted,
            cause,
            printed,
            worked: false,
            explained: false,
            over: None,
        }
    }
}

/// Inputs of a lane.
#[derive(Debug)]
pub struct Start {
    /// Slot of the worker.
    pub slot: usize,
    /// Command that its process is started with.
    pub command: Arc<WorkerCommand>,
    /// State shared by the lanes.
    pub shared: Rc<Shared>,
    /// State that the pool sees of it.
    pub gauge: Rc<Gauge>,
    /// Messages for it.
    pub mailbox: mpsc::Receiver<Delivery>,
    /// Questions of operators to it.
    pub questions: mpsc::Receiver<Question>,
    /// Phase that its stop should reach.
    pub phase: watch::Receiver<Phase>,
}

pub(super) fn identity(slot: usize, policy: &PoolConfig) -> Identity {
    let pool = Arc::from(policy.name.as_str());
    Identity { pool, slot }
}

/// Waits until the worker has connected, has died, has exceeded its start timeout, or is no longer wanted.
pub(super) async fn connect(
    starting: Starting,
    start: &mut Start,
    start_timeout: Duration,
) -> Result<(Process, Connection), Ended> {
    let Starting {
        mut process,
        mut listener,
    } = starting;
    let mut phase = start.phase.clone();
    let mut too_late = std::pin::pin!(turning(start_timeout));
    let (cause, orderly) = loop {
        tokio::select! {
            biased;
            accepted = listener.accept() => match accepted {
                Ok(connection) => return Ok((process, connection)),
                Err(error) => break (error.to_string(), false),
            },
            exit = process.wait() => break (format!("{exit} before it connected to its pipe"), false),
            _ = phase.wait_for(|phase| *phase > Phase::Running) => {
                break ("no longer needed".into(), true);
            }
            Some(question) = start.questions.recv() => match question {
                // The caller may no longer wait for the answer.
                Question::LastLines(asker) => drop(asker.send(process.last_lines())),
                // It has no messages yet.
                Question::Cancel(_) => {}
            },
            () = &mut too_late => {
                break (format!("did not connect to its pipe within {start_timeout:?}"), false);
            }
        }
    };
    process.signal_group(Signal::Kill);
    process.wait().await;
    process.last_words(LAST_WORDS_WITHIN).await;
    Err(Ended {
        orderly,
        how: match orderly {
            true => WorkerEnd::Asked,
            false => WorkerEnd::NotStarted,
        },
        ..Ended::unstarted(cause, process.last_lines())
    })
}
