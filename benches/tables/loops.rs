//! Several raw loops at once on one queue, each with a connection and a thread of its own. They sleep while
//! there is nothing to claim.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use miette::miette;

use crate::raw::Table;
use crate::server::{Database, LOOK_OFTEN, Sql};

/// Number of rows that each claims at once, as a source with one worker does.
const BATCH: usize = 256;

/// Maximum time until a loop that is in a transaction has paused.
const TURN_MAX: Duration = Duration::from_secs(10);

/// The running loops.
pub(crate) struct Loops {
    state: Arc<State>,
    threads: Vec<JoinHandle<miette::Result<()>>>,
}

#[derive(Default)]
struct State {
    is_paused: AtomicBool,
    is_over: AtomicBool,
    /// Number of loops that are in a transaction.
    at_work: AtomicUsize,
}

impl Loops {
    /// Starts `count` loops.
    pub(crate) fn start(database: &Database<'_>, count: usize) -> miette::Result<Self> {
        let state = Arc::new(State::default());
        let start = |_| {
            let (connection, state) = (database.connect()?, Arc::clone(&state));
            Ok(thread::spawn(move || state.work(connection)))
        };
        let threads: miette::Result<_> = (0..count).map(start).collect();
        Ok(Self {
            threads: threads?,
            state,
        })
    }

    /// Waits until no loop claims any more.
    pub(crate) fn pause(&self) -> miette::Result<()> {
        self.state.is_paused.store(true, Ordering::SeqCst);
        let looks = TURN_MAX.as_millis() / LOOK_OFTEN.as_millis();
        for _ in 0..looks {
            if self.state.at_work.load(Ordering::SeqCst) == 0 {
                return Ok(());
            }
            thread::park_timeout(LOOK_OFTEN);
        }
        Err(miette!("a raw loop did not pause within {TURN_MAX:?}"))
    }

    /// Continues the loops.
    pub(crate) fn resume(&self) {
        self.state.is_paused.store(false, Ordering::SeqCst);
    }

    /// Ends the loops. `wake` wakes those that sleep.
    pub(crate) fn stop(self, wake: impl FnOnce() -> miette::Result<()>) -> miette::Result<()> {
        self.state.is_over.store(true, Ordering::SeqCst);
        self.resume();
        wake()?;
        for thread in self.threads {
            thread
                .join()
                .map_err(|_| miette!("a raw loop panicked"))??;
        }
        Ok(())
    }
}

impl State {
    fn work(&self, connection: Sql) -> miette::Result<()> {
        let hand = connection.hand(Table::Ganger)?;
        let mut done = Vec::new();
        while !self.is_over.load(Ordering::SeqCst) {
            self.at_work.fetch_add(1, Ordering::SeqCst);
            if self.is_paused.load(Ordering::SeqCst) {
                self.at_work.fetch_sub(1, Ordering::SeqCst);
                thread::park_timeout(LOOK_OFTEN);
                continue;
            }
            let turn = hand.turn(&done, BATCH);
            self.at_work.fetch_sub(1, Ordering::SeqCst);
            done = turn?;
            if done.is_empty() {
                hand.wait_for_news();
            }
        }
        Ok(())
    }
}
