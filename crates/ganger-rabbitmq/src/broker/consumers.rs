//! Consuming: how many messages the broker sends ahead, and reading them. Of a consumer that was
//! cancelled the last messages still count. What a message means is known elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_util::Stream;
use lapin::message::Delivery;
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Consumer};

use super::connect::Broker;
use super::error::{RabbitMqError, words};
use super::field_table::long;
use super::republish::fitting;
use crate::rules::demand::Flow;
use ganger_config::model::{Argument, RabbitMqOptions};

/// The argument of a queue by which one consumer gets all messages until it ends.
const SINGLE_ACTIVE: &str = "x-single-active-consumer";

/// How a queue is consumed.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// The queue.
    pub(crate) queue: ShortString,
    /// The name of the pool, which the consumers' tags begin with.
    pub(crate) pool: String,
    /// Arguments of the consumers.
    pub(crate) arguments: FieldTable,
    /// The queue is said to feed one consumer only.
    pub(crate) single: bool,
    /// The queue is lost with its last consumer.
    pub(crate) stays: bool,
}

impl Order {
    /// As a pool has it.
    pub(crate) fn new(
        queue: &str,
        pool: &str,
        options: &RabbitMqOptions,
    ) -> Result<Self, RabbitMqError> {
        let mut arguments = table(&options.consumer_arguments);
        if let Some(priority) = options.consumer_priority {
            arguments.insert("x-priority".into(), AMQPValue::LongInt(priority));
        }
        Ok(Self {
            queue: fitting("name", queue).map_err(|_| RabbitMqError::LongName {
                queue: queue.to_owned(),
            })?,
            pool: pool.to_owned(),
            arguments,
            single: options.queue.arguments.get(SINGLE_ACTIVE) == Some(&Argument::Boolean(true)),
            stays: false,
        })
    }
}

/// Arguments as AMQP has them.
pub(crate) fn table(arguments: &BTreeMap<String, Argument>) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in arguments {
        let value = match value {
            Argument::Text(text) => long(text),
            Argument::Integer(integer) => AMQPValue::LongLongInt(*integer),
            Argument::Boolean(yes) => AMQPValue::Boolean(*yes),
        };
        if let Ok(name) = ShortString::try_new(name.as_str()) {
            table.insert(name, value);
        }
    }
    table
}

type Change = Pin<Box<dyn Future<Output = Result<Option<Consumer>, RabbitMqError>>>>;

/// The consumers of one channel: a steady one, and while the pool is fast an extra one. Only the
/// extra one comes and goes. The steady one was there before it, so that a queue with a single active
/// consumer feeds that one, and nothing that happens to the other hands the queue to another daemon.
pub(crate) struct Consumers {
    broker: Rc<Broker>,
    channel: Channel,
    order: Order,
    /// In the order in which they were made.
    taps: Vec<Tap>,
    changing: Option<(Change, u16)>,
    /// The broker has cancelled one: the queue is gone.
    cut_off: bool,
    made: usize,
}

/// One consumer.
struct Tap {
    consumer: Consumer,
    /// How many messages it may have unacknowledged.
    prefetch: u16,
    /// Cancelled by us: it runs dry.
    leaving: bool,
}

impl fmt::Debug for Consumers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumers")
            .field("taps", &self.taps.len())
            .finish_non_exhaustive()
    }
}

/// What came of looking at the consumers.
#[derive(Debug)]
pub(crate) enum ConsumerNews {
    /// Messages were read.
    Read,
    /// A change has come to its end.
    Changed,
    /// The broker has cancelled the last of them: the queue is gone.
    Cancelled,
}

impl Consumers {
    /// None yet.
    pub(crate) fn new(broker: Rc<Broker>, channel: Channel, order: Order) -> Self {
        Self {
            broker,
            channel,
            order,
            taps: Vec::new(),
            changing: None,
            cut_off: false,
            made: 0,
        }
    }

    /// How many messages may be unacknowledged.
    pub(crate) fn prefetch(&self) -> u16 {
        let Flow { steady, extra, .. } = self.flow(false);
        steady.saturating_add(extra)
    }

    /// What there is; `full` is whether it was used up since the last change.
    pub(crate) fn flow(&self, full: bool) -> Flow {
        let live = self.taps.iter().filter(|tap| !tap.leaving);
        let mut each = live.map(|tap| tap.prefetch);
        Flow {
            steady: each.next().unwrap_or(0),
            extra: each.next().unwrap_or(0),
            single: self.order.single,
            stays: self.order.stays,
            full,
        }
    }

    /// Whether the queue is lost with the last of them.
    pub(crate) fn stay(&mut self, stays: bool) {
        self.order.stays = stays;
    }

    /// The queue that is consumed.
    pub(crate) fn queue(&self) -> ShortString {
        self.order.queue.clone()
    }

    /// Whether a change is under way, or what a cancelled one was sent still comes.
    pub(crate) fn is_changing(&self) -> bool {
        self.changing.is_some() || self.taps.iter().any(|tap| tap.leaving)
    }

