//! Emits of one worker on their way to the broker. While some wait for room, the lane does not read from the
//! worker, so that it waits as well; a worker that is not read from can't be late.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use ganger_queue::delivery::{Outgoing, Publish, PublishError};

/// Number of a message, and the broker's reply to one of its emits.
type Confirmed = (u64, Result<(), PublishError>);

/// Progress of the emits.
#[derive(Debug)]
pub(super) enum Emitted {
    /// An emit is on its way to the broker.
    Sent,
    /// The broker has confirmed an emit of the message with that number, or the confirmation has failed.
    Confirmed(u64, Result<(), PublishError>),
}

/// Emits of a worker.
#[derive(Debug, Default)]
pub(super) struct Emits {
    waiting: VecDeque<(u64, Outgoing)>,
    confirmations: JoinSet<Confirmed>,
    /// Time since which some wait and the worker is not read from.
    blocked_since: Option<Instant>,
}

impl Emits {
    /// Queues an emit.
    pub(super) fn push(&mut self, id: u64, outgoing: Outgoing) {
        self.waiting.push_back((id, outgoing));
    }

    /// Returns whether there are no emits, neither waiting nor on their way.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.confirmations.is_empty()
    }

    /// Returns whether some wait for room.
    pub(super) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends the next emit when there is room for it, or returns the broker's reply to one sent
    /// before. `None` if there are none. Cancel-safe.
    pub(super) async fn step(&mut self, publishes: &mpsc::Sender<Publish>) -> Option<Emitted> {
        tokio::select! {
            biased;
            permit = publishes.reserve(), if !self.waiting.is_empty() => {
                self.publish(permit.ok());
                Some(Emitted::Sent)
            }
            Some(Ok((id, result))) = self.confirmations.join_next() => {
                Some(Emitted::Confirmed(id, result))
            }
            else => None,
        }
    }

    /// Sends the first waiting emit; if the source has ended, all of them fail.
    fn publish(&mut self, permit: Option<mpsc::Permit<'_, Publish>>) {
        let Some((id, message)) = self.waiting.pop_front() else {
            return;
        };
        let queue = message.queue.clone();
        let gone = move || PublishError {
            queue,
            why: "the source has ended".into(),
        };
        let (confirm, confirmed) = oneshot::channel();
        if let Some(permit) = permit {
            permit.send(Publish {
                message,
                confirmed: confirm,
            });
        }
        let said = async move { (id, confirmed.await.unwrap_or_else(|_| Err(gone()))) };
        self.confirmations.spawn_local(said);
    }

    /// Returns whether the worker is not read from.
    pub(super) fn are_blocked(&self) -> bool {
        self.blocked_since.is_some()
    }

    /// Returns the time since which the worker is not read from.
    pub(super) fn blocked_since(&self) -> Option<Instant> {
        self.blocked_since
    }

    /// Moves that time by the same amount as the worker's deadlines.
    pub(super) fn postpone(&mut self, by: Duration) {
        self.blocked_since = self.blocked_since.map(|since| since + by);
    }

    /// Stops the worker's clock while its emits wait, since it is not read from. Returns the time
    /// by which its deadlines move once it is read from again.
    pub(super) fn stood_still(&mut self, now: Instant) -> Option<Duration> {
        match self.blocked_since {
            None if self.are_waiting() => {
                self.blocked_since = Some(now);
                None
            }
            Some(since) if !self.are_waiting() => {
                self.blocked_since = None;
                Some(now - since)
            }
            None | Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::LocalSet;

    fn emit(queue: &str) -> Outgoing {
        Outgoing {
            queue: queue.into(),
            ..Outgoing::default()
        }
    }

    #[tokio::test]
    async fn emits_go_out_in_order_and_are_told_of_once() {
        let (publishes, mut out) = mpsc::channel(1);
        let mut emits = Emits::default();
        let all = async {
            assert!(emits.step(&publishes).await.is_none(), "there are none");
            emits.push(7, emit("a"));
            emits.push(8, emit("b"));
            assert!(matches!(emits.step(&publishes).await, Some(Emitted::Sent)));
            assert!(emits.are_waiting(), "the second, for room");
            let first: Publish = out.recv().await.unwrap();
            assert_eq!(first.message.queue, "a");
            assert!(matches!(emits.step(&publishes).await, Some(Emitted::Sent)));
            assert!(!emits.are_waiting());
            first.confirmed.send(Ok(())).unwrap();
            let said = emits.step(&publishes).await;
            assert!(matches!(said, Some(Emitted::Confirmed(7, Ok(())))));
            drop(out.recv().await);
            let Some(Emitted::Confirmed(8, Err(error))) = emits.step(&publishes).await else {
                panic!("it was not taken");
            };
            assert_eq!(error.queue, "b");
            assert!(emits.step(&publishes).await.is_none());
        };
        LocalSet::new().run_until(all).await;
    }

    #[test]
    fn a_clock_stands_still_while_emits_wait() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut emits = Emits::default();
        assert_eq!(emits.stood_still(now), None);
        emits.push(1, emit("a"));
        assert_eq!(emits.stood_still(now), None);
        assert_eq!(emits.stood_still(now + second), None);
        assert!(emits.are_blocked());
        emits.waiting.clear();
        assert_eq!(emits.stood_still(now + 3 * second), Some(3 * second));
        assert!(!emits.are_blocked());
        assert_eq!(emits.stood_still(now + 4 * second), None);
    }
}
