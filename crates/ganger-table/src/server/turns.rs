//! Whose turn it is to write many rows among the sources of one daemon on one server. A row costs the server
//! less in a transaction that has more of them, and that fewer others run beside. It is a courtesy, not a
//! lock: nothing relies on it, and no turn lasts long.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use ganger_config::model::Host;

/// With no more out the commit is what a transaction costs, and several of those go well together.
const FEW_ROWS: usize = 128;
/// So many have their turn at once: with fewer a server with a core to spare would do less.
const AT_ONCE: usize = 3;
/// One that the server keeps waiting must not hold up the others.
const TURN_MAX: Duration = Duration::from_millis(250);

/// The lines before all servers.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriterQueues(Arc<Mutex<HashMap<Vec<Host>, WriterQueue>>>);

/// Where the sources on one server wait. It is fair.
#[derive(Debug, Clone)]
pub(crate) struct WriterQueue(Arc<Semaphore>);

/// A source's turn, until it is dropped, which [`in_turn`] sees to.
pub(crate) type Turn<'a> = SemaphorePermit<'a>;

impl WriterQueues {
    /// The one before the server that listens there.
    pub(crate) fn at(&self, hosts: &[Host]) -> WriterQueue {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.entry(hosts.to_vec()).or_default().clone()
    }
}

impl Default for WriterQueue {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl WriterQueue {
    /// Waits for our turn where so many `rows` are out; else there is none. Loses nothing when it is dropped.
    pub(crate) async fn turn(&self, rows: usize) -> Option<Turn<'_>> {
        if rows <= FEW_ROWS {
            return None;
        }
        self.0.acquire().await.ok()
    }
}

/// Does that in our turn, which is over with it, or before, if it takes long.
pub(crate) async fn in_turn<T>(turn: Option<Turn<'_>>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    if let Ok(done) = timeout(TURN_MAX, &mut work).await {
        return done;
    }
    drop(turn);
    work.await
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    const MANY: usize = FEW_ROWS + 1;

    fn hosts(name: &str) -> Vec<Host> {
        vec![Host {
            name: name.to_owned(),
            port: 5432,
        }]
    }

    async fn all_but_one(line: &WriterQueue) -> Vec<Turn<'_>> {
        let mut turns = Vec::new();
        for _ in 1..AT_ONCE {
            turns.push(line.turn(MANY).await.unwrap());
        }
        turns
    }

    #[tokio::test(start_paused = true)]
    async fn many_rows_wait_while_several_of_ours_write_many() {
        let lines = WriterQueues::default();
        let (ours, theirs) = (lines.at(&hosts("a")), lines.at(&hosts("a")));
        let began = Instant::now();
        let _turns = all_but_one(&ours).await;
        let turn = ours.turn(MANY).await;
        let write = in_turn(turn, sleep(TURN_MAX / 2));
        let (next, ()) = tokio::join!(theirs.turn(MANY), write);
        assert!(next.is_some());
        assert_eq!(began.elapsed(), TURN_MAX / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn few_rows_and_those_for_another_server_wait_for_nobody() {
        let lines = WriterQueues::default();
        let (ours, other) = (lines.at(&hosts("a")), lines.at(&hosts("b")));
        let began = Instant::now();
        let _turns = all_but_one(&ours).await;
        let _last = ours.turn(MANY).await.unwrap();
        assert!(ours.turn(FEW_ROWS).await.is_none());
        assert!(other.turn(MANY).await.is_some());
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_the_server_keeps_waiting_goes_on_without_its_turn() {
        let line = WriterQueue::default();
        let _turns = all_but_one(&line).await;
        let began = Instant::now();
        let turn = line.turn(MANY).await;
        let next = async {
            let next = line.turn(MANY).await;
            (next.is_some(), began.elapsed())
        };
        let (next, ()) = tokio::join!(next, in_turn(turn, sleep(TURN_MAX * 3)));
        assert_eq!(next, (true, TURN_MAX));
        assert_eq!(began.elapsed(), TURN_MAX * 3);
    }
}