    /// Whether no message can come any more.
    pub(crate) fn is_dry(&self) -> bool {
        self.changing.is_none() && self.taps.is_empty()
    }

    /// Begins to make one more. Not to be called while a change is under way.
    pub(crate) fn add(&mut self, prefetch: u16) {
        self.made += 1;
        let tag = format!("{}-{}", self.order.pool, self.made);
        let (broker, channel) = (Rc::clone(&self.broker), self.channel.clone());
        let added = add(broker, channel, self.order.clone(), tag, prefetch);
        self.changing = Some((Box::pin(added), prefetch));
    }

    /// Begins to cancel the newest. What it has been sent comes yet. Not to be called while a change
    /// is under way.
    pub(crate) fn cancel_newest(&mut self) {
        self.cancel_from(self.taps.len().saturating_sub(1));
    }

    /// Likewise all.
    pub(crate) fn cancel_all(&mut self) {
        self.cancel_from(0);
    }

    fn cancel_from(&mut self, first: usize) {
        let tags = self.taps.iter_mut().skip(first).map(|tap| {
            tap.leaving = true;
            tap.consumer.tag()
        });
        let (broker, channel) = (Rc::clone(&self.broker), self.channel.clone());
        let cancelled = cancel(broker, channel, tags.collect());
        self.changing = Some((Box::pin(cancelled), 0));
    }

    /// Reads what has come, at most `most` messages of each.
    ///
    /// # Errors
    /// If the channel has ended.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
        read: &mut Vec<Delivery>,
    ) -> Poll<Result<ConsumerNews, RabbitMqError>> {
        if let Some(news) = self.poll_change(cx)? {
            return Poll::Ready(Ok(news));
        }
        let mut has_ended = false;
        for index in (0..self.taps.len()).rev() {
            let Tap {
                consumer, leaving, ..
            } = &mut self.taps[index];
            let is_dry =
                drain(consumer, cx, most, read).map_err(|error| RabbitMqError::lost(&error))?;
            if is_dry {
                self.cut_off |= !*leaving;
                self.taps.remove(index);
                has_ended = true;
            }
        }
        if self.cut_off && self.is_dry() {
            self.cut_off = false;
            Poll::Ready(Ok(ConsumerNews::Cancelled))
        } else if !read.is_empty() {
            Poll::Ready(Ok(ConsumerNews::Read))
        } else if has_ended {
            Poll::Ready(Ok(ConsumerNews::Changed))
        } else {
            Poll::Pending
        }
    }

    fn poll_change(&mut self, cx: &mut Context<'_>) -> Result<Option<ConsumerNews>, RabbitMqError> {
        let Some((changing, prefetch)) = &mut self.changing else {
            return Ok(None);
        };
        let Poll::Ready(changed) = changing.as_mut().poll(cx) else {
            return Ok(None);
        };
        let prefetch = *prefetch;
        self.changing = None;
        if let Some(consumer) = changed? {
            self.taps.push(Tap {
                consumer,
                prefetch,
                leaving: false,
            });
        }
        Ok(Some(ConsumerNews::Changed))
    }
}

/// Reads what one consumer has. Returns whether it has ended.
fn drain(
    consumer: &mut Consumer,
    cx: &mut Context<'_>,
    most: usize,
    read: &mut Vec<Delivery>,
) -> lapin::Result<bool> {
    for _ in 0..most {
        match Pin::new(&mut *consumer).poll_next(cx) {
            Poll::Ready(Some(Ok(delivery))) => read.push(delivery),
            Poll::Ready(Some(Err(error))) => return Err(error),
            Poll::Ready(None) => return Ok(true),
            Poll::Pending => return Ok(false),
        }
    }
    // Whoever reads no further must ask to be woken.
    cx.waker().wake_by_ref();
    Ok(false)
}

/// Makes a consumer. A prefetch reaches only consumers that are made after it was told.
async fn add(
    broker: Rc<Broker>,
    channel: Channel,
    order: Order,
    tag: String,
    prefetch: u16,
) -> Result<Option<Consumer>, RabbitMqError> {
    let each = BasicQosOptions { global: false };
    broker.answer(channel.basic_qos(prefetch, each)).await?;
    let consumer = channel.basic_consume(
        order.queue,
        ShortString::try_new(tag).unwrap_or_default(),
        BasicConsumeOptions::default(),
        order.arguments,
    );
    Ok(Some(broker.answer(consumer).await?))
}

/// Cancels consumers.
async fn cancel(
    broker: Rc<Broker>,
    channel: Channel,
    tags: Vec<ShortString>,
) -> Result<Option<Consumer>, RabbitMqError> {
    for tag in tags {
        let cancelled = channel.basic_cancel(tag, BasicCancelOptions::default());
        if let Err(error) = broker.ask(cancelled).await? {
            tracing::debug!(error = words(&error), "the consumer was gone");
        }
    }
    Ok(None)
}
