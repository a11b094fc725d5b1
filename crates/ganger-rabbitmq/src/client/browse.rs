//! One pass through a queue of dead letters. AMQP can't inspect a message without taking it, and a quorum
//! queue counts each return: past its limit, or that of a policy, it drops the message. So no message is
//! returned: one that should stay is published again behind all others as a copy, and is acknowledged when
//! that is confirmed; after a complete pass all are in their order again, with a count of zero. Based on
//! RabbitMQ's observed behaviour and its own code:
//!
//! - Unacknowledged messages do not count towards a queue's length limit, so a copy fits where the message
//!   was.
//! - A quorum queue sends whenever a consumer has room, and takes messages in flight to a cancelled consumer
//!   back at once, to its front. So there is a consumer for each batch, with a prefetch of the batch's size,
//!   which is cancelled when it has received the whole batch.
//! - A channel holds back acknowledgements for a quorum queue while 32 of them are in progress, and loses
//!   those when it closes. So a batch takes as few acknowledgements as possible.
//! - A quorum queue has no exclusive consumers, so a separate queue serves as a lock: two concurrent passes
//!   would each get only a part of the messages.
//!
//! A pass that is killed leaves one batch unacknowledged, which is redelivered, and dead letters of that
//! batch twice; and it leaves the queue rotated. The content of a dead letter is interpreted elsewhere.

use std::time::Duration;

use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions,
    QueueDeleteOptions,
};
use lapin::protocol::AMQPSoftError;
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Consumer};
use tokio::time::{Instant, sleep, timeout};

use crate::broker::ack_writes::{ACKS_AT_ONCE_MAX, PROCESSED_WITHIN, written};
use crate::broker::command_error::CommandError;
use crate::broker::connect::{Broker, close};
use crate::broker::error::{RabbitMqError, error_text, soft};
use crate::broker::ledger::{Ledger, Others};
use crate::broker::lifetime::{Lifetime, lifetime};
use crate::broker::topology;

/// Maximum number of messages held, except for those that can't be put back yet.
const BATCH_MAX: u64 = 128;
/// Maximum number in the first batch, while their size is unknown.
const BATCH_FIRST: u64 = 16;
/// Approximate size of a batch in bytes, by the message sizes so far.
const BATCH_BYTES: u64 = 16 << 20;
/// Memory that a message takes in addition to its body.
const MESSAGE_BYTES: u64 = 2048;
/// Time to wait for another command's pass.
const LOCK_WITHIN: Duration = Duration::from_secs(10);
const LOCK_AGAIN: Duration = Duration::from_millis(50);
/// Silence after which the broker is asked whether any message is left, and the number of times before the
/// pass gives up.
const SILENCE: Duration = Duration::from_secs(1);
const SILENCES_MAX: u32 = 30;
/// Time for returned messages to be in the queue again.
const BACK_WITHIN: Duration = Duration::from_secs(5);
const BACK_AGAIN: Duration = Duration::from_millis(10);

/// A pass in progress.
pub(super) struct Pass<'a> {
    broker: &'a Broker,
    queue: ShortString,
    /// Lock held for as long as the pass lasts; `None` if it may not be created.
    lock: Option<Channel>,
    channel: Channel,
    /// Messages held.
    ledger: Ledger<()>,
    /// Number of batches.
    batches: u64,
    /// Number of messages present at the start that have not arrived yet.
    left: u64,
    /// Number of messages that have arrived.
    taken: u64,
    /// Number of bytes of their bodies.
    bytes: u64,
    /// Number of acknowledgements written.
    acks_written: usize,
}

impl<'a> Pass<'a> {
    /// Begins a pass. Returns `None` if the queue is empty or missing.
    pub(super) async fn begin(
        broker: &'a Broker,
        queue: &str,
    ) -> Result<Option<Self>, RabbitMqError> {
        let name = ShortString::try_new(queue).map_err(|_| RabbitMqError::LongName {
            queue: queue.to_owned(),
        })?;
        let lock = lock(broker, queue).await?;
        let left = topology::count(broker, queue).await?.unwrap_or(0);
        if left == 0 {
            unlock(broker, lock, queue).await;
            return Ok(None);
        }
        if lifetime(broker, &name).await? == Lifetime::AutoDelete {
            unlock(broker, lock, queue).await;
            let queue = queue.to_owned();
            let why = "it is auto-delete and would be deleted with the first batch".to_owned();
            return Err(CommandError::CannotPutBack { queue, why }.into());
        }
        Ok(Some(Self {
            broker,
            queue: name,
            lock,
            channel: broker.channel().await?,
            ledger: Ledger::new(),
            batches: 0,
            left,
            taken: 0,
            bytes: 0,
            acks_written: 0,
        }))
    }

