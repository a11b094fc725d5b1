//! Waits for the ends of occurrences. One look at the ledger, every so often, serves all that wait: none of them holds a
//! thread or a connection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::answer::Problem;
use super::at_ledger::{AtLedger, OpenedLedger, away};
use ganger_config::model::LedgerConfig;
use ganger_queue::ledger::shown::OccurrenceDetailsJson;
use ganger_queue::ledger::{LedgerError, OpenLedger};

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Answer to a wait.
type WaitAnswer = Result<OccurrenceDetailsJson, Problem>;

/// An occurrence that was looked at, if it is there.
type Seen = (String, Option<OccurrenceDetailsJson>);

/// The requests that wait for ends of occurrences. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Waits(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    /// Ids of the occurrences, with those who wait.
    waiters: Vec<(String, oneshot::Sender<WaitAnswer>)>,
    /// True while a task looks at them.
    is_watched: bool,
}

impl Waits {
    /// Waits for the end of an occurrence; none if it has not come in time.
    pub(super) async fn end_of(
        &self,
        at_ledger: &AtLedger,
        id: &str,
        wait: Duration,
    ) -> Result<Option<OccurrenceDetailsJson>, Problem> {
        let (tell, told) = oneshot::channel();
        let is_first = {
            let mut waiting = self.waiting();
            waiting.waiters.push((id.to_owned(), tell));
            !std::mem::replace(&mut waiting.is_watched, true)
        };
        if is_first {
            tokio::spawn(watch(self.clone(), at_ledger.clone()));
        }
        match timeout(wait, told).await {
            Ok(Ok(ended)) => ended.map(Some),
            Ok(Err(_)) | Err(_) => Ok(None),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the occurrences for which somebody still waits; none if nobody does, and the watch ends.
    fn ids(&self) -> Option<Vec<String>> {
        let mut waiting = self.waiting();
        waiting.waiters.retain(|(_, tell)| !tell.is_closed());
        waiting.is_watched = !waiting.waiters.is_empty();
        let mut ids: Vec<String> = waiting.waiters.iter().map(|(id, _)| id.clone()).collect();
        ids.sort_unstable();
        ids.dedup();
        Some(ids).filter(|ids| !ids.is_empty())
    }

    /// Answers those who wait for an occurrence that has ended. One that is not there may come: a message of no
    /// schedule is recorded when it ends.
    fn tell(&self, seen: Vec<Seen>) {
        for (id, found) in seen {
            if let Some(found) = found.filter(|found| found.occurrence.ended_at.is_some()) {
                self.answer(|waited| waited == id, &Ok(found));
            }
        }
    }

    fn answer(&self, is_meant: impl Fn(&str) -> bool, ended: &WaitAnswer) {
        let mut waiting = self.waiting();
        for (_, tell) in waiting.waiters.extract_if(.., |(id, _)| is_meant(id)) {
            // One that has gone wants no answer.
            drop(tell.send(ended.clone()));
        }
    }
}

/// Looks at the occurrences as long as somebody waits.
async fn watch(waits: Waits, at_ledger: AtLedger) {
    let mut opened: Option<OpenedLedger> = None;
    while let Some(ids) = waits.ids() {
        let open = at_ledger.open;
        let looked = match at_ledger.config() {
            Ok(config) => {
                let kept = opened.take();
                let looked = spawn_blocking(move || look(kept, config, open, ids)).await;
                looked.map_err(away).and_then(|looked| Ok(looked?))
            }
            Err(problem) => Err(problem),
        };
        match looked {
            Ok((kept, seen)) => {
                opened = Some(kept);
                waits.tell(seen);
            }
            Err(problem) => waits.answer(|_| true, &Err(problem)),
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Looks at the occurrences. Blocks.
fn look(
    kept: Option<OpenedLedger>,
    config: LedgerConfig,
    open: OpenLedger,
    ids: Vec<String>,
) -> Result<(OpenedLedger, Vec<Seen>), LedgerError> {
    let mut opened = OpenedLedger::keep_or_open(kept, config, open)?;
    let seen = ids.into_iter().map(|id| {
        let found = opened.client.occurrence(&id)?;
        Ok((id, found))
    });
    let seen = seen.collect::<Result<Vec<_>, LedgerError>>()?;
    Ok((opened, seen))
}

#[cfg(test)]
mod tests;
