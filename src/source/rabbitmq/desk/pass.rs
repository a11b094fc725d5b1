//! One pass through a queue of dead letters, which leaves the queue as it was but for what is
//! acknowledged. AMQP can't look at a message without taking it, so a pass takes all that is there
//! and gives it back by closing its channel. By what we have seen of RabbitMQ:
//!
//! - Only a channel that closes gives back in order, on classic and on quorum queues; a `nack` of
//!   many does not.
//! - A quorum queue puts what comes back in front of what was never handed out, but behind what
//!   came back before. So a pass that ended half-way would turn the queue round.
//! - A quorum queue knows no exclusive consumers, so a queue of our own serves as a lock: two
//!   passes at once would each see a part.
//!
//! What a letter says is known elsewhere.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::SelectAll;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::protocol::AMQPSoftError;
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Consumer};
use tokio::time::{Instant, sleep, timeout};

use super::super::connect::Broker;
use super::super::error::{RabbitMqError, soft, words};
use super::super::topology;
use super::error::DeskError;

/// What more consumers than these hold is given back in no order (32 is where Erlang's maps stop
/// being sorted).
const CONSUMERS_MAX: u64 = 30;
/// So many messages the first consumer is sent ahead, with nothing known of their size.
const AHEAD_FIRST: u64 = 1000;
/// The library keeps what is sent ahead, however much that is: about so many bytes.
const AHEAD_BYTES: u64 = 16 << 20;
/// What a message takes in memory beside its body.
const MESSAGE_BYTES: u64 = 2048;
/// How long another command's pass is waited for.
const LOCK_WITHIN: Duration = Duration::from_secs(10);
const LOCK_AGAIN: Duration = Duration::from_millis(50);
/// After such a silence we ask whether there is anything left, and so often before we give up.
const SILENCE: Duration = Duration::from_secs(1);
const SILENCES_MAX: u32 = 30;
/// How long what is given back may take to be there again.
const BACK_WITHIN: Duration = Duration::from_secs(5);
const BACK_AGAIN: Duration = Duration::from_millis(10);

/// A pass that has begun.
pub(super) struct Pass<'a> {
    broker: &'a Broker,
    queue: ShortString,
    /// Held for as long as the pass lasts; none where we may not make it.
    lock: Option<Channel>,
    channel: Channel,
    consumers: SelectAll<Consumer>,
    /// How many there were at the start.
    total: u64,
    /// How many of those have not come yet.
    left: u64,
    /// How many bytes the bodies of the others had.
    bytes: u64,
    /// How many have come and were not acknowledged.
    held: u64,
    /// How many more may come before another consumer is needed.
    room: u64,
}

