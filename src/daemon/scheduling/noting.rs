//! Writes what is told of runs besides their states to the ledger, on a thread and a connection of its own: their logs,
//! their progress, and that they are alive. Nothing waits for it: while the ledger is away or slow, lines are dropped.

use std::io;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::writer_thread::{WriterThread, keep_or_open};
use ganger_config::model::LedgerConfig;
use ganger_core::backoff::AWAY;
use ganger_core::heartbeat::Heartbeat;
use ganger_queue::delivery::{RunNote, RunNotes, size};
use ganger_queue::fault::SourceFault;
use ganger_table::ledger::Ledger;

/// Interval at which notes are written while there are many.
const WRITE_EVERY: Duration = Duration::from_millis(50);
/// Interval at which it is noted that runs are alive that have been running for that long.
const ALIVE_EVERY: Duration = Duration::from_secs(10);

/// Begins to write notes to the ledger, on a thread of their own.
pub(super) fn begin(ledger: &LedgerConfig, notes: &RunNotes) -> io::Result<WriterThread> {
    let notes = notes.clone();
    WriterThread::begin("notes", ledger, move |runtime, config, given_up| {
        run(runtime, config, &notes, given_up);
    })
}

/// Writes notes until it is given up. After a panic it can begin anew.
fn run(
    runtime: &Runtime,
    config: &LedgerConfig,
    notes: &RunNotes,
    given_up: &mut oneshot::Receiver<()>,
) {
    let mut noting = Noting {
        config: config.clone(),
        notes: notes.clone(),
        ledger: None,
        failures: 0,
    };
    let _heart = Heartbeat::of_this_thread().on(runtime.handle());
    runtime.block_on(async {
        let mut alive = interval(ALIVE_EVERY);
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = &mut *given_up => break,
                () = notes.added() => {}
                _ = alive.tick() => notes.prove_life(ALIVE_EVERY),
            }
            let next = noting.write().await;
            if timeout_at(next, &mut *given_up).await.is_ok() {
                break;
            }
        }
        noting.write().await;
    });
}

/// State of the thread.
#[derive(Debug)]
struct Noting {
    config: LedgerConfig,
    notes: RunNotes,
    ledger: Option<Ledger>,
    failures: u32,
}

impl Noting {
    /// Writes what there is. Returns the time of the next write.
    async fn write(&mut self) -> Instant {
        let taken = self.notes.take();
        let next = Instant::now() + WRITE_EVERY;
        if taken.is_empty() {
            return next;
        }
        let (mut config, ledger, bytes) = (self.config.clone(), self.ledger.take(), size(&taken));
        config.log = self.notes.limits().unwrap_or(config.log);
        let written = spawn_blocking(move || write(&config, ledger, taken)).await;
        let (ledger, left, written) = written.unwrap_or_else(|_| {
            let panicked = SourceFault::unusable("writing the logs of runs panicked");
            (None, Vec::new(), Err(panicked))
        });
        self.ledger = ledger;
        self.notes.done(bytes, left);
        match written {
            Ok(()) => {
                if self.failures > 0 {
                    tracing::info!("the ledger can be written again: it shows the logs of runs");
                }
                self.failures = 0;
                next
            }
            Err(error) => {
                if self.failures == 0 {
                    tracing::error!(
                        %error,
                        "the ledger can't be written: lines of the logs of runs may be dropped; retrying"
                    );
                }
                self.failures += 1;
                Instant::now() + AWAY.wait(self.failures, fastrand::f64())
            }
        }
    }
}

/// The connection if there is one, what is left to be written, and the result.
type Written = (Option<Ledger>, Vec<RunNote>, Result<(), SourceFault>);

fn write(config: &LedgerConfig, ledger: Option<Ledger>, notes: Vec<RunNote>) -> Written {
    match keep_or_open(ledger, config) {
        Ok(mut ledger) => {
            let (left, written) = ledger.note(notes, config.log);
            (Some(ledger), left, written)
        }
        Err(error) => (None, notes, Err(error)),
    }
}
