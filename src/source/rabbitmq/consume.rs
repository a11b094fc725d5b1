//! Consuming: how many messages the broker sends ahead, and reading them. A new number reaches only
//! consumers that are made after it was told, so a change makes a new consumer and then cancels the
//! old one, whose last messages still count. What a message means is known elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream;
use lapin::message::Delivery;
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Consumer};

use super::copy::fitting;
use super::error::{RabbitMqError, words};
use super::value::long;
use crate::config::model::{Argument, RabbitMqOptions};

/// How a queue is consumed.
#[derive(Debug, Clone)]
pub(super) struct Order {
    /// The queue.
    pub(super) queue: ShortString,
    /// The name of the pool, which the consumers' tags begin with.
    pub(super) pool: String,
    /// Arguments of the consumers.
    pub(super) arguments: FieldTable,
}

impl Order {
    /// As a pool has it.
    pub(super) fn new(
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
        })
    }
}

/// Arguments as AMQP has them.
pub(super) fn table(arguments: &BTreeMap<String, Argument>) -> FieldTable {
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

type Change = Pin<Box<dyn Future<Output = lapin::Result<Option<Consumer>>>>>;

/// The consumers of one channel: one that is current, and older ones that run dry.
pub(super) struct Consumers {
    channel: Channel,
    order: Order,
    current: Option<Consumer>,
    cancelled: Vec<Consumer>,
    /// How many messages the current one may have unacknowledged; zero for no consumer.
    prefetch: u16,
    changing: Option<Change>,
    made: u64,
}

impl fmt::Debug for Consumers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumers")
            .field("prefetch", &self.prefetch)
            .field("changing", &self.changing.is_some())
            .finish_non_exhaustive()
    }
}

/// What came of looking at the consumers.
#[derive(Debug)]
pub(super) enum News {
    /// Messages were read.
    Read,
    /// The number of messages that the broker sends ahead has changed, or an old consumer has run
    /// dry.
    Changed,
    /// The broker has cancelled the current one: its queue is gone.
    Cancelled,
}

impl Consumers {
    /// None yet.
    pub(super) fn new(channel: Channel, order: Order) -> Self {
        Self {
            channel,
            order,
            current: None,
            cancelled: Vec::new(),
            prefetch: 0,
            changing: None,
            made: 0,
        }
    }

    /// How many messages the broker may send ahead, or will be told that it may.
    pub(super) fn prefetch(&self) -> u16 {
        self.prefetch
    }

    /// The queue that is consumed.
    pub(super) fn queue(&self) -> ShortString {
        self.order.queue.clone()
    }

    /// Whether a change is under way.
    pub(super) fn is_changing(&self) -> bool {
        self.changing.is_some()
    }

    /// Whether there is a consumer that was not cancelled.
    pub(super) fn has_current(&self) -> bool {
        self.current.is_some()
    }

    /// Whether messages may come yet.
    pub(super) fn is_busy(&self) -> bool {
        self.changing.is_some() || self.current.is_some() || !self.cancelled.is_empty()
    }

    /// Begins to change how many messages the broker sends ahead. Zero ends the consuming. Not to be
    /// called while a change is under way.
    pub(super) fn change(&mut self, prefetch: u16) {
        self.made += 1;
        let tag = format!("{}-{}", self.order.pool, self.made);
        let old = self.current.as_ref().map(Consumer::tag);
        let change = change(self.channel.clone(), self.order.clone(), tag, prefetch, old);
        self.changing = Some(Box::pin(change));
        self.prefetch = prefetch;
    }

    /// Reads what has come, at most `most` messages.
    ///
    /// # Errors
    /// If the channel has ended.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
        read: &mut Vec<Delivery>,
    ) -> Poll<lapin::Result<News>> {
        if let Some(news) = self.poll_change(cx)? {
            return Poll::Ready(Ok(news));
        }
        let before = self.cancelled.len();
        let mut index = 0;
        while let Some(consumer) = self.cancelled.get_mut(index) {
            if drain(consumer, cx, most, read)? {
                self.cancelled.remove(index);
            } else {
                index += 1;
            }
        }
        if let Some(consumer) = &mut self.current
            && drain(consumer, cx, most, read)?
        {
            self.current = None;
            // If we have cancelled it ourselves, the change under way says so.
            if self.changing.is_none() {
                self.prefetch = 0;
                return Poll::Ready(Ok(News::Cancelled));
            }
        }
        if !read.is_empty() {
            Poll::Ready(Ok(News::Read))
        } else if self.cancelled.len() < before {
            Poll::Ready(Ok(News::Changed))
        } else {
            Poll::Pending
        }
    }

    fn poll_change(&mut self, cx: &mut Context<'_>) -> lapin::Result<Option<News>> {
        let Some(changing) = &mut self.changing else {
            return Ok(None);
        };
        let Poll::Ready(changed) = changing.as_mut().poll(cx) else {
            return Ok(None);
        };
        self.changing = None;
        let new = changed?;
        let old = std::mem::replace(&mut self.current, new);
        self.cancelled.extend(old);
        Ok(Some(News::Changed))
    }
}

/// Reads what one consumer has. Returns whether it has ended.
fn drain(
    consumer: &mut Consumer,
    cx: &mut Context<'_>,
    most: usize,
    read: &mut Vec<Delivery>,
) -> lapin::Result<bool> {
    while read.len() < most {
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

/// Makes a consumer and cancels the one before.
async fn change(
    channel: Channel,
    order: Order,
    tag: String,
    prefetch: u16,
    old: Option<ShortString>,
) -> lapin::Result<Option<Consumer>> {
    let mut new = None;
    if prefetch > 0 {
        let each = BasicQosOptions { global: false };
        channel.basic_qos(prefetch, each).await?;
        let consumer = channel.basic_consume(
            order.queue,
            ShortString::try_new(tag).unwrap_or_default(),
            BasicConsumeOptions::default(),
            order.arguments,
        );
        new = Some(consumer.await?);
    }
    if let Some(old) = old {
        let cancelled = channel.basic_cancel(old, BasicCancelOptions::default());
        if let Err(error) = cancelled.await {
            tracing::debug!(error = words(&error), "the old consumer was gone");
        }
    }
    Ok(new)
}
