//! Writes what is told of runs besides their states to the ledger, on a thread and a connection of its own: their logs,
//! their progress, and that they are alive. Nothing waits for it: while the ledger is away or slow, lines are dropped.

use std::io;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::writer_thread::{Connection, LedgerNow, WriterThread};
use ganger_config::model::LedgerConfig;
use ganger_core::backoff::AWAY;
use ganger_core::heartbeat::Heartbeat;
use ganger_queue::delivery::{RunNote, RunNotes, size};
use ganger_queue::fault::SourceFault;

/// Interval at which notes are written while there are many.
const WRITE_EVERY: Duration = Duration::from_millis(50);
/// Interval at which it is noted that runs are alive that have been running for that long.
const ALIVE_EVERY: Duration = Duration::from_secs(10);

/// Begins to write notes to the ledger, on a thread of their own.
pub(super) fn begin(ledger: &LedgerConfig, notes: &RunNotes) -> io::Result<WriterThread> {
    let notes = notes.clone();
    WriterThread::begin("notes", ledger, move |runtime, ledger| {
        run(runtime, ledger, &notes);
    })
}

/// Writes notes until it is given up. After a panic it can begin anew.
fn run(runtime: &Runtime, ledger: &mut LedgerNow, notes: &RunNotes) {
    let mut noting = Noting {
        config: ledger.borrow_and_update().clone(),
        notes: notes.clone(),
        connection: None,
        failures: 0,
    };
    let _heart = Heartbeat::of_this_thread().on(runtime.handle());
    runtime.block_on(async {
        let mut alive = interval(ALIVE_EVERY);
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let changed = tokio::select! {
                changed = ledger.changed() => Some(changed),
                () = notes.added() => None,
                _ = alive.tick() => {
                    notes.prove_life(ALIVE_EVERY);
                    None
                }
            };
            let next = noting.write().await;
            let changed = match changed {
                None => timeout_at(next, ledger.changed()).await.ok(),
                changed => changed,
            };
            match changed {
                Some(Err(_)) => break,
                Some(Ok(())) => noting.config = ledger.borrow_and_update().clone(),
                None => {}
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
    connection: Option<Connection>,
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
        let (config, kept, bytes) = (self.config.clone(), self.connection.take(), size(&taken));
        let written = spawn_blocking(move || write(&config, kept, taken)).await;
        let (connection, left, written) = written.unwrap_or_else(|_| {
            let panicked = SourceFault::unusable("writing the logs of runs panicked");
            (None, Vec::new(), Err(panicked))
        });
        self.connection = connection;
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
type Written = (Option<Connection>, Vec<RunNote>, Result<(), SourceFault>);

fn write(config: &LedgerConfig, kept: Option<Connection>, notes: Vec<RunNote>) -> Written {
    match Connection::keep_or_open(kept, config) {
        Ok(mut connection) => {
            let (left, written) = connection.ledger.note(notes, config.log);
            (Some(connection), left, written)
        }
        Err(error) => (None, notes, Err(error)),
    }
}
