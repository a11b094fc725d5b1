//! The end of a connection: our last words to the broker, the close in order, and what is left of a
//! connection that is lost.

use std::rc::Rc;
use std::time::Duration;

use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use tokio::time::{Instant, sleep, timeout};

use super::Task;
use super::connect::close;
use super::error::RabbitMqError;
use super::outbox::Subject;
use super::session::{Held, Place, Session};
use super::survived::Fingerprint;

/// So many acknowledgements and returns the channel of a quorum queue passes on at once; others it
/// keeps back, and forgets when it is closed.
pub(super) const WORDS_MAX: usize = 24;
/// The queue has taken in what was written so long ago.
pub(super) const TAKEN_IN: Duration = Duration::from_secs(1);
/// How long the broker may take to say that it has read our last words.
const SETTLE_WITHIN: Duration = Duration::from_secs(5);

impl Session {
    /// Whether acknowledgements wait at the end, so that one word does for all that is still out: a
    /// channel that has had too many keeps back the rest, and nothing tells when it has not.
    pub(super) fn must_save_words(&mut self, task: &Task, now: Instant) -> bool {
        let more_to_come = task.out > 0 || !self.outbox.is_empty();
        if !self.closing || self.words < WORDS_MAX || !more_to_come {
            return false;
        }
        match self.ack_at {
            Some(at) if at <= now => {
                self.words = 0;
                self.ack_at = None;
                false
            }
            Some(_) => true,
            None => {
                self.ack_at = Some(now + TAKEN_IN);
                true
            }
        }
    }

    /// Waits until the broker has read all that we have written, and its queue has had time for it:
    /// it may forget what was written just before a channel is closed. Nothing is taken from the
    /// queue for that: it would be counted when it goes back, and a queue with a single active
    /// consumer refuses it and ends the channel.
    pub(super) async fn last_words(&mut self) -> Result<(), RabbitMqError> {
        if !self.channel.status().connected() {
            // The queue is gone, and with it what there was to acknowledge.
            return Ok(());
        }
        if self.words > WORDS_MAX {
            // Nothing tells when the queue has taken it in.
            sleep(TAKEN_IN).await;
        }
        let options = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        let queue = self.consumers.queue();
        let asked = self
            .channel
            .queue_declare(queue, options, FieldTable::default());
        match timeout(SETTLE_WITHIN, asked).await {
            Ok(Ok(_)) => {}
            // The queue may be gone, and the broker has read everything all the same.
            Ok(Err(error)) if error.is_amqp_soft_error() => {}
            Ok(Err(error)) => return Err(RabbitMqError::lost(&error)),
            Err(_) => tracing::warn!(
                pool = self.pool.name,
                "the broker did not confirm within {SETTLE_WITHIN:?} that it has read the last \
                 acknowledgements; some messages may run twice"
            ),
        }
        Ok(())
    }

    /// Ends the connection in order.
    pub(super) async fn close(self) {
        let Self {
            broker,
            channel,
            consumers,
            outbox,
            events,
            checking,
            ..
        } = self;
        drop((consumers, events, checking));
        close(&channel).await;
        drop(channel);
        outbox.publisher.close().await;
        if let Some(broker) = Rc::into_inner(broker) {
            broker.close().await;
        }
    }

    /// What the messages in hand look like.
    pub(super) fn fingerprints(&self) -> impl Iterator<Item = Fingerprint> {
        let held = self.ledger.iter();
        held.map(|(_, held)| Fingerprint::of(&held.original, &held.body))
    }

    /// The connection is lost. Returns how many messages were settled without the broker knowing.
    pub(super) fn abandon(self) -> u64 {
        let left = |held: &Held| matches!(held.place, Place::Leaving | Place::Aside);
        let leaving = self.ledger.iter().filter(|(_, held)| left(held)).count();
        for job in self.outbox.jobs.into_values().chain(self.outbox.waiting) {
            if let Subject::Emit { confirmed, queue } = job.subject {
                super::confirm(confirmed, &queue, Err("the connection is lost".into()));
            }
        }
        u64::try_from(leaving + self.ledger.settled()).unwrap_or(u64::MAX)
    }
}
