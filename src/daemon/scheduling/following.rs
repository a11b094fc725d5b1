//! Writes what becomes of messages on other sources to the ledger, on a thread of its own. A ledger that is away
//! holds up no work: the last state of each occurrence waits in memory.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::writer_thread::{Connection, LedgerNow, WriterThread};
use ganger_config::model::LedgerConfig;
use ganger_core::backoff::AWAY;
use ganger_core::heartbeat::Heartbeat;
use ganger_queue::delivery::Follower;
use ganger_queue::fault::SourceFault;
use ganger_table::ledger::{PendingReports, ReportBatch};

/// Interval at which reports are written while there are many.
const WRITE_EVERY: Duration = Duration::from_millis(50);
/// Time that the last reports have at the end.
pub(super) const LAST_WITHIN: Duration = Duration::from_secs(5);
/// Time after which it looks whether something is due.
const LONG: Duration = Duration::from_secs(3600);

/// Begins to write reports to the ledger, on a thread of their own.
pub(super) fn begin(ledger: &LedgerConfig, follower: &Follower) -> io::Result<WriterThread> {
    let reports = follower.clone();
    WriterThread::begin("reports", ledger, move |runtime, ledger| {
        run(runtime, ledger, &reports);
    })
}

/// Writes reports until it is given up. After a panic it can begin anew.
fn run(runtime: &Runtime, ledger: &mut LedgerNow, follower: &Follower) {
    let mut writing = Writing::new(ledger.borrow_and_update().clone());
    let _heart = Heartbeat::of_this_thread().on(runtime.handle());
    runtime.block_on(async {
        let mut is_over = false;
        while !is_over {
            writing.begin_turn(Some(Instant::now()));
            let wake = writing.wake();
            tokio::select! {
                changed = ledger.changed() => match changed {
                    Ok(()) => writing.write_to(ledger.borrow_and_update().clone()),
                    Err(_) => is_over = true,
                },
                reports = follower.next() => writing.pending.add(reports),
                turn = ended(&mut writing.turn) => writing.end_turn(turn),
                () = sleep_until(wake) => {}
            }
            writing.pending.release(Instant::now());
            // What is being written still waits.
            if writing.turn.is_none() && !is_over {
                follower.set_waiting_since(writing.pending.due());
            }
        }
        writing.pending.add(follower.take());
        writing.write_rest().await;
    });
}

/// One write: the connection if there is one, what was to be written, and the result.
type Turn = (Option<Connection>, ReportBatch, Result<(), SourceFault>);

/// Waits for the write in progress; for ever if there is none.
async fn ended(turn: &mut Option<JoinHandle<Turn>>) -> Option<Turn> {
    match turn {
        // One that was cancelled has no result.
        Some(writing) => writing.await.ok(),
        None => std::future::pending().await,
    }
}

/// State of the thread.
#[derive(Debug)]
struct Writing {
    config: LedgerConfig,
    pending: PendingReports,
    connection: Option<Connection>,
    turn: Option<JoinHandle<Turn>>,
    not_before: Instant,
    failures: u32,
}

impl Writing {
    fn new(config: LedgerConfig) -> Self {
        Self {
            config,
            pending: PendingReports::default(),
            connection: None,
            turn: None,
            not_before: Instant::now(),
            failures: 0,
        }
    }

    /// Writes to this ledger from now on.
    fn write_to(&mut self, config: LedgerConfig) {
        // What is here is for the one before, if that can be written.
        self.not_before = Instant::now();
        self.begin_turn(None);
        self.config = config;
        self.not_before = Instant::now();
    }

    /// Begins to write what is due by that time, or everything, if it is time and nothing is being written.
    fn begin_turn(&mut self, by: Option<Instant>) {
        let now = Instant::now();
        let is_due = self
            .pending
            .due()
            .is_some_and(|due| by.is_none_or(|by| due <= by));
        if self.turn.is_some() || !is_due || now < self.not_before {
            return;
        }
        self.not_before = now + WRITE_EVERY;
        let (config, batch) = (self.config.clone(), self.pending.take(by));
        let kept = self.connection.take();
        self.turn = Some(spawn_blocking(move || write(&config, kept, batch)));
    }

    fn end_turn(&mut self, turn: Option<Turn>) {
        self.turn = None;
        let (connection, batch, written) = turn.unwrap_or_else(|| {
            let panicked = SourceFault::unusable("writing reports panicked");
            (None, ReportBatch::default(), Err(panicked))
        });
        self.connection = connection;
        match written {
            Ok(()) => {
                if self.failures > 0 {
                    tracing::info!("the ledger shows again what becomes of messages");
                }
                self.failures = 0;
                self.pending.written(&batch);
                let dropped = self.pending.take_dropped();
                if dropped > 0 {
                    tracing::error!(
                        dropped,
                        "too many messages ended while the ledger was away: it has no record of some"
                    );
                }
            }
            Err(error) => {
                self.pending.failed(batch);
                if self.failures == 0 {
                    let waiting = self.pending.len();
                    tracing::error!(
                        %error,
                        waiting,
                        "the ledger can't be written: it shows later what becomes of messages; retrying"
                    );
                }
                self.failures += 1;
                self.not_before = Instant::now() + AWAY.wait(self.failures, fastrand::f64());
            }
        }
    }

    /// Returns the time at which there is something to do.
    fn wake(&self) -> Instant {
        let due = self.pending.due().filter(|_| self.turn.is_none());
        let due = due.map(|due| due.max(self.not_before));
        let wake = [due, self.pending.release_due()]
            .into_iter()
            .flatten()
            .min();
        wake.unwrap_or_else(|| Instant::now() + LONG)
    }

    /// Writes everything, as far as there is time.
    async fn write_rest(&mut self) {
        let until = Instant::now() + LAST_WITHIN;
        while self.turn.is_some() || !self.pending.is_empty() {
            self.begin_turn(None);
            let not_before = self.not_before;
            let turn = async {
                match &mut self.turn {
                    Some(turn) => Some(turn.await.ok()),
                    None => {
                        sleep_until(not_before).await;
                        None
                    }
                }
            };
            match timeout_at(until, turn).await {
                Ok(Some(turn)) => self.end_turn(turn),
                Ok(None) => {}
                Err(_) => {
                    let waiting = self.pending.len();
                    tracing::error!(
                        waiting,
                        "the ledger can't be written: it does not show the end of some messages"
                    );
                    return;
                }
            }
        }
    }
}

fn write(config: &LedgerConfig, kept: Option<Connection>, mut batch: ReportBatch) -> Turn {
    let report = || -> Result<_, SourceFault> {
        let mut connection = Connection::keep_or_open(kept, config)?;
        let written = connection.ledger.report(&mut batch);
        Ok((connection, written))
    };
    // What was not written is not lost with a panic.
    match catch_unwind(AssertUnwindSafe(report)) {
        Ok(Ok((connection, written))) => (Some(connection), batch, written),
        Ok(Err(error)) => (None, batch, Err(error)),
        Err(_) => {
            let panicked = SourceFault::unusable("writing reports panicked");
            (None, batch, Err(panicked))
        }
    }
}
