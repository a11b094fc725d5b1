//! One pass through a queue of dead letters, which leaves the queue as it was but for what is
//! acknowledged. AMQP can't look at a message without taking it, so a pass takes all that was there
//! when it began and gives it back by closing its channel. By what RabbitMQ was seen to do, and its
//! own code says:
//!
//! - Only a channel that closes gives back in order, on classic and on quorum queues; a `nack` of
//!   many does not.
//! - A quorum queue puts what comes back in front of what was never handed out, but behind what
//!   came back before. So a pass that ended half-way would turn the queue round.
//! - A quorum queue knows no exclusive consumers, so a queue of our own serves as a lock: two
//!   passes at once would each see a part.
//! - A quorum queue sends on whenever a consumer has room, and takes back at once, and to its front,
//!   what is on its way to one that is cancelled. So each consumer is sent no more than we want, is
//!   cancelled when it has all of it, and only then are its messages acknowledged.
//! - A channel keeps back acknowledgements for a quorum queue while 32 of them are under way, and
//!   forgets those when it closes. `get` waits for the queue: after a few nothing is kept back.
//!
//! What a letter says is known elsewhere.

use std::time::Duration;

use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicGetOptions, BasicQosOptions,
    QueueDeclareOptions, QueueDeleteOptions,
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
/// After so many questions the queue has all acknowledgements: they show that those under way have
/// arrived, send those that were kept back, and show that these have arrived, with one to spare.
const FLUSH_ROUNDS: usize = 3;
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
    /// The one that is sent messages; none before the first.
    current: Option<Current>,
    /// How many have been made.
    consumers: u64,
    /// How many there were at the start.
    total: u64,
    /// How many of those have not come yet.
    left: u64,
    /// How many bytes the bodies of the others had.
    bytes: u64,
    /// How many have come and were not acknowledged.
    held: u64,
    /// Some were.
    acked: bool,
}

/// A consumer that is sent messages.
struct Current {
    consumer: Consumer,
    /// How many more will come.
    room: u64,
    /// The tag of its first message; none before that.
    first: Option<u64>,
    /// What is to be acknowledged when it has been cancelled.
    done: Vec<u64>,
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
            current: None,
            consumers: 0,
            total: left,
            left,
            bytes: 0,
            held: 0,
            acked: false,
        }))
    }

    /// The next of those that were there at the start.
    pub(super) async fn next(&mut self) -> Result<Option<Delivery>, RabbitMqError> {
        let mut silences = 0;
        while self.left > 0 {
            let consumer = &mut self.current().await?.consumer;
            match timeout(SILENCE, consumer.next()).await {
                Ok(Some(Ok(delivery))) => {
                    self.take_in(&delivery);
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

    fn take_in(&mut self, delivery: &Delivery) {
        self.left -= 1;
        self.held += 1;
        self.bytes += u64::try_from(delivery.data.len()).unwrap_or_default();
        if let Some(current) = &mut self.current {
            current.room = current.room.saturating_sub(1);
            current.first.get_or_insert(delivery.delivery_tag);
        }
    }

    /// The consumer that is sent the next message.
    async fn current(&mut self) -> Result<&mut Current, RabbitMqError> {
        if self
            .current
            .as_ref()
            .is_none_or(|current| current.room == 0)
        {
            self.finish_current().await?;
        }
        let current = match self.current.take() {
            Some(current) => current,
            None => self.consume().await?,
        };
        Ok(self.current.insert(current))
    }

    async fn consume(&mut self) -> Result<Current, RabbitMqError> {
        let prefetch = prefetch(self.total, self.left, self.bytes);
        let asked = self.channel.basic_qos(prefetch, BasicQosOptions::default());
        asked.await.map_err(|error| RabbitMqError::lost(&error))?;
        // What consumers hold comes back in the order of their tags, and what was got by digits.
        let tag = format!("!ganger-dead-{:06}", self.consumers);
        self.consumers += 1;
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        let queue = self.queue.clone();
        let asked = self
            .channel
            .basic_consume(queue, tag.into(), options, arguments);
        Ok(Current {
            consumer: asked.await.map_err(|error| RabbitMqError::lost(&error))?,
            room: u64::from(prefetch),
            first: None,
            done: Vec::new(),
        })
    }

    /// Cancels the consumer, if nothing is on its way to it any more, and acknowledges what is to
    /// be.
    async fn finish_current(&mut self) -> Result<(), RabbitMqError> {
        let Some(current) = self.current.take() else {
            return Ok(());
        };
        if current.room == 0 {
            let (tag, options) = (current.consumer.tag(), BasicCancelOptions::default());
            let cancelled = self.channel.basic_cancel(tag, options).await;
            cancelled.map_err(|error| RabbitMqError::lost(&error))?;
        }
        for tag in current.done {
            self.ack(tag).await?;
        }
        Ok(())
    }

    /// Takes a message out of the queue, at the end of the pass at the latest.
    pub(super) async fn ack(&mut self, tag: u64) -> Result<(), RabbitMqError> {
        if let Some(current) = &mut self.current
            && current.first.is_some_and(|first| first <= tag)
        {
            current.done.push(tag);
            return Ok(());
        }
        let acked = self
            .channel
            .basic_ack(tag, BasicAckOptions::default())
            .await;
        acked.map_err(|error| RabbitMqError::lost(&error))?;
        self.held = self.held.saturating_sub(1);
        self.acked = true;
        Ok(())
    }

    /// Gives back what was not acknowledged, and waits until it is there again.
    pub(super) async fn end(mut self) -> Result<(), RabbitMqError> {
        let flushed = self.flush().await;
        close(&self.channel).await;
        flushed?;
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

    /// Sees to it that the queue has all acknowledgements.
    async fn flush(&mut self) -> Result<(), RabbitMqError> {
        self.finish_current().await?;
        let rounds = if self.acked { FLUSH_ROUNDS } else { 0 };
        for _ in 0..rounds {
            let asked = self
                .channel
                .basic_get(self.queue.clone(), BasicGetOptions::default());
            let got = asked.await.map_err(|error| RabbitMqError::lost(&error))?;
            // One that has come since the start: it goes back behind the others.
            self.held += u64::from(got.is_some());
        }
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

/// How many of those that are left to have sent ahead: as many as memory has room for by what has
/// come so far, but enough that a few consumers do for all.
fn prefetch(total: u64, left: u64, bytes: u64) -> u16 {
    let fitting = match total - left {
        0 => AHEAD_FIRST,
        come => AHEAD_BYTES / (bytes / come + MESSAGE_BYTES),
    };
    let enough = total.div_ceil(CONSUMERS_MAX);
    // Zero would be no limit.
    u16::try_from(fitting.max(enough).min(left).max(1)).unwrap_or(u16::MAX)
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
            ((5, 5, 0), 5),
            ((5000, 5000, 0), 1000),
            ((60_000, 60_000, 0), 2000),
            ((60_000, 59_000, 1000), 8188),
            ((60_000, 5, 1000), 5),
            ((60_000, 59_000, 1000 << 20), 2000),
            ((10, 5, 5 << 30), 1),
            ((10_000_000, 10_000_000, 0), 65_535),
        ];
        for ((total, left, bytes), expected) in table {
            assert_eq!(
                prefetch(total, left, bytes),
                expected,
                "{total} {left} {bytes}"
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
