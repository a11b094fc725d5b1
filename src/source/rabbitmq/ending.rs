//! The end of a connection: our last words to the broker, the close in order, and what is left of a
//! connection that is lost.

use std::rc::Rc;
use std::time::Duration;

use lapin::options::{BasicGetOptions, BasicNackOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use tokio::time::timeout;

use super::connect::close;
use super::error::RabbitMqError;
use super::outbox::Subject;
use super::session::{Held, Place, Session, written};
use super::survived::Fingerprint;

/// So many acknowledgements the channel of a quorum queue passes on at once; others it keeps back.
const ACKS_APPLIED_LATER: usize = 24;
/// How often the log is waited for: what was kept back goes out when what went before is applied.
const GETS: usize = 3;
/// How long the broker may take to say that it has read our last words.
const SETTLE_WITHIN: Duration = Duration::from_secs(5);

impl Session {
    /// Waits until the broker has read all that we have written: it may forget what was written
    /// just before a channel is closed.
    pub(super) async fn last_words(&mut self) -> Result<(), RabbitMqError> {
        let options = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        let queue = self.consumers.queue();
        if self.acks_since_cancel > ACKS_APPLIED_LATER {
            self.await_the_log().await?;
        }
        if !self.channel.status().connected() {
            // The queue is gone, and with it what there was to acknowledge.
            return Ok(());
        }
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

    /// The channel of a quorum queue keeps back what its log has not taken in yet, beyond so many
    /// acknowledgements, and forgets it when it is closed. A `get` waits for the log; what it brings
    /// goes back.
    async fn await_the_log(&mut self) -> Result<(), RabbitMqError> {
        for _ in 0..GETS {
            let got = self
                .channel
                .basic_get(self.consumers.queue(), BasicGetOptions::default());
            match timeout(SETTLE_WITHIN, got).await {
                Ok(Ok(Some(message))) => {
                    let requeue = BasicNackOptions {
                        multiple: false,
                        requeue: true,
                    };
                    let tag = message.delivery.delivery_tag;
                    written(self.channel.basic_nack(tag, requeue))?;
                }
                Ok(Ok(None)) | Err(_) => {}
                Ok(Err(error)) if error.is_amqp_soft_error() => return Ok(()),
                Ok(Err(error)) => return Err(RabbitMqError::lost(&error)),
            }
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