impl<'a> Pass<'a> {
    /// Begins. None if there is nothing in the queue, or no queue.
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
            unlock(lock, queue).await;
            return Ok(None);
        }
        Ok(Some(Self {
            broker,
            queue: name,
            lock,
            channel: broker.channel().await?,
            consumers: SelectAll::new(),
            total: left,
            left,
            bytes: 0,
            held: 0,
            room: 0,
        }))
    }

    /// The next of those that were there at the start.
    pub(super) async fn next(&mut self) -> Result<Option<Delivery>, RabbitMqError> {
        let mut silences = 0;
        while self.left > 0 {
            if self.room == 0 {
                self.consume().await?;
            }
            match timeout(SILENCE, self.consumers.next()).await {
                Ok(Some(Ok(delivery))) => {
                    self.left -= 1;
                    self.held += 1;
                    self.room = self.room.saturating_sub(1);
                    self.bytes += u64::try_from(delivery.data.len()).unwrap_or_default();
                    return Ok(Some(delivery));
                }
                Ok(Some(Err(error))) => return Err(RabbitMqError::lost(&error)),
                Ok(None) => return Err(self.deleted()),
                // Someone else may have taken the rest.
                Err(_) if self.count().await? == 0 => self.left = 0,
                Err(_) if silences == SILENCES_MAX => return Err(self.stuck()),
                Err(_) => silences += 1,
            }
        }
        Ok(None)
    }

    async fn consume(&mut self) -> Result<(), RabbitMqError> {
        let prefetch = prefetch(self.total, self.total - self.left, self.bytes);
        let asked = self.channel.basic_qos(prefetch, BasicQosOptions::default());
        asked.await.map_err(|error| RabbitMqError::lost(&error))?;
        // What the consumers hold comes back in the order of their tags.
        let tag = format!("ganger-dead-{:05}", self.consumers.len());
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        let queue = self.queue.clone();
        let consumer = self
            .channel
            .basic_consume(queue, tag.into(), options, arguments);
        let consumer = consumer
            .await
            .map_err(|error| RabbitMqError::lost(&error))?;
        self.consumers.push(consumer);
        self.room += u64::from(prefetch);
        Ok(())
    }

    /// Takes a message out of the queue.
    pub(super) async fn ack(&mut self, tag: u64) -> Result<(), RabbitMqError> {
        let acked = self
            .channel
            .basic_ack(tag, BasicAckOptions::default())
            .await;
        acked.map_err(|error| RabbitMqError::lost(&error))?;
        self.held = self.held.saturating_sub(1);
        self.room += 1;
        Ok(())
    }

    /// Gives back what was not acknowledged, and waits until it is there again.
    pub(super) async fn end(self) -> Result<(), RabbitMqError> {
        // Whatever is answered after the acknowledgements shows that they have arrived.
        self.count().await?;
        close(&self.channel).await;
        let deadline = Instant::now() + BACK_WITHIN;
        let queue = self.queue.as_str();
        while topology::count(self.broker, queue)
            .await?
            .is_some_and(|count| count < self.held)
        {
            if Instant::now() >= deadline {
                // Someone else takes them as they come.
                break;
            }
            sleep(BACK_AGAIN).await;
        }
        unlock(self.lock, queue).await;
        Ok(())
    }

    /// How many messages are in no one's hands.
    async fn count(&self) -> Result<u64, RabbitMqError> {
        let options = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        let asked = self
            .channel
            .queue_declare(self.queue.clone(), options, FieldTable::default());
        let queue = asked.await.map_err(|error| RabbitMqError::lost(&error))?;
        Ok(u64::from(queue.message_count()))
    }

    fn deleted(&self) -> RabbitMqError {
        RabbitMqError::Queue {
            queue: self.queue.to_string(),
            why: "it was deleted".to_owned(),
        }
    }

    fn stuck(&self) -> RabbitMqError {
        let (queue, left) = (self.queue.to_string(), self.left);
        DeskError::Stuck { queue, left }.into()
    }
}

/// How many messages to have sent ahead: as many as memory has room for by what has come so far, but
/// enough that a few consumers do for all.
fn prefetch(total: u64, come: u64, bytes: u64) -> u16 {
    let fitting = match come {
        0 => AHEAD_FIRST,
        come => AHEAD_BYTES / (bytes / come + MESSAGE_BYTES),
    };
    let enough = total.div_ceil(CONSUMERS_MAX);
    u16::try_from(fitting.max(enough).max(1)).unwrap_or(u16::MAX)
}

/// Takes the lock of a queue: an exclusive queue, which ends with our connection at the latest.
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
                return Err(RabbitMqError::from(DeskError::Busy {
                    queue: queue.to_owned(),
                    within: LOCK_WITHIN,
                }));
            }
            Some(_) => {
                tracing::debug!(queue, error = words(&error), "no lock may be made");
                return Ok(None);
            }
        }
    }
}

fn lock_name(queue: &str) -> ShortString {
    let name = format!("ganger.lock.{queue}");
    let fitting = &name[..name.floor_char_boundary(255)];
    ShortString::try_new(fitting).unwrap_or_default()
}

async fn unlock(lock: Option<Channel>, queue: &str) {
    let Some(channel) = lock else {
        return;
    };
    let deleted = channel.queue_delete(lock_name(queue), QueueDeleteOptions::default());
    if let Err(error) = deleted.await {
        tracing::debug!(error = words(&error), "the lock was gone");
    }
    close(&channel).await;
}

async fn close(channel: &Channel) {
    if let Err(error) = channel.close(200, "OK".into()).await {
        tracing::debug!(error = words(&error), "the channel was gone");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_ahead_has_a_bound() {
        let table = [
            ((5, 0, 0), 1000),
            ((60_000, 0, 0), 2000),
            ((60_000, 1000, 1000), 8188),
            ((60_000, 1000, 1000 << 20), 2000),
            ((10, 5, 5 << 30), 1),
            ((10_000_000, 0, 0), 65_535),
        ];
        for ((total, come, bytes), expected) in table {
            assert_eq!(
                prefetch(total, come, bytes),
                expected,
                "{total} {come} {bytes}"
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
