//! A raw loop for comparison: a lapin consumer that only acknowledges its messages. It has one thread besides
//! lapin's own, and waits for no acknowledgement to be sent.

use futures_util::{FutureExt, StreamExt};
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Consumer};
use miette::{IntoDiagnostic, ensure, miette};

use super::place::{Kind, Place, QUEUE, ready};
use crate::common::machine::{cpu_seconds, monotonic_nanos};
use crate::common::one_thread;
use crate::running::Queue;
use crate::watch::{Watch, Watched};

/// Method of acknowledging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acks {
    /// Each message separately.
    Each,
    /// Half a prefetch together, or fewer if no more messages are available.
    Coalesced,
}

/// Measures the throughput of consuming `messages` messages from a queue of its own.
pub(crate) fn measure(
    place: &Place<'_>,
    kind: Kind,
    prefetch: u16,
    acks: Acks,
    messages: usize,
) -> miette::Result<Watched> {
    place.declare(kind)?;
    place.fill(messages)?;
    one_thread()?.block_on(watched(
        place,
        prefetch,
        messages,
        async |consumer, channel| {
            let mut acker = Acker::new(channel, acks, prefetch);
            work_off(consumer, &mut acker, messages).await
        },
    ))
}

/// Measures `work`, which consumes and acknowledges all `messages` messages of the queue.
pub(super) async fn watched(
    place: &Place<'_>,
    prefetch: u16,
    messages: usize,
    work: impl AsyncFnOnce(&mut Consumer, Channel) -> miette::Result<()>,
) -> miette::Result<Watched> {
    let connection = place.connect().await?;
    let channel = connection.create_channel().await.into_diagnostic()?;
    let prefetched = channel.basic_qos(prefetch, BasicQosOptions::default());
    prefetched.await.into_diagnostic()?;
    let watch = Watch::begin(|| cpu_seconds("self"), || place.broker_seconds())?;
    let mut consumer = consume(&channel).await.into_diagnostic()?;
    work(&mut consumer, channel.clone()).await?;
    let last_nanos = monotonic_nanos();
    // The broker answers this after the acknowledgements before it.
    let left = ready(channel).await.into_diagnostic()?;
    ensure!(left == 0, "{left} messages too many");
    let watched = watch.end(messages, last_nanos)?;
    place.ensure_settled()?;
    let closed = connection.close(200, "done".into()).await;
    closed.into_diagnostic()?;
    Ok(watched)
}

/// Begins to consume the queue.
pub(super) async fn consume(channel: &Channel) -> lapin::Result<Consumer> {
    let options = BasicConsumeOptions::default();
    let arguments = FieldTable::default();
    let (queue, tag) = (QUEUE.into(), "".into());
    channel.basic_consume(queue, tag, options, arguments).await
}

async fn work_off(
    consumer: &mut Consumer,
    acker: &mut Acker,
    messages: usize,
) -> miette::Result<()> {
    for _ in 0..messages {
        let delivery = match consumer.next().now_or_never() {
            Some(at_hand) => at_hand,
            None => {
                acker.flush().await?;
                consumer.next().await
            }
        };
        let delivery = delivery.ok_or_else(|| miette!("the consumer was cancelled"))?;
        acker
            .take_in(delivery.into_diagnostic()?.delivery_tag)
            .await?;
    }
    acker.flush().await
}

/// Pending acknowledgements.
pub(super) struct Acker {
    channel: Channel,
    together: u16,
    waiting: u16,
    last_tag: u64,
}

impl Acker {
    pub(super) fn new(channel: Channel, acks: Acks, prefetch: u16) -> Self {
        Self {
            channel,
            together: match acks {
                Acks::Each => 1,
                Acks::Coalesced => (prefetch / 2).max(1),
            },
            waiting: 0,
            last_tag: 0,
        }
    }

    pub(super) async fn take_in(&mut self, tag: u64) -> miette::Result<()> {
        self.waiting += 1;
        self.last_tag = tag;
        if self.waiting == self.together {
            self.flush().await?;
        }
        Ok(())
    }

    pub(super) async fn flush(&mut self) -> miette::Result<()> {
        if self.waiting == 0 {
            return Ok(());
        }
        let multiple = self.waiting > 1;
        self.waiting = 0;
        let ack = self
            .channel
            .basic_ack(self.last_tag, BasicAckOptions { multiple });
        // The frame is on its way once this has been polled.
        ack.now_or_never().unwrap_or(Ok(())).into_diagnostic()
    }
}