    /// Name of the queue.
    pub(super) fn queue(&self) -> ShortString {
        self.queue.clone()
    }

    /// Takes the next batch of the messages present at the start, at most `most` of them; empty if there are no more.
    pub(super) async fn take(&mut self, most: u64) -> Result<Vec<Delivery>, RabbitMqError> {
        if self.left == 0 {
            return Ok(Vec::new());
        }
        let most = batch(self.left.min(most.max(1)), self.taken, self.bytes);
        let mut consumer = self.consume(most).await?;
        let mut taken = Vec::with_capacity(usize::from(most));
        while taken.len() < usize::from(most)
            && let Some(delivery) = self.next(&mut consumer).await?
        {
            self.take_in(&delivery);
            taken.push(delivery);
        }
        let cancelled = self
            .channel
            .basic_cancel(consumer.tag(), BasicCancelOptions::default());
        self.broker.answer(cancelled).await?;
        Ok(taken)
    }

    async fn consume(&mut self, most: u16) -> Result<Consumer, RabbitMqError> {
        let each = BasicQosOptions { global: false };
        let asked = self.channel.basic_qos(most, each);
        self.broker.answer(asked).await?;
        self.batches += 1;
        let asked = self.channel.basic_consume(
            self.queue.clone(),
            format!("ganger-dead-{}", self.batches).into(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        self.broker.answer(asked).await
    }

    /// Returns the next message sent to a consumer; `None` if others have taken the rest.
    async fn next(&mut self, consumer: &mut Consumer) -> Result<Option<Delivery>, RabbitMqError> {
        for _ in 0..SILENCES_MAX {
            match timeout(SILENCE, consumer.next()).await {
                Ok(Some(Ok(delivery))) => return Ok(Some(delivery)),
                Ok(Some(Err(error))) => return Err(RabbitMqError::lost(&error)),
                Ok(None) => return Err(self.deleted()),
                Err(_) if self.count().await? == 0 => {
                    self.stop();
                    return Ok(None);
                }
                Err(_) => {}
            }
        }
        let (queue, left) = (self.queue.to_string(), self.left);
        Err(CommandError::Stuck { queue, left }.into())
    }

    fn take_in(&mut self, delivery: &Delivery) {
        self.left -= 1;
        self.taken += 1;
        self.bytes += u64::try_from(delivery.data.len()).unwrap_or_default();
        // A channel uses each tag once.
        self.ledger.receive(delivery.delivery_tag, ());
    }

    /// Takes no more messages.
    pub(super) fn stop(&mut self) {
        self.left = 0;
    }

    /// Returns whether a message is still held.
    pub(super) fn holds(&self, tag: u64) -> bool {
        self.ledger.get(tag).is_some()
    }

    /// Removes messages from the queue.
    pub(super) fn ack(&mut self, tags: &[u64]) -> Result<(), RabbitMqError> {
        for tag in tags {
            self.ledger.settle(*tag);
        }
        let mut acks = Vec::new();
        self.ledger.acks(Others::Single, &mut acks);
        self.acks_written += acks.len();
        for ack in acks {
            let options = BasicAckOptions {
                multiple: ack.multiple,
            };
            written(self.channel.basic_ack(ack.tag, options))?;
        }
        Ok(())
    }

    /// Ends the pass. Messages still held, since they could not be put back, are returned in order, and that
    /// is awaited.
    pub(super) async fn end(self) -> Result<(), RabbitMqError> {
        if self.acks_written > ACKS_AT_ONCE_MAX {
            // No answer shows when the queue has processed the last of them.
            sleep(PROCESSED_WITHIN).await;
        }
        close(&self.channel).await;
        let held = u64::try_from(self.ledger.held()).unwrap_or_default();
        let deadline = Instant::now() + BACK_WITHIN;
        let queue = self.queue.as_str();
        while topology::count(self.broker, queue)
            .await?
            .is_some_and(|count| count < held)
        {
            if Instant::now() >= deadline {
                // Another program takes them as they arrive.
                break;
            }
            sleep(BACK_AGAIN).await;
        }
        unlock(self.broker, self.lock, queue).await;
        Ok(())
    }

    /// Number of ready messages.
    async fn count(&self) -> Result<u64, RabbitMqError> {
        let options = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        let asked = self
            .channel
            .queue_declare(self.queue.clone(), options, FieldTable::default());
        let queue = self.broker.answer(asked).await?;
        Ok(u64::from(queue.message_count()))
    }

    fn deleted(&self) -> RabbitMqError {
        RabbitMqError::Queue {
            queue: self.queue.to_string(),
            why: "it was deleted".to_owned(),
        }
    }
}

/// Size of the next batch: as many messages as fit into memory, by the sizes so far.
fn batch(left: u64, taken: u64, bytes: u64) -> u16 {
    let fitting = match bytes.checked_div(taken) {
        None => BATCH_FIRST,
        Some(size) => (BATCH_BYTES / (size + MESSAGE_BYTES)).min(BATCH_MAX),
    };
    // Zero would be no limit.
    let most = fitting.min(left).max(1);
    u16::try_from(most).unwrap_or(u16::MAX)
}

/// Takes the lock of a queue: an exclusive queue, which is deleted with this connection at the latest.
async fn lock(broker: &Broker, queue: &str) -> Result<Option<Channel>, RabbitMqError> {
    let deadline = Instant::now() + LOCK_WITHIN;
    loop {
        let channel = broker.channel().await?;
        let options = QueueDeclareOptions {
            exclusive: true,
            auto_delete: true,
            ..QueueDeclareOptions::default()
        };
        let declared = channel.queue_declare(lock_name(queue), options, FieldTable::default());
        let Err(error) = declared.await else {
            return Ok(Some(channel));
        };
        match soft(&error) {
            None => return Err(RabbitMqError::lost(&error)),
            Some(AMQPSoftError::RESOURCELOCKED) if Instant::now() < deadline => {
                sleep(LOCK_AGAIN).await;
            }
            Some(AMQPSoftError::RESOURCELOCKED) => {
                return Err(RabbitMqError::from(CommandError::Busy {
                    queue: queue.to_owned(),
                    within: LOCK_WITHIN,
                }));
            }
            Some(_) => {
                tracing::debug!(queue, error = error_text(&error), "lock not permitted");
                return Ok(None);
            }
        }
    }
}

/// The name of a queue's lock.
pub(super) fn lock_name(queue: &str) -> ShortString {
    let name = format!("ganger.lock.{queue}");
    let fitting = &name[..name.floor_char_boundary(255)];
    ShortString::try_new(fitting).unwrap_or_default()
}

async fn unlock(broker: &Broker, lock: Option<Channel>, queue: &str) {
    let Some(channel) = lock else {
        return;
    };
    let deleted = channel.queue_delete(lock_name(queue), QueueDeleteOptions::default());
    if let Err(error) = broker.answer(deleted).await {
        tracing::debug!(%error, "lock already gone");
    }
    close(&channel).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_a_bound() {
        let table = [
            ((5, 0, 0), 5),
            ((5000, 0, 0), 16),
            ((5000, 128, 128 * 1000), 128),
            ((5000, 128, 128 << 20), 15),
            ((5, 1, 5 << 30), 1),
        ];
        for ((left, taken, bytes), expected) in table {
            assert_eq!(
                batch(left, taken, bytes),
                expected,
                "{left} {taken} {bytes}"
            );
        }
    }

    #[test]
    fn every_queue_has_a_lock() {
        assert_eq!(lock_name("work.dead").as_str(), "ganger.lock.work.dead");
        let long = "ü".repeat(127);
        let name = lock_name(&long);
        assert!(name.as_str().starts_with("ganger.lock.üü") && name.as_str().len() <= 255);
    }
}
