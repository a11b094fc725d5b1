//! How a lane begins: with what, and until its worker has connected or will not any more.

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

/// How long a dead worker's stderr may be held open by its children.
pub(super) const LAST_WORDS_WITHIN: Duration = Duration::from_millis(500);

/// How a lane ended.
#[derive(Debug)]
pub struct Ended {
    /// Its worker had connected.
    pub connected: bool,
    /// It was asked to leave, or had been there for its time.
    pub orderly: bool,
    /// How it ended, to be counted.
    pub how: WorkerEnd,
    /// Why it ended, in words.
    pub cause: String,
    /// The last lines that the worker has printed.
    pub printed: LastLines,
    /// It had shown that it works.
    pub worked: bool,
    /// It died over a message that has killed workers before: no sign of a bad worker.
    pub explained: bool,
    /// The message that it failed, by the hash of its name.
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

/// Everything that a lane is started with.
#[derive(Debug)]
pub struct Start {
    /// The worker's place.
    pub slot: usize,
    /// How its process is started.
    pub command: Arc<WorkerCommand>,
    /// What the lanes share.
    pub shared: Rc<Shared>,
    /// What the pool sees of it.
    pub gauge: Rc<Gauge>,
    /// The messages for it.
    pub mailbox: mpsc::Receiver<Delivery>,
    /// What operators ask of it.
    pub questions: mpsc::Receiver<Question>,
    /// How far it is to be stopped.
    pub phase: watch::Receiver<Phase>,
}

pub(super) fn identity(slot: usize, policy: &PoolConfig) -> Identity {
    let pool = Arc::from(policy.name.as_str());
    Identity { pool, slot }
}

/// Waits until the worker has connected, has died, has let its time run out, or is not wanted any
/// more.
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
                break ("not wanted any more".into(), true);
            }
            Some(question) = start.questions.recv() => match question {
                // Whoever asked may have gone.
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
