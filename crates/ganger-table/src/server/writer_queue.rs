//! Turns to write many rows, among the sources of one daemon on one server. A row costs the server less
//! in a transaction with many rows, and with fewer transactions beside it. Turns only improve
//! throughput: nothing relies on them as a lock, and none lasts long.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use ganger_config::model::Host;

/// Number of rows up to which no turn is needed: the commit dominates the cost then, and several commits
/// run well side by side.
const FEW_ROWS: usize = 128;
/// Number of turns at the same time: with fewer, a server with a spare core would do less.
const PERMITS: usize = 3;
/// Maximum duration of a turn: a source that waits for the server must not hold up the others.
const TURN_MAX: Duration = Duration::from_millis(250);

/// The queues of writers, one for each server.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriterQueues(Arc<Mutex<HashMap<Vec<Host>, WriterQueue>>>);

/// Queue in which the sources on one server wait for a turn, in the order of their arrival.
#[derive(Debug, Clone)]
pub(crate) struct WriterQueue(Arc<Semaphore>);

/// A source's turn, until it is dropped by [`in_turn`].
pub(crate) type WriterPermit<'a> = SemaphorePermit<'a>;

impl WriterQueues {
    /// Returns the queue for the server at these addresses.
    pub(crate) fn at(&self, hosts: &[Host]) -> WriterQueue {
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queues.entry(hosts.to_vec()).or_default().clone()
    }
}

impl Default for WriterQueue {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(PERMITS)))
    }
}

impl WriterQueue {
    /// Waits for a turn to write that many `rows`; none if they are too few to need one. Cancel-safe.
    pub(crate) async fn turn(&self, rows: usize) -> Option<WriterPermit<'_>> {
        if rows <= FEW_ROWS {
            return None;
        }
        self.0.acquire().await.ok()
    }
}

/// Does the work with the turn, which ends with the work or after [`TURN_MAX`].
pub(crate) async fn in_turn<T>(turn: Option<WriterPermit<'_>>, work: impl Future<Output = T>) -> T {
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

    async fn all_but_one(queue: &WriterQueue) -> Vec<WriterPermit<'_>> {
        let mut turns = Vec::new();
        for _ in 1..PERMITS {
            turns.push(queue.turn(MANY).await.unwrap());
        }
        turns
    }

    #[tokio::test(start_paused = true)]
    async fn many_rows_wait_while_several_of_ours_write_many() {
        let queues = WriterQueues::default();
        let (ours, theirs) = (queues.at(&hosts("a")), queues.at(&hosts("a")));
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
        let queues = WriterQueues::default();
        let (ours, other) = (queues.at(&hosts("a")), queues.at(&hosts("b")));
        let began = Instant::now();
        let _turns = all_but_one(&ours).await;
        let _last = ours.turn(MANY).await.unwrap();
        assert!(ours.turn(FEW_ROWS).await.is_none());
        assert!(other.turn(MANY).await.is_some());
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_the_server_keeps_waiting_goes_on_without_its_turn() {
        let queue = WriterQueue::default();
        let _turns = all_but_one(&queue).await;
        let began = Instant::now();
        let turn = queue.turn(MANY).await;
        let next = async {
            let next = queue.turn(MANY).await;
            (next.is_some(), began.elapsed())
        };
        let (next, ()) = tokio::join!(next, in_turn(turn, sleep(TURN_MAX * 3)));
        assert_eq!(next, (true, TURN_MAX));
        assert_eq!(began.elapsed(), TURN_MAX * 3);
    }
}
