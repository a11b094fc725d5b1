//! The running pools, for status reads and requests from other threads. Reading waits for no pool;
//! a request waits for an answer no longer than the given time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::status::PoolStatus;
use super::{Command, Refusal, Sought, Steer};
use crate::worker::output::LastLines;

/// The pools by name. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Registry(Arc<Mutex<BTreeMap<String, Registered>>>);

#[derive(Debug, Clone)]
struct Registered {
    commands: mpsc::Sender<Command>,
    shown: watch::Receiver<Arc<PoolStatus>>,
}

/// Reason for which a request to a pool was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SteerError {
    /// No such pool runs.
    #[error("there is no pool `{name}`; the pools are: {}", .known.join(", "))]
    Unknown {
        /// The requested name.
        name: String,
        /// Names of the running pools.
        known: Vec<String>,
    },
    /// The pool refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The pool has not handled the request yet.
    #[error("pool `{0}` is busy: it has not carried out the request yet, and will if it still can")]
    Busy(String),
}

impl Registry {
    /// Adds a pool.
    pub fn insert(
        &self,
        name: &str,
        commands: mpsc::Sender<Command>,
        shown: watch::Receiver<Arc<PoolStatus>>,
    ) {
        self.entries()
            .insert(name.to_owned(), Registered { commands, shown });
    }

    /// Removes a pool that has ended.
    pub fn remove(&self, name: &str) {
        self.entries().remove(name);
    }

    /// Returns the status of the pools as each last published it.
    pub fn pools(&self) -> Vec<Arc<PoolStatus>> {
        let entries = self.entries();
        let shown = entries.values().map(|entry| entry.shown.borrow().clone());
        shown.collect()
    }

    /// Returns the current status of the pools, as far as they answer within that time.
    pub async fn pools_now(&self, within: Duration) -> Vec<Arc<PoolStatus>> {
        let entries: Vec<Registered> = self.entries().values().cloned().collect();
        let asked = entries.into_iter().filter_map(|entry| {
            let (reply, told) = oneshot::channel();
            entry.commands.try_send(Command::Status(reply)).ok()?;
            Some(told)
        });
        // A pool that does not answer is read as it last published itself.
        drop(timeout(within, join_all(asked)).await);
        self.pools()
    }

    /// Sends a request to a pool and waits for its answer for the given time. Returns the number of rolling
    /// restarts that it has begun so far.
    ///
    /// # Errors
    /// If there is no such pool, it refuses, or it has not answered.
    pub async fn steer(
        &self,
        name: &str,
        steer: Steer,
        within: Duration,
    ) -> Result<u64, SteerError> {
        let told = self.ask(name, within, |asker| Command::Steer(steer, asker));
        let done = told.await?.ok_or_else(|| stopping(name))?;
        Ok(done?)
    }

    /// Cancels the messages of a pool that have this name. Returns their number: those that run are asked to
    /// stop, and killed if they don't.
    ///
    /// # Errors
    /// If there is no such pool, or it or a lane of it has not answered.
    pub async fn cancel(
        &self,
        name: &str,
        id: &str,
        within: Duration,
    ) -> Result<usize, SteerError> {
        let told = self.ask(name, within, |asker| {
            Command::Cancel(Sought::Name(id.to_owned()), asker)
        });
        told.await?.ok_or_else(|| SteerError::Busy(name.to_owned()))
    }

    /// Has every pool cancel its messages of that occurrence, if it has any. Waits for none of them. Returns whether all
    /// were asked.
    pub fn cancel_anywhere(&self, id: &str) -> bool {
        let mut all = true;
        for entry in self.entries().values() {
            let (asker, _) = oneshot::channel();
            let asked = entry
                .commands
                .try_send(Command::Cancel(Sought::Occurrence(id.to_owned()), asker));
            all &= !matches!(asked, Err(TrySendError::Full(_)));
        }
        all
    }

    /// Returns the last lines that the worker in that slot of a pool has printed.
    ///
    /// # Errors
    /// If there is no such pool, no such worker, or it has not answered.
    pub async fn last_lines(
        &self,
        name: &str,
        slot: usize,
        within: Duration,
    ) -> Result<LastLines, SteerError> {
        let told = self.ask(name, within, |asker| Command::LastLines(slot, asker));
        let pool = name.to_owned();
        Ok(told.await?.ok_or(Refusal::NoWorker { pool, slot })?)
    }

    /// Sends a command and waits for its answer; `None` if the recipient has ended.
    async fn ask<T>(
        &self,
        name: &str,
        within: Duration,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<Option<T>, SteerError> {
        let commands = self.commands(name)?;
        let (asker, told) = oneshot::channel();
        let busy = || SteerError::Busy(name.to_owned());
        match commands.try_send(command(asker)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Err(busy()),
            Err(TrySendError::Closed(_)) => return Ok(None),
        }
        Ok(timeout(within, told).await.map_err(|_| busy())?.ok())
    }

    fn commands(&self, name: &str) -> Result<mpsc::Sender<Command>, SteerError> {
        let entries = self.entries();
        match entries.get(name) {
            Some(entry) => Ok(entry.commands.clone()),
            None => Err(SteerError::Unknown {
                name: name.to_owned(),
                known: entries.keys().cloned().collect(),
            }),
        }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Registered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stopping(name: &str) -> Refusal {
    Refusal::Stopping(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registered() -> (
        Registry,
        mpsc::Receiver<Command>,
        watch::Sender<Arc<PoolStatus>>,
    ) {
        let registry = Registry::default();
        let (commands, asked) = mpsc::channel(1);
        let (show, shown) = watch::channel(Arc::default());
        registry.insert("p", commands, shown);
        (registry, asked, show)
    }

    #[tokio::test(start_paused = true)]
    async fn a_pool_that_does_not_answer_is_read_as_it_was() {
        let (registry, _asked, show) = registered();
        let within = Duration::from_millis(100);
        let name = "p".to_owned();
        show.send_replace(Arc::new(PoolStatus {
            name,
            out: 7,
            ..PoolStatus::default()
        }));
        // The first question fills the channel; the second finds it full.
        for _ in 0..2 {
            let pools = registry.pools_now(within).await;
            assert_eq!((pools.len(), pools[0].out), (1, 7));
        }
        let busy = registry.steer("p", Steer::Pause, within).await;
        assert_eq!(busy, Err(SteerError::Busy("p".into())));
    }

    #[tokio::test]
    async fn an_unknown_pool_is_told_with_those_that_there_are() {
        let (registry, _asked, _show) = registered();
        let within = Duration::from_secs(1);
        let error = registry.steer("q", Steer::Pause, within).await;
        assert_eq!(
            error.unwrap_err().to_string(),
            "there is no pool `q`; the pools are: p"
        );
        registry.remove("p");
        assert!(registry.steer("p", Steer::Pause, within).await.is_err());
    }
}
